# SPDX-License-Identifier: Apache-2.0
"""Keep hosts whose aggregates accept the flavor."""

from cellsched.filters import base
from cellsched.hosts import metadata
from cellsched.hosts import view
from cellsched import objects

_KEY = 'instance_type'


class AggregateTypeAffinityFilter(base.Filter):
    """Reject a host whose aggregates are for other flavors.

    The metadata key ``instance_type`` contains comma-separated flavor names.
    A host accepts the flavors that its aggregates name. If none of its
    aggregates has the key, it accepts all flavors.
    """

    reason = 'is kept for other flavors'
    run_filter_once_per_request = True

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask | None:
        flavor = request.flavor.get('name')
        return metadata.agree(hosts, [
            (_KEY, lambda names: not names or flavor in names)])
