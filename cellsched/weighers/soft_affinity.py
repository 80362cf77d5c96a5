# SPDX-License-Identifier: Apache-2.0
"""Prefer hosts with the most or the fewest members of a server group."""

from collections.abc import Iterable
from typing import ClassVar

from cellsched.hosts import view
from cellsched import objects
from cellsched.weighers import base


class _SoftWeigher(base.Weigher):
    """Counts the members of the request's group on each host."""

    policy: ClassVar[str]
    multiplier_min = 0.0
    local = True

    def applies(self, request: objects.RequestSpec) -> bool:
        group = request.get('instance_group')
        return (group is not None and group.get('policy') == self.policy
                and bool(group.get('members')))

    def located(self, request: objects.RequestSpec) -> Iterable[str]:
        # A member counts once, even if it is named several times.
        return set(request.instance_group.members)

    def score(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Column:
        return hosts.counts_of(self.located(request))


class ServerGroupSoftAffinityWeigher(_SoftWeigher):
    """Score a host by its number of members of the server group.

    Applies to groups with the policy ``soft-affinity``. The weight is
    ``[filter_scheduler] soft_affinity_weight_multiplier``.
    """

    policy = 'soft-affinity'
    serves = frozenset({policy})
    multiplier_name = 'soft_affinity_weight_multiplier'


class ServerGroupSoftAntiAffinityWeigher(_SoftWeigher):
    """Score a host lower the more members of the server group it runs.

    Applies to groups with the policy ``soft-anti-affinity``. The weight is
    ``[filter_scheduler] soft_anti_affinity_weight_multiplier``.
    """

    policy = 'soft-anti-affinity'
    serves = frozenset({policy})
    multiplier_name = 'soft_anti_affinity_weight_multiplier'

    def score(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Column:
        return -super().score(hosts, request)
