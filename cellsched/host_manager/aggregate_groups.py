# SPDX-License-Identifier: Apache-2.0
"""Host aggregates, grouped by host."""

from collections.abc import Iterable
from collections.abc import Mapping

from cellsched.db.api import aggregates
from cellsched.hosts import aggregate
from cellsched import objects

#: Aggregates, by their ids.
Group = tuple[aggregate.HostAggregate, ...]


class AggregateGroups:
    """The aggregates of hosts and their availability zones.

    The aggregates come from the API database and from callers' updates.

    :param default_zone: availability zone of hosts without one
    """

    def __init__(self, default_zone: str) -> None:
        self._default_zone = default_zone
        # Aggregates by (from a caller, id).
        self._aggregates: dict[tuple[bool, int], aggregate.HostAggregate] = {}
        self._members: dict[tuple[bool, int], frozenset[str]] = {}
        self._groups: dict[str, Group] = {}
        # The sharing providers of an aggregate's hosts, by aggregate uuid.
        self._sharing: dict[str, list[str]] = {}

    def group(self, host: str) -> Group:
        """Return the aggregates of a host."""
        return self._groups.get(host, ())

    def sharing(self, host: str) -> tuple[str, ...]:
        """Return the sharing providers of a host."""
        if not self._sharing:
            return ()
        return tuple(sorted(
            uuid for each in self.group(host)
            for uuid in self._sharing.get(each.uuid, ())))

    def share(self, providers: Mapping[str, str]) -> set[str]:
        """Set the aggregates of the sharing providers.

        :param providers: uuids of aggregates by uuids of providers
        :returns: the hosts whose sharing providers may have changed
        """
        before = self._sharing
        self._sharing = {}
        for uuid, aggregate_uuid in providers.items():
            self._sharing.setdefault(aggregate_uuid, []).append(uuid)
        changed = {uuid for uuid in before.keys() | self._sharing.keys()
                   if before.get(uuid) != self._sharing.get(uuid)}
        return {host for host, group in self._groups.items()
                if any(each.uuid in changed for each in group)}

    def zone(self, host: str) -> str:
        """Return the zone of a host.

        If its aggregates have different zones, the oldest aggregate applies.
        """
        for each in self.group(host):
            zone = each.metadata.get(aggregate.ZONE_KEY)
            if zone:
                return zone
        return self._default_zone

    def apply(self, changes: aggregates.AggregateChanges) -> set[str]:
        """Apply changes; return the hosts whose aggregates changed."""
        if changes.ids is None:
            return set()
        touched: set[str] = set()
        for key in [(reported, number) for reported, number in self._aggregates
                    if not reported and number not in changes.ids]:
            touched |= self._drop(key)
        for changed in changes.aggregates:
            touched |= self._put((False, changed.id), aggregate.HostAggregate(
                changed.id, changed.uuid, changed.name, changed.metadata),
                changed.hosts)
        self._regroup(touched)
        return touched

    def tell(self, changed: objects.Aggregate) -> frozenset[str]:
        """Apply a caller's update; return the hosts that it affects.

        For an aggregate that is in the API database, the database applies.
        """
        uuid = changed.get('uuid', '')
        if uuid and any(each.uuid == uuid for (reported, _), each
                        in self._aggregates.items() if not reported):
            return frozenset()
        touched = self._put((True, changed.id), aggregate.HostAggregate(
            changed.id, uuid, changed.get('name', ''),
            changed.get('metadata') or {}), changed.get('hosts') or ())
        self._regroup(touched)
        return touched

    def forget(self, number: int) -> frozenset[str]:
        """Remove a caller's aggregate; return the hosts that it affects."""
        touched = self._drop((True, number))
        self._regroup(touched)
        return touched

    def _put(
        self, key: tuple[bool, int], changed: aggregate.HostAggregate,
        hosts: Iterable[str],
    ) -> frozenset[str]:
        touched = self._members.get(key, frozenset()) | frozenset(hosts)
        self._members[key] = frozenset(hosts)
        self._aggregates[key] = changed
        return touched

    def _drop(self, key: tuple[bool, int]) -> frozenset[str]:
        self._aggregates.pop(key, None)
        return self._members.pop(key, frozenset())

    def _regroup(self, hosts: Iterable[str]) -> None:
        # Hosts in the same aggregates share one tuple of them.
        shared: dict[Group, Group] = {}
        found: dict[str, list[aggregate.HostAggregate]] = {
            host: [] for host in hosts}
        for key, each in sorted(self._aggregates.items()):
            for host in self._members[key] & found.keys():
                found[host].append(each)
        for host, group in zip(found, map(tuple, found.values())):
            if group:
                self._groups[host] = shared.setdefault(group, group)
            else:
                self._groups.pop(host, None)
