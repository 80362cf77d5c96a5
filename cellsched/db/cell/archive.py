# SPDX-License-Identifier: Apache-2.0
"""Queries that archive deleted rows to shadow tables, and purge these.

A server is archived together with its child rows, in the caller's transaction.
It is not archived while a move or a build of it is unfinished, or while it may
have networks.
"""

import collections
from collections.abc import Collection
from collections.abc import Iterable
import datetime
import functools
from typing import Any

import sqlalchemy as sa

from cellsched.db.cell import audit_queries
from cellsched.db.cell import instance_children
from cellsched.db.cell import models
from cellsched.db import statements

_TABLE = models.instances
_ACTIONS = models.instance_actions
_EVENTS = models.instance_actions_events
_CASTS = models.build_casts
_MOVES = models.migrations

#: Child tables of servers, with the column of the server's uuid.
_CHILDREN = (
    models.instance_extra, models.instance_system_metadata,
    models.instance_faults, _ACTIONS, models.block_device_mapping, _MOVES)

#: Tables whose rows are also deleted without their server.
_ALONE = tuple(table for table in models.SHADOWS
               if table not in (_TABLE, _ACTIONS, _EVENTS))


def _settled(table: Any) -> sa.ColumnElement[bool]:
    """Return the condition that a row was deleted before a time."""
    return _deleted_at(table) < sa.bindparam('before')


def _deleted_at(table: Any) -> sa.ColumnElement[Any]:
    """Return the deletion time; other programs may not have set it."""
    return sa.func.coalesce(
        table.c.deleted_at, table.c.updated_at, table.c.created_at)


_READY = sa.and_(
    _TABLE.c.deleted != 0, _settled(_TABLE),
    _TABLE.c.network_allocated.is_not(sa.true()),
    ~sa.exists().where(_CASTS.c.instance_uuid == _TABLE.c.uuid),
    ~sa.exists().where(
        _MOVES.c.instance_uuid == _TABLE.c.uuid, _MOVES.c.deleted == 0,
        sa.func.coalesce(_MOVES.c.status, '').not_in(audit_queries.ENDED)))

_COUNT = sa.select(sa.func.count()).select_from(_TABLE).where(_READY)

_LOCK = statements.by_index(
    sa.select(_TABLE.c.uuid)
    .where(statements.in_list(_TABLE.c.uuid), _READY), _TABLE.c.uuid,
).with_for_update()


def count(connection: sa.Connection, before: datetime.datetime) -> int:
    """Return the number of archivable servers deleted before a time."""
    return connection.execute(_COUNT, {'before': before}).scalar_one()


def ready_after(
    connection: sa.Connection, before: datetime.datetime, after: int,
    limit: int,
) -> list[tuple[int, str]]:
    """Return ids and uuids of a page of archivable servers.

    :param before: servers deleted before this time
    :param after: the id at which the last page ended
    """
    return statements.page_after(
        connection, after, limit, _TABLE.c.id, _TABLE.c.uuid,
        [_READY.params(before=before)])


def present(connection: sa.Connection, uuids: Iterable[str]) -> set[str]:
    """Return the servers that have a row in this cell, deleted or not."""
    return statements.find(connection, _TABLE.c.uuid, uuids)


def move_servers(
    connection: sa.Connection, uuids: Iterable[str],
    before: datetime.datetime,
) -> collections.Counter[str]:
    """Archive servers and their child rows; return row counts by table.

    Servers that are not archivable stay. Tags are deleted, not archived.
    """
    moved: collections.Counter[str] = collections.Counter()
    for chunk in statements.chunks(uuids):
        locked = list(connection.execute(
            _LOCK, {'these': chunk, 'before': before}).scalars())
        if not locked:
            continue
        instance_children.delete_tags(connection, locked)
        for table in (_EVENTS, *_CHILDREN, _TABLE):
            moved[table.name] += _move(connection, table, locked)
    return +moved


