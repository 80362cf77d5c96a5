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
import hardware_shapes
import numpy as np
import shapes

from cellsched.hardware import devices
from cellsched.hardware import fit
from cellsched.testing import builders

FILTERS = ['ComputeFilter', 'ComputeCapabilitiesFilter',
           'ImagePropertiesFilter', 'ServerGroupAntiAffinityFilter',
           'ServerGroupAffinityFilter', 'NUMATopologyFilter',
           'PciPassthroughFilter']


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
    return {
        'floor': builders.request(**size),
        'cells': builders.request(**two),
        'devices': builders.request(
            **two, pci_requests=hardware_shapes.request(2)),
        'many': builders.request(**size, extra_specs=pinned)}


def table_of(parameters):
    """Return hosts of some shapes, whose cells and devices are half used."""
    table = shapes.table_of(parameters)
    random = np.random.default_rng(parameters['seed'])
    shape = [hardware_shapes.topology(number)
             for number in range(parameters['shapes'])]
    chosen = random.integers(0, len(shape), len(table))
    table.put(list(table['uuid']), {
        'numa_topology': [hardware_shapes.half_used(shape[each], random)
                          for each in chosen],
        'device_pools': [hardware_shapes.pools(shape[each], random)
                         for each in chosen]})
    table.publish()
    return table


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
