# SPDX-License-Identifier: Apache-2.0
"""Decisions on requests for NUMA cells and devices, on changing hosts.

Parameters: ``hosts``, ``cells``, ``zones``, ``seed`` and ``fill`` as in
``shapes.py``; ``shapes``, the number of kinds of hosts; ``many``, the number
of servers of a request for many.

No request is like the one before. After each decision its host reports the
cells and devices that the server uses. ``cells`` asks for dedicated CPUs on
two NUMA cells, ``devices`` for two devices near to them, and ``many`` for many
servers with dedicated CPUs on one cell each.

The floor is a request of the same size that asks for neither.
"""

import decision
import numpy as np
import shapes

from cellsched.hardware import devices
from cellsched.hardware import documents
from cellsched.hardware import fit
from cellsched.hardware import host
from cellsched.testing import builders

FILTERS = ['ComputeFilter', 'ComputeCapabilitiesFilter',
           'ImagePropertiesFilter', 'ServerGroupAntiAffinityFilter',
           'ServerGroupAffinityFilter', 'NUMATopologyFilter',
           'PciPassthroughFilter']

DEVICE = {'vendor_id': '10de', 'product_id': '20b5', 'dev_type': 'type-PCI'}

#: Devices of one pool.
DEVICES = 4


def run(parameters, repeat):
    """Return the samples of decisions, in alternation."""
    decides, table = decision.make(FILTERS), table_of(parameters)
    samples = {'cells': [], 'devices': [], 'many': [], 'floor': []}
    for number in range(-3, repeat):
        for name, request in requests(number).items():
            count = parameters['many'] if name == 'many' else 1
            if name == 'many' and number % 20:
                continue
            seconds = decision.timed(
                decision.choose, decides, table, {}, request, count)
            if number >= 0:
                samples[name].append(seconds)
            report(decides, table, request)
    return samples


def requests(number):
    """Return requests that differ from those of other numbers."""
    size = {'vcpus': 2 + 2 * (number % 4), 'memory_mb': 2048 + 2 * number,
            'root_gb': 10}
    pinned = {'hw:cpu_policy': 'dedicated'}
    two = {**size, 'extra_specs': {**pinned, 'hw:numa_nodes': '2'}}
    asked = documents.written_requests([devices.DeviceRequest(
        2, ({'vendor_id': '10de', 'product_id': '20b5'},), 'gpu')])
    return {
        'floor': builders.request(**size),
        'cells': builders.request(**two),
        'devices': builders.request(**two, pci_requests=asked),
        'many': builders.request(**size, extra_specs=pinned)}


def table_of(parameters):
    """Return hosts of some shapes, whose cells and devices are half used."""
    table = shapes.table_of(parameters)
    random = np.random.default_rng(parameters['seed'])
    shape = [topology(number) for number in range(parameters['shapes'])]
    chosen = random.integers(0, len(shape), len(table))
    table.put(list(table['uuid']), {
        'numa_topology': [
            half_used(shape[each], random) for each in chosen],
        'device_pools': [pools(shape[each], random) for each in chosen]})
    table.publish()
    return table


def topology(number):
    """Return a host of two or four cells without servers."""
    cells = 2 if number % 4 else 4
    cores = 8 + 2 * number
    return host.HostTopology(tuple(
        host.HostCell(
            cell, frozenset(), frozenset(range(
                2 * cores * cell, 2 * cores * (cell + 1))), 65536,
            siblings=tuple(frozenset([2 * core, 2 * core + 1])
                           for core in range(cores * cell,
                                             cores * (cell + 1))),
            pages=(host.Pages(4, 2 ** 24), host.Pages(2048, 8192)),
            socket=cell * 2 // cells) for cell in range(cells)))


def half_used(shape, random):
    """Return a host on which a random half of the CPUs is in use."""
    cells = []
    for cell in shape.cells:
        cpus = sorted(cell.pcpus)
        count = random.integers(len(cpus) // 4, 3 * len(cpus) // 4)
        cells.append(cell.taken(
            1024 * int(count), 0, frozenset(cpus[:count]), None))
    return host.HostTopology(tuple(cells))


def pools(shape, random):
    """Return the free devices of a host."""
    return devices.pools([
        {**DEVICE, 'numa_node': cell.id, 'count': count}
        for cell in shape.cells
        if (count := int(random.integers(0, DEVICES + 1)))])


def report(decides, table, request):
    """Let the selected host report what the server uses."""
    hosts = decision.view_of(decides, table, {}, request)
    row = decision.decide(decides, hosts, request, 1).top(1)[0]
    uuid, cells, free = hosts.values_at(
        row, 'uuid', 'numa_topology', 'device_pools')
    table.reuse(hosts)
    demand = request.hardware()
    if demand is None:
        return
    placement = fit.fit(cells, demand, pools=free)
    table.put([uuid], {
        'numa_topology': [fit.used(cells, placement)],
        'device_pools': [devices.take(
            free, demand.devices, None,
            [each.host_cell for each in placement], cells)]})
    table.publish()
