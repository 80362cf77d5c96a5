# SPDX-License-Identifier: Apache-2.0
"""Decisions on requests for NUMA cells and devices, on changing hosts.

Parameters: ``hosts``, ``cells``, ``zones``, ``seed`` and ``fill`` as in
``shapes.py``; ``shapes``, the number of kinds of hosts; ``many``, the number
of servers of a request for many.

No request is like the one before. After each decision the server holds the
CPUs, pages and devices that the decision named. ``cells`` asks for dedicated
CPUs on two NUMA cells, ``devices`` for two devices near to them, and ``many``
for many servers with dedicated CPUs on one cell each.

The floor is a request of the same size that asks for neither.
"""

import random as randoms

import decision
import hardware_shapes
import numpy as np
import shapes

from cellsched.hardware import fit
from cellsched.hardware import units
from cellsched.scheduler.selection import selector
from cellsched.testing import builders

FILTERS = ['ComputeFilter', 'ComputeCapabilitiesFilter',
           'ImagePropertiesFilter', 'ServerGroupAntiAffinityFilter',
           'ServerGroupAffinityFilter', 'NUMATopologyFilter',
           'PciPassthroughFilter']

POLICY = selector.SelectionPolicy(randoms.Random(0))


def run(parameters, repeat):
    """Return the samples of decisions, in alternation."""
    decides, table = decision.make(FILTERS), table_of(parameters)
    samples = {'cells': [], 'devices': [], 'many': [], 'floor': []}
    for number in range(-3, repeat):
        for name, request in requests(number).items():
            count = parameters['many'] if name == 'many' else 1
            if name == 'many' and number % 20:
                continue
            seconds = decision.timed(decide, decides, table, request, count)
            if number >= 0:
                samples[name].append(seconds)
    return samples


def decide(decides, table, request, count):
    """Select hosts for servers, and confirm what they use there."""
    hosts = decision.view_of(decides, table, {}, request)
    found = selector.Selector(decides, POLICY, hosts, request)
    for number in range(count):
        if not found.choose(str(number), None, number == count - 1):
            raise RuntimeError('no host passed; expected at least one')
    table.confirm(table.reserve(hosts))
    table.reuse(hosts)


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
    pools = [hardware_shapes.pools(each) for each in shape]
    left = [units.inventory(each, some, fit.Ratios())
            for each, some in zip(shape, pools)]
    chosen = random.integers(0, len(shape), len(table))
    available = {}
    for row, number in enumerate(chosen):
        amounts = dict(left[number])
        for cell in hardware_shapes.half_used(shape[number], random).cells:
            for cpu in cell.pinned:
                amounts[units.cpu(cpu)] = 0
            amounts[units.memory(cell.id)] -= cell.memory_usage
            amounts[units.pages(cell.id, 4)] -= cell.pages[0].used
        for pool in pools[number]:
            amounts[units.device(pool)] = random.integers(0, pool.count + 1)
        for name, amount in amounts.items():
            available.setdefault(name, np.zeros(len(table)))[row] = amount
    table.put(list(table['uuid']), {
        'numa_topology': [shape[number] for number in chosen],
        'device_pools': [pools[number] for number in chosen],
        'claims_hardware': True, 'available:PCPU': 1000.0, **{
            f'available:{name}': column
            for name, column in available.items()}})
    table.publish()
    return table
