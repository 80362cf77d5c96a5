# SPDX-License-Identifier: Apache-2.0
"""Keep hosts that run fewer instances than they are allowed."""

from oslo_config import cfg

from cellsched.filters import base
from cellsched.hosts import table
from cellsched import objects


class NumInstancesFilter(base.Filter):
    """Reject a host that already runs its limit of instances.

    The limit is ``[filter_scheduler] max_instances_per_host``.
    """

    reason = 'already runs its limit of instances'

    @classmethod
    def opts(cls) -> list[cfg.Opt]:
        return [
            cfg.IntOpt('max_instances_per_host', default=50, min=1, help="""
Instances that a host may run before it is passed over.

Related options:

* ``[filter_scheduler] enabled_filters`` must name ``NumInstancesFilter``.
"""),
        ]

    def keep(
        self, hosts: table.HostTable, request: objects.RequestSpec
    ) -> table.Mask:
        return hosts['num_instances'] < self.options.max_instances_per_host
