# SPDX-License-Identifier: Apache-2.0
"""Keep hosts that are not too busy with builds and moves."""

from oslo_config import cfg

from cellsched.filters import base
from cellsched.hosts import view
from cellsched import objects


class IoOpsFilter(base.Filter):
    """Reject a host that already has its limit of builds and moves.

    The limit is ``[filter_scheduler] max_io_ops_per_host``.
    """

    reason = 'is busy with its limit of builds and moves'
    local = True

    @classmethod
    def opts(cls) -> list[cfg.Opt]:
        return [
            cfg.IntOpt('max_io_ops_per_host', default=8, help="""
Builds and moves in progress on a host before it is passed over.

They strain disk and network of a host, so that many at once take longer than
one after the other.

Related options:

* ``[filter_scheduler] enabled_filters`` must name ``IoOpsFilter`` or
  ``AggregateIoOpsFilter``.
"""),
        ]

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask:
        return hosts['num_io_ops'] < self.limit(hosts)

    def limit(self, hosts: view.Hosts) -> float | view.Column:
        """Return how many builds and moves the hosts may have."""
        return self.options.max_io_ops_per_host


class AggregateIoOpsFilter(IoOpsFilter):
    """Reject a host that already has the limit that its aggregates set.

    It is the least ``max_io_ops_per_host`` in the metadata of the host's
    aggregates, else ``[filter_scheduler] max_io_ops_per_host``, of builds and
    moves in progress.
    """

    def limit(self, hosts: view.Hosts) -> float | view.Column:
        return hosts.number(
            'max_io_ops_per_host', self.options.max_io_ops_per_host)
