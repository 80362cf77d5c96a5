# SPDX-License-Identifier: Apache-2.0
"""Avoid the cells in which something fails."""

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
