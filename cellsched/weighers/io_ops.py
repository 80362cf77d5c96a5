# SPDX-License-Identifier: Apache-2.0
"""Prefer the hosts with the fewest builds and moves in progress."""

from cellsched.hosts import view
from cellsched import objects
from cellsched.weighers import base


class IoOpsWeigher(base.Weigher):
    """Score a host by its builds and moves in progress.

    As ``[filter_scheduler] io_ops_weight_multiplier`` is below zero, hosts
    with little to do are preferred; set it above zero to prefer the busy ones.
    """

    multiplier_name = 'io_ops_weight_multiplier'
    multiplier_default = -1.0
    minval = 0
    local = True
    by_columns = True

    def score(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Column:
        return hosts['num_io_ops']
