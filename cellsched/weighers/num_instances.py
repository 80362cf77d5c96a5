# SPDX-License-Identifier: Apache-2.0
"""Prefer the hosts that run the most or the fewest instances."""

from cellsched.hosts import view
from cellsched import objects
from cellsched.weighers import base


class NumInstancesWeigher(base.Weigher):
    """Score a host by the number of its instances.

    Set ``[filter_scheduler] num_instances_weight_multiplier`` above zero to
    pack instances, below zero to spread them out. Unset, it counts nothing.
    """

    multiplier_name = 'num_instances_weight_multiplier'
    multiplier_default = 0.0
    local = True
    by_columns = True

    def score(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Column:
        return hosts['num_instances']
