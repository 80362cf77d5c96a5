# SPDX-License-Identifier: Apache-2.0
"""Which aggregates hosts are in."""

from collections.abc import Iterable

from cellsched.db.api import aggregates
from cellsched.hosts import aggregate

#: Aggregates, by their ids.
Group = tuple[aggregate.Aggregate, ...]


class Grouping:
    """The aggregates of hosts and their availability zones.

    :param default_zone: availability zone of hosts that are in none
    """

    def __init__(self, default_zone: str) -> None:
        self._default_zone = default_zone
        self._aggregates: dict[int, aggregate.Aggregate] = {}
        self._members: dict[int, frozenset[str]] = {}
        self._groups: dict[str, Group] = {}

    def group(self, host: str) -> Group:
        """Return the aggregates of a host."""
        return self._groups.get(host, ())

    def zone(self, host: str) -> str:
        """Return the zone of a host.

        Where its aggregates disagree, the oldest one is right.
        """
        for each in self.group(host):
            zone = each.metadata.get(aggregate.ZONE_KEY)
            if zone:
                return zone
        return self._default_zone

    def apply(self, changes: aggregates.Changes) -> set[str]:
        """Take over what changed; return the hosts whose aggregates did."""
        if changes.ids is None:
            return set()
        touched: set[str] = set()
        for number in self._aggregates.keys() - changes.ids:
            touched |= self._members.pop(number)
            del self._aggregates[number]
        for said in changes.aggregates:
            touched |= self._members.get(said.id, frozenset())
            self._members[said.id] = frozenset(said.hosts)
            self._aggregates[said.id] = aggregate.Aggregate(
                said.id, said.uuid, said.name, said.metadata)
            touched |= self._members[said.id]
        self._regroup(touched)
        return touched

    def _regroup(self, hosts: Iterable[str]) -> None:
        # Hosts in the same aggregates share one tuple of them.
        shared: dict[Group, Group] = {}
        by_id = sorted(self._aggregates.items())
        for host in hosts:
            group = tuple(each for number, each in by_id
                          if host in self._members[number])
            if group:
                self._groups[host] = shared.setdefault(group, group)
            else:
                self._groups.pop(host, None)
