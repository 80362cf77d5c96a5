# SPDX-License-Identifier: Apache-2.0
"""Keep hosts whose aggregates are for the flavor."""

from cellsched.filters import base
from cellsched.hosts import metadata
from cellsched.hosts import view
from cellsched import objects

_KEY = 'instance_type'


class AggregateTypeAffinityFilter(base.Filter):
    """Reject a host whose aggregates are for other flavors.

    The metadata ``instance_type`` names flavors between commas. A host takes
    those that any of its aggregates names; where none has that key, it takes
    all flavors.
    """

    reason = 'is kept for other flavors'
    run_filter_once_per_request = True

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask | None:
        flavor = request.flavor.get('name')
        return metadata.agree(hosts, [
            (_KEY, lambda names: not names or flavor in names)])
