# SPDX-License-Identifier: Apache-2.0
"""Keep the hosts with free PCI devices for those who need them."""

from typing import Final

import numpy as np

from cellsched.hosts import view
from cellsched import objects
from cellsched.weighers import base

#: More free devices than one less than this count as that many.
_MANY: Final = 100


class PCIWeigher(base.Weigher):
    """Score a host the lower, the more of its PCI devices are free.

    Servers that need no device stay off the hosts that have some, and those
    that need some fill one host after the other. From 99 free devices on, all
    hosts are alike. The weight is ``[filter_scheduler]
    pci_weight_multiplier``.
    """

    multiplier_name = 'pci_weight_multiplier'
    multiplier_min = 0.0
    local = True
    fixed = True

    def score(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Column | None:
        if hosts.most('free_pci_devices') <= 0:
            return None
        free = hosts['free_pci_devices']
        return _MANY - np.minimum(free, _MANY - 1)
