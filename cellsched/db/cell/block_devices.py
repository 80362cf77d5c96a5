# SPDX-License-Identifier: Apache-2.0
"""Queries for the block devices of a cell's servers."""

from collections.abc import Iterable
import datetime
from typing import Any

import sqlalchemy as sa

from cellsched.db.cell import models
from cellsched.db import statements
from cellsched import objects

_TABLE = models.block_device_mapping

#: The object's fields that are columns.
_FIELDS = tuple(name for name in objects.BlockDeviceMapping.fields
                if name in _TABLE.c and name != 'id')

_OF = sa.select(_TABLE).where(
    statements.in_list(_TABLE.c.instance_uuid), _TABLE.c.deleted == 0
).order_by(_TABLE.c.id)


def create_all(
    connection: sa.Connection,
    devices: Iterable[objects.BlockDeviceMapping], now: datetime.datetime,
) -> None:
    """Add block devices, each of which names its server."""
    rows = [
        {'created_at': now, 'deleted': 0,
         **{name: device.get(name) for name in _FIELDS},
         'delete_on_termination': device.get('delete_on_termination', False)}
        for device in devices]
    if rows:
        connection.execute(sa.insert(_TABLE), rows)


def get_many(
    connection: sa.Connection, uuids: Iterable[str]
) -> dict[str, list[objects.BlockDeviceMapping]]:
    """Return the block devices of servers; those without are left out."""
    found: dict[str, list[objects.BlockDeviceMapping]] = {}
    for chunk in statements.chunks(uuids):
        for row in connection.execute(_OF, {'these': chunk}):
            found.setdefault(row.instance_uuid, []).append(_from_row(row))
    return found


def mark_deleted(
    connection: sa.Connection, uuids: Iterable[str], now: datetime.datetime
) -> None:
    """Mark all block devices of servers as deleted."""
    for chunk in statements.chunks(uuids):
        connection.execute(
            sa.update(_TABLE).where(
                _TABLE.c.instance_uuid.in_(chunk), _TABLE.c.deleted == 0)
            .values(deleted=_TABLE.c.id, deleted_at=now))


def _from_row(row: sa.Row[Any]) -> objects.BlockDeviceMapping:
    return objects.BlockDeviceMapping(
        id=row.id, **{name: getattr(row, name) for name in _FIELDS})
