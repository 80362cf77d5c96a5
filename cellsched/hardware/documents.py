# SPDX-License-Identifier: Apache-2.0
"""Nova's documents of topologies and devices, read and written.

A document is the primitive of a versioned object, as it is on the wire and in
the databases. Older forms are read, too.
"""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import json
from typing import Any

from cellsched import exception
from cellsched.hardware import devices
from cellsched.hardware.devices import DeviceRequest
from cellsched.hardware.devices import Pool
from cellsched.hardware.devices import Pools
from cellsched.hardware.fit import Networks
from cellsched.hardware.fit import Pins
from cellsched.hardware.fit import PlacedCell
from cellsched.hardware.fit import Placement
from cellsched.hardware.fit import Ratios
from cellsched.hardware import guest
from cellsched.hardware.guest import DEDICATED
from cellsched.hardware.guest import GuestCell
from cellsched.hardware.guest import GuestTopology
from cellsched.hardware.guest import parse_cpus
from cellsched.hardware.host import HostCell
from cellsched.hardware.host import HostTopology
from cellsched.hardware.host import Pages

_DATA = 'nova_object.data'

#: Errors of documents that have another form.
_ERRORS = (TypeError, ValueError, KeyError, AttributeError, OverflowError,
           RecursionError, exception.Invalid)


@contextlib.contextmanager
def _reading(name: str) -> Iterator[None]:
    """Translate errors in a document.

    :raises cellsched.exception.InvalidField: it has another form
    """
    try:
        yield
    except _ERRORS as exc:
        raise exception.InvalidField(
            where='request' if name in _OF_REQUESTS else 'host', field=name,
            expected="a document of Nova's form") from exc


#: The most devices of a pool; columns count them in 32 bits.
_DEVICES_MAX = 2 ** 31 - 1

#: Fields of requests, and not of hosts.
_OF_REQUESTS = frozenset({
    'numa_topology', 'pci_requests', 'network_metadata'})


def _fields(document: Any) -> Mapping[str, Any]:
    """Return the fields of an object; a plain mapping is its own fields."""
    if not isinstance(document, Mapping):
        raise TypeError('no object')
    fields: Mapping[str, Any] = document.get(_DATA, document)
    return fields


def _numbers(values: Iterable[Any] | None) -> frozenset[int]:
    return frozenset(map(int, values or ()))


def _optional(value: Any) -> int | None:
    return None if value is None else int(value)


def host_topology(document: Any) -> HostTopology | None:
    """Return the topology of a host; None if it reports none.

    :param document: a ``NUMATopology``; before Liberty a mapping without
        version, whose cells have ``cpus`` and ``mem``
    :raises cellsched.exception.InvalidField: it has another form
    """
    with _reading('numa_topology of the node'):
        cells = _fields(document).get('cells') if document else None
        if not cells:
            return None
        return HostTopology(tuple(
            _old_cell(each) if 'mem' in each else _cell(_fields(each))
            for each in cells))


def _parsed_cpus(cell: Mapping[str, Any]) -> frozenset[int]:
    cpus = parse_cpus(cell.get('cpus', ''))
    if max(cpus, default=0) >= guest.CPUS_MAX:
        raise ValueError('a CPU number is too large')
    return cpus


def _old_cell(cell: Mapping[str, Any]) -> HostCell:
    memory = cell.get('mem') or {}
    return HostCell(
        int(cell['id']), _parsed_cpus(cell), frozenset(),
        int(memory.get('total', 0)), int(cell.get('cpu_usage', 0)),
        int(memory.get('used', 0)))


def _cell(cell: Mapping[str, Any]) -> HostCell:
    networks = cell.get('network_metadata')
    metadata = _fields(networks) if networks else {}
    cpus = _numbers(cell.get('cpuset'))
    # Before version 1.4 one set was for both.
    pcpus = _numbers(cell.get('pcpuset', cpus))
    return HostCell(
        int(cell['id']), cpus, pcpus, int(cell['memory']),
        int(cell.get('cpu_usage', 0)), int(cell.get('memory_usage', 0)),
        _numbers(cell.get('pinned_cpus')),
        tuple(map(_numbers, cell.get('siblings') or ())),
        tuple(map(_pages, map(_fields, cell.get('mempages') or ()))),
        _optional(cell.get('socket')),
        frozenset(metadata.get('physnets') or ()) if networks else None,
        bool(metadata.get('tunneled')))


def _pages(pages: Mapping[str, Any]) -> Pages:
    return Pages(int(pages['size_kb']), int(pages['total']),
                 int(pages.get('used', 0)), int(pages.get('reserved') or 0))


