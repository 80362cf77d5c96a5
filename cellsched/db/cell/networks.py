# SPDX-License-Identifier: Apache-2.0
"""Queries for ``network_allocated``: whether a server may have networks.

The column is an addition. The cell's database has no other data on networks.
"""

import datetime

import sqlalchemy as sa

from cellsched.db.cell import models
from cellsched import objects

_TABLE = models.instances

#: Condition of a finished server: deleted, or in ERROR without a host.
_ENDED = sa.or_(
    _TABLE.c.deleted != 0,
    sa.and_(_TABLE.c.vm_state == 'error', _TABLE.c.host.is_(None)))

_ALLOCATED = sa.select(_TABLE.c.network_allocated).where(
    _TABLE.c.uuid == sa.bindparam('of'))

_TO_FREE = sa.select(
    _TABLE.c.uuid, _TABLE.c.project_id, _TABLE.c.user_id,
).where(
    _TABLE.c.network_allocated == sa.true(), _ENDED,
    _TABLE.c.uuid > sa.bindparam('after'),
).order_by(_TABLE.c.uuid).limit(sa.bindparam('most'))

_FORGET = (
    sa.update(_TABLE)
    .where(_TABLE.c.uuid == sa.bindparam('of'),
           _TABLE.c.network_allocated == sa.true(), _ENDED)
    .values(network_allocated=False, updated_at=sa.bindparam('now')))


def is_allocated(connection: sa.Connection, uuid: str) -> bool:
    """Return whether a server may have networks."""
    return bool(connection.execute(_ALLOCATED, {'of': uuid}).scalar())


def list_to_free(
    connection: sa.Connection, limit: int, after: str = ''
) -> list[objects.Instance]:
    """Return a page of finished servers that may have networks.

    Rows have uuid, project and user, sorted by uuid.

    :param after: the uuid at which the last page ended
    """
    return [
        objects.Instance(uuid=row.uuid, project_id=row.project_id,
                         user_id=row.user_id)
        for row in connection.execute(_TO_FREE, {
            'most': limit, 'after': after})]


def forget(
    connection: sa.Connection, uuid: str, now: datetime.datetime
) -> None:
    """Record that the networks of a finished server are deallocated."""
    connection.execute(_FORGET, {'of': uuid, 'now': now})
