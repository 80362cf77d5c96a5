# SPDX-License-Identifier: Apache-2.0
"""Queries for the servers of a host, and for guests that must not be there."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import datetime
import enum
import json
from typing import Any
from typing import NamedTuple

from oslo_log import log
from oslo_serialization import jsonutils
import sqlalchemy as sa

from cellsched.db.cell import instance_history
from cellsched.db.cell import models
from cellsched.db.cell import server_moves
from cellsched.db.cell import services
from cellsched.db.cell import states
from cellsched.db import statements
from cellsched import objects

LOG = log.getLogger(__name__)

_TABLE = models.instances
_EXTRA = models.instance_extra

_FIELDS = tuple(name for name in objects.Instance.fields if name in _TABLE.c)

_HERE = sa.select(_TABLE.c.uuid).where(
    _TABLE.c.host == sa.bindparam('on'), _TABLE.c.deleted == 0)

_BUILDING = _HERE.where(
    _TABLE.c.vm_state == states.SPAWNING.vm_state,
    _TABLE.c.task_state == states.SPAWNING.task_state)

_DELETING = _HERE.where(_TABLE.c.task_state == 'deleting')

_MOVES = models.migrations

_WITH_MOVES = (
    sa.select(_TABLE.c.uuid, _TABLE.c.display_name, _TABLE.c.vm_state,
              _TABLE.c.task_state, _MOVES.c.status.label('move'),
              _MOVES.c.migration_type.label('kind'))
    .select_from(_TABLE.outerjoin(_MOVES, sa.and_(
        _MOVES.c.instance_uuid == _TABLE.c.uuid,
        _MOVES.c.status.in_(server_moves.LIVE))))
    .where(_TABLE.c.host == sa.bindparam('on'), _TABLE.c.deleted == 0)
    .order_by(_TABLE.c.id))

_ONE = (
    sa.select(_TABLE, _EXTRA.c.flavor)
    .select_from(_TABLE.outerjoin(
        _EXTRA, _EXTRA.c.instance_uuid == _TABLE.c.uuid))
    .where(_TABLE.c.uuid == sa.bindparam('of')))

_MANY = (
    sa.select(_TABLE.c.uuid, _TABLE.c.host, _TABLE.c.node, _TABLE.c.deleted,
              _TABLE.c.updated_at, _TABLE.c.vm_state, _TABLE.c.task_state)
    .where(statements.in_list(_TABLE.c.uuid)))

_RESTING = sa.select(_TABLE.c.uuid).where(
    _TABLE.c.host == sa.bindparam('on'), _TABLE.c.deleted == 0,
    _TABLE.c.vm_state == states.ACTIVE.vm_state,
    _TABLE.c.task_state.is_(None))

_MOVES_OF = (
    sa.select(_MOVES.c.instance_uuid, _MOVES.c.migration_type,
              _MOVES.c.status, _MOVES.c.source_compute,
              _MOVES.c.source_host_id, _MOVES.c.dest_compute,
              _MOVES.c.created_at, _MOVES.c.updated_at)
    .where(statements.in_list(_MOVES.c.instance_uuid)))

#: Kinds of moves after which the source host has no guest.
_LEAVING = (server_moves.EVACUATION, server_moves.MIGRATION,
            server_moves.SHELVE)

_SECOND = datetime.timedelta(seconds=1)

#: The most guests of each kind that a host reports.
REPORTED_MAX = 1000


def count(
    connection: sa.Connection, host: str, node: str | None = None
) -> int:
    """Return the number of servers of a host, or of one of its nodes."""
    query = sa.select(sa.func.count()).select_from(_TABLE).where(
        _TABLE.c.host == host, _TABLE.c.deleted == 0)
    if node is not None:
        query = query.where(_TABLE.c.node == node)
    return connection.execute(query).scalar_one()


def is_awaited(connection: sa.Connection, host: str, node: str) -> bool:
    """Return whether an unfinished move has a node as its destination."""
    return connection.execute(sa.select(_MOVES.c.id).where(
        _MOVES.c.dest_compute == host, _MOVES.c.dest_node == node,
        _MOVES.c.status.in_(server_moves.LIVE))).first() is not None


def list_all(connection: sa.Connection, host: str) -> Sequence[Any]:
    """Return the servers of a host, in order of their arrival.

    ``move`` and ``kind`` are the status and the type of an unfinished move,
    or None.
    """
    return connection.execute(_WITH_MOVES, {'on': host}).all()


def list_building(connection: sa.Connection, host: str) -> list[str]:
    """Return the servers that a host is building."""
    return list(connection.execute(_BUILDING, {'on': host}).scalars())


def list_deleting(connection: sa.Connection, host: str) -> list[str]:
    """Return the servers of a host that are being deleted."""
    return list(connection.execute(_DELETING, {'on': host}).scalars())


def list_resting(connection: sa.Connection, host: str) -> set[str]:
    """Return the active servers of a host that have no task."""
    return set(connection.execute(_RESTING, {'on': host}).scalars())


def list_stranded_deletions(
    connection: sa.Connection, seen: datetime.datetime, limit: int,
    after: str = '', host: str | None = None,
) -> list[str]:
    """Return a page of the servers that a host should delete and cannot.

    Their hosts have no compute service that is up.

    :param seen: a service is up if it has reported later
    :param after: the uuid at which the last page ended
    :param host: of this host only
    """
    query = sa.select(_TABLE.c.uuid).where(
        _TABLE.c.task_state == 'deleting', _TABLE.c.deleted == 0,
        _TABLE.c.host.is_not(None), _TABLE.c.uuid > after,
        ~services.up_on(_TABLE.c.host, seen))
    if host is not None:
        query = query.where(_TABLE.c.host == host)
    return list(connection.execute(
        query.order_by(_TABLE.c.uuid).limit(limit)).scalars())


class Fate(enum.Enum):
    """The relation of the cell's records to a guest on a host.

    ``HERE``: its server is on this host, or moves to or from it. ``LOST``: a
    record says that this host must lose the guest. The other guests stay:
    the server is on another host (``ELSEWHERE``), on no host (``UNPLACED``),
    or the cell does not know it (``UNKNOWN``).
    """

    HERE = 'here'
    LOST = 'lost'
    ELSEWHERE = 'elsewhere'
    UNPLACED = 'unplaced'
    UNKNOWN = 'unknown'


class GuestRecord(NamedTuple):
    """A guest on a host, and the record of its server.

    :param host: host in the row of the server, or None
    :param node: node in the row, or None
    """

    uuid: str
    fate: Fate
    host: str | None = None
    node: str | None = None


def explain(
    connection: sa.Connection, host: str, host_id: str | None,
    guests: Mapping[str, datetime.datetime | None],
    arrived: Mapping[str, bool] | None = None,
) -> list[GuestRecord]:
    """Return the records of the guests on a host.

    A host loses a guest only if a record says so: the server was deleted on
    this host; it left in a move that began after the guest was spawned; the
    guest was spawned by a build that this host had to give up, and has not
    arrived; or by a move that was aborted, and has not arrived, or the source
    has since reported its guests and does not miss this one. A guest without
    a time is lost only by a deletion. A slow or suspended host can spawn a
    guest long after its build or its move has ended.

    :param host_id: the uuid that the host keeps
    :param guests: by uuid, the time at which the guest was spawned on this
        host, by the clock of the database
    :param arrived: whether the build or the move that spawned a guest was
        finished, where that is known. A guest that has arrived is not lost by
        the end of its build or move, which a restored database can repeat
    """
    # 1. Read the records of all guests with few queries. Moves and builds
    #    matter only for guests that the cell places elsewhere.
    arrived = arrived or {}
    rows = {row.uuid: row
            for row in statements.read(connection, _MANY, guests)}
    elsewhere = [uuid for uuid, row in rows.items()
                 if row.host != host or row.deleted]
    moves: dict[str, list[Any]] = {}
    for move in statements.read(connection, _MOVES_OF, elsewhere):
        moves.setdefault(move.instance_uuid, []).append(move)
    given_up = instance_history.given_up(
        connection, elsewhere, host, host_id)
    reports = services.list_guests(connection, {
        move.source_compute for found in moves.values() for move in found
        if move.status == server_moves.ERROR and move.source_compute})

    # 2. Decide on each guest. The order of the tests matters: what is certain
    #    comes first, and without a reason a guest is never lost.
    def fate(uuid: str, row: Any) -> Fate:
        spawned_at = guests[uuid]
        if row.deleted and row.host in (host, None):
            return Fate.LOST
        # A live move can end on either host, so the guest stays until then.
        if not row.deleted and row.host == host or any(
                move.status in server_moves.LIVE
                and (host in (move.source_compute, move.dest_compute)
                     or _is_source(move, host, host_id))
                for move in moves.get(uuid, ())):
            return Fate.HERE
        if spawned_at is not None and (
                uuid in given_up and arrived.get(uuid) is False
                or any(_loses(move, host, host_id, spawned_at)
                       or _failed(move, row, host, spawned_at, reports,
                                  arrived.get(uuid))
                       for move in moves.get(uuid, ()))):
            return Fate.LOST
        return (Fate.UNPLACED if row.deleted or row.host is None
                else Fate.ELSEWHERE)

    return [
        GuestRecord(uuid, fate(uuid, row), row.host, row.node)
        if (row := rows.get(uuid)) is not None
        else GuestRecord(uuid, Fate.UNKNOWN) for uuid in sorted(guests)]


def _is_source(move: Any, host: str, host_id: str | None) -> bool:
    """Return whether the source of a move is this host, by its uuid.

    A move that an older release recorded has only the name.
    """
    if move.source_host_id is None or host_id is None:
        return bool(move.source_compute == host)
    return bool(move.source_host_id == host_id)


def _loses(
    move: Any, host: str, host_id: str | None, spawned_at: datetime.datetime
) -> bool:
    """Return whether a finished move took a guest away from this host."""
    return (move.status in (server_moves.FINISHED, server_moves.DONE)
            and move.migration_type in _LEAVING
            and _is_source(move, host, host_id)
            and _is_after(move.created_at, spawned_at))


def _failed(
    move: Any, row: Any, host: str, spawned_at: datetime.datetime,
    reports: Mapping[str, str], arrived: bool | None,
) -> bool:
    """Return whether an aborted move to this host left a second guest.

    The abort alone is not enough: in a restored database a move can be aborted
    that has succeeded. Without knowledge of this host, the source must have
    reported since, while the server was at rest there, and must not miss it.
    """
    if (arrived or move.status != server_moves.ERROR
            or move.dest_compute != host or move.created_at > spawned_at):
        return False
    if arrived is False:
        return True
    if move.source_compute in (None, host) or not _is_after(
            move.updated_at, spawned_at):
        # No other host can report the guest of a shelved or rebuilt server.
        return False
    report = load(reports.get(move.source_compute))
    return (report.reported_at is not None and row.updated_at is not None
            and max(move.updated_at, row.updated_at) < report.reported_at
            and (row.host, row.vm_state, row.task_state) == (
                move.source_compute, states.ACTIVE.vm_state, None)
            and row.uuid not in report.missing
            and len(report.missing) < REPORTED_MAX)


def _is_after(
    time: datetime.datetime | None, spawned_at: datetime.datetime
) -> bool:
    """Return whether a record is newer than a guest.

    Some databases store whole seconds.
    """
    if time is None:
        return False
    return time + (0 if time.microsecond else 1) * _SECOND > spawned_at


def dump(
    records: Iterable[GuestRecord], missing: Iterable[str],
    now: datetime.datetime,
    misplaced: Mapping[str, Mapping[str, int]] | None = None,
) -> str:
    """Return the text of a host's guests that disagree with the cell.

    :param records: guests that no row explains
    :param missing: servers of the host without a guest
    :param now: the time before they were read, by the clock of the database
    :param misplaced: the CPUs, pages and devices of guests that use others
        than their servers claim, as amounts
    """
    return json.dumps({
        'reported_at': now.isoformat(),
        'unexplained': [[record.uuid, record.fate.value, record.host]
                        for record in records][:REPORTED_MAX],
        'missing': sorted(missing)[:REPORTED_MAX],
        'misplaced': dict(sorted((misplaced or {}).items())[:REPORTED_MAX])})


class GuestReport(NamedTuple):
    """The guests of a host that disagree with the cell; see :func:`dump`.

    :param reported_at: None if it is not known
    """

    reported_at: datetime.datetime | None
    unexplained: Sequence[GuestRecord]
    missing: Sequence[str]
    misplaced: Mapping[str, Mapping[str, int]]


def load(text: str | None) -> GuestReport:
    """Return the report in a text of :func:`dump`.

    A text that cannot be read has none.
    """
    try:
        value = json.loads(text or '{}')
        time = value.get('reported_at')
        return GuestReport(
            datetime.datetime.fromisoformat(time) if time else None,
            [GuestRecord(str(uuid), Fate(fate), host)
             for uuid, fate, host in value.get('unexplained', ())],
            [str(uuid) for uuid in value.get('missing', ())],
            {str(uuid): {str(name): int(amount)
                         for name, amount in amounts.items()}
             for uuid, amounts in value.get('misplaced', {}).items()})
    except (AttributeError, RecursionError, TypeError, ValueError):
        return load(None)


def adopt(
    connection: sa.Connection, record: GuestRecord, host: str, node: str,
    now: datetime.datetime,
) -> None:
    """Place the server of a guest on the host that has the guest."""
    connection.execute(
        sa.update(_TABLE).where(
            _TABLE.c.uuid == record.uuid, _TABLE.c.host == record.host,
            _TABLE.c.deleted == 0)
        .values(host=host, node=node, updated_at=now))


def get(connection: sa.Connection, uuid: str) -> objects.Instance | None:
    """Return a server with its flavor, deleted or not; None if unknown.

    A flavor that cannot be read is left out, as the amounts are in the row.
    """
    row = connection.execute(_ONE, {'of': uuid}).first()
    if row is None:
        return None
    instance = objects.Instance(
        **{name: getattr(row, name) for name in _FIELDS})
    if row.flavor is not None:
        try:
            instance.flavor = objects.Flavor.obj_from_primitive(
                jsonutils.loads(row.flavor))
        except objects.READ_ERRORS as exc:
            LOG.warning('The flavor of the server in its cell cannot be '
                        'read: %s', exc, instance_uuid=uuid)
    return instance
