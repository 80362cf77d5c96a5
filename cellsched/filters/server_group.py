# SPDX-License-Identifier: Apache-2.0
"""Keep hosts that the policy of a server group allows."""

from collections.abc import Iterable

import numpy as np

from cellsched.filters import base
from cellsched.hosts import view
from cellsched import objects


class _GroupFilter(base.Filter):
    """Applies to groups of one policy, and locates their members."""

    policy: str

    def applies(self, request: objects.RequestSpec) -> bool:
        group = request.get('instance_group')
        return group is not None and group.get('policy') == self.policy

    def located(self, request: objects.RequestSpec) -> Iterable[str]:
        return request.instance_group.get('members') or ()


class ServerGroupAffinityFilter(_GroupFilter):
    """Reject the hosts that run no server of the group.

    Applies to server groups with the policy ``affinity``. The first server of
    a group may use any host. Members in all cells count. If all members
    are on hosts that no longer exist, no host passes.
    """

    reason = 'runs no server of the group'
    policy = 'affinity'
    serves = frozenset({policy})

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask:
        names = request.instance_group.get('hosts') or ()
        members = hosts.placed(self.located(request))
        if not names and not members:
            return np.ones(len(hosts), dtype=bool)
        mask = hosts.whole.counts_of(members) > 0
        for name in names:
            mask[hosts.named(name)] = True
        return mask if hosts.is_whole else mask.take(hosts.rows)


class ServerGroupAntiAffinityFilter(_GroupFilter):
    """Reject a host that already runs the allowed number of group members.

    Applies to server groups with the policy ``anti-affinity``. The number is
    one, or the group's rule ``max_server_per_host``. Members in all cells
    count. If the number is one, the hosts that the caller names as hosts of
    members count too. A server that is moved may stay on its host.
    """

    reason = 'already runs its share of the server group'
    policy = 'anti-affinity'
    serves = frozenset({policy})
    local = True

    def located(self, request: objects.RequestSpec) -> Iterable[str]:
        return [*super().located(request), *moved(request)]

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask:
        group = request.instance_group
        most = group.rules.get('max_server_per_host', 1)
        mask = np.ones(len(hosts), dtype=bool)
        places, counts = hosts.tally(group.get('members') or ())
        mask[places[counts >= most]] = False
        if most == 1:
            # The caller may name more hosts of the group.
            unnamed = np.ones(len(hosts.whole), dtype=bool)
            for name in group.get('hosts') or ():
                unnamed[hosts.named(name)] = False
            mask &= unnamed if hosts.is_whole else unnamed.take(hosts.rows)
        mask[hosts.rows_of(moved(request))] = True
        return mask


def moved(request: objects.RequestSpec) -> list[str]:
    """Return the server of a request for a single server.

    If the server is already on a host, the request is a move.
    """
    if request.get('num_instances', 1) == 1 and request.get('instance_uuid'):
        return [request.instance_uuid]
    return []
