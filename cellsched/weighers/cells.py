# SPDX-License-Identifier: Apache-2.0
"""Prefer cells with free capacity, without failures, or of the request."""

import numpy as np

from cellsched.hosts import view
from cellsched import objects
from cellsched.weighers import base


class CellFailureWeigher(base.Weigher):
    """Score a host by the recent failures in its cell.

    Failed builds and an unreachable cell database count as failures. Their
    weight decays over time, so that the cell is used again. The score is
    multiplied by *minus* ``[filter_scheduler]
    cell_failure_weight_multiplier``, or by minus the value in the metadata of
    an aggregate. The weight reaches this value at a hundred failures and
    grows no further. By default, a fresh failure outweighs free capacity and
    an old one does not. Zero disables the weigher.
    """

    multiplier_name = 'cell_failure_weight_multiplier'
    multiplier_default = 1000.0
    # Use a fixed maximum. Normalized by the present failures, the remainder of
    # one failure would weigh as much as a hundred, and no cell would recover.
    minval = 0
    maxval = 100
    local = True

    def multiplier(self, hosts: view.Hosts) -> float | view.Column:
        # Usually no cell has failures, and no host needs a score.
        return -super().multiplier(hosts) if hosts.any_cell_fails else 0.0

    def score(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Column:
        return hosts['cell_failures']


class CellFreeWeigher(base.Weigher):
    """Score a host by the free share of its cell.

    The score is the lowest of the free shares of CPUs, memory and disk. Set
    ``[filter_scheduler] cell_free_weight_multiplier`` above zero to spread
    servers over cells, and below zero to fill one cell after the other. The
    default disables the weigher.
    """

    multiplier_name = 'cell_free_weight_multiplier'
    multiplier_default = 0.0
    minval = 0

    def score(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Column:
        return hosts['cell_free_share']


class CrossCellWeigher(base.Weigher):
    """Score a host of the preferred cell 1, and hosts of other cells -1.

    Applies to a move that names a cell and may end in another cell. The
    weight is ``[filter_scheduler] cross_cell_move_weight_multiplier``. Set it
    below zero to prefer other cells, for example to empty a cell.
    """

    multiplier_name = 'cross_cell_move_weight_multiplier'
    multiplier_default = 1000000.0
    local = True
    fixed = True

    def applies(self, request: objects.RequestSpec) -> bool:
        destination = request.get('requested_destination')
        return (destination is not None
                and destination.get('cell') is not None
                and bool(destination.get('allow_cross_cell_move')))

    def score(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Column:
        preferred = hosts.code(
            'cell', request.requested_destination.cell.get('uuid'))
        return np.where(hosts['cell'] == preferred, 1.0, -1.0)
