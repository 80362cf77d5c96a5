# SPDX-License-Identifier: Apache-2.0
"""Queries for the services of a cell."""

from collections.abc import Iterable
from collections.abc import Sequence
import datetime
from typing import Any
from typing import NamedTuple

from oslo_db import exception as db_exc
import sqlalchemy as sa

from cellsched.db.cell import models
from cellsched.db import statements
from cellsched import exception

_TABLE = models.services

COMPUTE = 'nova-compute'
CONDUCTOR = 'nova-conductor'
SCHEDULER = 'nova-scheduler'

#: States of services.
UP, DOWN, STOPPED, DISABLED = 'up', 'down', 'stopped', 'disabled'

#: A scheduler or a conductor that has stopped in order has no heartbeat.
_STATE = sa.case(
    (sa.and_(_TABLE.c.last_seen_up.is_(None), _TABLE.c.report_count > 0),
     STOPPED),
    (sa.and_(sa.func.coalesce(_TABLE.c.last_seen_up, _TABLE.c.created_at)
             > sa.bindparam('seen', type_=sa.DateTime),
             _TABLE.c.forced_down.is_not(sa.true())), UP),
    else_=DOWN)

_PRESENT = sa.and_(_TABLE.c.deleted == 0, _TABLE.c.host.is_not(None))

_ALL = sa.select(_TABLE, _STATE.label('state')).where(_PRESENT).order_by(
    _TABLE.c.id)

_COUNTED = sa.select(
    _TABLE.c.binary,
    sa.case((_TABLE.c.disabled.is_(sa.true()), DISABLED), else_=_STATE)
    .label('state')).where(_PRESENT).subquery()

_COUNTS = sa.select(
    _COUNTED.c.binary, _COUNTED.c.state, sa.func.count(),
).group_by(_COUNTED.c.binary, _COUNTED.c.state)


def list_all(
    connection: sa.Connection, seen: datetime.datetime
) -> Sequence[sa.Row[Any]]:
    """Return the services that are not deleted, each with its ``state``.

    :param seen: a service is up if it has reported later
    """
    return connection.execute(_ALL, {'seen': seen}).all()


def count(
    connection: sa.Connection, seen: datetime.datetime
) -> dict[tuple[str, str], int]:
    """Return the number of services by binary and state.

    A service that an operator has disabled counts as disabled only.

    :param seen: as for :func:`list_all`
    """
    return {(binary, state): number for binary, state, number
            in connection.execute(_COUNTS, {'seen': seen})}


def list_hosts(connection: sa.Connection, binary: str) -> list[str]:
    """Return the hosts that have a service, up or down."""
    return list(connection.execute(
        sa.select(_TABLE.c.host)
        .where(_TABLE.c.binary == binary, _TABLE.c.deleted == 0,
               _TABLE.c.host.is_not(None))
        .order_by(_TABLE.c.id)).scalars())


def list_up(
    connection: sa.Connection, binary: str, since: datetime.datetime
) -> set[str]:
    """Return hosts with a report since a time that are not forced down."""
    return set(connection.execute(
        sa.select(_TABLE.c.host)
        .where(_TABLE.c.binary == binary, _TABLE.c.deleted == 0,
               _TABLE.c.last_seen_up >= since,
               _TABLE.c.forced_down.is_not(sa.true()))).scalars())


def lowest_version(connection: sa.Connection, binary: str) -> int | None:
    """Return the lowest version of a service on all hosts, or None.

    Services without a version and services that are forced down are left out.
    """
    version: int | None = connection.execute(
        sa.select(sa.func.min(_TABLE.c.version))
        .where(_TABLE.c.binary == binary, _TABLE.c.deleted == 0,
               _TABLE.c.version > 0,
               _TABLE.c.forced_down.is_not(sa.true()))).scalar()
    return version


def list_versions(connection: sa.Connection, binary: str) -> dict[str, int]:
    """Return the version of a service by host; 0 if it has none.

    Services that are forced down are left out.
    """
    return {host: version or 0 for host, version in connection.execute(
        sa.select(_TABLE.c.host, _TABLE.c.version)
        .where(_TABLE.c.binary == binary, _TABLE.c.deleted == 0,
               _TABLE.c.host.is_not(None),
               _TABLE.c.forced_down.is_not(sa.true()))
        .order_by(_TABLE.c.id))}


def is_up(
    connection: sa.Connection, host: str, now: datetime.datetime,
    down_s: float,
) -> bool:
    """Return whether the compute service of a host is up.

    :param down_s: seconds without a report after which it is down
    """
    seen = now - datetime.timedelta(seconds=down_s)
    return bool(connection.execute(
        sa.select(up_on(sa.literal(host), seen))).scalar())


def up_on(
    host: sa.ColumnElement[str], seen: datetime.datetime
) -> sa.Exists:
    """Return the condition that the compute service of a host is up.

    :param host: the host, for example a column of a query
    :param seen: the service is up if it has reported later
    """
    return sa.select(_TABLE.c.id).where(
        _TABLE.c.host == host, _TABLE.c.binary == COMPUTE,
        _TABLE.c.deleted == 0, _TABLE.c.forced_down.is_not(sa.true()),
        _TABLE.c.last_seen_up > seen).exists()


