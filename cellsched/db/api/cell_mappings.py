# SPDX-License-Identifier: Apache-2.0
"""Queries for cells."""

from collections.abc import Collection
from collections.abc import Mapping
import datetime
import pathlib
from typing import Any

from oslo_db import exception as db_exc
import sqlalchemy as sa

from cellsched.db.api import models
from cellsched import exception
from cellsched import objects

_TABLE = models.cell_mappings

#: The fields that no two cells share, as error messages name them.
_UNIQUE = {'name': 'name', 'database_connection': 'database connection',
           'transport_url': 'transport URL'}


def from_row(row: sa.Row) -> objects.CellMapping:
    """Return the object of a row of ``cell_mappings``."""
    return objects.CellMapping(
        id=row.id, uuid=row.uuid, name=row.name, disabled=bool(row.disabled),
        transport_url=row.transport_url or '',
        database_connection=row.database_connection or '')


def list_all(connection: sa.Connection) -> list[objects.CellMapping]:
    """Return every cell, including cell0 and disabled cells, by id."""
    return [from_row(row) for row in connection.execute(
        sa.select(_TABLE).order_by(_TABLE.c.id))]


def find(
    connection: sa.Connection, uuid: str, lock: bool = False
) -> objects.CellMapping | None:
    """Return a cell, or None.

    :param lock: whether to lock the row until the transaction ends
    """
    query = sa.select(_TABLE).where(_TABLE.c.uuid == uuid)
    row = connection.execute(
        query.with_for_update() if lock else query).first()
    return None if row is None else from_row(row)


def create_apart(
    connection: sa.Connection, mapping: objects.CellMapping,
    now: datetime.datetime,
) -> None:
    """Add a cell with a name, a database and a transport of its own.

    If cell0 is mapped, its row serializes callers, so that one of two callers
    that add the same cell is refused.

    :raises cellsched.exception.CellMappingExists: another cell has its name,
        one of its URLs, or its uuid
    """
    _wait_for_others(connection)
    _check_apart(connection, mapping, _UNIQUE)
    create(connection, mapping, now)


def update_apart(
    connection: sa.Connection, uuid: str, values: Mapping[str, Any],
    now: datetime.datetime,
) -> objects.CellMapping:
    """Change a cell and return it; refuse a name or a URL of another cell.

    :param values: new values by column
    :raises cellsched.exception.CellMappingNotFound: the cell is unknown
    :raises cellsched.exception.CellMappingExists: another cell has its new
        name, or one of its new URLs
    """
    _wait_for_others(connection)
    mapping = find(connection, uuid, lock=True)
    if mapping is None:
        raise exception.CellMappingNotFound(uuid=uuid)
    for name, value in values.items():
        setattr(mapping, name, value)
    _check_apart(connection, mapping, values)
    connection.execute(
        sa.update(_TABLE).where(_TABLE.c.uuid == uuid)
        .values(**values, updated_at=now))
    return mapping


def delete(connection: sa.Connection, cell_id: int) -> None:
    """Delete a cell without mapped hosts and servers."""
    connection.execute(sa.delete(_TABLE).where(_TABLE.c.id == cell_id))


def _wait_for_others(connection: sa.Connection) -> None:
    connection.execute(
        sa.select(_TABLE.c.id).where(_TABLE.c.uuid == objects.CELL0_UUID)
        .with_for_update())


def _check_apart(
    connection: sa.Connection, mapping: objects.CellMapping,
    fields: Collection[str],
) -> None:
    for cell in list_all(connection):
        for field, words in _UNIQUE.items():
            value = mapping.get(field)
            if cell.uuid != mapping.uuid and field in fields and value and (
                    cell.get(field) == value):
                raise exception.CellMappingExists(
                    uuid=cell.identity, field=words)


def beside(url: str, suffix: str) -> str:
    """Return a database URL with a suffix added to the database name.

    In the name of an SQLite file it is before the extension.

    :raises cellsched.exception.InvalidField: the URL names no database
    """
    parsed = sa.engine.make_url(url)
    name = parsed.database
    if not name or name == ':memory:':
        raise exception.InvalidField(
            where='database', field='connection',
            expected='a URL that names a database')
    if parsed.get_backend_name() == 'sqlite':
        path = pathlib.PurePath(name)
        name = str(path.with_name(path.stem + suffix + path.suffix))
    else:
        name += suffix
    return parsed.set(database=name).render_as_string(hide_password=False)


def create(
    connection: sa.Connection, mapping: objects.CellMapping,
    now: datetime.datetime,
) -> None:
    """Add a cell.

    :raises cellsched.exception.CellMappingExists: the uuid exists
    """
    try:
        connection.execute(sa.insert(_TABLE).values(
            created_at=now, uuid=mapping.uuid, name=mapping.get('name'),
            transport_url=mapping.transport_url,
            database_connection=mapping.database_connection,
            disabled=mapping.get('disabled', False)))
    except db_exc.DBDuplicateEntry:
        raise exception.CellMappingExists(
            uuid=mapping.uuid, field='uuid') from None
