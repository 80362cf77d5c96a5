# SPDX-License-Identifier: Apache-2.0
"""Prefer the cells with the most room."""

from cellsched.hosts import view
from cellsched import objects
from cellsched.weighers import base


class CellFreeWeigher(base.Weigher):
    """Score a host by the share of its cell that is free.

    That is the least of the shares of CPUs, memory and disk. Set
    ``[filter_scheduler] cell_free_weight_multiplier`` above zero to spread
    servers over cells, below zero to fill one after the other. Unset, it
    counts nothing.
    """

    multiplier_name = 'cell_free_weight_multiplier'
    multiplier_default = 0.0
    minval = 0

    def score(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Column:
        return hosts['cell_free_share']
