# SPDX-License-Identifier: Apache-2.0
"""Queries for the hosts of a cell and their changes."""

from collections.abc import Iterable
from collections.abc import Sequence
import datetime
from typing import Any
from typing import NamedTuple

import sqlalchemy as sa

from cellsched.db.cell import models
from cellsched.db.cell import services
from cellsched.db import feed
from cellsched.db import session
from cellsched.db import statements
from cellsched.objects import child_providers

_NODES = models.compute_nodes
_SERVICES = models.services

_ALL_NODES = sa.select(
    *(_NODES.c[name] for name in (
        'uuid', 'host', 'hypervisor_hostname', 'vcpus', 'memory_mb',
        'memory_mb_used', 'local_gb', 'local_gb_used', 'free_disk_gb',
        'disk_available_least', 'cpu_allocation_ratio',
        'ram_allocation_ratio', 'disk_allocation_ratio', 'hypervisor_type',
        'hypervisor_version', 'cpu_info', 'supported_instances', 'stats',
        'metrics', 'numa_topology', 'pci_stats', 'traits', 'providers',
        'host_ip')),
    # A node that is no longer reported is gone for every reader.
    sa.case((_NODES.c.vanished_at.is_not(None), _NODES.c.id),
            else_=_NODES.c.deleted).label('deleted'),
    # The column may be NULL in rows of other programs.
    sa.func.coalesce(_NODES.c.mapped, 0).label('mapped'),
).order_by(_NODES.c.id)

_REPORTED = sa.and_(_NODES.c.deleted == 0, _NODES.c.vanished_at.is_(None))

_THERE = _ALL_NODES.add_columns(
    _NODES.c.id, _NODES.c.lane, _NODES.c.position,
).where(_REPORTED)

_NODES_OF = _THERE.where(statements.in_list(_NODES.c.uuid))

_NODES_ON = _THERE.where(statements.in_list(sa.func.lower(
    _NODES.c.host, type_=_NODES.c.host.type)))

_ALL_SERVICES = sa.select(
    *(_SERVICES.c[name] for name in (
        'host', 'disabled', 'forced_down', 'last_seen_up', 'created_at',
        'deleted')),
).where(_SERVICES.c.binary == services.COMPUTE).order_by(_SERVICES.c.id)

_CHANGED_NODES = _ALL_NODES.where(models.FEED.changed(_NODES))

_CHANGED_SERVICES = _ALL_SERVICES.where(models.FEED.changed(_SERVICES))

_SERVICES_THERE = _ALL_SERVICES.where(_SERVICES.c.deleted == 0)

_SERVICES_OF = _SERVICES_THERE.where(statements.in_list(_SERVICES.c.host))

_BEATS = sa.select(
    _NODES.c.uuid, *(_SERVICES.c[name] for name in (
        'disabled', 'forced_down', 'last_seen_up', 'created_at')),
).join_from(_NODES, _SERVICES, _SERVICES.c.host == _NODES.c.host).where(
    _REPORTED, _NODES.c.uuid.is_not(None),
    _SERVICES.c.deleted == 0, _SERVICES.c.binary == services.COMPUTE)


class HostChanges(NamedTuple):
    """Changes of a cell's hosts.

    Rows are in order of creation: if a host was deleted and came back, its
    last row counts. Some rows may be repeated.

    :param token: the token for the next call
    :param complete: whether the rows are all rows, so that a host without a
        row is gone; otherwise a deleted host has a row with ``deleted`` != 0
    :param nodes: rows of compute nodes
    :param services: rows of compute services
    :param partial: rows of compute nodes without a host or a uuid, which are
        left out of the nodes
    """

    token: feed.Token
    complete: bool
    nodes: Sequence[Any]
    services: Sequence[Any]
    partial: Sequence[Any] = ()


def token(database: session.Database) -> feed.Token:
    """Return the current token, by a cheap read."""
    return models.FEED.glance(database)


def changes(
    connection: sa.Connection, since: feed.Token | None = None,
    until: feed.Token | None = None,
) -> HostChanges:
    """Return the hosts that changed since a token.

    Without a token, or with a token of another database, all hosts that are
    not deleted are returned.

    No write of this project is missed, even a concurrent one. Writes of other
    programs, such as Nova's agents, do not change the feed: read a cell with
    such agents as a whole from time to time. Marking a node as mapped does not
    change the feed either.

    :param until: the current token, if it was read already
    """
    # Read the token first: a change that is committed later is then repeated,
    # not missed.
    if until is None:
        until = models.FEED.token(connection)
    if since == until:
        return nothing(until)
    if since is None or not feed.follows(since, until):
        return _apart(
            until, True, connection.execute(
                _ALL_NODES.where(_REPORTED)).all(),
            connection.execute(_SERVICES_THERE).all())
    values = feed.parameters(since)
    return _apart(
        until, False, connection.execute(_CHANGED_NODES, values).all(),
        connection.execute(_CHANGED_SERVICES, values).all())


def selected(
    connection: sa.Connection, nodes: Iterable[str] | None,
    names: Iterable[str] = (),
) -> HostChanges:
    """Return the rows of selected hosts.

    Rows of nodes include their marks ``lane`` and ``position``.

    :param nodes: uuids of compute nodes, without other nodes of their hosts;
        None for all hosts
    :param names: names of hosts, in upper or lower case, with all their nodes
    """
    if nodes is None:
        return _apart(
            (), True, connection.execute(_THERE).all(),
            connection.execute(_SERVICES_THERE).all())
    found = {row.id: row for query, values in (
        (_NODES_OF, nodes), (_NODES_ON, {name.lower() for name in names}))
        for row in statements.read(connection, query, values)}
    rows = [found[number] for number in sorted(found)]
    return _apart((), True, rows, list(statements.read(
        connection, _SERVICES_OF,
        (row.host for row in rows if row.host is not None))))


def beats(connection: sa.Connection) -> Sequence[Any]:
    """Return the service columns of all compute nodes, by uuid."""
    return connection.execute(_BEATS).all()


def nothing(token: feed.Token) -> HostChanges:
    """Return the changes if the token is unchanged: none."""
    return HostChanges(token, False, [], [])


def _apart(
    token: feed.Token, complete: bool, nodes: Sequence[Any],
    services: Sequence[Any],
) -> HostChanges:
    """Return the changes, with partial nodes apart from the others."""
    partial = [row for row in nodes if row.uuid is None or row.host is None]
    return HostChanges(token, complete, [
        row for row in nodes if row not in partial
    ] if partial else nodes, services, partial)


def delete(
    connection: sa.Connection, host: str, now: datetime.datetime
) -> list[str]:
    """Delete the compute service of a host and its nodes.

    If the host reports again, it gets new ones.

    :returns: uuids of the nodes and of their child providers
    """
    nodes: Any = connection.execute(
        sa.select(_NODES.c.uuid, _NODES.c.providers)
        .where(_NODES.c.host == host, _NODES.c.deleted == 0)).all()
    lane = models.FEED.move(connection, host)
    for table, condition in (
            (_SERVICES, _SERVICES.c.binary == services.COMPUTE),
            (_NODES, sa.true())):
        connection.execute(
            sa.update(table)
            .where(table.c.host == host, table.c.deleted == 0, condition)
            .values({'deleted': table.c.id, 'deleted_at': now,
                     **models.FEED.marks}), {'in_lane': lane})
    return [uuid for node in nodes if node.uuid is not None for uuid in (
        node.uuid, *(child.uuid for child in child_providers.load(
            node.providers)))]
