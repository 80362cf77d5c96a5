# SPDX-License-Identifier: Apache-2.0
"""Prefer hosts with the most free CPUs, disk or memory."""

from cellsched.hosts import view
from cellsched import objects
from cellsched.weighers import base


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