def guest_topology(document: Any) -> GuestTopology | None:
    """Return the topology that a request asks for; None without one.

    :param document: an ``InstanceNUMATopology``, or its JSON; before Liberty
        a mapping without version, whose cells have ``cpus`` and ``mem``
    :raises cellsched.exception.InvalidField: it has another form
    """
    with _reading('numa_topology'):
        parsed = _parsed(document)
        fields = _fields(parsed) if parsed else {}
        cells = tuple(map(_guest_cell, fields.get('cells') or ()))
        emulator = _known(fields.get('emulator_threads_policy'),
                          guest.EMULATOR_POLICIES)
        if len(cells) > guest.CELLS_MAX:
            raise ValueError('too many cells')
        if min((each.memory_mb for each in cells), default=0) < 0:
            raise ValueError('a negative amount of memory')
        return GuestTopology(cells, emulator) if cells else None


def _parsed(document: Any) -> Any:
    """Return a document that may be JSON, as some columns have it."""
    if not document or not isinstance(document, str):
        return document
    return json.loads(document)


def _known(value: Any, known: Sequence[str]) -> Any:
    """Return one of some texts, or None."""
    if value is not None and value not in known:
        raise ValueError('unknown value')
    return value


#: Versions of ``InstanceNUMACell`` without a policy. Their vCPUs are dedicated
#: if there is a mapping of pins, even if it is empty.
_WITHOUT_POLICY = '1.0', '1.1', '1.2'


def _guest_cell(document: Mapping[str, Any]) -> GuestCell:
    cell = _fields(document)
    if 'mem' in cell:
        return GuestCell(
            int(cell['id']), _parsed_cpus(cell), frozenset(),
            int((cell['mem'] or {}).get('total', 0)),
            _optional(cell.get('pagesize')))
    cpus, pcpus = (_numbers(cell.get(name)) for name in ('cpuset', 'pcpuset'))
    if max(cpus | pcpus, default=0) >= guest.CPUS_MAX or (
            min(cpus | pcpus, default=0) < 0):
        raise ValueError('a number of a CPU is out of range')
    policy = _known(cell.get('cpu_policy'), guest.POLICIES)
    if document.get('nova_object.version') in _WITHOUT_POLICY and (
            cell.get('cpu_pinning_raw') is not None):
        policy = DEDICATED
    if policy == DEDICATED and not pcpus:
        # Before version 1.5 one set was for both.
        cpus, pcpus = pcpus, cpus
    return GuestCell(
        int(cell['id']), cpus, pcpus, int(cell['memory']),
        _optional(cell.get('pagesize')), policy,
        _known(cell.get('cpu_thread_policy'), guest.THREAD_POLICIES))


def placement(document: Any) -> Placement:
    """Return the place of a server on its host; empty without one.

    :param document: an ``InstanceNUMATopology``, as :func:`written_guest`
        returns it for a placement
    :raises cellsched.exception.InvalidField: it has another form
    """
    with _reading('numa_topology'):
        cells = _fields(document)['cells'] if document else ()
        return tuple(map(_placed_cell, cells))


def _placed_cell(document: Mapping[str, Any]) -> PlacedCell:
    cell = _fields(document)
    pins = cell.get('cpu_pinning_raw') or {}
    return PlacedCell(
        _guest_cell(document), int(cell['id']),
        _optional(cell.get('pagesize')), Pins(
            tuple(sorted((int(vcpu), int(cpu)) for vcpu, cpu in pins.items())),
            _numbers(cell.get('cpuset_reserved'))))


def device_requests(document: Any) -> tuple[DeviceRequest, ...]:
    """Return the requests for devices.

    :param document: an ``InstancePCIRequests``, or the list of its requests;
        either may be JSON
    :raises cellsched.exception.InvalidField: it has another form
    """
    with _reading('pci_requests'):
        return tuple(_device_request(_fields(each))
                     for each in _listed_requests(document))


def _listed_requests(document: Any) -> Iterable[Any]:
    listed = _parsed(document) or ()
    if isinstance(listed, Mapping):
        listed = _fields(listed).get('requests') or ()
    return listed


def _device_request(request: Mapping[str, Any]) -> DeviceRequest:
    count = int(request['count'])
    if count < 0:
        raise ValueError('a negative number of devices')
    return DeviceRequest(
        count, tuple(dict(each) for each in request.get('spec') or ()),
        request.get('alias_name'), request.get('request_id'),
        _known(request.get('numa_policy'), devices.AFFINITIES))


def networks(document: Any) -> Networks:
    """Return the networks of a request.

    :param document: a ``NetworkMetadata``
    :raises cellsched.exception.InvalidField: it has another form
    """
    with _reading('network_metadata'):
        fields = _fields(document) if document else {}
        return Networks(frozenset(fields.get('physnets') or ()),
                        bool(fields.get('tunneled')))


def device_pools(document: Any) -> Pools:
    """Return the pools of a host's free devices.

    :param document: a ``PciDevicePoolList``, or a mapping or a list of
        mappings of an old release
    :raises cellsched.exception.InvalidField: it has another form
    """
    with _reading('pci_stats'):
        listed = document or ()
        if isinstance(listed, Mapping):
            listed = (_fields(listed).get('objects') or ()
                      if _DATA in listed else [listed])
        found = devices.pools(map(_pool, listed))
        # A tag that is a mapping has no hash, which raises TypeError.
        hash(found)
        return found


