# SPDX-License-Identifier: Apache-2.0
"""Queries for the compute nodes of a cell."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import datetime
import json
from typing import Any
from typing import NamedTuple

from oslo_db import exception as db_exc
import sqlalchemy as sa

from cellsched.db.cell import models
from cellsched.db.cell import services
from cellsched.db import statements
from cellsched import exception
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

    A node that was deleted, or that another host reported, keeps its row if
    it has the same uuid.

    :param uuid: the uuid for a new node
    """
    own = sa.and_(_TABLE.c.host == host,
                  _TABLE.c.hypervisor_hostname == node,
                  _TABLE.c.deleted == 0)
    lane = models.FEED.move(connection, host)
    values = {**values, 'vanished_at': None}
    change = sa.update(_TABLE).where(own).values(
        {'updated_at': now, **values, **models.FEED.marks})
    back = sa.update(_TABLE).where(_TABLE.c.uuid == uuid).values({
        'updated_at': now, 'host': host, 'hypervisor_hostname': node,
        'deleted': 0, 'deleted_at': None, 'mapped': 0, **values,
        **models.FEED.marks})
    if not connection.execute(change, {'in_lane': lane}).rowcount and (
            not connection.execute(back, {'in_lane': lane}).rowcount):
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


def traits_of(
    connection: sa.Connection, host: str, node: str | None = None
) -> frozenset[str]:
    """Return the traits of a node, or of all nodes of a host."""
    query = sa.select(_TABLE.c.traits).where(
        _TABLE.c.host == host, _TABLE.c.deleted == 0)
    if node is not None:
        query = query.where(_TABLE.c.hypervisor_hostname == node)
    return frozenset().union(
        *map(_traits, connection.execute(query).scalars()))


class HeldNode(NamedTuple):
    """A node and its holder.

    :ivar node: name of the node
    :ivar vanished: whether the driver of its host no longer reports it
    """

    uuid: str
    host: str
    node: str
    providers: str | None
    vanished: bool


_HELD = sa.select(
    _TABLE.c.uuid, _TABLE.c.host, _TABLE.c.hypervisor_hostname,
    _TABLE.c.providers, _TABLE.c.vanished_at.is_not(None),
).where(_TABLE.c.deleted == 0, _TABLE.c.uuid.is_not(None),
        _TABLE.c.host.is_not(None)).order_by(_TABLE.c.id)

_HELD_BY = _HELD.where(_TABLE.c.host == sa.bindparam('on'))

_HOLDER = _HELD.where(_TABLE.c.uuid == sa.bindparam('of'))


def list_held(connection: sa.Connection, host: str) -> list[HeldNode]:
    """Return the nodes of a host, with those that it no longer reports."""
    return [HeldNode(*row) for row in connection.execute(
        _HELD_BY, {'on': host})]


def list_former(
    connection: sa.Connection, host: str, host_id: str
) -> list[HeldNode]:
    """Return the nodes that a host has under other names.

    A database that was restored can have a former name of a host. The node
    that is named as the host is left out, because it is the machine itself.

    :param host_id: the uuid that the host keeps
    """
    names = sa.select(_SERVICES.c.host).where(
        _SERVICES.c.host_id == host_id, _SERVICES.c.host != host,
        _SERVICES.c.binary == services.COMPUTE, _SERVICES.c.deleted == 0)
    return [HeldNode(*row) for row in connection.execute(_HELD.where(
        _TABLE.c.host.in_(names),
        _TABLE.c.hypervisor_hostname != _TABLE.c.host))]


def holder(connection: sa.Connection, uuid: str) -> HeldNode | None:
    """Return a node by its uuid, whichever host reports it, or None."""
    row = connection.execute(_HOLDER, {'of': uuid}).first()
    return row and HeldNode(*row)


def has_child(connection: sa.Connection, uuid: str, except_of: str) -> bool:
    """Return whether another node than this one has a child provider.

    :param except_of: uuid of the node to leave out
    """
    return any(
        child.uuid == uuid for text, in connection.execute(
            sa.select(_TABLE.c.providers).where(
                _TABLE.c.deleted == 0, _TABLE.c.uuid != except_of,
                _TABLE.c.providers.contains(uuid)))
        for child in child_providers.load(text))


def take(
    connection: sa.Connection, held: HeldNode, host: str, node: str,
    now: datetime.datetime,
) -> None:
    """Give a node, with its servers and their moves, to another host or name.

    The uuid of the node, and so the claims of its servers, stay. Rows of
    deleted servers follow too, because they say which host loses them.

    :raises cellsched.exception.HostNameTaken: the host has another node of
        this name
    """
    lane = models.FEED.move(connection, host)
    try:
        connection.execute(
            sa.update(_TABLE).where(_TABLE.c.uuid == held.uuid).values({
                'updated_at': now, 'host': host, 'hypervisor_hostname': node,
                'mapped': 0 if host != held.host else _TABLE.c.mapped,
                **models.FEED.marks}), {'in_lane': lane})
    except db_exc.DBDuplicateEntry:
        raise exception.HostNameTaken(
            host=host, by=f'another node {node}') from None
    moves, casts = models.migrations.c, models.build_casts.c
    for on_host, on_node in (
            (models.instances.c.host, models.instances.c.node),
            (moves.source_compute, moves.source_node),
            (moves.dest_compute, moves.dest_node), (casts.host, casts.node)):
        connection.execute(
            sa.update(on_host.table)
            .where(on_host == held.host, on_node == held.node)
            .values({on_host.name: host, on_node.name: node}))


def mark_vanished(
    connection: sa.Connection, held: HeldNode, now: datetime.datetime,
    delete: bool,
) -> None:
    """Record that the driver of its host no longer reports a node.

    :param delete: whether nothing is on it, so that its row is deleted
    """
    lane = models.FEED.move(connection, held.host)
    values: dict[str, Any] = {'deleted': _TABLE.c.id, 'deleted_at': now} if (
        delete) else {'vanished_at': now}
    connection.execute(
        sa.update(_TABLE).where(
            _TABLE.c.uuid == held.uuid, _TABLE.c.host == held.host,
            _TABLE.c.deleted == 0).values({**values, **models.FEED.marks}),
        {'in_lane': lane})


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
    statements.write(connection, sa.update(_TABLE).where(
        statements.in_list(_TABLE.c.uuid), _MAPPED == 0,
    ).values(mapped=-1), uuids)


def mark_unmapped(connection: sa.Connection, hosts: Iterable[str]) -> None:
    """Remove the mapped mark of hosts, so that discovery finds them again."""
    statements.write(connection, sa.update(_TABLE).where(
        statements.in_list(_TABLE.c.host)).values(mapped=0), hosts)


def mark_mapped(connection: sa.Connection, uuids: Iterable[str]) -> None:
    """Mark the hosts of these nodes as mapped.

    The reader of the feed sets the mark, so it does not change the feed.
    """
    statements.write(connection, sa.update(_TABLE).where(
        statements.in_list(_TABLE.c.uuid)).values(mapped=1), uuids)


_ALL = sa.select(
    _TABLE.c.uuid, _TABLE.c.hypervisor_hostname, _TABLE.c.host,
    _TABLE.c.traits, _TABLE.c.providers,
).where(
    # Rows of other programs may have no host or no uuid.
    _TABLE.c.deleted == 0, _TABLE.c.uuid.is_not(None),
    _TABLE.c.host.is_not(None), _TABLE.c.vanished_at.is_(None),
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
    """Return every reported compute node with its children, by name."""
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
