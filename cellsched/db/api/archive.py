# SPDX-License-Identifier: Apache-2.0
"""Queries that forget servers whose rows are archived."""

from collections.abc import Iterable
import datetime
from typing import Any

import sqlalchemy as sa

from cellsched.db.api import audit_queries
from cellsched.db.api import instance_groups
from cellsched.db.api import models
from cellsched.db import statements

_TABLE = models.instance_mappings

_MAPPINGS = sa.select(
    _TABLE.c.instance_uuid, _TABLE.c.cell_id, _TABLE.c.queued_for_delete,
).where(statements.in_list(_TABLE.c.instance_uuid))


_UNPLACED = (
    sa.select(_TABLE.c.id, _TABLE.c.instance_uuid)
    .where(_TABLE.c.id > sa.bindparam('after'), _TABLE.c.cell_id.is_(None),
           _TABLE.c.queued_for_delete == sa.true(),
           sa.func.coalesce(_TABLE.c.updated_at, _TABLE.c.created_at)
           < sa.bindparam('before'))
    .order_by(_TABLE.c.id).limit(sa.bindparam('most')))


def unplaced_after(
    connection: sa.Connection, before: datetime.datetime, after: int,
    limit: int,
) -> list[tuple[int, str]]:
    """Return the next servers that were deleted before they had a cell.

    :param before: they were deleted before this time
    :param after: the id of the mapping of the last one before them
    :returns: ids of mappings and uuids
    """
    rows: Any = connection.execute(
        _UNPLACED, {'before': before, 'after': after, 'most': limit})
    return [(row.id, row.instance_uuid) for row in rows]


def forget(
    connection: sa.Connection, uuids: Iterable[str], cell_id: int | None
) -> set[str]:
    """Remove mappings of servers that are deleted in a cell, and the rest.

    That is what was asked for them, and their places in server groups. One
    that is mapped to another cell may live there, and keeps all of it.

    :param cell_id: None for servers that never had one
    :returns: those whose rows in the cell may be archived, which are all but
        those that have a build request
    """
    free: set[str] = set()
    for chunk in statements.chunks(uuids):
        statements.lock(connection, _TABLE.c.instance_uuid, chunk)
        unrequested = set(chunk) - audit_queries.requested(connection, chunk)
        free |= unrequested
        elsewhere = {
            row.instance_uuid
            for row in connection.execute(_MAPPINGS, {'these': chunk})
            if not (row.queued_for_delete if row.cell_id is None
                    else row.cell_id == cell_id)}
        gone = sorted(unrequested - elsewhere)
        instance_groups.remove_members(connection, gone)
        for column in (models.request_specs.c.instance_uuid,
                       _TABLE.c.instance_uuid):
            statements.delete_counted(connection, column, gone)
    return free
