# SPDX-License-Identifier: Apache-2.0
"""Keep hosts that have what a server takes, by their totals and ratios."""

from typing import ClassVar

import numpy as np

from cellsched.filters import base
from cellsched.hosts import view
from cellsched import objects

#: The CPUs of a host that does not say how many it has.
_UNLIMITED = 2 ** 31 - 1


class RamFilter(base.Filter):
    """Reject a host that lacks memory for the server.

    It offers its physical memory times its ``ram_allocation_ratio``; but one
    server may not be greater than the host.
    """

    reason = 'lacks memory'
    local = True
    kind: ClassVar[str] = 'ram'
    unit: ClassVar[str] = 'MB'
    #: Name of the limit, and how many of our units are one of its.
    limit: ClassVar[tuple[str, int]] = ('memory_mb', 1)

    def wanted(self, request: objects.RequestSpec) -> int:
        """Return what one server takes."""
        return request.flavor.memory_mb

    def amounts(self, hosts: view.Hosts) -> tuple[view.Column, view.Column]:
        """Return what the hosts physically have, and what is used of it."""
        total = hosts['total_usable_ram_mb']
        return total, total - hosts['free_ram_mb']

    def ratio(self, hosts: view.Hosts) -> view.Column:
        """Return how many times what they have the hosts offer."""
        return hosts[f'{self.kind}_allocation_ratio']

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask:
        wanted = self.wanted(request)
        total, used = self.amounts(hosts)
        return (total * self.ratio(hosts) - used >= wanted) & (total >= wanted)

    def limits(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> dict[str, view.Column]:
        total, (name, units) = self.amounts(hosts)[0], self.limit
        return {name: total * self.ratio(hosts) / units}

    def shortfall(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> tuple[view.Column, str]:
        total, used = self.amounts(hosts)
        usable = np.minimum(total * self.ratio(hosts) - used, total)
        return self.wanted(request) - usable, self.unit


class CoreFilter(RamFilter):
    """Reject a host that lacks CPUs for the server.

    It offers its physical CPUs times its ``cpu_allocation_ratio``; but one
    server may not be greater than the host. One that says no CPUs is kept.
    """

    reason = 'lacks CPUs'
    kind, unit, limit = 'cpu', 'VCPU', ('vcpu', 1)

    def wanted(self, request: objects.RequestSpec) -> int:
        return request.flavor.vcpus

    def amounts(self, hosts: view.Hosts) -> tuple[view.Column, view.Column]:
        total = hosts['vcpus_total']
        return np.where(total > 0, total, _UNLIMITED), hosts['vcpus_used']


class DiskFilter(RamFilter):
    """Reject a host that lacks disk for the server.

    It offers its physical disk times its ``disk_allocation_ratio``; but one
    server may not be greater than the host. Root disks on volumes take none.
    """

    reason = 'lacks disk'
    kind, limit = 'disk', ('disk_gb', 1024)

    def wanted(self, request: objects.RequestSpec) -> int:
        flavor = request.flavor
        disk_gb = flavor.get('ephemeral_gb', 0) + (
            0 if request.get('is_bfv') else flavor.root_gb)
        return disk_gb * 1024 + flavor.get('swap', 0)

    def amounts(self, hosts: view.Hosts) -> tuple[view.Column, view.Column]:
        total = hosts['total_usable_disk_gb'] * 1024
        return total, total - hosts['free_disk_mb']
