# SPDX-License-Identifier: Apache-2.0
"""Keep hosts that have what a server takes, by ratios of their aggregates."""

import math

import numpy as np

from cellsched.filters import resources
from cellsched.hosts import view


class _ByAggregate(resources.RamFilter):
    """Has aggregates override what hosts say of their ratio."""

    def ratio(self, hosts: view.Hosts) -> view.Column:
        said = hosts.number(f'{self.kind}_allocation_ratio', math.nan)
        own = super().ratio(hosts)
        return np.where(np.isnan(said), own, said)


class AggregateRamFilter(_ByAggregate, resources.RamFilter):
    """Reject a host that lacks memory, by the ratio of its aggregates.

    It offers its physical memory times the least ``ram_allocation_ratio`` in
    the metadata of its aggregates, else times its own. One server may not be
    greater than the host.
    """


class AggregateCoreFilter(_ByAggregate, resources.CoreFilter):
    """Reject a host that lacks CPUs, by the ratio of its aggregates.

    It offers its physical CPUs times the least ``cpu_allocation_ratio`` in
    the metadata of its aggregates, else times its own. One server may not be
    greater than the host. A host that does not say how many CPUs it has is
    kept.
    """


class AggregateDiskFilter(_ByAggregate, resources.DiskFilter):
    """Reject a host that lacks disk, by the ratio of its aggregates.

    It offers its physical disk times the least ``disk_allocation_ratio`` in
    the metadata of its aggregates, else times its own. One server may not be
    greater than the host. A root disk on a volume takes none of it.
    """
