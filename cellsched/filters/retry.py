# SPDX-License-Identifier: Apache-2.0
"""Keep hosts on which the build was not yet tried."""

import numpy as np

from cellsched.filters import base
from cellsched.hosts import view
from cellsched import objects


class RetryFilter(base.Filter):
    """Reject a host on which a build of the request was already tried.

    ``retry.hosts`` of the request lists hosts and their nodes. An entry
    without a node excludes all nodes of the host.
    """

    reason = 'was tried already'
    reads = frozenset({'retry.hosts'})
    run_filter_once_per_request = True

    def applies(self, request: objects.RequestSpec) -> bool:
        retry = request.get('retry')
        return bool(retry and retry.get('hosts'))

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask:
        names, nodes = hosts.whole['host'], hosts.whole['nodename']
        mask = np.ones(len(names), dtype=bool)
        for each in request.retry.hosts:
            host, node = each.get('host'), each.get('hypervisor_hostname')
            mask[[row for row in hosts.named(host or '')
                  if names[row] == host
                  and node in (None, nodes[row])]] = False
        return mask if hosts.is_whole else mask.take(hosts.rows)