def report(
    connection: sa.Connection, uuid: str, host: str, binary: str, topic: str,
    now: datetime.datetime, version: int = 0, host_id: str | None = None,
) -> None:
    """Record a report of a service.

    :param uuid: the uuid for a new service
    :param version: its version, which can change at a restart
    :param host_id: the uuid that the host keeps, if it has one
    """
    lane = models.FEED.move(connection, host)
    # It stays that of the machine that took the name first.
    identity = {} if host_id is None else {
        'host_id': sa.func.coalesce(_TABLE.c.host_id, host_id)}
    if not _change(connection, host, binary, lane, {
            'updated_at': now, 'last_seen_up': now,
            'report_count': _TABLE.c.report_count + 1,
            'version': version, **identity}):
        statements.insert_missing(connection, _TABLE.c.uuid, [{
            'created_at': now, 'uuid': uuid, 'host': host, 'binary': binary,
            'topic': topic, 'last_seen_up': now, 'report_count': 1,
            'disabled': False, 'forced_down': False, 'deleted': 0,
            'version': version, 'host_id': host_id, 'lane': lane,
            'position': models.FEED.position(connection, lane)}])


def stop(
    connection: sa.Connection, host: str, binary: str, now: datetime.datetime
) -> None:
    """Record that a service has stopped in order; its next report ends it."""
    lane = models.FEED.move(connection, host)
    _change(connection, host, binary, lane, {
        'updated_at': now, 'last_seen_up': None})


def delete(
    connection: sa.Connection, host: str, binary: str,
    now: datetime.datetime, seen: datetime.datetime,
) -> bool:
    """Delete a service that is no compute service, unless it is up.

    :param seen: as for :func:`list_all`
    :returns: whether it is deleted
    """
    return connection.execute(
        sa.update(_TABLE).where(
            _TABLE.c.host == host, _TABLE.c.binary == binary,
            _TABLE.c.deleted == 0, _STATE != UP)
        .values(deleted=_TABLE.c.id, deleted_at=now),
        {'seen': seen}).rowcount > 0


def set_disabled(
    connection: sa.Connection, host: str, disabled: bool, reason: str | None,
    now: datetime.datetime,
) -> None:
    """Disable or enable the compute service of a host.

    :param reason: why it is disabled; None if it is enabled
    :raises cellsched.exception.ServiceNotFound: the host has no compute
        service
    """
    _set(connection, host, {
        'updated_at': now, 'disabled': disabled,
        'disabled_reason': reason if disabled else None})


def set_forced_down(
    connection: sa.Connection, host: str, forced_down: bool,
    now: datetime.datetime,
) -> None:
    """Force the compute service of a host down, or undo that.

    :raises cellsched.exception.ServiceNotFound: the host has no compute
        service
    """
    _set(connection, host, {'updated_at': now, 'forced_down': forced_down})


def _set(connection: sa.Connection, host: str, values: dict[str, Any]) -> None:
    lane = models.FEED.move(connection, host)
    if not _change(connection, host, COMPUTE, lane, values):
        raise exception.ServiceNotFound(host=host, binary=COMPUTE)


def _change(
    connection: sa.Connection, host: str, binary: str, lane: int,
    values: dict[str, Any],
) -> bool:
    """Change a service; return whether it exists."""
    change = sa.update(_TABLE).where(
        _TABLE.c.host == host, _TABLE.c.binary == binary,
        _TABLE.c.deleted == 0).values({**values, **models.FEED.marks})
    return connection.execute(change, {'in_lane': lane}).rowcount > 0


_NODES = models.compute_nodes

_ITS = sa.and_(
    _TABLE.c.host == sa.bindparam('on'), _TABLE.c.binary == COMPUTE,
    _TABLE.c.deleted == 0)

_LOOK = sa.select(
    sa.select(_TABLE.c.run).where(_ITS).scalar_subquery(),
    sa.select(_TABLE.c.host_id).where(_ITS).scalar_subquery(),
    sa.select(sa.func.min(_NODES.c.mapped)).where(
        _NODES.c.host == sa.bindparam('on'), _NODES.c.deleted == 0,
    ).scalar_subquery())

_LOCK = sa.select(
    _TABLE.c.starts, _TABLE.c.run, _TABLE.c.host_id,
).where(_ITS).with_for_update()

_IDENTIFY = sa.update(_TABLE).where(_ITS).values(host_id=sa.bindparam('of'))

_SET = sa.update(_TABLE).where(_ITS).values(
    starts=sa.bindparam('count'), run=sa.bindparam('of'))

_CLAIM = sa.update(_NODES).where(
    _NODES.c.host == sa.bindparam('on'), _NODES.c.mapped < 0,
    _NODES.c.deleted == 0).values(mapped=0)


