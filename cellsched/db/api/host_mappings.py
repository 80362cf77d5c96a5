# SPDX-License-Identifier: Apache-2.0
"""Queries for host mappings: the cell of each host."""

from collections.abc import Iterable
import datetime
from typing import Any

import sqlalchemy as sa

from cellsched.db.api import cell_mappings
from cellsched.db.api import models
from cellsched.db import statements
from cellsched import exception
from cellsched import objects

_TABLE = models.host_mappings
_CELLS = models.cell_mappings

_CELLS_OF = (
    sa.select(_TABLE.c.host.label('mapped_host'), _CELLS)
    .join(_CELLS, _CELLS.c.id == _TABLE.c.cell_id)
    .where(statements.in_list(_TABLE.c.host)))

_FINGERPRINT = sa.select(
    # Some databases reuse the id of a deleted row.
    sa.func.count(), sa.func.max(_TABLE.c.id),
    sa.func.max(_TABLE.c.created_at),
    sa.func.sum(sa.cast(_TABLE.c.id, sa.BigInteger) * _TABLE.c.cell_id),
).select_from(_TABLE)

_ALL = sa.select(_CELLS.c.uuid, _TABLE.c.host).join(
    _CELLS, _CELLS.c.id == _TABLE.c.cell_id)

_OWNERS = _ALL.where(statements.in_list(_TABLE.c.host))


def get_many(
    connection: sa.Connection, hosts: Iterable[str]
) -> dict[str, objects.CellMapping]:
    """Return the cell by host, without unmapped hosts."""
    return {row.mapped_host: cell_mappings.from_row(row)
            for row in statements.read(connection, _CELLS_OF, hosts)}


def get(connection: sa.Connection, host: str) -> objects.CellMapping:
    """Return the cell of a host.

    :raises cellsched.exception.HostMappingNotFound: the host is not mapped
    """
    found = get_many(connection, [host])
    if host not in found:
        raise exception.HostMappingNotFound(host=host)
    return found[host]


def fingerprint(connection: sa.Connection) -> tuple[Any, ...]:
    """Return a value that changes when a host is mapped or unmapped.

    The database scans the rows and returns only aggregates of them.
    """
    return tuple(connection.execute(_FINGERPRINT).one())


def by_cell(connection: sa.Connection) -> dict[str, set[str]]:
    """Return all mapped hosts, by the uuid of their cell."""
    found: dict[str, set[str]] = {}
    for uuid, host in connection.execute(_ALL):
        found.setdefault(uuid, set()).add(host)
    return found


def owners(connection: sa.Connection, hosts: Iterable[str]) -> dict[str, str]:
    """Return the uuid of the cell by host, without unmapped hosts."""
    return {host: uuid for uuid, host in statements.read(
        connection, _OWNERS, hosts)}


def create_missing(
    connection: sa.Connection, hosts: Iterable[str], cell_id: int,
    now: datetime.datetime,
) -> None:
    """Map unmapped hosts to a cell.

    Several processes may call it at the same time. Read the mappings again to
    learn the outcome.
    """
    statements.insert_missing(connection, _TABLE.c.host, [
        {'host': host, 'cell_id': cell_id, 'created_at': now}
        for host in hosts])


def delete(
    connection: sa.Connection, cell_id: int,
    hosts: Iterable[str] | None = None,
) -> None:
    """Unmap some hosts of a cell, or all hosts."""
    if hosts is None:
        connection.execute(
            sa.delete(_TABLE).where(_TABLE.c.cell_id == cell_id))
        return
    statements.write(connection, sa.delete(_TABLE).where(
        _TABLE.c.cell_id == cell_id, statements.in_list(_TABLE.c.host)), hosts)
