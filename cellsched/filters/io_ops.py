# SPDX-License-Identifier: Apache-2.0
"""Keep hosts with few builds and moves in progress."""

from collections.abc import Hashable

from oslo_config import cfg

from cellsched.filters import base
from cellsched.hosts import view
from cellsched import objects


class IoOpsFilter(base.Filter):
    """Reject a host with too many builds and moves in progress.

    The limit is ``[filter_scheduler] max_io_ops_per_host``.
    """

    reason = 'is busy with its limit of builds and moves'
    local = True

    @classmethod
    def opts(cls) -> list[cfg.Opt]:
        return [
            cfg.IntOpt('max_io_ops_per_host', default=8, mutable=True, help="""
A host with this many builds and moves in progress is rejected.

Builds and moves use the disk and the network of a host. If many run at the
same time, each of them takes longer.

Related options:

* ``[filter_scheduler] enabled_filters`` must name ``IoOpsFilter`` or
  ``AggregateIoOpsFilter``.
"""),
        ]

    def cache_key(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> Hashable:
        return ()

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask:
        return hosts['num_io_ops'] < self.limit(hosts)

    def limit(self, hosts: view.Hosts) -> float | view.Column:
        """Return the allowed number of builds and moves on the hosts."""
        return self.options.max_io_ops_per_host


class AggregateIoOpsFilter(IoOpsFilter):
    """Reject a host with too many builds and moves, by its aggregates.

    The limit is the lowest ``max_io_ops_per_host`` in the metadata of the
    host's aggregates, or ``[filter_scheduler] max_io_ops_per_host`` if no
    aggregate has one. It applies to builds and moves in progress.
    """

    def limit(self, hosts: view.Hosts) -> float | view.Column:
        return hosts.number(
            'max_io_ops_per_host', self.options.max_io_ops_per_host)