class Seen(NamedTuple):
    """The owner of a host name.

    The starts of a host's agent are numbered. The service row names the start
    whose process owns the host name: usually the last one.

    :param run: number of the start that owns the name, or None
    :param foreign: whether a host of another cell has the name
    :param host_id: the uuid that the host with the name keeps, or None
    """

    run: int | None
    foreign: bool
    host_id: str | None = None


def look(connection: sa.Connection, host: str) -> Seen:
    """Return the owner of a host name."""
    run, host_id, mapped = connection.execute(_LOOK, {'on': host}).one()
    return Seen(run, mapped is not None and mapped < 0, host_id)


def is_known(connection: sa.Connection, host: str) -> bool:
    """Return whether a host has a compute service, up or down."""
    return connection.execute(_LOCK, {'on': host}).first() is not None


def identify(
    connection: sa.Connection, uuid: str, host: str, topic: str,
    now: datetime.datetime, version: int, host_id: str,
) -> str:
    """Give a host name to a machine; return the uuid that has the name.

    Of several machines that take a name at the same time, one gets it. The
    service of a new host is down until its first report.

    :param uuid: the uuid for a new service
    :param host_id: the uuid that the machine keeps
    """
    lane = models.FEED.move(connection, host)
    row = connection.execute(_LOCK, {'on': host}).first()
    if row is None:
        statements.insert_missing(connection, _TABLE.c.uuid, [{
            'created_at': now, 'uuid': uuid, 'host': host, 'binary': COMPUTE,
            'topic': topic, 'report_count': 0, 'disabled': False,
            'forced_down': False, 'deleted': 0, 'version': version,
            'host_id': host_id, 'lane': lane,
            'position': models.FEED.position(connection, lane)}])
        row = connection.execute(_LOCK, {'on': host}).one()
    if row.host_id is not None:
        return str(row.host_id)
    connection.execute(_IDENTIFY, {'on': host, 'of': host_id})
    return host_id


def host_of(connection: sa.Connection, host_id: str) -> str | None:
    """Return the name under which a host with this uuid reports, or None."""
    return connection.execute(
        sa.select(_TABLE.c.host).where(
            _TABLE.c.host_id == host_id, _TABLE.c.binary == COMPUTE,
            _TABLE.c.deleted == 0).order_by(_TABLE.c.id.desc())).scalar()


def rename(
    connection: sa.Connection, host: str, name: str, now: datetime.datetime,
    up: bool = False,
) -> None:
    """Give the compute service of a host another host name.

    :param up: whether it is no longer forced down
    :raises cellsched.exception.HostNameTaken: another host has the name
    """
    try:
        _set(connection, host, {
            'updated_at': now, 'host': name, **(
                {'forced_down': False} if up else {})})
    except db_exc.DBDuplicateEntry:
        raise exception.HostNameTaken(
            host=name, by='another machine of this cell') from None


def set_guests(connection: sa.Connection, host: str, text: str) -> None:
    """Store the guests of a host that disagree with the cell.

    It does not change the feed: only an audit reads it.

    :param text: see :func:`cellsched.db.cell.on_host.dump`
    """
    connection.execute(
        sa.update(_TABLE).where(_ITS).values(guests=text), {'on': host})


_GUESTS = sa.select(_TABLE.c.host, _TABLE.c.guests).where(
    _TABLE.c.binary == COMPUTE, _TABLE.c.deleted == 0,
    _TABLE.c.host.is_not(None), _TABLE.c.guests.is_not(None),
).order_by(_TABLE.c.host)

_GUESTS_OF = _GUESTS.where(statements.in_list(_TABLE.c.host))


def list_guests(
    connection: sa.Connection, hosts: Iterable[str] | None = None
) -> dict[str, str]:
    """Return the texts of :func:`set_guests`, by host.

    :param hosts: only those of these hosts
    """
    if hosts is None:
        return {row.host: row.guests for row in connection.execute(_GUESTS)}
    return {row.host: row.guests
            for row in statements.read(connection, _GUESTS_OF, hosts)}


def lock(connection: sa.Connection, host: str) -> int | None:
    """Lock and return the owner of a host name."""
    row = connection.execute(_LOCK, {'on': host}).first()
    return None if row is None else row.run


def begin(connection: sa.Connection, host: str) -> int:
    """Give the name to a starting process; return the number of its start.

    It also resets whether a host of another cell has the name.
    """
    row = connection.execute(_LOCK, {'on': host}).first()
    run: int = 1 + ((row.starts or 0) if row else 0)
    connection.execute(_SET, {'on': host, 'count': run, 'of': run})
    connection.execute(_CLAIM, {'on': host})
    return run


def take(connection: sa.Connection, host: str, run: int) -> None:
    """Give the name back to the process of an earlier start."""
    row = connection.execute(_LOCK, {'on': host}).first()
    starts = max(run, (row.starts or 0) if row else 0)
    connection.execute(_SET, {'on': host, 'count': starts, 'of': run})
