# SPDX-License-Identifier: Apache-2.0
"""Prefer the hosts with the most free disk."""

from cellsched.hosts import view
from cellsched import objects
from cellsched.weighers import base


class DiskWeigher(base.Weigher):
    """Score a host by its free disk, which spreads instances out.

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
