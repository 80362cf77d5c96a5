# SPDX-License-Identifier: Apache-2.0
"""The hosts and instances in the databases of Nova's cells."""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import datetime
import json
from typing import Any

from nova import context as nova_context
from nova.db.api import api as api_db
from nova.db.api import models as api_models
from nova.db.main import api as db
from nova.db.main import models
from nova import objects as nova_objects
from oslo_utils import timeutils
import sqlalchemy as sa

#: Databases store whole seconds: a row written within this time before a read
#: may change again with the same timestamp.
_TIME_RESOLUTION = datetime.timedelta(seconds=2)

#: Number of cells whose changes are read at a time. Nova has five threads for
#: all reads of cells, by default.
_AT_ONCE = 2

#: Number of compute nodes that are read at a time: Nova's objects of all nodes
#: would take more memory than all that is kept of them.
_NODES_AT_ONCE = 500

#: The last update of each compute node, by uuid; None if the node may change
#: again with the same timestamp.
Marks = Mapping[str, datetime.datetime | None]


@dataclasses.dataclass(frozen=True, slots=True)
class KnownNode:
    """The facts of a compute node that are needed after the read.

    Nova's object of a node takes a hundred times the memory.
    """

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

    @classmethod
    def of(cls, node: Any) -> 'KnownNode':
        """Return the facts of Nova's ``ComputeNode`` object."""
        *names, _ = cls.__slots__
        return cls(*(getattr(node, name) for name in names),
                   _number(node.stats or {}, 'num_instances'))

    @property
    def stats(self) -> Mapping[str, int]:
        return {'num_instances': self.num_instances}


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
    context: Any, cells: Sequence[Any], before: Mapping[str, Marks]
) -> Iterator[tuple[str, CellChanges | None]]:
    """Yield the uuid of each cell, and its changes.

    Blocks while all cells are read. The changes are None for a cell that does
    not answer.

    :param cells: Nova's cell mappings
    :param before: marks of the last read, by uuid of the cell
    """
    def read(cell_context: Any) -> CellChanges:
        return _changes(cell_context, before.get(cell_context.cell_uuid, {}))

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


def silent(
    context: Any, cells: Sequence[Any], timeout_s: float
) -> list[str]:
    """Return the cells that do not answer in some seconds, by identity.

    Blocks while all cells are asked in parallel.
    """
    answers = nova_context.scatter_gather_cells(
        context, cells, timeout_s, _ask)
    return sorted(cell.identity for cell in cells if (
        nova_context.is_cell_failure_sentinel(answers[cell.uuid])))


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


def places(
    context: Any, cells: Sequence[Any], instances: Sequence[str]
) -> tuple[dict[str, Place], bool]:
    """Return the places of instances, and whether all cells answered.

    Blocks while all cells are read in parallel.
    """
    found: dict[str, Place] = {}
    answers = nova_context.scatter_gather_cells(
        context, cells, nova_context.CELL_TIMEOUT, _places,
        instances).values()
    is_complete = True
    for rows in answers:
        if nova_context.is_cell_failure_sentinel(rows):
            is_complete = False
        else:
            found |= rows
    return found, is_complete


#: Whether a compute service is disabled, and forced down.
ServiceState = tuple[bool, bool]


def service_states(
    context: Any, cells: Sequence[Any], hosts: Sequence[str]
) -> dict[str, ServiceState]:
    """Return the states of the compute services of hosts.

    Blocks while the cells are read in parallel. Hosts without a service, and
    those of a cell that does not answer, are missing.
    """
    found: dict[str, ServiceState] = {}
    for rows in nova_context.scatter_gather_cells(
            context, cells, nova_context.CELL_TIMEOUT, _service_states,
            hosts).values():
        if not nova_context.is_cell_failure_sentinel(rows):
            found |= rows
    return found


def _changes(context: Any, before: Marks) -> CellChanges:
    """Return the changes in the cell that a context targets."""
    sure = timeutils.utcnow() - _TIME_RESOLUTION
    marks, services = _signs(context)
    marks = {uuid: mark if mark is not None and mark < sure else None
             for uuid, mark in marks.items()}
    changed = [uuid for uuid, mark in marks.items()
               if mark is None or before.get(uuid) != mark]
    known: list[KnownNode] = []
    found = columns((), context.cell_uuid)
    for start in range(0, len(changed), _NODES_AT_ONCE):
        nodes = [
            node for node in nova_objects.ComputeNodeList.get_all_by_uuids(
                context, changed[start:start + _NODES_AT_ONCE])
            if node.host in services and has_reported(node)]
        known += map(KnownNode.of, nodes)
        for name, values in columns(nodes, context.cell_uuid).items():
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
def _service_states(
    context: Any, hosts: Sequence[str]
) -> dict[str, ServiceState]:
    """Return the states of the compute services of hosts in one cell."""
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
def _ask(context: Any) -> None:
    """Make a round trip to the cell that a context targets."""
    context.session.execute(sa.text('SELECT 1'))


