# SPDX-License-Identifier: Apache-2.0
"""Avoid the hosts on which builds fail."""

from cellsched.hosts import view
from cellsched import objects
from cellsched.weighers import base


class BuildFailureWeigher(base.Weigher):
    """Score a host by its builds that failed in a row.

    The score is multiplied by *minus* ``[filter_scheduler]
    build_failure_weight_multiplier``, be it the option or the metadata of an
    aggregate: give it above zero to avoid hosts on which builds fail. It is so
    great that hardly anything else counts there; zero turns this off.
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
