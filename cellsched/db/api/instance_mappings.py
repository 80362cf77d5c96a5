# SPDX-License-Identifier: Apache-2.0
"""Queries for instance mappings: the cell of each server.

The cell of a server is decided by a compare-and-set: it is written only if it
is NULL. This record alone decides the fate of a build.
"""

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import datetime
from typing import Any
from typing import NamedTuple

import sqlalchemy as sa

from cellsched.db.api import build_requests
from cellsched.db.api import cell_mappings
from cellsched.db.api import instance_groups
from cellsched.db.api import models
from cellsched.db import sort_order
from cellsched.db import statements
from cellsched import objects

_TABLE = models.instance_mappings
_CELLS = models.cell_mappings
_REQUESTS = models.build_requests

_MINE = statements.in_list(_TABLE.c.instance_uuid)
_WANTED = _TABLE.c.queued_for_delete.is_not(sa.true())

_MANY = (
    sa.select(
        _CELLS, _TABLE.c.id.label('mapping_id'), _TABLE.c.instance_uuid,
        _TABLE.c.project_id, _TABLE.c.user_id, _TABLE.c.queued_for_delete)
    .select_from(_TABLE)
    .outerjoin(_CELLS, _CELLS.c.id == _TABLE.c.cell_id)
    .where(_MINE))

_PLACES = sa.select(
    _TABLE.c.instance_uuid, _TABLE.c.cell_id, _TABLE.c.queued_for_delete,
).where(_MINE)

_DECIDE = (
    sa.update(_TABLE).where(_MINE, _TABLE.c.cell_id.is_(None), _WANTED)
    .values(cell_id=sa.bindparam('cell'), updated_at=sa.bindparam('now')))

# With few cells, PostgreSQL estimates for a comparison of cell_id that nearly
# all servers match, or none.
_PLACED = sa.and_(
    _WANTED, _TABLE.c.cell_id.is_not(None), _TABLE.c.cell_id.not_in(
        sa.select(_CELLS.c.id).where(_CELLS.c.uuid == objects.CELL0_UUID)))

_REQUESTED = sa.join(
    _REQUESTS, _TABLE, _TABLE.c.instance_uuid == _REQUESTS.c.instance_uuid)


def _amounts(of_user: bool = False) -> list[sa.ColumnElement[int]]:
    """Return the columns that sum quota usage, of all users or of one."""
    theirs = _TABLE.c.user_id == sa.bindparam('user')

    def value(column: Any) -> Any:
        return sa.case((theirs, column)) if of_user else column

    return [
        sa.func.count(value(_TABLE.c.id)),
        sa.func.coalesce(sa.func.sum(value(_TABLE.c.vcpus)), 0),
        sa.func.coalesce(sa.func.sum(value(_TABLE.c.memory_mb)), 0)]


def _usage(accepted: bool, by_user: bool) -> sa.Select[Any]:
    """Return the statement that sums quota usage.

    A project has few build requests and many servers. Servers with a request
    are therefore summed separately and subtracted.
    """
    amounts = [
        each.label(f'amount{number}') for number, each in enumerate(
            _amounts() + (_amounts(of_user=True) if by_user else []))]
    placed = sa.select(*amounts).where(
        _TABLE.c.project_id == sa.bindparam('project'), _PLACED).subquery()
    requested = (
        sa.select(*amounts).select_from(_REQUESTED)
        .where(_REQUESTS.c.project_id == sa.bindparam('project'),
               *([_WANTED, _TABLE.c.cell_id.is_(None)] if accepted
                 else [_PLACED])).subquery())
    return sa.select(*(
        present + here if accepted else present - here
        for present, here in zip(placed.c, requested.c))
    ).select_from(placed.join(requested, sa.true()))


_USAGES = {(accepted, by_user): _usage(accepted, by_user)
           for accepted in (False, True) for by_user in (False, True)}

_USED_BY_CELL = (
    sa.select(_CELLS.c.uuid, *_amounts(),
              sa.func.count() - sa.func.count(_TABLE.c.vcpus))
    .select_from(_TABLE).join(_CELLS, _CELLS.c.id == _TABLE.c.cell_id)
    .where(_TABLE.c.project_id == sa.bindparam('project'), _PLACED,
           ~sa.exists().where(
               _REQUESTS.c.instance_uuid == _TABLE.c.instance_uuid))
    .group_by(_CELLS.c.uuid))


