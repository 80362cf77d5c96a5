# SPDX-License-Identifier: Apache-2.0
"""Queries of the audit: pages of all servers, and repairs."""

from collections.abc import Iterable
from collections.abc import Iterator
import contextlib
import datetime
import functools
from typing import NamedTuple

import sqlalchemy as sa

from cellsched.db.api import models
from cellsched.db import session
from cellsched.db import statements

_TABLE = models.instance_mappings
_CELLS = models.cell_mappings
_REQUESTS = models.build_requests
_SPECS = models.request_specs
_GROUPS = models.instance_groups
_MEMBERS = models.instance_group_member
_LEADERS = models.leaders
_SHARED = models.shared_providers
_AGGREGATES = models.aggregates

_MAPPINGS = (
    sa.select(_TABLE.c.instance_uuid, _CELLS.c.uuid,
              _TABLE.c.queued_for_delete, _TABLE.c.project_id,
              _TABLE.c.user_id, _TABLE.c.vcpus, _TABLE.c.memory_mb)
    .select_from(_TABLE).outerjoin(_CELLS, _CELLS.c.id == _TABLE.c.cell_id)
    .where(statements.in_list(_TABLE.c.instance_uuid)))

_GROUPS_OF = (
    sa.select(_MEMBERS.c.instance_uuid, _GROUPS.c.uuid)
    .join(_GROUPS, _GROUPS.c.id == _MEMBERS.c.group_id)
    .where(statements.in_list(_MEMBERS.c.instance_uuid)))

_SPECS_OF = sa.select(_SPECS.c.instance_uuid, _SPECS.c.spec).where(
    statements.in_list(_SPECS.c.instance_uuid))


class MappingRow(NamedTuple):
    """The instance mapping of a server, as the audit reads it.

    :param cell: uuid of its cell, or None
    :param deleted: whether the user deleted the server
    :param vcpus: the quota usage, likewise ``memory_mb``; None if not stored
    """

    cell: str | None
    deleted: bool
    project_id: str | None = None
    user_id: str | None = None
    vcpus: int | None = None
    memory_mb: int | None = None


def count(connection: sa.Connection) -> int:
    """Return the number of servers, including deleted ones."""
    return connection.execute(
        sa.select(sa.func.count()).select_from(_TABLE)).scalar_one()


#: Pages of ids and server uuids: of mappings, build requests, and members of
#: groups. The arguments are the connection, the last id and the limit.
mapped_after = functools.partial(
    statements.page_after, key=_TABLE.c.id, value=_TABLE.c.instance_uuid)
requested_after = functools.partial(
    statements.page_after, key=_REQUESTS.c.id, value=_REQUESTS.c.instance_uuid,
    conditions=[_REQUESTS.c.instance_uuid.is_not(None)])
members_after = functools.partial(
    statements.page_after, key=_MEMBERS.c.id, value=_MEMBERS.c.instance_uuid,
    conditions=[_MEMBERS.c.instance_uuid.is_not(None)])


def mappings(
    connection: sa.Connection, uuids: Iterable[str]
) -> dict[str, MappingRow]:
    """Return mappings by server uuid, without unknown servers."""
    return {uuid: MappingRow(cell, bool(deleted), *values)
            for uuid, cell, deleted, *values in statements.read(
                connection, _MAPPINGS, uuids)}


def specs(connection: sa.Connection, uuids: Iterable[str]) -> dict[str, str]:
    """Return the stored request specs by server uuid."""
    return {uuid: text for uuid, text in statements.read(
        connection, _SPECS_OF, uuids)}


def groups_of(
    connection: sa.Connection, uuids: Iterable[str]
) -> dict[str, frozenset[str]]:
    """Return the uuids of the groups that have these servers as members."""
    return {uuid: frozenset(groups) for uuid, groups
            in statements.read_groups(connection, _GROUPS_OF, uuids).items()}


