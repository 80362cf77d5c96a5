# SPDX-License-Identifier: Apache-2.0
"""Queries of the audit for a cell: pages of servers, and repairs."""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import datetime
import functools
from typing import Any
from typing import NamedTuple

from oslo_serialization import jsonutils
import sqlalchemy as sa

from cellsched.db.cell import instance_history
from cellsched.db.cell import instances
from cellsched.db.cell import models
from cellsched.db.cell import server_moves
from cellsched.db.cell import services
from cellsched.db import statements
from cellsched import objects
from cellsched.objects import child_providers

_TABLE = models.instances
_NODES = models.compute_nodes
_EXTRA = models.instance_extra
_ACTIONS = models.instance_actions
_CASTS = models.build_casts
_MOVES = models.migrations
_SERVICES = models.services
_ON_HOST = _NODES.alias()

#: Final states of a migration, including Nova's.
ENDED = ('cancelled', 'completed', 'confirmed', 'done', 'error', 'failed',
         'reverted')

_ROWS = (
    sa.select(
        _TABLE.c.uuid, _TABLE.c.vm_state, _TABLE.c.task_state, _TABLE.c.host,
        _TABLE.c.node, _TABLE.c.launched_at, _TABLE.c.deleted,
        _TABLE.c.project_id, _TABLE.c.user_id, _TABLE.c.vcpus,
        _TABLE.c.memory_mb, _TABLE.c.root_gb, _TABLE.c.ephemeral_gb,
        _NODES.c.uuid.label('provider'), _CASTS.c.message,
        _SERVICES.c.id.label('service'), _SERVICES.c.forced_down,
        _SERVICES.c.last_seen_up,
        sa.exists().where(_ON_HOST.c.host == _TABLE.c.host,
                          _ON_HOST.c.deleted == 0).label('has_nodes'))
    .outerjoin_from(_TABLE, _NODES, sa.and_(
        _NODES.c.host == _TABLE.c.host,
        _NODES.c.hypervisor_hostname == _TABLE.c.node,
        _NODES.c.deleted == 0))
    .outerjoin(_CASTS, _CASTS.c.instance_uuid == _TABLE.c.uuid)
    .outerjoin(_SERVICES, sa.and_(
        _SERVICES.c.host == _TABLE.c.host,
        _SERVICES.c.binary == services.COMPUTE, _SERVICES.c.deleted == 0))
    .where(statements.in_list(_TABLE.c.uuid)))

_MOVING = sa.select(
    _MOVES.c.instance_uuid, _MOVES.c.migration_type, _MOVES.c.status,
).where(
    statements.in_list(_MOVES.c.instance_uuid), _MOVES.c.deleted == 0,
    sa.func.coalesce(_MOVES.c.status, '').not_in(ENDED),
).order_by(_MOVES.c.id)

_PARENTS = sa.select(_NODES.c.uuid, _NODES.c.providers).where(
    statements.in_list(_NODES.c.uuid), _NODES.c.providers.is_not(None))

_FAILED = sa.select(_ACTIONS.c.instance_uuid).where(
    statements.in_list(_ACTIONS.c.instance_uuid),
    sa.func.coalesce(_ACTIONS.c.request_id, '') != '',
    _ACTIONS.c.message.is_not(None))


#: Amounts of a flavor or a server: vcpus, memory_mb, root_gb, ephemeral_gb.
Size = tuple[int | None, int | None, int | None, int | None]


class MoveRow(NamedTuple):
    """An unfinished move; see :mod:`cellsched.db.cell.server_moves`."""

    kind: str
    status: str


class NodeRow(NamedTuple):
    """A compute node.

    :param mapped: whether its host is marked as mapped
    :param offers: total, reserved and allocation ratio by resource class
    :param children: uuids of its child providers; their inventories are only
        in the claim store
    :param name: name of the node
    :param vanished: whether the driver of its host no longer reports it
    """

    host: str
    mapped: bool
    offers: Mapping[str, tuple[int, int, float]]
    children: frozenset[str] = frozenset()
    name: str = ''
    vanished: bool = False


