# SPDX-License-Identifier: Apache-2.0
"""Keep hosts with enough resources, by their totals and ratios."""

from typing import ClassVar

import numpy as np

from cellsched.filters import base
from cellsched.hosts import view
from cellsched import objects

#: The number of CPUs of a host that does not report it.
_UNLIMITED = 2 ** 31 - 1


class RamFilter(base.Filter):
    """Reject a host that lacks memory for the server.

    The capacity is the physical memory times ``ram_allocation_ratio``. A
    single server may not exceed the physical memory.
    """

    reason = 'lacks memory'
    local = True
    kind: ClassVar[str] = 'ram'
    unit: ClassVar[str] = 'MB'
    #: Name of the limit, and the number of our units in one of its units.
    limit: ClassVar[tuple[str, int]] = ('memory_mb', 1)

    def requested(self, request: objects.RequestSpec) -> int:
        return request.flavor.memory_mb

    def amounts(self, hosts: view.Hosts) -> tuple[view.Column, view.Column]:
        total = hosts['total_usable_ram_mb']
        return total, total - hosts['free_ram_mb']

    def ratio(self, hosts: view.Hosts) -> view.Column:
        return hosts[f'{self.kind}_allocation_ratio']

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask:
        requested = self.requested(request)
        total, used = self.amounts(hosts)
        free = total * self.ratio(hosts) - used
        return (free >= requested) & (total >= requested)

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
        return self.requested(request) - usable, self.unit


class CoreFilter(RamFilter):
    """Reject a host that lacks CPUs for the server.

    The capacity is the number of physical CPUs times the host's
    ``cpu_allocation_ratio``. A single server may not have more CPUs than the
    host physically has. A host that does not report its CPUs is kept.
    """

    reason = 'lacks CPUs'
    kind, unit, limit = 'cpu', 'VCPU', ('vcpu', 1)

    def requested(self, request: objects.RequestSpec) -> int:
        return request.flavor.vcpus

    def amounts(self, hosts: view.Hosts) -> tuple[view.Column, view.Column]:
        total = hosts['vcpus_total']
        return np.where(total > 0, total, _UNLIMITED), hosts['vcpus_used']


class DiskFilter(RamFilter):
    """Reject a host that lacks disk for the server.

    The capacity is the physical disk times the host's
    ``disk_allocation_ratio``. A single server may not need more disk than the
    host physically has. Root disks on volumes need no disk of the host.
    """

    reason = 'lacks disk'
    kind, limit = 'disk', ('disk_gb', 1024)

    def requested(self, request: objects.RequestSpec) -> int:
        flavor = request.flavor
        disk_gb = flavor.get('ephemeral_gb', 0) + (
            0 if request.get('is_bfv') else flavor.root_gb)
        return disk_gb * 1024 + flavor.get('swap', 0)

    def amounts(self, hosts: view.Hosts) -> tuple[view.Column, view.Column]:
        total = hosts['total_usable_disk_gb'] * 1024
        return total, total - hosts['free_disk_mb']