def move_rows(
    connection: sa.Connection, before: datetime.datetime, limit: int
) -> collections.Counter[str]:
    """Archive rows that were deleted alone; return row counts by table.

    These are services, compute nodes, and child rows of existing servers.

    :param limit: the most rows to archive
    """
    moved: collections.Counter[str] = collections.Counter()
    for table in _ALONE:
        ids = list(connection.execute(_next_alone(table), {
            'before': before, 'most': limit - moved.total()}).scalars())
        for chunk in statements.chunks(ids):
            moved[table.name] += _run(
                connection, table, statements.in_list(table.c.id), chunk)
        if moved.total() >= limit:
            break
    return +moved


def purge(
    connection: sa.Connection, before: datetime.datetime | None, limit: int
) -> collections.Counter[str]:
    """Delete rows of shadow tables; return row counts by table.

    :param before: only rows deleted before this time
    :param limit: the most rows to delete
    """
    gone: collections.Counter[str] = collections.Counter()
    for shadow in models.SHADOWS.values():
        query = sa.select(shadow.c.archive_id).order_by(
            shadow.c.archive_id).limit(limit - gone.total())
        if before is not None:
            query = query.where(_deleted_at(shadow) < before)
        for chunk in statements.chunks(connection.execute(query).scalars()):
            gone[shadow.name] += connection.execute(
                sa.delete(shadow).where(
                    statements.in_list(shadow.c.archive_id)),
                {'these': chunk}).rowcount
        if gone.total() >= limit:
            break
    return +gone


@functools.cache
def _next_alone(table: sa.Table) -> sa.Select[Any]:
    """Return the query for deleted rows whose server is not deleted."""
    query = sa.select(table.c.id).where(table.c.deleted != 0, _settled(table))
    if table in _CHILDREN:
        query = query.where(~sa.exists().where(
            _TABLE.c.uuid == table.c.instance_uuid, _TABLE.c.deleted != 0))
    return query.order_by(table.c.id).limit(
        sa.bindparam('most')).with_for_update(skip_locked=True)


def _move(
    connection: sa.Connection, table: sa.Table, uuids: Collection[str]
) -> int:
    """Archive a table's rows of servers; return the number of rows."""
    condition: sa.ColumnElement[bool]
    if table is _EVENTS:
        condition = _EVENTS.c.action_id.in_(sa.select(_ACTIONS.c.id).where(
            statements.in_list(_ACTIONS.c.instance_uuid)))
    else:
        condition = statements.in_list(
            _TABLE.c.uuid if table is _TABLE else table.c.instance_uuid)
    return _run(connection, table, condition, uuids)


def _run(
    connection: sa.Connection, table: sa.Table,
    condition: sa.ColumnElement[bool], these: Collection[Any],
) -> int:
    connection.execute(sa.insert(models.SHADOWS[table]).from_select(
        [column.name for column in table.columns],
        sa.select(*_copied(table)).where(condition)), {'these': these})
    return connection.execute(
        sa.delete(table).where(condition), {'these': these}).rowcount


@functools.cache
def _copied(table: sa.Table) -> tuple[sa.ColumnElement[Any], ...]:
    """Return the columns to archive.

    A child row that was not deleted itself gets the deletion time of its
    server, by which it is purged later.
    """
    of = None
    if table is _EVENTS:
        of = sa.select(_deleted_at(_TABLE)).join(
            _ACTIONS, _ACTIONS.c.instance_uuid == _TABLE.c.uuid).where(
            _ACTIONS.c.id == _EVENTS.c.action_id)
    elif table in _CHILDREN:
        of = sa.select(_deleted_at(_TABLE)).where(
            _TABLE.c.uuid == table.c.instance_uuid)
    return tuple(
        column if of is None or column.name != 'deleted_at'
        else sa.func.coalesce(column, of.scalar_subquery())
        for column in table.columns)