class ProjectUsage(NamedTuple):
    """The quota usage of a project.

    :param ram: in MB
    :param unsized: number of servers whose mapping has no sizes, because
        another program wrote it; they add no cores and no memory
    """

    instances: int = 0
    cores: int = 0
    ram: int = 0
    unsized: int = 0


def create(
    connection: sa.Connection, uuids: Iterable[str], project_id: str,
    user_id: str | None, now: datetime.datetime,
    flavor: objects.Flavor | None = None,
) -> None:
    """Add mappings without a cell.

    :param flavor: the quota usage of each server
    """
    shared = {'created_at': now, 'project_id': project_id, 'user_id': user_id,
              'queued_for_delete': False, 'vcpus': flavor and flavor.vcpus,
              'memory_mb': flavor and flavor.memory_mb}
    statements.insert_all(connection, _TABLE, [
        {**shared, 'instance_uuid': uuid} for uuid in uuids])


def get_many(
    connection: sa.Connection, uuids: Iterable[str]
) -> dict[str, objects.InstanceMapping]:
    """Return mappings by instance, without unknown instances."""
    return {row.instance_uuid: _from_row(row)
            for row in statements.read(connection, _MANY, uuids)}


def decide(
    connection: sa.Connection, uuids: Iterable[str], cell_id: int,
    now: datetime.datetime,
) -> set[str]:
    """Set the cell of servers; return the servers that have it now.

    One that has another cell already keeps it, and one that its user deleted
    gets none. A repeated decision for the same cell succeeds.
    """
    decided: set[str] = set()
    for chunk in statements.chunks(uuids):
        if len(chunk) > 1:
            statements.lock(connection, _TABLE.c.instance_uuid, chunk)
        result = connection.execute(
            _DECIDE, {'these': chunk, 'cell': cell_id, 'now': now})
        if result.rowcount == len(chunk):
            decided.update(chunk)
        else:
            decided.update(connection.execute(
                sa.select(_TABLE.c.instance_uuid).where(
                    _MINE, _TABLE.c.cell_id == cell_id, _WANTED),
                {'these': chunk}).scalars())
    return decided


def confirm(
    connection: sa.Connection, uuids: Iterable[str], cell_id: int
) -> set[str]:
    """Lock and return the servers of this cell that are not deleted."""
    return {uuid for chunk in statements.chunks(uuids)
            for uuid in statements.lock(
                connection, _TABLE.c.instance_uuid, chunk,
                _TABLE.c.cell_id == cell_id, _WANTED)}


def hold(connection: sa.Connection, uuids: Iterable[str]) -> None:
    """Lock the mappings of servers until the transaction ends.

    A server without a cell gets none meanwhile.
    """
    for chunk in statements.chunks(uuids):
        statements.lock(connection, _TABLE.c.instance_uuid, chunk)


def withdraw(
    connection: sa.Connection, uuids: Iterable[str], cell_id: int,
    now: datetime.datetime,
) -> None:
    """Reset the cell of servers; servers with another cell keep it."""
    statements.write(
        connection,
        sa.update(_TABLE).where(_MINE, _TABLE.c.cell_id == cell_id)
        .values(cell_id=None, updated_at=now),
        uuids, _TABLE.c.instance_uuid)


def reopen(
    connection: sa.Connection, uuid: str, cell_id: int,
    now: datetime.datetime,
) -> bool:
    """Reset the cell of a server for a new decision.

    :returns: whether the server had this cell and is not deleted
    """
    return bool(connection.execute(
        sa.update(_TABLE).where(
            _TABLE.c.instance_uuid == uuid, _TABLE.c.cell_id == cell_id,
            _WANTED)
        .values(cell_id=None, updated_at=now)).rowcount)


def mark_deleted(
    connection: sa.Connection, uuids: Iterable[str], now: datetime.datetime
) -> None:
    """Mark servers as deleted by their user; they get no cell afterwards."""
    statements.write(
        connection, sa.update(_TABLE).where(_MINE)
        .values(queued_for_delete=True, updated_at=now),
        uuids, _TABLE.c.instance_uuid)


def usage(
    connection: sa.Connection, project_id: str, user_id: str | None = None,
    accepted: bool = False,
) -> ProjectUsage:
    """Return the quota usage of a project, or of a user in it.

    A server counts from the time that it has a cell other than cell0 and no
    build request, until its user deletes it.

    :param accepted: whether servers with a build request count, too
    """
    return usages(connection, project_id, user_id, accepted)[-1]