def unknown_aggregates(connection: sa.Connection) -> list[tuple[str, str]]:
    """Return the sharing providers of unknown aggregates.

    :returns: uuids of the providers and of the aggregates
    """
    return [(uuid, aggregate) for uuid, aggregate in connection.execute(
        sa.select(_SHARED.c.uuid, _SHARED.c.aggregate_uuid)
        .outerjoin(_AGGREGATES, _AGGREGATES.c.uuid == _SHARED.c.aggregate_uuid)
        .where(_AGGREGATES.c.id.is_(None)))]


#: The leases, with the columns of their names, owners and ends.
_LEASES = (
    (_LEADERS.c.name, _LEADERS.c.owner, _LEADERS.c.expires_at),
    (_REQUESTS.c.instance_uuid, _REQUESTS.c.lease_owner,
     _REQUESTS.c.lease_expires_at))


def leases_after(
    connection: sa.Connection, end: float, limit: int
) -> list[tuple[str, str, float]]:
    """Return names, owners and ends of the leases that end after a time.

    :param end: seconds since the epoch, as the results
    :param limit: the most leases of each table
    """
    return [(name, owner, until) for name, owner, column in _LEASES
            for name, owner, until in connection.execute(
                sa.select(name, owner, column).where(column > end)
                .order_by(name).limit(limit))]


def end_leases_after(
    connection: sa.Connection, end: float, now: float
) -> None:
    """End the leases that would end after a time."""
    for name, _, column in _LEASES:
        connection.execute(sa.update(name.table).where(column > end).values(
            {column: now}))


def remap(
    connection: sa.Connection, uuid: str, before: str, after: int,
    now: datetime.datetime,
) -> bool:
    """Map a server to another cell; return False if the mapping differed.

    :param before: uuid of the expected current cell
    :param after: id of the new cell
    """
    return bool(connection.execute(
        sa.update(_TABLE).where(
            _TABLE.c.instance_uuid == uuid,
            _TABLE.c.queued_for_delete.is_not(sa.true()),
            _TABLE.c.cell_id == sa.select(_CELLS.c.id).where(
                _CELLS.c.uuid == before).scalar_subquery())
        .values(cell_id=after, updated_at=now)).rowcount)


def owner(
    connection: sa.Connection, uuid: str
) -> tuple[str, str | None] | None:
    """Return project and user of a server; None without a mapping."""
    row = connection.execute(
        sa.select(_TABLE.c.project_id, _TABLE.c.user_id)
        .where(_TABLE.c.instance_uuid == uuid)).first()
    return row and (row.project_id, row.user_id)


@contextlib.contextmanager
def holding(database: session.Database) -> Iterator[sa.Connection]:
    """Return a context with locks that last during a query of a cell.

    SQLite has one lock for a file, and the cell may be in the same file, so
    there the connection only reads.
    """
    lone = database.engine.dialect.name == 'sqlite'
    with (database.reader() if lone else database.writer()) as connection:
        yield connection


def lock(connection: sa.Connection, uuid: str) -> MappingRow | None:
    """Lock and return the mapping of a server."""
    statements.lock(connection, _TABLE.c.instance_uuid, [uuid])
    return mappings(connection, [uuid]).get(uuid)


def forget(connection: sa.Connection, uuid: str, now: float) -> bool:
    """Delete a request without a valid lease; return whether it existed.

    :param now: seconds since the epoch
    """
    return bool(connection.execute(sa.delete(_REQUESTS).where(
        _REQUESTS.c.instance_uuid == uuid,
        sa.or_(_REQUESTS.c.lease_expires_at.is_(None),
               _REQUESTS.c.lease_expires_at <= now))).rowcount)


def map_missing(
    connection: sa.Connection, uuid: str, project_id: str,
    user_id: str | None, now: datetime.datetime,
) -> bool:
    """Add a mapping without a cell if there is none; return the mapping."""
    return bool(statements.insert_missing(
        connection, _TABLE.c.instance_uuid, [{
            'created_at': now, 'instance_uuid': uuid,
            'project_id': project_id, 'user_id': user_id,
            'queued_for_delete': False}]))
