# SPDX-License-Identifier: Apache-2.0
"""Prefer the hosts with the most free memory."""

from cellsched.hosts import table
from cellsched import objects
from cellsched.weighers import base


class RAMWeigher(base.Weigher):
    """Score a host by its free memory, which spreads instances out.

    Set ``[filter_scheduler] ram_weight_multiplier`` below zero to pack them
    instead.
    """

    multiplier_name = 'ram_weight_multiplier'
    minval = 0

    def score(
        self, hosts: table.HostTable, request: objects.RequestSpec
    ) -> table.Column:
        return hosts['free_ram_mb']
