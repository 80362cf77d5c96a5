# SPDX-License-Identifier: Apache-2.0
"""Keep hosts with the NUMA cells and the PCI devices of a request."""

from collections.abc import Hashable
from collections.abc import Mapping
import functools

import numpy as np

from cellsched.filters import base
from cellsched.hardware.cell_table import CellTable
from cellsched.hardware.cell_table import together
from cellsched.hardware.device_table import DeviceTable
from cellsched.hardware import devices
from cellsched.hardware import documents
from cellsched.hardware import fit
from cellsched.hardware import guest
from cellsched.hardware.host import HostTopology
from cellsched.hosts import view
from cellsched import objects

#: Keys of flavors and images that ask for NUMA cells.
_OF_CELLS = ('numa_nodes', 'cpu_policy', 'cpu_thread_policy',
             'cpu_realtime_mask', 'mem_page_size')


class NUMATopologyFilter(base.Filter):
    """Keep hosts with NUMA cells for the server.

    A server has NUMA cells if its flavor or image asks for some, for dedicated
    CPUs or for memory pages of a size. Each of its cells gets one of the
    host's cells, with enough CPUs and memory, near to the requested PCI
    devices and networks. A host that reports no NUMA cells is rejected.
    """

    local = True
    reads = frozenset({
        'numa_topology', 'network_metadata', 'flavor.extra_specs.hw:numa_*',
        'image.properties.hw_numa_*', 'flavor.extra_specs.hw:cpu_realtime',
        'flavor.extra_specs.hw:cpu_dedicated_mask',
        'flavor.extra_specs.hw:emulator_threads_policy',
        *(f'flavor.extra_specs.hw:{key}' for key in _OF_CELLS),
        *(f'image.properties.hw_{key}' for key in _OF_CELLS)})

    def applies(self, request: objects.RequestSpec) -> bool:
        demand = request.hardware()
        return (demand is not None and demand.topology is not None
                or _needs_threads(request))

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask:
        demand = request.hardware()
        if demand is None or demand.topology is None:
            table, codes = hosts.table('numa_topology', CellTable)
            return ~table.present(codes) | table.threads(codes)
        mask = _with_own(hosts, demand, _fits(
            hosts, demand, demand.topology))
        if _needs_threads(request):
            table, codes = hosts.table('numa_topology', CellTable)
            mask &= table.threads(codes)
        return mask

    def limits(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> Mapping[str, view.Column]:
        demand = request.hardware()
        if demand is None or demand.topology is None:
            return {}
        column = np.empty(len(hosts), object)
        column[:] = [documents.written_limits(
            fit.Ratios(float(cpu), float(memory)), demand.networks)
            for cpu, memory in zip(hosts['cpu_allocation_ratio'],
                                   hosts['ram_allocation_ratio'])]
        return {'numa_topology': column}

    def cache_key(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> Hashable:
        demand = request.hardware()
        if demand is None or demand.devices:
            return None
        return demand.topology, demand.networks, _needs_threads(request)

    def reason_for(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> str:
        demand = request.hardware()
        if demand is None or demand.topology is None:
            return 'has no CPUs with several threads'
        table, codes = hosts.table('numa_topology', CellTable)
        lacks = table.lacks(demand.topology, codes, *_ratios(hosts))
        if len(lacks) == 1:
            return next(iter(lacks))
        return ', '.join(f'{text} ({count} of them)' for text, count in sorted(
            lacks.items(), key=lambda item: -item[1]))


class PciPassthroughFilter(base.Filter):
    """Keep hosts with the PCI devices that the request asks for.

    ``NUMATopologyFilter`` checks whether they are near enough to the CPUs of
    the server.
    """

    local = True
    reads = frozenset({
        'pci_requests', 'flavor.extra_specs.pci_passthrough:alias',
        'flavor.extra_specs.hw:pci_numa_affinity_policy',
        'image.properties.hw_pci_numa_affinity_policy'})

    def applies(self, request: objects.RequestSpec) -> bool:
        demand = request.hardware()
        return demand is not None and bool(demand.devices)

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask | None:
        demand = request.hardware()
        if demand is None:
            return None
        table, codes = hosts.table('device_pools', DeviceTable)
        mask = table.enough(demand.devices, codes)
        if not table.is_exact(demand.devices):
            values = {code: devices.take(
                hosts.value('device_pools', code), demand.devices) is not None
                for code in np.unique(codes[mask]).tolist()}
            mask[mask] = [values[code] for code in codes[mask].tolist()]
        if demand.topology is None:
            mask = _with_own(hosts, demand, mask)
        return mask

    def reason_for(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> str:
        demand = request.hardware()
        table, codes = hosts.table('device_pools', DeviceTable)
        for asked, free in table.lacking(
                demand.devices if demand else (), codes):
            if (free < asked.count).any():
                name = f' of alias {asked.alias}' if asked.alias else (
                    ' for a port')
                return (f'has at most {int(free.max())} of the {asked.count} '
                        f'PCI devices{name}')
        return 'has too few PCI devices for all requests together'


def _needs_threads(request: objects.RequestSpec) -> bool:
    """Return whether the flavor or the image asks for threads of cores."""
    specs = request.flavor.get('extra_specs') or {}
    return all(value in (specs.get(f'hw:{key}'),
                         request.image_property(f'hw_{key}'))
               for key, value in (('cpu_policy', guest.DEDICATED),
                                  ('cpu_thread_policy', guest.REQUIRE)))


def _ratios(
    hosts: view.Hosts
) -> tuple[float | view.Column, float | view.Column]:
    """Return the ratios of CPUs and memory, as one number if all agree."""
    def ratio(name: str) -> float | view.Column:
        least = hosts.least(name)
        return least if least == hosts.most(name) else hosts[name]

    return ratio('cpu_allocation_ratio'), ratio('ram_allocation_ratio')


def _fits(
    hosts: view.Hosts, demand: fit.Demand, topology: guest.GuestTopology
) -> view.Mask:
    """Return whether the server fits on the cells of each host."""
    table, codes = hosts.table('numa_topology', CellTable)
    pools, codes_of_pools = hosts.table('device_pools', DeviceTable)
    near = [table.near_networks(demand.networks, codes)]
    if demand.devices:
        near.append(pools.near(demand.devices, codes_of_pools, table, codes))
    mask = table.fits(topology, codes, *_ratios(hosts), together(near))
    if demand.devices and not pools.is_exact(demand.devices):
        mask[mask] = [_holds(hosts, place, demand, 1)
                      for place in np.flatnonzero(mask).tolist()]
    return mask


def _holds(
    hosts: view.Hosts, place: int, demand: fit.Demand, count: int
) -> bool:
    """Return whether a number of equal servers fit on one host."""
    topology, pools, cpu, memory = hosts.values_at(
        place, 'numa_topology', 'device_pools', 'cpu_allocation_ratio',
        'ram_allocation_ratio')
    return _after(topology, pools, demand, fit.Ratios(cpu, memory),
                  count) is not None


@functools.lru_cache(256)
def _after(
    topology: HostTopology | None, pools: devices.Pools, demand: fit.Demand,
    ratios: fit.Ratios, count: int,
) -> tuple[HostTopology | None, devices.Pools] | None:
    """Return a host after it took equal servers; None if they do not fit.

    Each server of a request asks about one more than the one before.
    """
    if not count:
        return topology, pools
    before = _after(topology, pools, demand, ratios, count - 1)
    if before is None:
        return None
    topology, pools = before
    placement = fit.fit(topology, demand, ratios, pools)
    if placement is None:
        return None
    left = devices.take(
        pools, demand.devices, None,
        [each.host_cell for each in placement] or None, topology)
    return (fit.used(topology, placement) if placement and topology
            else topology), left or ()


def _with_own(
    hosts: view.Hosts, demand: fit.Demand, mask: view.Mask
) -> view.Mask:
    """Return a mask that counts the servers that the request has placed.

    They are equal, and the hosts have not reported them.
    """
    for place, count in hosts.taken().items():
        if mask[place]:
            mask[place] = _holds(hosts, place, demand, count + 1)
    return mask
