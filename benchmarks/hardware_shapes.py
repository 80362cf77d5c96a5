# SPDX-License-Identifier: Apache-2.0
"""Hosts with NUMA cells and PCI devices, and requests for devices."""

from cellsched.hardware import devices
from cellsched.hardware import documents
from cellsched.hardware import host

DEVICE = {'vendor_id': '8086', 'product_id': '154c', 'dev_type': 'type-VF',
          'physical_network': 'data', 'remote_managed': 'false'}

#: Devices of one pool.
DEVICES = 4


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
            pages=(host.Pages(4, 2 ** 24), host.Pages(2048, 8192),
                   host.Pages(2 ** 20, 32)),
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


def pools(shape, random=None):
    """Return the devices of a host; with random numbers, the free ones."""
    return devices.pools([
        {**DEVICE, 'numa_node': cell.id, 'count': count}
        for cell in shape.cells
        if (count := DEVICES if random is None
            else int(random.integers(0, DEVICES + 1)))])


def request(count):
    """Return the document of a request for devices."""
    return documents.written_requests([devices.DeviceRequest(
        count, ({'vendor_id': '8086', 'product_id': '154c'},), 'card')])


def ports(count):
    """Return the document of the requests of SR-IOV ports."""
    return documents.written_requests([devices.DeviceRequest(1, ({
        'physical_network': 'data', 'remote_managed': 'False'},))] * count)
