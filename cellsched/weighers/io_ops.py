# SPDX-License-Identifier: Apache-2.0
"""Prefer hosts with the fewest builds and moves in progress."""

from cellsched.hosts import view
from cellsched import objects
from cellsched.weighers import base


class IoOpsWeigher(base.Weigher):
    """Score a host by its builds and moves in progress.

    ``[filter_scheduler] io_ops_weight_multiplier`` is below zero by default
    and prefers hosts with few of them. Set it above zero to prefer busy hosts.
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
