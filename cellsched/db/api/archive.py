# SPDX-License-Identifier: Apache-2.0
"""Queries that remove records of archived servers."""

from collections.abc import Iterable
import datetime

import sqlalchemy as sa

from cellsched.db.api import audit_queries
from cellsched.db.api import instance_groups
from cellsched.db.api import models
from cellsched.db import statements

_TABLE = models.instance_mappings

_MAPPINGS = sa.select(
    _TABLE.c.instance_uuid, _TABLE.c.cell_id, _TABLE.c.queued_for_delete,
).where(statements.in_list(_TABLE.c.instance_uuid))


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
        connection, _TABLE.c.id, _TABLE.c.instance_uuid, after, limit,
        _TABLE.c.cell_id.is_(None), _TABLE.c.queued_for_delete == sa.true(),
        sa.func.coalesce(_TABLE.c.updated_at, _TABLE.c.created_at) < before)


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
