# SPDX-License-Identifier: Apache-2.0
"""Reserve hosts with free PCI devices for servers that need them."""

from typing import Final

import numpy as np

from cellsched.hosts import view
from cellsched import objects
from cellsched.weighers import base

#: Free devices are counted up to one less than this number.
_MANY: Final = 100


class PCIWeigher(base.Weigher):
    """Score a host lower the more free PCI devices it has.

    Servers without a device avoid hosts with free devices, and servers with
    devices fill one host after the other. Hosts with 99 or more free devices
    have the same score. The weight is ``[filter_scheduler]
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
