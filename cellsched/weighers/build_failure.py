# SPDX-License-Identifier: Apache-2.0
"""Avoid hosts on which builds fail."""

from cellsched.hosts import view
from cellsched import objects
from cellsched.weighers import base


class BuildFailureWeigher(base.Weigher):
    """Score a host by its number of consecutive failed builds.

    The score is multiplied by *minus* ``[filter_scheduler]
    build_failure_weight_multiplier``, or by minus the value in the metadata
    of an aggregate. A value above zero avoids hosts on which builds fail. The
    default is so large that other weighers hardly matter for these hosts;
    zero disables the weigher.
    """

    multiplier_name = 'build_failure_weight_multiplier'
    multiplier_default = 1000000.0
    local = True
    fixed = True
    by_columns = True

    def multiplier(self, hosts: view.Hosts) -> float | view.Column:
        return -super().multiplier(hosts)

    def score(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Column | None:
        some = hosts.most('failed_builds') > 0
        return hosts['failed_builds'] if some else None