def usages(
    connection: sa.Connection, project_id: str, user_id: str | None,
    accepted: bool = False,
) -> list[ProjectUsage]:
    """Return :func:`usage` of a project and, if given, of a user in it."""
    by_user = user_id is not None
    row = connection.execute(
        _USAGES[accepted, by_user],
        {'project': project_id, **({'user': user_id} if by_user else {})},
    ).one()
    amounts = [*map(int, row)]
    return [ProjectUsage(*amounts[start:start + 3])
            for start in range(0, len(amounts), 3)]


def usage_by_cell(
    connection: sa.Connection, project_id: str
) -> dict[str, ProjectUsage]:
    """Return the quota usage of a project by cell uuid.

    Cells without servers of the project are left out.
    """
    return {
        uuid: ProjectUsage(*map(int, amounts))
        for uuid, *amounts in connection.execute(
            _USED_BY_CELL, {'project': project_id})}


def count_in_cell(
    connection: sa.Connection, cell_id: int
) -> tuple[int, int]:
    """Return the numbers of servers and of deleted servers of a cell."""
    living, total = connection.execute(
        sa.select(sa.func.count(sa.case((_WANTED, 1))), sa.func.count())
        .select_from(_TABLE).where(_TABLE.c.cell_id == cell_id)).one()
    return living, total - living


def count_by_cell(connection: sa.Connection) -> dict[int, int]:
    """Return the number of servers that are not deleted, by cell id.

    Cells without servers are left out.
    """
    return {cell_id: count for cell_id, count in connection.execute(
        sa.select(_TABLE.c.cell_id, sa.func.count())
        .where(_TABLE.c.cell_id.is_not(None), _WANTED)
        .group_by(_TABLE.c.cell_id))}


def count_by_project(
    connection: sa.Connection, cell_id: int
) -> dict[str, int]:
    """Return the number of servers of a cell, by project.

    Deleted servers do not count.
    """
    return {project: count for project, count in connection.execute(
        sa.select(_TABLE.c.project_id, sa.func.count())
        .where(_TABLE.c.cell_id == cell_id, _WANTED)
        .group_by(_TABLE.c.project_id).order_by(_TABLE.c.project_id))}


def list_in_cell(
    connection: sa.Connection, cell_id: int, limit: int
) -> list[str]:
    """Return some servers of a cell, deleted or not."""
    return list(connection.execute(
        sa.select(_TABLE.c.instance_uuid).where(_TABLE.c.cell_id == cell_id)
        .order_by(_TABLE.c.id).limit(limit)).scalars())


def delete_in_cell(connection: sa.Connection, cell_id: int) -> None:
    """Delete every mapping of a cell."""
    connection.execute(sa.delete(_TABLE).where(_TABLE.c.cell_id == cell_id))


def create_missing(
    connection: sa.Connection, rows: Iterable[Mapping[Any, Any]],
    cell_id: int, now: datetime.datetime,
) -> int:
    """Map unmapped servers to a cell; return the number of new mappings.

    :param rows: each with ``uuid``, ``project_id``, ``user_id``, ``deleted``,
        ``vcpus`` and ``memory_mb``
    """
    return len(statements.insert_missing(
        connection, _TABLE.c.instance_uuid, [
            {'created_at': now, 'instance_uuid': row['uuid'],
             'cell_id': cell_id, 'project_id': row['project_id'] or '',
             'user_id': row['user_id'],
             'queued_for_delete': bool(row['deleted']),
             'vcpus': row['vcpus'], 'memory_mb': row['memory_mb']}
            for row in rows]))


def unplaced_after(
    connection: sa.Connection, before: datetime.datetime, after: int,
    limit: int,
) -> list[tuple[int, str]]:
    """Return a page of servers that were deleted before they had a cell.

    :param before: servers deleted before this time
    :param after: the mapping id at which the last page ended
    :returns: mapping ids and uuids
    """
    return statements.page_after(
        connection, after, limit, _TABLE.c.id, _TABLE.c.instance_uuid, [
            _TABLE.c.cell_id.is_(None),
            _TABLE.c.queued_for_delete == sa.true(), sa.func.coalesce(
                _TABLE.c.updated_at, _TABLE.c.created_at) < before])


