# SPDX-License-Identifier: Apache-2.0
"""Prefer the cell that a server is in when it may leave it."""

import numpy as np

from cellsched.hosts import view
from cellsched import objects
from cellsched.weighers import base


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
