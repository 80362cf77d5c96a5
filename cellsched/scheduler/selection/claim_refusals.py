# SPDX-License-Identifier: Apache-2.0
"""Refusals of the claim store while hosts were chosen for one request."""

import collections
from collections.abc import Iterable
import copy

from cellsched.claims import base as claims_base
from cellsched import exception
from cellsched.hosts import view
from cellsched import objects


class ClaimRefusals:
    """Remembers what to pass over, and where others of the group are.

    A host that had no room may have some once the table is set right, and is
    passed over when it is refused again. One that the server group keeps the
    request from is passed over at once, with all that the store says are like
    it. Of members who came just before nobody else may have told, so the
    request is told who they are.
    """

    def __init__(self) -> None:
        #: How often the store refused.
        self.times = 0
        self._lost: collections.Counter[str] = collections.Counter()
        #: Nodes, and names of hosts.
        self._denied: dict[str, None] = {}
        self._barred: dict[str, None] = {}
        self._full: dict[str, None] = {}
        #: Where the others are that a request has to join.
        self._near: list[str] = []
        self._members: dict[str, None] = {}

    def __bool__(self) -> bool:
        return bool(self._lost or self._denied)

    def add(
        self, refusal: exception.ClaimRefused, node: str | None = None
    ) -> None:
        """Remember one more.

        :param node: which was chosen, where its child provider refused, or
            one that it shares
        """
        self.times += 1
        node = node or refusal.provider
        if not isinstance(refusal, exception.GroupPolicyViolated):
            self._lost[node] += 1
            return
        self._denied[node] = None
        self._members |= dict.fromkeys(refusal.members)
        if refusal.policy == claims_base.AFFINITY or not refusal.members:
            self._barred[node] = None
        # Otherwise a host that is not full may take a part of the request.
        if refusal.policy == claims_base.AFFINITY:
            self._near = list(refusal.hosts)
        else:
            self._full |= dict.fromkeys(refusal.hosts)

    @property
    def lost(self) -> list[str]:
        """The nodes that had no room."""
        return list(self._lost)

    @property
    def denied(self) -> list[str]:
        """The nodes that the server group kept the request from."""
        return list(self._denied)

    def refused(self, hosts: view.Hosts) -> list[int]:
        """Return the rows of hosts that had no room."""
        return _rows(hosts, self._lost)

    def hopeless(self, hosts: view.Hosts) -> list[int]:
        """Return the rows of hosts that have no room, whatever is known."""
        return _rows(hosts, (
            node for node, times in self._lost.items() if times > 1))

    def closed(self, hosts: view.Hosts) -> list[int]:
        """Return the rows of hosts that the server group is kept from."""
        rows = dict.fromkeys(_rows(hosts, self._barred))
        for name in self._full:
            rows |= dict.fromkeys(hosts.named(name))
        return list(rows)

    def inform(self, request: objects.RequestSpec) -> objects.RequestSpec:
        """Return a request that knows of others of its group, and where."""
        if not self._members:
            return request
        request = copy.copy(request)
        group = copy.copy(request.instance_group)
        group.hosts = list(dict.fromkeys(
            [*(group.get('hosts') or ()), *self._near]))
        group.members = list(dict.fromkeys(
            [*(group.get('members') or ()), *self._members]))
        request.instance_group = group
        return request


def _rows(hosts: view.Hosts, nodes: Iterable[str]) -> list[int]:
    return [row for row in map(hosts.row, nodes) if row is not None]
