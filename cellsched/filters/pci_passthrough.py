# SPDX-License-Identifier: Apache-2.0
"""Keep hosts with the PCI devices of a request."""

from collections.abc import Sequence

import numpy as np

from cellsched.filters import base
from cellsched.hardware.devices import describe
from cellsched.hosts import hardware
from cellsched.hosts import view
from cellsched import objects


class PciPassthroughFilter(base.Filter):
    """Keep hosts with the PCI devices that the request asks for.

    ``NUMATopologyFilter`` checks whether they are near enough to the CPUs of
    the server.
    """

    reason = 'lacks the PCI devices of the server'
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
        _, pools = hardware.tables(hosts)
        mask = pools.enough(demand.devices, hardware.rows(hosts))
        if not pools.is_exact(demand.devices):
            mask = hardware.exact(
                hosts, demand._replace(topology=None), mask)
        return mask

    def reasons(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> Sequence[base.Reason]:
        demand = request.hardware()
        _, pools = hardware.tables(hosts)
        rest, found = np.ones(len(hosts), bool), []
        for asked, free in pools.lacking(
                demand.devices if demand else (), hardware.rows(hosts)):
            lacking = rest & (free < asked.count)
            if lacking.any():
                found.append(base.Reason(
                    f'lacks {describe([asked])}', lacking,
                    (asked.count - free[lacking], 'PCI devices')))
                rest &= ~lacking
        if rest.any():
            found.append(base.Reason(
                'lacks PCI devices for all requests together', rest))
        return found
