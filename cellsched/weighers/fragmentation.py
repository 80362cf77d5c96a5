# SPDX-License-Identifier: Apache-2.0
"""Prefer hosts on which a server leaves the least unusable room."""

from typing import Any

import numpy as np
from oslo_config import cfg

from cellsched.conf import filter_scheduler
from cellsched.hosts import view
from cellsched import objects
from cellsched.weighers import base

_RESOURCES, _DIGITS = ('VCPU', 'MEMORY_MB', 'DISK_GB'), 9


def unusable(
    free: view.Column, sizes: view.Column, shares: view.Column
) -> view.Column:
    """Return the expected room of each host that a mix of flavors cannot use.

    It remains if the host is filled with servers of one flavor, on average.

    :param free: free amounts: a row for each host, a column for each resource
    :param sizes: amounts of each flavor, at least one of them above 0
    :param shares: shares of the flavors; their sum is 1
    """
    found = np.zeros_like(free)
    for size, share in zip(sizes, shares):
        takes = np.flatnonzero(size)
        count = np.floor((free[:, takes] / size[takes]).min(axis=1))
        found += share * (free - count[:, np.newaxis] * size)
    return found


class FragmentationWeigher(base.Weigher):
    """Score a host by the room that becomes unusable with the server on it.

    Unusable room is the free room of a host that remains if it is filled with
    servers of one flavor, on average over a mix of flavors. The host on which
    it grows least, or shrinks most, has the highest score. The measure is that
    of Fragmentation Gradient Descent (USENIX ATC 2023), for vCPUs, memory and
    disk.

    Set ``[filter_scheduler] fragmentation_weight_multiplier`` above zero, and
    ``fragmentation_flavors`` to the flavors that your users request. The
    default disables the weigher.
    """

    multiplier_name = 'fragmentation_weight_multiplier'
    multiplier_default = 0.0
    local = True

    @classmethod
    def opts(cls) -> list[cfg.Opt]:
        return [
            *super().opts(),
            cfg.ListOpt('fragmentation_flavors', mutable=True, default=[
                '1:2048=12', '1:4096=16.6', '2:8192=29.5', '4:16384=23',
                '8:32768=12', '16:65536=6.9'],
                item_type=filter_scheduler.FlavorShare(), help="""
Sizes of servers that users request, each with its share.

``1:2048=3, 4:8192:40=1``: vCPUs, memory in MB and disk in GB. ``cellsched
capacity`` also reads it. The default is close to figures of a public cloud.

Related options:

* ``[filter_scheduler] fragmentation_weight_multiplier`` must not be zero.
"""),
        ]

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        mix = np.array(options.fragmentation_flavors, 'float64').reshape(-1, 4)
        #: The resources that any flavor takes.
        self.resources = [
            name for name, amounts in zip(_RESOURCES, mix.T) if amounts.any()]
        self.sizes = mix[:, :3][:, mix[:, :3].any(axis=0)]
        self.shares = mix[:, 3] / max(mix[:, 3].sum(), 1e-300)

    def applies(self, request: objects.RequestSpec) -> bool:
        return bool(self.resources)

    def score(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Column:
        demand = request.resources()
        takes = np.array([demand.get(name, 0) for name in self.resources])
        free = self.free(hosts)
        grown = (unusable(np.maximum(free - takes, 0), self.sizes, self.shares)
                 - unusable(free, self.sizes, self.shares))
        # Scores are scaled: without their last digits, equals stay equal.
        return np.round(
            np.sum(-grown / (self.shares @ self.sizes), axis=1), _DIGITS)

    def free(self, hosts: view.Hosts) -> view.Column:
        """Return the free amounts of these resources, as rows."""
        return np.stack([np.maximum(hosts.available(name), 0.0)
                         for name in self.resources], axis=1)