def _pool(document: Mapping[str, Any]) -> Mapping[str, Any]:
    fields = dict(_fields(document))
    tags = fields.pop('tags', None) or {}
    count = int(fields['count'])
    if not 0 <= count <= _DEVICES_MAX:
        raise ValueError('a number of devices is out of range')
    return {**tags, **fields, 'count': count,
            'numa_node': _optional(fields.get('numa_node'))}


def _object(
    name: str, version: str, fields: Mapping[str, Any]
) -> dict[str, Any]:
    return {'nova_object.name': name, 'nova_object.namespace': 'nova',
            'nova_object.version': version, _DATA: dict(fields)}


def _sorted(values: Iterable[int]) -> list[int]:
    return sorted(values)


def written_guest(
    topology: GuestTopology, placement: Placement | None = None
) -> dict[str, Any]:
    """Return the ``InstanceNUMATopology`` of a server.

    :param placement: its place on a host; None before it has one
    """
    cells: Sequence[dict[str, Any]] = [{
        'id': cell.id, 'cpuset': _sorted(cell.cpus),
        'pcpuset': _sorted(cell.pcpus), 'cpuset_reserved': None,
        'memory': cell.memory_mb, 'pagesize': cell.page_size,
        'cpu_pinning_raw': None, 'cpu_policy': cell.policy,
        'cpu_thread_policy': cell.thread_policy} for cell in topology.cells]
    for fields, placed in zip(cells, placement or ()):
        pins = placed.pins
        fields |= {
            'id': placed.host_cell, 'pagesize': placed.page_size,
            'cpuset_reserved': _sorted(pins.reserved) or None,
            'cpu_pinning_raw': {
                str(vcpu): cpu for vcpu, cpu in pins.cpus} or None}
    return _object('InstanceNUMATopology', '1.3', {
        'cells': [_object('InstanceNUMACell', '1.6', each) for each in cells],
        'emulator_threads_policy': topology.emulator_policy})


def written_host(topology: HostTopology) -> dict[str, Any]:
    """Return the ``NUMATopology`` of a host."""
    return _object('NUMATopology', '1.2', {
        'cells': [_object('NUMACell', '1.5', _written_cell(each))
                  for each in topology.cells]})


def _written_cell(cell: HostCell) -> dict[str, Any]:
    fields = {
        'id': cell.id, 'cpuset': _sorted(cell.cpus),
        'pcpuset': _sorted(cell.pcpus), 'memory': cell.memory_mb,
        'cpu_usage': cell.cpu_usage, 'memory_usage': cell.memory_usage,
        'pinned_cpus': _sorted(cell.pinned),
        'siblings': [_sorted(each) for each in cell.siblings],
        'mempages': [_object('NUMAPagesTopology', '1.1', {
            'size_kb': each.size_kb, 'total': each.total, 'used': each.used,
            'reserved': each.reserved}) for each in cell.pages],
        'socket': cell.socket}
    if cell.physnets is not None:
        fields['network_metadata'] = _object('NetworkMetadata', '1.0', {
            'physnets': sorted(cell.physnets), 'tunneled': cell.tunneled})
    return fields


def written_pools(pools: Pools) -> dict[str, Any]:
    """Return the ``PciDevicePoolList`` of a host's free devices."""
    listed = []
    for pool in pools:
        tags = dict(pool.properties)
        listed.append(_object('PciDevicePool', '1.1', {
            'vendor_id': tags.pop('vendor_id'),
            'product_id': tags.pop('product_id'),
            'numa_node': pool.numa_node, 'count': pool.count, 'tags': tags}))
    return _object('PciDevicePoolList', '1.1', {'objects': listed})


def written_pool(pool: Pool) -> dict[str, Any]:
    """Return a pool as a mapping, which :func:`device_pools` reads."""
    return {**dict(pool.properties), 'numa_node': pool.numa_node,
            'count': pool.count}


def written_requests(
    requests: Iterable[DeviceRequest], of_ports: Any = None
) -> dict[str, Any]:
    """Return the ``InstancePCIRequests`` of a server.

    :param of_ports: a document with the requests of its ports, which follow
    """
    return _object('InstancePCIRequests', '1.1', {'requests': [
        _object('InstancePCIRequest', '1.4', {
            'count': each.count, 'spec': [dict(spec) for spec in each.specs],
            'alias_name': each.alias, 'is_new': False,
            'request_id': each.request_id, 'requester_id': None,
            'numa_policy': each.affinity}) for each in requests
    ] + [*_listed_requests(of_ports)]})


def written_limits(ratios: Ratios, networks: Networks) -> dict[str, Any]:
    """Return the ``NUMATopologyLimits`` that travel with a selection."""
    fields: dict[str, Any] = {'cpu_allocation_ratio': ratios.cpu,
                              'ram_allocation_ratio': ratios.memory}
    if networks.physnets or networks.tunneled:
        fields['network_metadata'] = _object('NetworkMetadata', '1.0', {
            'physnets': sorted(networks.physnets),
            'tunneled': networks.tunneled})
    return _object('NUMATopologyLimits', '1.1', fields)
