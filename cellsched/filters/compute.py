# SPDX-License-Identifier: Apache-2.0
"""Keep hosts that are up and enabled, and were not yet tried."""

from collections.abc import Hashable
import math
from typing import Any

import numpy as np
from oslo_config import cfg

from cellsched.conf import default
from cellsched.filters import base
from cellsched.hosts import view
from cellsched import objects

#: Rounding of times, in seconds.
_MARGIN = 1e-3


class ComputeFilter(base.Filter):
    """Reject a host whose compute service is down or disabled.

    A service is down if its last report is older than ``[DEFAULT]
    service_down_time`` seconds, or if an operator forced it down. A report
    that is further than this in the future is ignored too: the clock of the
    host is wrong, and the host would seem up long after it failed.
    """

    reason = 'is down or disabled'
    run_filter_once_per_request = True
    group = 'DEFAULT'

    @classmethod
    def opts(cls) -> list[cfg.Opt]:
        return [option for option in default.OPTS
                if option.name == 'service_down_time']

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._down_time = options.service_down_time

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask | None:
        # Usually all hosts are up.
        if (hosts.is_whole
                and hosts.least('last_seen_up') >= hosts.now - self._down_time
                and hosts.most('last_seen_up') <= hosts.now + self._down_time
                and not hosts.most('service_disabled')
                and not hosts.most('forced_down')):
            return None
        seen = hosts['last_seen_up']
        up = seen >= hosts.now - self._down_time
        up &= seen <= hosts.now + self._down_time
        # For booleans, this is "and not" in one pass.
        np.greater(up, hosts['service_disabled'], out=up)
        np.greater(up, hosts['forced_down'], out=up)
        return up

    def cache_key(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> Hashable:
        return ()

    def valid_until(self, hosts: view.Hosts) -> float:
        seen = hosts['last_seen_up']
        ends, begins = seen + self._down_time, seen - self._down_time
        return min(ends[ends >= hosts.now].min(initial=math.inf),
                   begins[begins > hosts.now].min(initial=math.inf)) - _MARGIN


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