@dataclasses.dataclass(frozen=True)
class ServerRow:
    """The row of a server.

    :param provider: uuid of its compute node, if that exists
    :param reason: message of the last fault, in ERROR
    :param failed_action: whether a failed action with a request id is
        recorded, in ERROR
    :param moving: whether a migration is not final; the source host may still
        have to clean up
    :param move: the unfinished migration, or None
    :param cast: whether the cell stores a build message for it, which some
        release can read
    :param served: whether its host has a compute service, up or down
    :param children: uuids of the child providers of its compute node
    :param node: name of its compute node
    :param moves: uuids of all its moves
    :param known_host: whether its host has a compute service or a node
    :param size: vcpus, memory_mb, root_gb and ephemeral_gb
    :param down: whether its host has a service that is down
    """

    vm_state: str | None
    task_state: str | None
    host: str | None
    launched_at: datetime.datetime | None
    deleted: bool
    project_id: str | None
    user_id: str | None
    provider: str | None
    reason: str | None = None
    failed_action: bool = False
    moving: bool = False
    move: MoveRow | None = None
    cast: bool = False
    served: bool = False
    children: frozenset[str] = frozenset()
    node: str | None = None
    known_host: bool = False
    size: Size = (None, None, None, None)
    moves: tuple[str, ...] = ()
    down: bool = dataclasses.field(default=False, compare=False)

    @property
    def ran(self) -> bool:
        """Return whether a host may have a guest of the server."""
        return self.host is not None or self.launched_at is not None


def count(connection: sa.Connection) -> int:
    """Return the number of servers that are not deleted."""
    return connection.execute(
        sa.select(sa.func.count()).select_from(_TABLE)
        .where(_TABLE.c.deleted == 0)).scalar_one()


#: Pages of ids and server uuids: of servers that are not deleted, and of
#: migrations. The arguments are the connection, the last id and the limit.
present_after = functools.partial(
    statements.page_after, key=_TABLE.c.id, value=_TABLE.c.uuid,
    conditions=[_TABLE.c.deleted == 0])
moved_after = functools.partial(
    statements.page_after, key=_MOVES.c.id, value=_MOVES.c.instance_uuid,
    conditions=[_MOVES.c.instance_uuid.is_not(None)])


def moves_among(
    connection: sa.Connection, uuids: Iterable[str]
) -> set[str]:
    """Return those of some uuids that are uuids of moves."""
    return statements.find(connection, _MOVES.c.uuid, uuids)


def rows(
    connection: sa.Connection, uuids: Iterable[str],
    up_since: datetime.datetime | None = None,
) -> dict[str, ServerRow]:
    """Return the rows of servers, including deleted ones.

    :param up_since: a service without a report since then is down
    """
    found: dict[str, ServerRow] = {}
    for chunk in statements.chunks(uuids):
        present = connection.execute(_ROWS, {'these': chunk}).all()
        if not present:
            continue
        moving: dict[str, list[MoveRow]] = {}
        for uuid, kind, status in connection.execute(
                _MOVING, {'these': [row.uuid for row in present]}):
            moving.setdefault(uuid, []).append(MoveRow(kind, status))
        moves = server_moves.uuids_of(
            connection, [row.uuid for row in present])
        wrong = [row.uuid for row in present
                 if row.vm_state == 'error' and not row.deleted]
        reasons, failed = _reasons(connection, wrong)
        children = _children(connection, {
            row.provider for row in present if row.provider})
        for row in present:
            found[row.uuid] = ServerRow(
                row.vm_state, row.task_state, row.host, row.launched_at,
                bool(row.deleted), row.project_id, row.user_id, row.provider,
                reasons.get(row.uuid), row.uuid in failed,
                row.uuid in moving, next((
                    move for move in moving.get(row.uuid, ())
                    if move.status != server_moves.FINISHED), None),
                _is_json(row.message), row.service is not None,
                children.get(row.provider, frozenset()), row.node,
                row.service is not None or bool(row.has_nodes),
                (row.vcpus, row.memory_mb, row.root_gb, row.ephemeral_gb),
                tuple(moves.get(row.uuid, ())),
                row.service is not None and (bool(row.forced_down) or (
                    up_since is not None and row.last_seen_up is not None
                    and row.last_seen_up < up_since)))
    return found


def _is_json(text: str | None) -> bool:
    try:
        return text is not None and jsonutils.loads(text) is not None
    except (RecursionError, ValueError):
        return False


