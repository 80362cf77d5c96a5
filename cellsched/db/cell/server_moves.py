# SPDX-License-Identifier: Apache-2.0
"""Queries for moves of servers, which Nova calls migrations.

A move rebuilds an existing server: on its own host, on another host of its
cell, or on none (shelving). A server has at most one unfinished move. Every
change of a move locks the server's row first, so that the move, the server and
its claims are changed by one process at a time.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import datetime
from typing import Any
from typing import NamedTuple

import sqlalchemy as sa

from cellsched.db.cell import models
from cellsched.db.cell import services
from cellsched.db import statements

_TABLE = models.migrations

#: Accepted; a conductor selects a host; the message was cast to a host.
ACCEPTED, PREPARING, MIGRATING = 'accepted', 'preparing', 'migrating'

#: The server is on its destination; its claims are not transferred yet.
MOVED = 'post-migrating'

#: The server has moved; the source host still has to clean up.
FINISHED = 'finished'

DONE, ERROR = 'done', 'error'

#: Statuses of an unfinished move, which excludes other moves of the server.
LIVE = (ACCEPTED, PREPARING, MIGRATING, MOVED)

#: The server's row is unchanged except for its state.
UNMOVED = (ACCEPTED, PREPARING, MIGRATING)

#: No host was told of the move yet.
UNSENT = (ACCEPTED, PREPARING)


class MoveKind(NamedTuple):
    """The state transitions of a kind of move.

    :param action: name of the action for users
    :param event: Nova's name of the last step, for the history
    :param ask: the transition when the move is accepted; the other names are
        transitions, too, see :mod:`cellsched.db.cell.states`
    :param begin: None if nothing is built
    :param leaves: whether the server changes its host
    """

    action: str
    event: str
    ask: str
    begin: str | None
    finish: str
    revert: str
    leaves: bool = False


EVACUATION, MIGRATION, REBUILD = 'evacuation', 'migration', 'rebuild'
SHELVE, UNSHELVE = 'shelve', 'unshelve'

#: Kinds of moves by ``migration_type``; Nova has the first two.
KINDS: Mapping[str, MoveKind] = {
    EVACUATION: MoveKind(
        'evacuate', 'compute_rebuild_instance', 'evacuate', 'begin_evacuate',
        'finish_evacuate', 'fail_evacuate', leaves=True),
    MIGRATION: MoveKind(
        'migrate', 'compute_finish_resize', 'migrate', 'begin_migrate',
        'finish_migrate', 'revert_migrate', leaves=True),
    REBUILD: MoveKind(
        'rebuild', 'compute_rebuild_instance', 'rebuild', 'begin_rebuild',
        'finish_rebuild', 'fail_rebuild'),
    SHELVE: MoveKind(
        'shelve', 'compute_shelve_offload_instance', 'offload', None,
        'finish_offload', 'revert_offload'),
    UNSHELVE: MoveKind(
        'unshelve', 'compute_unshelve_instance', 'unshelve', 'begin_unshelve',
        'finish_unshelve', 'revert_unshelve'),
}


class Migration(NamedTuple):
    """A move of a server.

    :param source_compute: the current host, or None
    :param dest_compute: the destination; None until it is selected
    """

    uuid: str
    instance_uuid: str
    migration_type: str
    status: str = ACCEPTED
    source_compute: str | None = None
    source_node: str | None = None
    dest_compute: str | None = None
    dest_node: str | None = None

    @property
    def kind(self) -> MoveKind:
        return KINDS[self.migration_type]

    @property
    def worker(self) -> str | None:
        """Return the host whose agent performs the next step of the move.

        None if a conductor selects the destination of an evacuation or of an
        unshelved server. Other moves need the source host from the beginning.
        """
        if self.status in (ACCEPTED, PREPARING):
            return (None if self.migration_type == EVACUATION
                    else self.source_compute)
        return (self.source_compute if self.migration_type == SHELVE
                else self.dest_compute)


_END_UNSENT = (
    sa.update(_TABLE)
    .where(_TABLE.c.instance_uuid == sa.bindparam('server'),
           _TABLE.c.status.in_(UNSENT))
    .values(status=ERROR, updated_at=sa.bindparam('now')))


_UUIDS_OF = sa.select(_TABLE.c.instance_uuid, _TABLE.c.uuid).where(
    statements.in_list(_TABLE.c.instance_uuid), _TABLE.c.uuid.is_not(None))


def hold(connection: sa.Connection, instance_uuid: str) -> None:
    """Lock a server until the transaction ends.

    It must be the first statement of the transaction, since REPEATABLE READ
    shows the state of the first read.
    """
    statements.lock(connection, models.instances.c.uuid, [instance_uuid])


def create(
    connection: sa.Connection, migration: Migration, context: Any,
    now: datetime.datetime,
) -> None:
    """Add a move, with the uuid that its source host keeps."""
    seen = services.look(connection, migration.source_compute or '')
    connection.execute(sa.insert(_TABLE).values(
        created_at=now, updated_at=now, deleted=0, user_id=context.user_id,
        project_id=context.project_id, source_host_id=seen.host_id,
        **migration._asdict()))


def get(connection: sa.Connection, uuid: str) -> Migration | None:
    """Return a move, or None."""
    row = connection.execute(
        sa.select(_TABLE).where(_TABLE.c.uuid == uuid)).first()
    return None if row is None else _from_row(row)


def live(connection: sa.Connection, instance_uuid: str) -> Migration | None:
    """Return the unfinished move of a server, or None."""
    row = connection.execute(
        sa.select(_TABLE).where(_TABLE.c.instance_uuid == instance_uuid,
                                _TABLE.c.status.in_(LIVE))).first()
    return None if row is None else _from_row(row)


def uuids_of(
    connection: sa.Connection, instance_uuids: Iterable[str]
) -> dict[str, list[str]]:
    """Return the uuids of all moves of servers, by server."""
    return statements.read_groups(connection, _UUIDS_OF, instance_uuids)


def has_migrated(
    connection: sa.Connection, instance_uuid: str, host: str,
    statuses: Iterable[str],
) -> bool:
    """Return whether a migration of a server from a host has a status."""
    return connection.execute(sa.select(_TABLE.c.id).where(
        _TABLE.c.instance_uuid == instance_uuid,
        _TABLE.c.migration_type == MIGRATION,
        _TABLE.c.status.in_(list(statuses)),
        _TABLE.c.source_compute == host)).first() is not None


def advance(
    connection: sa.Connection, uuid: str, before: Iterable[str], after: str,
    now: datetime.datetime, **values: Any,
) -> bool:
    """Change the status of a move; return whether the change was allowed.

    :param before: allowed statuses before the change
    :param values: further columns to set
    """
    return bool(connection.execute(
        sa.update(_TABLE).where(_TABLE.c.uuid == uuid,
                                _TABLE.c.status.in_(list(before)))
        .values(status=after, updated_at=now, **values)).rowcount)


def end_unsent(
    connection: sa.Connection, instance_uuid: str, now: datetime.datetime
) -> None:
    """End the move of a deleted server, unless a host was told of it.

    A host ends a move itself. A conductor that still selects a host finds the
    move ended, and releases its claims.
    """
    connection.execute(_END_UNSENT, {'server': instance_uuid, 'now': now})


def touch(
    connection: sa.Connection, uuid: str, before: datetime.datetime,
    now: datetime.datetime,
) -> bool:
    """Restart the timeout of a move, unless the move changed.

    :param before: the move must not have changed since
    :returns: whether it had not changed
    """
    return bool(connection.execute(
        sa.update(_TABLE).where(
            _TABLE.c.uuid == uuid, _TABLE.c.updated_at < before,
            _TABLE.c.status.in_((*LIVE, FINISHED)))
        .values(updated_at=now)).rowcount)


def list_before(
    connection: sa.Connection, before: datetime.datetime, limit: int
) -> list[Migration]:
    """Return unfinished moves without a change since a time, oldest first."""
    return [_from_row(row) for row in connection.execute(
        sa.select(_TABLE).where(
            _TABLE.c.status.in_((*LIVE, FINISHED)),
            _TABLE.c.migration_type.in_(list(KINDS)),
            _TABLE.c.instance_uuid.is_not(None),
            _TABLE.c.updated_at < before)
        .order_by(_TABLE.c.updated_at, _TABLE.c.id).limit(limit))]


def list_given_up(
    connection: sa.Connection, after: datetime.datetime,
    before: datetime.datetime,
) -> list[Migration]:
    """Return the moves that were aborted between two times."""
    return [_from_row(row) for row in connection.execute(
        sa.select(_TABLE).where(
            _TABLE.c.status == ERROR,
            _TABLE.c.migration_type.in_(list(KINDS)),
            _TABLE.c.instance_uuid.is_not(None),
            _TABLE.c.updated_at.between(after, before))
        .order_by(_TABLE.c.id))]


def list_unreachable(
    connection: sa.Connection, seen: datetime.datetime,
    instance_uuid: str | None = None,
) -> list[Migration]:
    """Return the unfinished moves to hosts that are down of deleted servers.

    Servers that are being deleted are included.

    :param seen: a host is up if its service has reported later
    :param instance_uuid: of this server only
    """
    server = models.instances.c
    query = sa.select(_TABLE).where(
        _TABLE.c.status.in_(LIVE), _TABLE.c.dest_compute.is_not(None),
        ~services.up_on(_TABLE.c.dest_compute, seen),
        ~sa.exists().where(
            server.uuid == _TABLE.c.instance_uuid, server.deleted == 0,
            server.task_state.is_distinct_from('deleting')))
    if instance_uuid is not None:
        query = query.where(_TABLE.c.instance_uuid == instance_uuid)
    return [_from_row(row) for row in connection.execute(
        query.order_by(_TABLE.c.id))]


def list_left(
    connection: sa.Connection, host: str, host_id: str | None = None
) -> list[Migration]:
    """Return the moves after which a source host has to clean up.

    :param host_id: the uuid that the host keeps; a move that an older release
        recorded has only the name
    """
    return [_from_row(row) for row in connection.execute(
        sa.select(_TABLE).where(
            _TABLE.c.status == FINISHED, sa.case(
                (sa.or_(_TABLE.c.source_host_id.is_(None),
                        sa.literal(host_id is None)),
                 _TABLE.c.source_compute == host),
                else_=_TABLE.c.source_host_id == (host_id or '')))
        .order_by(_TABLE.c.id))]


def _from_row(row: sa.Row[Any]) -> Migration:
    return Migration(**{
        name: getattr(row, name) for name in Migration._fields})