@db.pick_context_manager_reader
def _places(context: Any, uuids: Sequence[str]) -> dict[str, Place]:
    """Return the places of the instances in one cell."""
    instance = models.Instance
    return {uuid: Place(host, node, task_state is not None)
            for uuid, host, node, task_state in context.session.query(
                instance.uuid, instance.host, instance.node,
                instance.task_state).filter(
                    instance.deleted == 0, instance.uuid.in_(uuids))}


#: Statistics that differ between hosts; the first two have columns.
_COUNTS = frozenset({'failed_builds', 'io_workload', 'image_props'})


def has_reported(node: Any) -> bool:
    """Return whether a compute node has reported its free resources."""
    return 'free_disk_gb' in node and node.free_disk_gb is not None


def columns(nodes: Sequence[Any], cell: str) -> dict[str, Any]:
    """Return the columns from compute nodes.

    :param nodes: Nova's ``ComputeNode`` objects; all have reported
    """
    stats = [node.stats or {} for node in nodes]
    return {
        'host': [node.host for node in nodes],
        'nodename': [node.hypervisor_hostname for node in nodes],
        'host_ip': [str(node.host_ip) if node.host_ip else None
                    for node in nodes],
        'cell': cell,
        'vcpus_total': [node.vcpus for node in nodes],
        'total_usable_ram_mb': [node.memory_mb for node in nodes],
        'total_usable_disk_gb': [node.local_gb for node in nodes],
        'cpu_allocation_ratio': [node.cpu_allocation_ratio for node in nodes],
        'ram_allocation_ratio': [node.ram_allocation_ratio for node in nodes],
        'disk_allocation_ratio': [
            node.disk_allocation_ratio for node in nodes],
        'num_io_ops': [_number(each, 'io_workload') for each in stats],
        'failed_builds': [_number(each, 'failed_builds') for each in stats],
        'free_pci_devices': [_free_devices(node) for node in nodes],
        'hypervisor_type': [node.hypervisor_type or None for node in nodes],
        'hypervisor_version': [node.hypervisor_version or 0
                               for node in nodes],
        'cpu_info': [node.cpu_info or '' for node in nodes],
        'supported_instances': [_supported(node) for node in nodes],
        'stats': [_lasting(each) for each in stats],
        'metrics': [node.metrics or '' for node in nodes],
        **usage(nodes),
    }


def usage(nodes: Sequence[Any]) -> dict[str, list[int]]:
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
        'num_instances': [_number(node.stats or {}, 'num_instances')
                          for node in nodes],
    }


def uses_less(now: Any, before: Any) -> bool:
    """Return whether less is used on a compute node than before."""
    return any(getattr(now, name) < getattr(before, name) for name in (
        'vcpus_used', 'memory_mb_used', 'local_gb_used')) or (
        _number(now.stats or {}, 'num_instances')
        < _number(before.stats or {}, 'num_instances'))


def service_columns(services: Sequence[Any]) -> dict[str, list[Any]]:
    """Return the columns from compute services.

    :param services: one service for each host
    """
    return {
        'service_disabled': [bool(each.disabled) for each in services],
        'forced_down': [bool(each.forced_down) for each in services],
        'last_seen_up': [_timestamp(each.last_seen_up or each.created_at)
                         for each in services],
    }


def _timestamp(time: datetime.datetime | None) -> float:
    """Return the seconds since the epoch of a time from a database."""
    if time is None:
        return 0.0
    return time.replace(tzinfo=datetime.UTC).timestamp()


def _number(stats: Any, name: str) -> int:
    return int(stats.get(name) or 0)


def _free_devices(node: Any) -> int:
    pools = node.pci_device_pools
    return sum(pool.count for pool in pools) if pools else 0


def _supported(node: Any) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(each.to_list())
                 for each in node.supported_hv_specs or ())


def _lasting(stats: Any) -> str:
    """Return the statistics that many hosts share, as JSON text."""
    lasting = {name: value for name, value in stats.items()
               if name not in _COUNTS and not name.startswith('num_')}
    return json.dumps(lasting, sort_keys=True) if lasting else ''
