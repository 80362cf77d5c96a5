# SPDX-License-Identifier: Apache-2.0
"""Prefer the cells with room, without failures, or of the request."""

import numpy as np

from cellsched.hosts import view
from cellsched import objects
from cellsched.weighers import base


class CellFailureWeigher(base.Weigher):
    """Score a host by what fails in its cell.

    Builds that fail and a database that does not answer count, and are
    forgotten by and by, so that the cell comes back. The score is multiplied
    by *minus* ``[filter_scheduler] cell_failure_weight_multiplier``, be it the
    option or the metadata of an aggregate. That is what a hundred failures
    weigh, and more weigh no more: by default a fresh one outweighs what is
    free, an old one does not. Zero turns this off.
    """

    multiplier_name = 'cell_failure_weight_multiplier'
    multiplier_default = 1000.0
    # Scaled by the failures at hand, the last trace of one would weigh as much
    # as a hundred, and no cell would come back.
    minval = 0
    maxval = 100
    local = True

    def multiplier(self, hosts: view.Hosts) -> float | view.Column:
        # Nearly always nothing fails, and then nothing needs to be scored.
        return -super().multiplier(hosts) if hosts.any_cell_fails else 0.0

    def score(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Column:
        return hosts['cell_failures']


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


class CrossCellWeigher(base.Weigher):
    """Score a host of the preferred cell 1, one of another cell -1.

    Counts for a move that names a cell and may end in another one, by
    ``[filter_scheduler] cross_cell_move_weight_multiplier``. Set it below
    zero to prefer other cells, for example to empty one.
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
