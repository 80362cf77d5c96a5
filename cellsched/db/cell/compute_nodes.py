# SPDX-License-Identifier: Apache-2.0
"""Queries for the compute nodes of a cell."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import datetime
import json
from typing import Any
from typing import NamedTuple

import sqlalchemy as sa

from cellsched.db.cell import models
from cellsched.db.cell import services
from cellsched.db import statements
from cellsched.objects import child_providers

_TABLE = models.compute_nodes
_SERVICES = models.services

#: The column may be NULL in rows of other programs.
_MAPPED = sa.func.coalesce(_TABLE.c.mapped, 0)


def save(
    connection: sa.Connection, uuid: str, host: str, node: str,
    values: Mapping[str, Any], now: datetime.datetime,
) -> str:
    """Add or update a node; return its uuid, which never changes.

    :param uuid: the uuid for a new node
    """
    own = sa.and_(_TABLE.c.host == host,
                  _TABLE.c.hypervisor_hostname == node,
                  _TABLE.c.deleted == 0)
    lane = models.FEED.move(connection, host)
    change = sa.update(_TABLE).where(own).values(
        {'updated_at': now, **values, **models.FEED.marks})
    if not connection.execute(change, {'in_lane': lane}).rowcount:
        statements.insert_missing(connection, _TABLE.c.uuid, [{
            'created_at': now, 'updated_at': now, 'uuid': uuid, 'host': host,
            'hypervisor_hostname': node, 'deleted': 0, 'mapped': 0, **values,
            'lane': lane,
            'position': models.FEED.position(connection, lane)}])
    return connection.execute(
        sa.select(_TABLE.c.uuid).where(own)).scalar_one()


def find(
    connection: sa.Connection, host: str, node: str
) -> tuple[str, str | None] | None:
    """Return the uuid of a node and the text of its children, or None.

    :mod:`cellsched.objects.child_providers` defines the text.
    """
    row: Any = connection.execute(
        sa.select(_TABLE.c.uuid, _TABLE.c.providers)
        .where(_TABLE.c.host == host, _TABLE.c.hypervisor_hostname == node,
               _TABLE.c.deleted == 0, _TABLE.c.uuid.is_not(None))).first()
    return None if row is None else (row.uuid, row.providers)


def list_with_services(connection: sa.Connection) -> Sequence[Any]:
    """Return each node that has reported, with the columns of its service.

    A node without a service is left out.
    """
    return connection.execute(
        sa.select(
            _TABLE.c.uuid, _TABLE.c.host, _TABLE.c.hypervisor_hostname,
            _TABLE.c.vcpus, _TABLE.c.memory_mb, _TABLE.c.memory_mb_used,
            _TABLE.c.local_gb, _TABLE.c.local_gb_used,
            _TABLE.c.cpu_allocation_ratio, _TABLE.c.ram_allocation_ratio,
            _TABLE.c.disk_allocation_ratio, _TABLE.c.hypervisor_version,
            _MAPPED.label('mapped'), _SERVICES.c.disabled,
            _SERVICES.c.forced_down, _SERVICES.c.last_seen_up,
            _SERVICES.c.created_at)
        .join(_SERVICES, sa.and_(
            _SERVICES.c.host == _TABLE.c.host,
            _SERVICES.c.binary == services.COMPUTE,
            _SERVICES.c.deleted == 0))
        .where(_TABLE.c.deleted == 0)
        .order_by(_TABLE.c.id)).all()


def list_hosts(connection: sa.Connection) -> list[str]:
    """Return the hosts that have nodes, sorted."""
    return list(connection.execute(
        sa.select(_TABLE.c.host).distinct()
        .where(_TABLE.c.deleted == 0, _TABLE.c.host.is_not(None))
        .order_by(_TABLE.c.host)).scalars())


def list_unmapped(connection: sa.Connection) -> Sequence[Any]:
    """Return ``uuid`` and ``host`` of nodes not marked as mapped."""
    return connection.execute(
        sa.select(_TABLE.c.uuid, _TABLE.c.host)
        .where(_MAPPED < 1, _TABLE.c.deleted == 0,
               _TABLE.c.host.is_not(None))
        .order_by(_TABLE.c.id)).all()


def mark_foreign(connection: sa.Connection, uuids: Iterable[str]) -> None:
    """Mark nodes whose host name belongs to a host of another cell.

    Their agents read the mark. It does not change the feed.
    """
    for chunk in statements.chunks(uuids):
        connection.execute(
            sa.update(_TABLE).where(_TABLE.c.uuid.in_(chunk), _MAPPED == 0)
            .values(mapped=-1))


def mark_unmapped(connection: sa.Connection, hosts: Iterable[str]) -> None:
    """Remove the mapped mark of hosts, so that discovery finds them again."""
    for chunk in statements.chunks(hosts):
        connection.execute(
            sa.update(_TABLE).where(_TABLE.c.host.in_(chunk))
            .values(mapped=0))


def mark_mapped(connection: sa.Connection, uuids: Iterable[str]) -> None:
    """Mark the hosts of these nodes as mapped.

    The reader of the feed sets the mark, so it does not change the feed.
    """
    for chunk in statements.chunks(uuids):
        connection.execute(
            sa.update(_TABLE).where(_TABLE.c.uuid.in_(chunk))
            .values(mapped=1))


_ALL = sa.select(
    _TABLE.c.uuid, _TABLE.c.hypervisor_hostname, _TABLE.c.host,
    _TABLE.c.traits, _TABLE.c.providers,
).where(
    # Rows of other programs may have no host or no uuid.
    _TABLE.c.deleted == 0, _TABLE.c.uuid.is_not(None),
    _TABLE.c.host.is_not(None),
).order_by(_TABLE.c.hypervisor_hostname, _TABLE.c.id)


class RootRow(NamedTuple):
    """A compute node as a root provider.

    :ivar name: name of the node
    :ivar children: all providers below it, by name
    """

    uuid: str
    name: str
    host: str
    traits: frozenset[str]
    children: tuple[child_providers.Child, ...] = ()


def list_all(connection: sa.Connection) -> list[RootRow]:
    """Return every compute node with its child providers, by name."""
    return [
        RootRow(row.uuid, row.hypervisor_hostname or row.host, row.host,
                _traits(row.traits), tuple(child_providers.load(
                    row.providers)))
        for row in connection.execute(_ALL)]


def _traits(text: str | None) -> frozenset[str]:
    """Return the trait names in a JSON text; none if it is no list."""
    try:
        value = json.loads(text) if text else ()
    except (RecursionError, ValueError):
        value = ()
    return frozenset(map(str, value) if isinstance(value, list) else ())
