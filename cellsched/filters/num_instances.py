# SPDX-License-Identifier: Apache-2.0
"""Keep hosts that run fewer instances than their limit."""

from oslo_config import cfg

from cellsched.filters import base
from cellsched.hosts import view
from cellsched import objects


class NumInstancesFilter(base.Filter):
    """Reject a host whose number of instances has reached the limit.

    The limit is ``[filter_scheduler] max_instances_per_host``.
    """

    reason = 'already runs its limit of instances'
    local = True

    @classmethod
    def opts(cls) -> list[cfg.Opt]:
        return [
            cfg.IntOpt('max_instances_per_host', default=50, min=1,
                       mutable=True, help="""
Instances that a host may run before it is passed over.

Related options:

* ``[filter_scheduler] enabled_filters`` must name ``NumInstancesFilter`` or
  ``AggregateNumInstancesFilter``.
"""),
        ]

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask:
        return hosts['num_instances'] < self.limit(hosts)

    def limit(self, hosts: view.Hosts) -> float | view.Column:
        """Return the allowed number of instances on the hosts."""
        return self.options.max_instances_per_host


class AggregateNumInstancesFilter(NumInstancesFilter):
    """Reject a host at the instance limit that its aggregates set.

    The limit is the lowest ``max_instances_per_host`` in the metadata of the
    host's aggregates, or ``[filter_scheduler] max_instances_per_host`` if no
    aggregate has one.
    """

    def limit(self, hosts: view.Hosts) -> float | view.Column:
        return hosts.number(
            'max_instances_per_host', self.options.max_instances_per_host)
