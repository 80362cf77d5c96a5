# SPDX-License-Identifier: Apache-2.0
"""Keep hosts with enough resources, by the ratios of their aggregates."""

import math

import numpy as np

from cellsched.filters import resources
from cellsched.hosts import view


class _ByAggregate(resources.RamFilter):
    """Uses the ratio of the host's aggregates before the host's own."""

    def ratio(self, hosts: view.Hosts) -> view.Column:
        ratio = hosts.number(f'{self.kind}_allocation_ratio', math.nan)
        own = super().ratio(hosts)
        return np.where(np.isnan(ratio), own, ratio)


class AggregateRamFilter(_ByAggregate, resources.RamFilter):
    """Reject a host that lacks memory, by the ratio of its aggregates.

    The capacity is the physical memory times the lowest
    ``ram_allocation_ratio`` in the metadata of the host's aggregates, or
    times the host's own ratio if no aggregate has one. A single server may
    not have more memory than the host physically has.
    """


class AggregateCoreFilter(_ByAggregate, resources.CoreFilter):
    """Reject a host that lacks CPUs, by the ratio of its aggregates.

    The capacity is the number of physical CPUs times the lowest
    ``cpu_allocation_ratio`` in the metadata of the host's aggregates, or
    times the host's own ratio if no aggregate has one. A single server may
    not have more CPUs than the host physically has. A host that does not
    report its CPUs is kept.
    """


class AggregateDiskFilter(_ByAggregate, resources.DiskFilter):
    """Reject a host that lacks disk, by the ratio of its aggregates.

    The capacity is the physical disk times the lowest
    ``disk_allocation_ratio`` in the metadata of the host's aggregates, or
    times the host's own ratio if no aggregate has one. A single server may
    not need more disk than the host physically has. A root disk on a volume
    needs no disk of the host.
    """
