# SPDX-License-Identifier: Apache-2.0
"""Queries for servers and their cells.

A server's cell is decided by setting it where it is not set: the one record
of its fate.
"""

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import datetime
from typing import Any
from typing import NamedTuple

import sqlalchemy as sa

from cellsched.db.api import cell_mappings
from cellsched.db.api import models
from cellsched.db import sort_order
from cellsched.db import statements
from cellsched import objects

_TABLE = models.instance_mappings
_CELLS = models.cell_mappings
_REQUESTS = models.build_requests

_INSERT = sa.insert(_TABLE).inline()

_MINE = statements.in_list(_TABLE.c.instance_uuid)
_WANTED = _TABLE.c.queued_for_delete.is_not(sa.true())

_MANY = (
    sa.select(
        _CELLS, _TABLE.c.id.label('mapping_id'), _TABLE.c.instance_uuid,
        _TABLE.c.project_id, _TABLE.c.user_id, _TABLE.c.queued_for_delete)
    .select_from(_TABLE)
    .outerjoin(_CELLS, _CELLS.c.id == _TABLE.c.cell_id)
    .where(_MINE))

_DECIDE = (
    sa.update(_TABLE).where(_MINE, _TABLE.c.cell_id.is_(None), _WANTED)
    .values(cell_id=sa.bindparam('cell'), updated_at=sa.bindparam('now')))

# PostgreSQL takes nearly all servers to be in a cell that is compared with,
# where there are few cells, and none to be left.
_PLACED = sa.and_(
    _WANTED, _TABLE.c.cell_id.is_not(None), _TABLE.c.cell_id.not_in(
        sa.select(_CELLS.c.id).where(_CELLS.c.uuid == objects.CELL0_UUID)))

_REQUESTED = sa.join(
    _REQUESTS, _TABLE, _TABLE.c.instance_uuid == _REQUESTS.c.instance_uuid)


def _amounts(of_user: bool = False) -> list[sa.ColumnElement[int]]:
    """Return columns of what servers hold, all or those of a user."""
    theirs = _TABLE.c.user_id == sa.bindparam('user')

    def value(column: Any) -> Any:
        return sa.case((theirs, column)) if of_user else column

    return [
        sa.func.count(value(_TABLE.c.id)),
        sa.func.coalesce(sa.func.sum(value(_TABLE.c.vcpus)), 0),
        sa.func.coalesce(sa.func.sum(value(_TABLE.c.memory_mb)), 0)]


def _usage(accepted: bool, by_user: bool) -> sa.Select[Any]:
    """Return the statement that counts.

    A project has few requests and many servers, so those that have one are
    counted apart instead of being looked for with each server.
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
        there + here if accepted else there - here
        for there, here in zip(placed.c, requested.c))
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
    """The quota that a project's servers use.

    :param ram: in MB
    :param unsized: how many of the servers were mapped by somebody who does
        not tell their sizes; they count for no cores and no memory
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
    """Add servers of a user that have no cell yet.

    :param flavor: how much each takes of its project's quota
    """
    shared = {'created_at': now, 'project_id': project_id, 'user_id': user_id,
              'queued_for_delete': False, 'vcpus': flavor and flavor.vcpus,
              'memory_mb': flavor and flavor.memory_mb}
    statements.insert_all(connection, _INSERT, [
        {**shared, 'instance_uuid': uuid} for uuid in uuids])


def get_many(
    connection: sa.Connection, uuids: Iterable[str]
) -> dict[str, objects.InstanceMapping]:
    """Return mappings by instance; unknown instances are left out."""
    mappings = {}
    for chunk in statements.chunks(uuids):
        for row in connection.execute(_MANY, {'these': chunk}):
            mappings[row.instance_uuid] = _from_row(row)
    return mappings


