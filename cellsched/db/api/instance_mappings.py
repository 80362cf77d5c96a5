# SPDX-License-Identifier: Apache-2.0
"""Queries for servers and their cells.

A server's cell is decided by setting it where it is not set: the one record
of its fate.
"""

from collections.abc import Iterable
import datetime

import sqlalchemy as sa

from cellsched.db.api import cell_mappings
from cellsched.db.api import models
from cellsched.db import statements
from cellsched import objects

_TABLE = models.instance_mappings
_CELLS = models.cell_mappings

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


def create(
    connection: sa.Connection, mappings: Iterable[objects.InstanceMapping],
    now: datetime.datetime,
) -> None:
    """Add servers that have no cell yet."""
    connection.execute(sa.insert(_TABLE), [
        {'created_at': now, 'instance_uuid': mapping.instance_uuid,
         'project_id': mapping.project_id, 'user_id': mapping.get('user_id'),
         'queued_for_delete': False}
        for mapping in mappings])


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


def _from_row(row: sa.Row) -> objects.InstanceMapping:
    return objects.InstanceMapping(
        id=row.mapping_id, instance_uuid=row.instance_uuid,
        project_id=row.project_id, user_id=row.user_id,
        queued_for_delete=bool(row.queued_for_delete),
        cell_mapping=None if row.uuid is None else cell_mappings.from_row(row))
