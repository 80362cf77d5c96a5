# SPDX-License-Identifier: Apache-2.0
"""Queries for the servers of a host, and for guests that must not be there."""

from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any

from oslo_serialization import jsonutils
import sqlalchemy as sa

from cellsched.db.cell import models
from cellsched.db.cell import server_moves
from cellsched.db.cell import states
from cellsched.db import statements
from cellsched import objects

_TABLE = models.instances
_EXTRA = models.instance_extra

_FIELDS = tuple(name for name in objects.Instance.fields if name in _TABLE.c)

_HERE = sa.select(_TABLE.c.uuid).where(
    _TABLE.c.host == sa.bindparam('on'), _TABLE.c.deleted == 0)

_BUILDING = _HERE.where(
    _TABLE.c.vm_state == states.SPAWNING.vm_state,
    _TABLE.c.task_state == states.SPAWNING.task_state)

_DELETING = _HERE.where(_TABLE.c.task_state == 'deleting')

_MOVES = models.migrations

_WITH_MOVES = (
    sa.select(_TABLE.c.uuid, _TABLE.c.display_name, _TABLE.c.vm_state,
              _TABLE.c.task_state, _MOVES.c.status.label('move'))
    .select_from(_TABLE.outerjoin(_MOVES, sa.and_(
        _MOVES.c.instance_uuid == _TABLE.c.uuid,
        _MOVES.c.status.in_(server_moves.LIVE))))
    .where(_TABLE.c.host == sa.bindparam('on'), _TABLE.c.deleted == 0)
    .order_by(_TABLE.c.id))

_ONE = (
    sa.select(_TABLE, _EXTRA.c.flavor)
    .select_from(_TABLE.outerjoin(
        _EXTRA, _EXTRA.c.instance_uuid == _TABLE.c.uuid))
    .where(_TABLE.c.uuid == sa.bindparam('of')))

_MANY = (
    sa.select(_TABLE.c.uuid, _TABLE.c.host, _TABLE.c.vm_state,
              _TABLE.c.task_state)
    .where(statements.in_list(_TABLE.c.uuid)))


def count(connection: sa.Connection, host: str) -> int:
    """Return the number of servers of a host."""
    return connection.execute(
        sa.select(sa.func.count()).select_from(_TABLE)
        .where(_TABLE.c.host == host, _TABLE.c.deleted == 0)).scalar_one()


def list_all(connection: sa.Connection, host: str) -> Sequence[Any]:
    """Return the servers of a host, in order of their arrival.

    ``move`` is the status of an unfinished move, or None.
    """
    return connection.execute(_WITH_MOVES, {'on': host}).all()


def list_building(connection: sa.Connection, host: str) -> list[str]:
    """Return the servers that a host is building."""
    return list(connection.execute(_BUILDING, {'on': host}).scalars())


def list_deleting(connection: sa.Connection, host: str) -> list[str]:
    """Return the servers of a host that are being deleted."""
    return list(connection.execute(_DELETING, {'on': host}).scalars())


def list_strays(
    connection: sa.Connection, host: str, uuids: Iterable[str]
) -> list[str]:
    """Return the servers, of the given ones, that must not be on a host.

    Servers without a row in the cell are left out.
    """
    return [
        row.uuid for chunk in statements.chunks(uuids)
        for row in connection.execute(_MANY, {'these': chunk})
        if is_stray(row, host)]


def is_stray(instance: Any, host: str) -> bool:
    """Return whether a server must not be on this host.

    It is deleted, is on another host, or is being built elsewhere. A server
    that is being moved may be on two hosts for a while.
    """
    if instance.vm_state == states.DELETED.vm_state:
        return True
    if instance.host == host:
        return False
    state = states.State(instance.vm_state, instance.task_state)
    return state in (states.SCHEDULING, states.SPAWNING, states.WAITING) or (
        instance.host is not None and instance.task_state is None)


def get(connection: sa.Connection, uuid: str) -> objects.Instance | None:
    """Return a server with its flavor, deleted or not; None if unknown."""
    row = connection.execute(_ONE, {'of': uuid}).first()
    if row is None:
        return None
    instance = objects.Instance(
        **{name: getattr(row, name) for name in _FIELDS})
    if row.flavor is not None:
        instance.flavor = objects.Flavor.obj_from_primitive(
            jsonutils.loads(row.flavor))
    return instance