def decide(
    connection: sa.Connection, uuids: Iterable[str], cell_id: int,
    now: datetime.datetime,
) -> set[str]:
    """Give servers their cell; return those that have it now.

    One that has another cell already keeps it, and one that its user deleted
    gets none. To decide again what was decided succeeds.
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
    """Return those servers that have this cell still, and are wanted.

    That stays so until the transaction ends.
    """
    return {uuid for chunk in statements.chunks(uuids)
            for uuid in statements.lock(
                connection, _TABLE.c.instance_uuid, chunk,
                _TABLE.c.cell_id == cell_id, _WANTED)}


def hold(connection: sa.Connection, uuids: Iterable[str]) -> None:
    """Have these servers keep their cells until the transaction ends.

    One that has none gets none meanwhile.
    """
    for chunk in statements.chunks(uuids):
        statements.lock(connection, _TABLE.c.instance_uuid, chunk)


def withdraw(
    connection: sa.Connection, uuids: Iterable[str], cell_id: int,
    now: datetime.datetime,
) -> None:
    """Take a decision back; servers that have another cell keep it."""
    for chunk in statements.chunks(uuids):
        if len(chunk) > 1:
            statements.lock(connection, _TABLE.c.instance_uuid, chunk)
        connection.execute(
            sa.update(_TABLE).where(
                _TABLE.c.instance_uuid.in_(chunk),
                _TABLE.c.cell_id == cell_id)
            .values(cell_id=None, updated_at=now))


def reopen(
    connection: sa.Connection, uuid: str, cell_id: int,
    now: datetime.datetime,
) -> bool:
    """Take a server's cell back, for it to be given one again.

    :returns: whether it was that cell, and its user has not deleted it
    """
    return bool(connection.execute(
        sa.update(_TABLE).where(
            _TABLE.c.instance_uuid == uuid, _TABLE.c.cell_id == cell_id,
            _WANTED)
        .values(cell_id=None, updated_at=now)).rowcount)


def mark_deleted(
    connection: sa.Connection, uuids: Iterable[str], now: datetime.datetime
) -> None:
    """Say that their user deleted these servers; no cell is decided then."""
    for chunk in statements.chunks(uuids):
        if len(chunk) > 1:
            statements.lock(connection, _TABLE.c.instance_uuid, chunk)
        connection.execute(
            sa.update(_TABLE).where(_TABLE.c.instance_uuid.in_(chunk))
            .values(queued_for_delete=True, updated_at=now))


def usage(
    connection: sa.Connection, project_id: str, user_id: str | None = None,
    accepted: bool = False,
) -> ProjectUsage:
    """Return what the servers of a project hold, or those of a user in it.

    A server holds something once it has a cell, which is not cell0, and no
    build request any more, until its user deletes it.

    :param accepted: count those too that have a build request still
    """
    return usages(connection, project_id, user_id, accepted)[-1]


def usages(
    connection: sa.Connection, project_id: str, user_id: str | None,
    accepted: bool = False,
) -> list[ProjectUsage]:
    """Return what :func:`usage` does, of a project and of a user in it.

    It is that of the project alone where no user is named.
    """
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
    """Return what a project's servers hold in each cell, by its uuid.

    Cells in which it has none are left out.
    """
    return {
        uuid: ProjectUsage(*map(int, amounts))
        for uuid, *amounts in connection.execute(
            _USED_BY_CELL, {'project': project_id})}


def count_in_cell(
    connection: sa.Connection, cell_id: int
) -> tuple[int, int]:
    """Return how many servers a cell has, and how many that are deleted."""
    living, total = connection.execute(
        sa.select(sa.func.count(sa.case((_WANTED, 1))), sa.func.count())
        .select_from(_TABLE).where(_TABLE.c.cell_id == cell_id)).one()
    return living, total - living


def count_by_cell(connection: sa.Connection) -> dict[int, int]:
    """Return how many servers that are not deleted cells have, by their id.

    Cells without any are left out.
    """
    return {cell_id: count for cell_id, count in connection.execute(
        sa.select(_TABLE.c.cell_id, sa.func.count())
        .where(_TABLE.c.cell_id.is_not(None), _WANTED)
        .group_by(_TABLE.c.cell_id))}


def delete_in_cell(connection: sa.Connection, cell_id: int) -> None:
    """Remove every server of a cell."""
    connection.execute(sa.delete(_TABLE).where(_TABLE.c.cell_id == cell_id))


def create_missing(
    connection: sa.Connection, rows: Iterable[Mapping[Any, Any]],
    cell_id: int, now: datetime.datetime,
) -> int:
    """Map servers to a cell that are not mapped; return how many were not.

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


def _from_row(row: sa.Row) -> objects.InstanceMapping:
    return objects.InstanceMapping(
        id=row.mapping_id, instance_uuid=row.instance_uuid,
        project_id=row.project_id, user_id=row.user_id,
        queued_for_delete=bool(row.queued_for_delete),
        cell_mapping=None if row.uuid is None else cell_mappings.from_row(row))


#: What a mapping tells of its server, by the names that this has there.
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
    """Return rows of the servers of a cell that are not deleted, in order.

    Each has :data:`COLUMNS`; keys of the order that are none of these are
    taken for NULL.

    :param matches: some of the columns, each with the values of which the
        server has one
    :param after: the values of the order's keys that they come after
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


def get(connection: sa.Connection, uuid: str) -> sa.Row[Any]:
    """Return :data:`COLUMNS` of a server with a mapping, deleted or not."""
    return connection.execute(
        sa.select(*COLUMNS.values())
        .where(_TABLE.c.instance_uuid == uuid)).one()


def values(
    connection: sa.Connection, uuid: str, order: sort_order.SortOrder
) -> list[Any]:
    """Return what a server is sorted by; None where its mapping cannot tell.

    The server has a mapping.
    """
    row = get(connection, uuid)
    return [getattr(row, name, None) for name in order.names]


def cells(
    connection: sa.Connection, project_ids: Collection[str]
) -> set[int]:
    """Return the ids of the cells in which projects have servers."""
    return set(connection.execute(
        sa.select(_TABLE.c.cell_id.distinct())
        .where(_TABLE.c.project_id.in_(project_ids),
               _TABLE.c.cell_id.is_not(None))).scalars())
