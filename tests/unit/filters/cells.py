# SPDX-License-Identifier: Apache-2.0
"""NUMA cells and devices of hosts, and requests for them."""

from cellsched.hardware import devices
from cellsched.hardware import documents
from cellsched.hardware import host
from cellsched.testing import builders


def topology(*free, threads=1):
    """Return a host whose cells have these free CPUs of 8 dedicated ones."""
    return host.HostTopology(tuple(
        host.HostCell(
            number, frozenset(), frozenset(range(8)), 8192,
            pinned=frozenset(range(8 - count)),
            siblings=tuple(frozenset(range(first, first + threads))
                           for first in range(0, 8, threads)))
        for number, count in enumerate(free)))


def pool(count, node=0, **tags):
    return {'vendor_id': '10de', 'product_id': '20b5', 'numa_node': node,
            'count': count, **tags}


def pinned(vcpus, cells=1, **more):
    """Return a request for dedicated CPUs."""
    return builders.request(vcpus=vcpus, memory_mb=64, extra_specs={
        'hw:cpu_policy': 'dedicated', 'hw:numa_nodes': str(cells)}, **more)


def requested(*counts, affinity=None):
    """Return the document of requests for devices."""
    return documents.written_requests([devices.DeviceRequest(
        count, ({'vendor_id': '10de'},), 'gpu', affinity=affinity)
        for count in counts])
