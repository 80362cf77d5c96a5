# SPDX-License-Identifier: Apache-2.0
"""The hosts and instances in the databases of Nova's cells."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import datetime
import functools
import json
from typing import Any

from nova.compute import vm_states
import nova.conf
from nova import context as nova_context
from nova.db.api import api as api_db
from nova.db.api import models as api_models
from nova.db.main import api as db
from nova.db.main import models
from oslo_log import log
from oslo_utils import timeutils
import sqlalchemy as sa

from cellsched import exception
from cellsched.hardware import devices
from cellsched.hardware import documents
from cellsched.hardware.host import HostTopology
from cellsched.host_manager import node_columns

CONF = nova.conf.CONF
LOG = log.getLogger(__name__)

#: Databases store whole seconds: a row written within this time before a read
#: may change again with the same timestamp.
_TIME_RESOLUTION = datetime.timedelta(seconds=2)

#: Number of cells whose changes are read at a time. Nova has five threads for
#: all reads of cells, by default.
_AT_ONCE = 2

#: Number of compute nodes that are read at a time: the rows of all nodes would
#: take more memory than all that is kept of them.
_NODES_AT_ONCE = 500

#: The columns of compute nodes that every decision needs.
_NODE = ('uuid', 'host', 'hypervisor_hostname', 'host_ip', 'vcpus',
         'vcpus_used', 'memory_mb', 'memory_mb_used', 'free_ram_mb',
         'local_gb', 'local_gb_used', 'free_disk_gb', 'disk_available_least',
         'cpu_allocation_ratio', 'ram_allocation_ratio',
         'disk_allocation_ratio', 'hypervisor_type', 'hypervisor_version',
         'cpu_info', 'supported_instances', 'stats', 'metrics')

#: The columns with NUMA cells and PCI devices. They are larger than all others
#: together, so they are read only if a plug-in needs them.
TOPOLOGY, DEVICES = HARDWARE = 'numa_topology', 'pci_stats'

#: The last update of each compute node, by uuid; None if the node may change
#: again with the same timestamp.
Marks = Mapping[str, datetime.datetime | None]


@dataclasses.dataclass(frozen=True, slots=True)
class KnownNode:
    """The facts of a compute node that are needed after the read."""

    uuid: str
    host: str
    hypervisor_hostname: str
    vcpus_used: int
    memory_mb: int
    memory_mb_used: int
    free_ram_mb: int
    local_gb: int
    local_gb_used: int
    free_disk_gb: int
    disk_available_least: int | None
    num_instances: int
    free_pci_devices: int
    has_pcpus: bool

    @classmethod
    def of(cls, node: Any) -> 'KnownNode':
        """Return the facts of the row of a compute node."""
        *names, _, _, _ = cls.__slots__
        cells = _topology(node)
        stats = node_columns.stats_of(node, {})
        return cls(*(getattr(node, name) for name in names),
                   node_columns.number(stats, 'num_instances'),
                   sum(pool.count for pool in _pools(node)),
                   cells is not None and any(
                       cell.pcpus for cell in cells.cells))


@dataclasses.dataclass(frozen=True)
class CellChanges:
    """The changes in a cell since the last read.

    As in Nova, a compute node counts only with a compute service and a report
    of its resources.

    :param marks: marks of all compute nodes
    :param nodes: changed compute nodes
    :param columns: the columns of these nodes
    :param services: all compute services, by host
    """

    marks: Marks
    nodes: Sequence[KnownNode]
    columns: Mapping[str, Any]
    services: Mapping[str, Any]


def changes(
    context: Any, cells: Sequence[Any], before: Mapping[str, Marks],
    hardware: Sequence[str] = HARDWARE,
) -> Iterator[tuple[str, CellChanges | None]]:
    """Yield the uuid of each cell, and its changes.

    Blocks while all cells are read. The changes are None for a cell that does
    not answer.

    :param cells: Nova's cell mappings
    :param before: marks of the last read, by uuid of the cell
    :param hardware: those of :data:`HARDWARE` that are read
    """
    def read(cell_context: Any) -> CellChanges:
        return _changes(cell_context, before.get(cell_context.cell_uuid, {}),
                        hardware)

    # Requests use the same threads of Nova, and wait until one is free. After
    # a cell that does not answer, all others are read at once: several such
    # cells delay the read by at most two timeouts.
    rest, at_once = list(cells), _AT_ONCE
    while rest:
        some, rest = rest[:at_once], rest[at_once:]
        for uuid, found in nova_context.scatter_gather_cells(
                context, some, nova_context.CELL_TIMEOUT, read).items():
            is_missing = nova_context.is_cell_failure_sentinel(found)
            if is_missing:
                at_once = len(cells)
            yield uuid, None if is_missing else found


@dataclasses.dataclass(frozen=True)
class Place:
    """The host of an instance.

    :param host: name of the host, or None
    :param node: name of the compute node, or None; ``NovaHosts.places`` gives
        its uuid instead
    :param is_changing: whether the instance has a task state
    """

    host: str | None
    node: str | None
    is_changing: bool


def gathered(
    context: Any, cells: Sequence[Any],
    read: Callable[..., Mapping[str, Any]], *arguments: Any,
    timeout_s: float = nova_context.CELL_TIMEOUT,
) -> tuple[dict[str, Any], list[Any]]:
    """Return what all cells have found together, and those without an answer.

    Blocks while the cells are read in parallel.

    :param read: reads the cell that a context targets
    :param timeout_s: seconds to wait for an answer
    """
    found: dict[str, Any] = {}
    silent = []
    answers = nova_context.scatter_gather_cells(
        context, cells, timeout_s, read, *arguments)
    for cell in cells:
        rows = answers[cell.uuid]
        if nova_context.is_cell_failure_sentinel(rows):
            silent.append(cell)
        else:
            found |= rows
    return found, silent


def _changes(
    context: Any, before: Marks, hardware: Sequence[str] = HARDWARE
) -> CellChanges:
    """Return the changes in the cell that a context targets."""
    sure = timeutils.utcnow() - _TIME_RESOLUTION
    marks, services = _signs(context)
    marks = {uuid: mark if mark is not None and mark < sure else None
             for uuid, mark in marks.items()}
    changed = [uuid for uuid, mark in marks.items()
               if mark is None or before.get(uuid) != mark]
    known: list[KnownNode] = []
    found = columns((), (), context.cell_uuid)
    for start in range(0, len(changed), _NODES_AT_ONCE):
        nodes = [
            node for node in _nodes(
                context, changed[start:start + _NODES_AT_ONCE],
                (*_NODE, *hardware))
            if node.host in services and has_reported(node)]
        read = [*map(KnownNode.of, nodes)]
        known += read
        for name, values in columns(nodes, read, context.cell_uuid).items():
            if name != 'cell':
                found[name] += values
    return CellChanges(marks, known, found, services)


@db.pick_context_manager_reader
def _signs(context: Any) -> tuple[
        dict[str, datetime.datetime | None], dict[str, Any]]:
    """Return the marks of compute nodes, and the compute services."""
    node, service = models.ComputeNode, models.Service
    marks = {uuid: written for uuid, written in context.session.query(
        node.uuid, node.updated_at).filter(node.deleted == 0)}
    services = {each.host: each for each in context.session.query(
        service.host, service.disabled, service.forced_down,
        service.last_seen_up, service.created_at).filter(
            service.deleted == 0, service.binary == 'nova-compute')}
    return marks, services


@db.pick_context_manager_reader
def _nodes(
    context: Any, uuids: Sequence[str], names: Sequence[str]
) -> Sequence[Any]:
    """Return columns of compute nodes."""
    node = models.ComputeNode
    found: Sequence[Any] = context.session.query(
        *(getattr(node, name) for name in names)).filter(
            node.deleted == 0, node.uuid.in_(uuids)).all()
    return found


@db.pick_context_manager_reader
def service_states(
    context: Any, hosts: Sequence[str]
) -> dict[str, tuple[bool, bool]]:
    """Return the states of the compute services of hosts in one cell.

    :returns: whether the service is disabled, and forced down; hosts without
        a service are missing
    """
    service = models.Service
    return {host: (bool(disabled), bool(forced_down))
            for host, disabled, forced_down in context.session.query(
                service.host, service.disabled, service.forced_down).filter(
                    service.deleted == 0, service.binary == 'nova-compute',
                    service.host.in_(hosts))}


@api_db.context_manager.reader
def aggregates_sign(context: Any) -> tuple[Any, ...]:
    """Return values that differ after a change of any aggregate.

    The last one is the time of the last change, or None. A database may store
    whole seconds, so a change soon after it may have the same values.
    """
    found: list[Any] = []
    times: list[Any] = []
    for model in (api_models.Aggregate, api_models.AggregateHost,
                  api_models.AggregateMetadata):
        *numbers, created_at, updated_at = context.session.query(
            sa.func.count(model.id), sa.func.max(model.id),
            sa.func.sum(model.id), sa.func.max(model.created_at),
            sa.func.max(model.updated_at)).one()
        found += numbers
        times += [each for each in (created_at, updated_at) if each]
    return *found, max(times, default=None)


def may_change_unseen(sign: tuple[Any, ...]) -> bool:
    """Return whether a further change may leave the sign as it is."""
    return (sign[-1] is not None
            and sign[-1] >= timeutils.utcnow() - _TIME_RESOLUTION)


@db.pick_context_manager_reader
def ping(context: Any) -> dict[str, Any]:
    """Make a round trip to the cell that a context targets; find nothing."""
    context.session.execute(sa.text('SELECT 1'))
    return {}


@db.pick_context_manager_reader
def places(context: Any, uuids: Sequence[str]) -> dict[str, Place]:
    """Return the places of the instances in one cell."""
    instance = models.Instance
    return {uuid: Place(host, node, task_state is not None)
            for uuid, host, node, task_state in context.session.query(
                instance.uuid, instance.host, instance.node,
                instance.task_state).filter(
                    instance.deleted == 0, instance.uuid.in_(uuids))}


#: Statuses of migrations before the compute of the destination has claimed,
#: or while it does.
_CLAIMING = frozenset({'accepted', 'pre-migrating'})


#: The names of hosts and nodes where a compute has claimed for an instance;
#: None if the instance is deleted.
Claimed = frozenset[tuple[str, str]] | None


@db.pick_context_manager_reader
def claimed_by_computes(
    context: Any, uuids: Sequence[str]
) -> dict[str, Claimed]:
    """Return where the computes of one cell have claimed, by instance.

    Rows of compute nodes that are read afterwards show these claims. Instances
    without a row are missing.
    """
    instance, migration = models.Instance, models.Migration
    claiming = set[str]()
    found: dict[str, set[tuple[str, str]]] = {}
    for uuid, host, node, status in context.session.query(
            migration.instance_uuid, migration.dest_compute,
            migration.dest_node, migration.status).filter(
                migration.deleted == 0, migration.instance_uuid.in_(uuids)):
        if status in _CLAIMING:
            claiming.add(uuid)
        found.setdefault(uuid, set()).add((host, node))
    claimed: dict[str, Claimed] = {}
    for uuid, host, node, vm_state, task_state, deleted in (
            context.session.query(
                instance.uuid, instance.host, instance.node,
                instance.vm_state, instance.task_state,
                instance.deleted).filter(instance.uuid.in_(uuids))):
        # A compute sets the host of an instance that it builds before it
        # writes its own row, and the task state afterwards.
        if uuid in claiming or (vm_state == vm_states.BUILDING
                                and task_state is None):
            places = set[tuple[str, str]]()
        else:
            places = found.get(uuid, set()) | {(host, node)}
        claimed[uuid] = None if deleted else frozenset(places)
    return claimed


def reported_hardware(
    context: Any, uuids: Sequence[str], hardware: Sequence[str]
) -> dict[str, tuple[HostTopology | None, devices.Pools]]:
    """Return the NUMA cells and the devices of nodes in one cell, by uuid.

    :param hardware: those of :data:`HARDWARE` that are read
    """
    return {row.uuid: (_topology(row), _pools(row))
            for row in _nodes(context, uuids, ('uuid', *hardware))}


def has_reported(node: Any) -> bool:
    """Return whether a compute node has reported its free resources."""
    return node.free_disk_gb is not None


def columns(
    nodes: Sequence[Any], known: Sequence[KnownNode], cell: str
) -> dict[str, Any]:
    """Return the columns from compute nodes.

    :param nodes: rows of compute nodes; all have reported
    :param known: the facts of the same nodes
    """
    flaws: node_columns.Flaws = {}
    stats = [node_columns.stats_of(node, flaws) for node in nodes]
    found = node_columns.of_reports(nodes, cell, stats, flaws=flaws)
    for uuid, problems in flaws.items():
        LOG.warning('Compute node %s reports invalid values, which are '
                    'ignored: %s', uuid, '; '.join(problems))
    return found | {
        'numa_topology': [_topology(node) for node in nodes],
        'device_pools': [_pools(node) for node in nodes],
        **{name: [_ratio(node, name) for node in nodes] for name in _RATIOS},
        'free_pci_devices': [each.free_pci_devices for each in known],
        **usage(known),
    }


def usage(nodes: Sequence[KnownNode]) -> dict[str, list[int]]:
    """Return the columns of the usage that compute nodes reported."""
    free_mb = [1024 * min(
        node.free_disk_gb, node.free_disk_gb
        if node.disk_available_least is None else node.disk_available_least)
        for node in nodes]
    return {
        'vcpus_used': [node.vcpus_used for node in nodes],
        'free_ram_mb': [node.free_ram_mb for node in nodes],
        'unreserved_ram_mb': [node.memory_mb for node in nodes],
        'free_disk_mb': free_mb,
        'unreserved_disk_mb': [1024 * node.local_gb for node in nodes],
        'disk_mb_used': [1024 * node.local_gb_used for node in nodes],
        'num_instances': [node.num_instances for node in nodes],
    }


def uses_less(now: KnownNode, before: KnownNode) -> bool:
    """Return whether less is used on a compute node than before."""
    return any(getattr(now, name) < getattr(before, name) for name in (
        'vcpus_used', 'memory_mb_used', 'local_gb_used', 'num_instances'))


_RATIOS = ('cpu_allocation_ratio', 'ram_allocation_ratio',
           'disk_allocation_ratio')


def _ratio(node: Any, name: str) -> float:
    """Return a ratio; as in Nova, the options serve a node without one."""
    return float(getattr(node, name) or getattr(CONF, name)
                 or getattr(CONF, f'initial_{name}'))


def _topology(node: Any) -> HostTopology | None:
    """Return the NUMA cells of a compute node; None if it reports none."""
    return parse_topology(getattr(node, TOPOLOGY, None) or '')


def _pools(node: Any) -> devices.Pools:
    """Return the free PCI devices of a compute node."""
    return parse_pools(getattr(node, DEVICES, None) or '')


#: Documents whose values are kept: many hosts report the same, and each of the
#: others is parsed a few times in a row.
_KEPT = 1024


def _read(
    text: str, name: str, read: Callable[[Any], Any], missing: Any
) -> Any:
    """Return the value of a document; the default if it has another form."""
    if not text:
        return missing
    try:
        return read(json.loads(text))
    except (RecursionError, ValueError, exception.Invalid) as exc:
        LOG.warning('A compute node reports %s in an unknown form, which is '
                    'ignored: %s', name, exc)
        return missing


@functools.lru_cache(_KEPT)
def parse_topology(text: str) -> HostTopology | None:
    """Return the NUMA cells of the column ``numa_topology``."""
    found: HostTopology | None = _read(
        text, TOPOLOGY, documents.host_topology, None)
    return found


@functools.lru_cache(_KEPT)
def parse_pools(text: str) -> devices.Pools:
    """Return the PCI devices of the column ``pci_stats``."""
    found: devices.Pools = _read(
        text, DEVICES, documents.device_pools, ())
    return found
