# SPDX-License-Identifier: Apache-2.0
"""Queries for hosts and their cells."""

from collections.abc import Iterable
import datetime
from typing import Any

import sqlalchemy as sa

from cellsched.db.api import cell_mappings
from cellsched.db.api import models
from cellsched.db import statements
from cellsched import objects

_TABLE = models.host_mappings
_CELLS = models.cell_mappings

_CELLS_OF = (
    sa.select(_TABLE.c.host.label('mapped_host'), _CELLS)
    .join(_CELLS, _CELLS.c.id == _TABLE.c.cell_id)
    .where(statements.in_list(_TABLE.c.host)))

_FINGERPRINT = sa.select(
    # Some databases give the id of a row that has gone to the next one.
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
    """Return the cells of hosts by host; unmapped ones are left out."""
    cells = {}
    for chunk in statements.chunks(hosts):
        for row in connection.execute(_CELLS_OF, {'these': chunk}):
            cells[row.mapped_host] = cell_mappings.from_row(row)
    return cells


def fingerprint(connection: sa.Connection) -> tuple[Any, ...]:
    """Return what changes when any host is mapped or is not any more.

    It costs no more than to pass the rows by; nothing of them is returned.
    """
    return tuple(connection.execute(_FINGERPRINT).one())


def by_cell(connection: sa.Connection) -> dict[str, set[str]]:
    """Return all hosts that are mapped, by the uuids of their cells."""
    found: dict[str, set[str]] = {}
    for uuid, host in connection.execute(_ALL):
        found.setdefault(uuid, set()).add(host)
    return found


def owners(
    connection: sa.Connection, hosts: Iterable[str]
) -> dict[str, str]:
    """Return the uuids of hosts' cells; unmapped hosts are left out."""
    return {host: uuid for chunk in statements.chunks(hosts)
            for uuid, host in connection.execute(_OWNERS, {'these': chunk})}


def create_missing(
    connection: sa.Connection, hosts: Iterable[str], cell_id: int,
    now: datetime.datetime,
) -> None:
    """Map those hosts to a cell that are not mapped to any.

    Safe to run by several at once; who wants to know the outcome asks again.
    """
    statements.insert_missing(connection, _TABLE.c.host, [
        {'host': host, 'cell_id': cell_id, 'created_at': now}
        for host in hosts])


def delete(
    connection: sa.Connection, cell_id: int,
    hosts: Iterable[str] | None = None,
) -> None:
    """Unmap hosts of a cell, or all of them."""
    if hosts is None:
        connection.execute(
            sa.delete(_TABLE).where(_TABLE.c.cell_id == cell_id))
        return
    for chunk in statements.chunks(hosts):
        connection.execute(sa.delete(_TABLE).where(
            _TABLE.c.cell_id == cell_id, _TABLE.c.host.in_(chunk)))
