# SPDX-License-Identifier: Apache-2.0
"""Keep hosts with NUMA cells for the server."""

from collections.abc import Hashable
from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np

from cellsched.filters import base
from cellsched.hardware.cell_table import together
from cellsched.hardware import documents
from cellsched.hardware import fit
from cellsched.hosts import hardware
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

    reason = 'lacks NUMA cells with room for the server'
    local = True
    reads = frozenset({
        'numa_topology', 'network_metadata',
        *(f'flavor.extra_specs.hw:{key}' for key in (
            *_OF_CELLS, 'numa_cpus.*', 'numa_mem.*', 'cpu_realtime',
            'cpu_dedicated_mask', 'emulator_threads_policy')),
        *(f'image.properties.hw_{key}' for key in (
            *_OF_CELLS, 'numa_cpus', 'numa_cpus.*', 'numa_mem',
            'numa_mem.*'))})

    def applies(self, request: objects.RequestSpec) -> bool:
        demand = request.hardware()
        return (demand is not None and demand.topology is not None
                or request.needs_threads())

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask:
        demand, rows = request.hardware(), hardware.rows(hosts)
        cells, pools = hardware.tables(hosts)
        if demand is None or demand.topology is None:
            return ~cells.cells(rows)[0] | cells.threads(rows)
        near = [cells.near_networks(demand.networks, rows)]
        if demand.devices:
            near.append(pools.near(demand.devices, rows, cells))
        mask = cells.fits(
            demand.topology, rows, *hardware.ratios(hosts), together(near))
        if request.needs_threads():
            mask &= cells.threads(rows)
        if demand.devices and not pools.is_exact(demand.devices):
            mask = hardware.exact(hosts, demand, mask)
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
        return demand.topology, demand.networks, request.needs_threads()

    def reasons(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> Sequence[base.Reason]:
        return [base.Reason(*lack) for lack in hardware.lacks(
            hosts, request.hardware(), request.needs_threads())]