def lock(connection: sa.Connection, uuid: str) -> ServerRow | None:
    """Lock and return the row of a server."""
    statements.lock(connection, _TABLE.c.uuid, [uuid])
    return rows(connection, [uuid]).get(uuid)


#: Total, reserved amount and allocation ratio of each resource class.
_OFFERS = {
    'VCPU': ('vcpus', 'vcpus_used', 'cpu_allocation_ratio'),
    'MEMORY_MB': ('memory_mb', 'memory_mb_used', 'ram_allocation_ratio'),
    'DISK_GB': ('local_gb', 'local_gb_used', 'disk_allocation_ratio')}


def nodes(connection: sa.Connection) -> dict[str, NodeRow]:
    """Return the compute nodes that have a uuid and a host, by uuid."""
    return {row.uuid: NodeRow(
        row.host, bool(row.mapped and row.mapped > 0), {
            resource: (getattr(row, total), getattr(row, reserved),
                       getattr(row, ratio) or 1.0)
            for resource, (total, reserved, ratio) in _OFFERS.items()},
        _uuids(row.providers), row.hypervisor_hostname or row.host,
        row.vanished_at is not None)
        for row in connection.execute(sa.select(_NODES).where(
            _NODES.c.deleted == 0, _NODES.c.host.is_not(None)))}


def live_in_shadow(
    connection: sa.Connection, table: sa.Table, after: int, limit: int
) -> tuple[int | None, list[str]]:
    """Return the live rows of which a page of a shadow table has copies.

    A service or a node that comes back after its row was archived keeps its
    uuid, and has another time of creation.

    :returns: the end of the page, None after the last one, and the uuids
    """
    shadow = models.SHADOWS[table]
    page: dict[str, Any] = {}
    end = None
    for end, uuid, made_at in connection.execute(
            sa.select(shadow.c.archive_id, shadow.c.uuid, shadow.c.created_at)
            .where(shadow.c.archive_id > after)
            .order_by(shadow.c.archive_id).limit(limit)):
        page[uuid] = made_at
    returns = table in (_SERVICES, _NODES)
    return end, [
        uuid for uuid, made_at in statements.read(
            connection, sa.select(table.c.uuid, table.c.created_at).where(
                statements.in_list(table.c.uuid), table.c.deleted == 0), page)
        if not returns or made_at == page[uuid]]


def unreadable_flavors(
    connection: sa.Connection, after: int, limit: int
) -> tuple[int | None, list[str]]:
    """Return the servers of a page that have an unreadable flavor.

    :returns: the end of the page, None after the last one, and the uuids
    """
    page = connection.execute(
        sa.select(_EXTRA.c.id, _TABLE.c.uuid, _EXTRA.c.flavor)
        .join(_TABLE, _TABLE.c.uuid == _EXTRA.c.instance_uuid)
        .where(_EXTRA.c.id > after, _TABLE.c.deleted == 0,
               _EXTRA.c.flavor.is_not(None))
        .order_by(_EXTRA.c.id).limit(limit)).all()
    # The servers of a page have few different flavors.
    unreadable = {text for text in {row.flavor for row in page}
                  if not _is_flavor(text)}
    return page[-1].id if page else None, [
        row.uuid for row in page if row.flavor in unreadable]


def _is_flavor(text: str) -> bool:
    try:
        return isinstance(objects.Flavor.obj_from_primitive(
            jsonutils.loads(text)), objects.Flavor)
    except objects.READ_ERRORS:
        return False


def purge_unrun(connection: sa.Connection, uuid: str) -> bool:
    """Delete a server that never had a host; return whether it did so."""
    row = lock(connection, uuid)
    if row is None or row.ran:
        return False
    instances.purge(connection, [uuid])
    return True


def _children(
    connection: sa.Connection, nodes: set[str]
) -> dict[str, frozenset[str]]:
    """Return the child providers of nodes; each node is parsed once."""
    return {uuid: _uuids(text) for uuid, text in statements.read(
        connection, _PARENTS, nodes)}


def _uuids(text: str | None) -> frozenset[str]:
    return frozenset(child.uuid for child in child_providers.load(text))


def _reasons(
    connection: sa.Connection, uuids: list[str]
) -> tuple[dict[str, str], set[str]]:
    if not uuids:
        return {}, set()
    return instance_history.latest(connection, uuids), set(
        connection.execute(_FAILED, {'these': uuids}).scalars())
