# SPDX-License-Identifier: Apache-2.0
"""Prefer the hosts with the newest hypervisor."""

from cellsched.hosts import view
from cellsched import objects
from cellsched.weighers import base


class HypervisorVersionWeigher(base.Weigher):
    """Score a host by its hypervisor version; unknown versions are oldest.

    Set ``[filter_scheduler] hypervisor_version_weight_multiplier`` below zero
    to prefer old versions, for example during a rolling upgrade of hosts.
    """

    multiplier_name = 'hypervisor_version_weight_multiplier'
    local = True
    fixed = True
    by_columns = True

    def score(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Column:
        return hosts['hypervisor_version']
