# SPDX-License-Identifier: Apache-2.0
"""Keep hosts in the requested availability zone."""

from collections.abc import Hashable

from cellsched.filters import base
from cellsched.hosts import view
from cellsched import objects


class AvailabilityZoneFilter(base.Filter):
    """Reject a host that is in another availability zone than requested.

    The zone of a host is the ``availability_zone`` metadata of its
    aggregates, or ``[DEFAULT] default_availability_zone`` if they have none.
    A request without a zone may use all zones.
    """

    reason = 'is in another availability zone'
    reads = frozenset({'availability_zone'})
    run_filter_once_per_request = True

    def applies(self, request: objects.RequestSpec) -> bool:
        return bool(request.get('availability_zone'))

    def cache_key(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> Hashable:
        return request.availability_zone

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask:
        zone = hosts.code('availability_zone', request.availability_zone)
        return hosts['availability_zone'] == zone
