# SPDX-License-Identifier: Apache-2.0
"""Queries for moves of servers, which Nova calls migrations.

A move is whatever has a server built anew after it was there: on its own
host, on another one of its cell, or on none. A server has one that is going
on at most. Who changes one holds the server's row meanwhile, so that a move,
its server and what is claimed for it are changed by one at a time.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import datetime
from typing import Any

import sqlalchemy as sa

from cellsched.db.cell import models
from cellsched.db import statements

_TABLE = models.migrations

#: Nobody has begun; a conductor looks for a host; a host was told of it.
ACCEPTED, PREPARING, MIGRATING = 'accepted', 'preparing', 'migrating'

#: The server is where it was to go, and what is claimed is still to follow.
MOVED = 'post-migrating'

#: The server was moved, and the host that it left has still to clean up.
FINISHED = 'finished'

DONE, ERROR = 'done', 'error'

#: As long as one of these is a move's status, there is no other of its server.
LIVE = (ACCEPTED, PREPARING, MIGRATING, MOVED)

#: The server's row is as it was, but for its state.
UNMOVED = (ACCEPTED, PREPARING, MIGRATING)


@dataclasses.dataclass(frozen=True)
class MoveKind:
    """The transitions that a move makes of the state of its server.

    :param action: what users call it
    :param ask: the transition to what waits for it, and so on; see
        :mod:`cellsched.db.cell.states`
    :param begin: None, where nothing is built
    :param leaves: whether the server goes from one host to another
    """

    action: str
    ask: str
    begin: str | None
    finish: str
    revert: str
    leaves: bool = False


EVACUATION, MIGRATION, REBUILD = 'evacuation', 'migration', 'rebuild'
SHELVE, UNSHELVE = 'shelve', 'unshelve'

#: Kinds of moves by their ``migration_type``; Nova has the first two.
KINDS: Mapping[str, MoveKind] = {
    EVACUATION: MoveKind('evacuate', 'rebuild', 'begin_rebuild',
                         'finish_rebuild', 'fail_rebuild', leaves=True),
    MIGRATION: MoveKind('migrate', 'migrate', 'begin_migrate',
                        'finish_migrate', 'revert_migrate', leaves=True),
    REBUILD: MoveKind('rebuild', 'rebuild', 'begin_rebuild', 'finish_rebuild',
                      'fail_rebuild'),
    SHELVE: MoveKind('shelve', 'offload', None, 'finish_offload',
                     'revert_offload'),
    UNSHELVE: MoveKind('unshelve', 'unshelve', 'begin_unshelve',
                       'finish_unshelve', 'revert_unshelve'),
}


@dataclasses.dataclass(frozen=True)
class Migration:
    """A move of a server.

    :param source_compute: where it is; None if it is nowhere
    :param dest_compute: where it goes; None as long as that is not known
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


_FIELDS = tuple(field.name for field in dataclasses.fields(Migration))


def hold(connection: sa.Connection, instance_uuid: str) -> None:
    """Let nobody else change a server until the transaction ends.

    To be the first that is done in a transaction, for REPEATABLE READ shows
    all else as it was then.
    """
    statements.lock(connection, models.instances.c.uuid, [instance_uuid])


def create(
    connection: sa.Connection, migration: Migration, context: Any,
    now: datetime.datetime,
) -> None:
    """Add a move."""
    connection.execute(sa.insert(_TABLE).values(
        created_at=now, updated_at=now, deleted=0, user_id=context.user_id,
        project_id=context.project_id, **dataclasses.asdict(migration)))


def get(connection: sa.Connection, uuid: str) -> Migration | None:
    """Return a move, or None."""
    row = connection.execute(
        sa.select(_TABLE).where(_TABLE.c.uuid == uuid)).first()
    return None if row is None else _from_row(row)


def live(connection: sa.Connection, instance_uuid: str) -> Migration | None:
    """Return the move of a server that is going on, or None."""
    row = connection.execute(
        sa.select(_TABLE).where(_TABLE.c.instance_uuid == instance_uuid,
                                _TABLE.c.status.in_(LIVE))).first()
    return None if row is None else _from_row(row)


def advance(
    connection: sa.Connection, uuid: str, before: Iterable[str], after: str,
    now: datetime.datetime, **values: Any,
) -> bool:
    """Take a move on; return whether it was where it was to be.

    :param before: statuses, one of which it must have
    :param values: more columns to set
    """
    return bool(connection.execute(
        sa.update(_TABLE).where(_TABLE.c.uuid == uuid,
                                _TABLE.c.status.in_(list(before)))
        .values(status=after, updated_at=now, **values)).rowcount)


def touch(
    connection: sa.Connection, uuid: str, before: datetime.datetime,
    now: datetime.datetime,
) -> bool:
    """Wait for news of a move once more; return whether there was none.

    :param before: since when there was to be none
    """
    return bool(connection.execute(
        sa.update(_TABLE).where(
            _TABLE.c.uuid == uuid, _TABLE.c.updated_at < before,
            _TABLE.c.status.in_((*LIVE, FINISHED)))
        .values(updated_at=now)).rowcount)


def list_before(
    connection: sa.Connection, before: datetime.datetime, limit: int
) -> list[Migration]:
    """Return moves that nothing happened to since a time, the oldest first.

    Those that have ended are left out.
    """
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
) -> list[str]:
    """Return the servers whose moves were given up between two times."""
    return list(connection.execute(
        sa.select(_TABLE.c.instance_uuid).distinct().where(
            _TABLE.c.status == ERROR,
            _TABLE.c.migration_type.in_(list(KINDS)),
            _TABLE.c.instance_uuid.is_not(None),
            _TABLE.c.updated_at.between(after, before))).scalars())


def list_left(connection: sa.Connection, host: str) -> list[Migration]:
    """Return the moves away from a host after which it has to clean up."""
    return [_from_row(row) for row in connection.execute(
        sa.select(_TABLE).where(_TABLE.c.status == FINISHED,
                                _TABLE.c.source_compute == host)
        .order_by(_TABLE.c.id))]


def _from_row(row: sa.Row[Any]) -> Migration:
    return Migration(**{name: getattr(row, name) for name in _FIELDS})
