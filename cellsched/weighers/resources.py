# SPDX-License-Identifier: Apache-2.0
"""Prefer hosts by their free CPUs, disk, memory or PCI devices."""

from typing import Final

from cellsched.hosts import view
from cellsched import objects
from cellsched.weighers import base

#: Free PCI devices are counted up to one less than this number.
_MANY: Final = 100


class CPUWeigher(base.Weigher):
    """Score a host by its free virtual CPUs, which spreads instances.

    Set ``[filter_scheduler] cpu_weight_multiplier`` below zero to pack them
    instead.
    """

    multiplier_name = 'cpu_weight_multiplier'
    minval = 0
    local = True
    by_columns = True

    def score(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Column:
        free = hosts['vcpus_total'] * hosts['cpu_allocation_ratio']
        free -= hosts['vcpus_used']
        return free


class DiskWeigher(base.Weigher):
    """Score a host by its free disk, which spreads instances.

    Set ``[filter_scheduler] disk_weight_multiplier`` below zero to pack them
    instead.
    """

    multiplier_name = 'disk_weight_multiplier'
    minval = 0
    local = True
    by_columns = True

    def score(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Column:
        return hosts['free_disk_mb']


class PCIWeigher(base.Weigher):
    """Score a host lower the more free PCI devices it has.

    Servers without a device avoid hosts with free devices, and servers with
    devices fill one host after the other. The free devices are those that a
    host reported, without those of later selections. Hosts with 99 or more
    have the same score. The weight is ``[filter_scheduler]
    pci_weight_multiplier``.
    """

    multiplier_name = 'pci_weight_multiplier'
    multiplier_min = 0.0
    local = True

    def score(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Column | None:
        if hosts.whole.most('free_pci_devices') <= 0:
            return None
        return _MANY - hosts['free_pci_devices'].clip(0, _MANY - 1)


class RAMWeigher(base.Weigher):
    """Score a host by its free memory, which spreads instances.

    Set ``[filter_scheduler] ram_weight_multiplier`` below zero to pack them
    instead.
    """

    multiplier_name = 'ram_weight_multiplier'
    minval = 0
    local = True
    by_columns = True

    def score(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Column:
        return hosts['free_ram_mb']
