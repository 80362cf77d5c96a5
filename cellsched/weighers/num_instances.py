# SPDX-License-Identifier: Apache-2.0
"""Prefer hosts with the most or the fewest instances."""

from cellsched.hosts import view
from cellsched import objects
from cellsched.weighers import base


class NumInstancesWeigher(base.Weigher):
    """Score a host by its number of instances.

    Set ``[filter_scheduler] num_instances_weight_multiplier`` above zero to
    pack instances, and below zero to spread them. The default disables the
    weigher.
    """

    multiplier_name = 'num_instances_weight_multiplier'
    multiplier_default = 0.0
    local = True
    by_columns = True

    def score(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Column:
        return hosts['num_instances']