def forget(
    connection: sa.Connection, uuids: Iterable[str], cell_id: int | None
) -> set[str]:
    """Remove the API records of servers that are deleted in a cell.

    These are mappings, request specs and memberships in server groups. A
    server that is mapped to another cell may exist there and keeps them.

    :param cell_id: None for servers that never had a cell
    :returns: uuids of servers whose cell rows may be archived: all except
        servers with a build request
    """
    free: set[str] = set()
    for chunk in statements.chunks(uuids):
        statements.lock(connection, _TABLE.c.instance_uuid, chunk)
        unrequested = set(chunk) - build_requests.present(connection, chunk)
        free |= unrequested
        elsewhere = {
            row.instance_uuid
            for row in connection.execute(_PLACES, {'these': chunk})
            if not (row.queued_for_delete if row.cell_id is None
                    else row.cell_id == cell_id)}
        gone = sorted(unrequested - elsewhere)
        instance_groups.remove_members(connection, gone)
        for column in (models.request_specs.c.instance_uuid,
                       _TABLE.c.instance_uuid):
            statements.delete_counted(connection, column, gone)
    return free


def _from_row(row: sa.Row) -> objects.InstanceMapping:
    return objects.InstanceMapping(
        id=row.mapping_id, instance_uuid=row.instance_uuid,
        project_id=row.project_id, user_id=row.user_id,
        queued_for_delete=bool(row.queued_for_delete),
        cell_mapping=None if row.uuid is None else cell_mappings.from_row(row))


#: Columns of a mapping, by the names that they have in ``instances``.
COLUMNS: dict[str, sa.ColumnElement[Any]] = {
    'created_at': _TABLE.c.created_at,
    'project_id': _TABLE.c.project_id,
    'user_id': _TABLE.c.user_id,
    'uuid': _TABLE.c.instance_uuid.label('uuid'),
}

_IN_ORDER = {**COLUMNS, 'uuid': _TABLE.c.instance_uuid}


def page(
    connection: sa.Connection, cell_id: int, order: sort_order.SortOrder,
    matches: Mapping[str, Collection[Any]],
    after: Sequence[Any] | None = None,
    limit: int | None = None,
) -> Sequence[sa.Row[Any]]:
    """Return a page of the servers of a cell that are not deleted.

    It serves listings while the cell does not answer. Rows have
    :data:`COLUMNS`; other keys of the order count as NULL.

    :param matches: allowed values by column
    :param after: values of the order's keys; the page begins after them
    """
    dialect = connection.dialect.name
    query = (
        sa.select(*COLUMNS.values())
        .where(_TABLE.c.cell_id == cell_id,
               _TABLE.c.queued_for_delete.is_not(sa.true()),
               *(_IN_ORDER[name].in_(values)
                 for name, values in sorted(matches.items())))
        .order_by(*order.clauses(_IN_ORDER, dialect)).limit(limit))
    if after is not None:
        query = query.where(order.after(_IN_ORDER, after, dialect))
    return connection.execute(query).all()


def list_beginning(
    connection: sa.Connection, begin: str, project: str | None, limit: int
) -> list[str]:
    """Return the uuids of servers that begin with a text, in order.

    :param project: only servers of this project; None for all
    """
    conditions = [_TABLE.c.instance_uuid.startswith(begin, autoescape=True),
                  _WANTED]
    if project is not None:
        conditions.append(_TABLE.c.project_id == project)
    return list(connection.scalars(
        sa.select(_TABLE.c.instance_uuid).where(*conditions)
        .order_by(_TABLE.c.instance_uuid).limit(limit)))


def get(connection: sa.Connection, uuid: str) -> sa.Row[Any]:
    """Return :data:`COLUMNS` of a server with a mapping, deleted or not."""
    return connection.execute(
        sa.select(*COLUMNS.values())
        .where(_TABLE.c.instance_uuid == uuid)).one()


def values(
    connection: sa.Connection, uuid: str, order: sort_order.SortOrder
) -> list[Any]:
    """Return the sort values of a mapped server; None for unknown columns."""
    row = get(connection, uuid)
    return [getattr(row, name, None) for name in order.names]


def cells(
    connection: sa.Connection, project_ids: Collection[str]
) -> set[int]:
    """Return the ids of the cells that have servers of these projects."""
    return set(connection.execute(
        sa.select(_TABLE.c.cell_id.distinct())
        .where(_TABLE.c.project_id.in_(project_ids),
               _TABLE.c.cell_id.is_not(None))).scalars())
