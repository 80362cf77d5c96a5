# SPDX-License-Identifier: Apache-2.0
"""Pages of servers as their mappings know them.

It is what there is to be told of the servers of a cell that does not answer.
"""

from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from cellsched.db.api import models
from cellsched.db import sort_order

_TABLE = models.instance_mappings

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
