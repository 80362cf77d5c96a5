# SPDX-License-Identifier: Apache-2.0
"""Nova's aggregates as columns of hosts."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import time
from typing import Any

from nova.objects import aggregate as nova_aggregate

from cellsched.hosts import aggregate


class NovaAggregates:
    """Tracks the aggregates of hosts, and the changes between two reads.

    :param host_manager: Nova's host manager, which receives changes
    :param conf: Nova's configuration
    :param read_all: returns all aggregates
    """

    def __init__(
        self, host_manager: Any, conf: Any, read_all: Callable[[Any], Any] = (
            nova_aggregate.AggregateList.get_all),
    ) -> None:
        self._host_manager = host_manager
        self._conf = conf
        self._read_all = read_all
        self._read_at = time.monotonic()
        self._known: dict[int, tuple[Any, aggregate.HostAggregate]] = {}
        self._groups: dict[str, tuple[aggregate.HostAggregate, ...]] = {}

    def read(self, context: Any) -> None:
        """Read all aggregates if the last read is too old.

        Nova's API sends a change once to each scheduler, so a scheduler that
        does not run at that time misses the change.
        """
        now = time.monotonic()
        if now < self._read_at + self._conf.cellsched.full_refresh_interval:
            return
        self._read_at = now
        manager = self._host_manager
        found = self._read_all(context)
        manager.update_aggregates(found)
        existing = {each.id for each in found}
        for number in [*manager.aggs_by_id]:
            if number not in existing:
                manager.delete_aggregate(manager.aggs_by_id[number])

    def changes(
        self, nodes: Mapping[str, Any], new: Iterable[str]
    ) -> tuple[list[str], dict[str, list[Any]]]:
        """Return the compute nodes with changed aggregates, and the columns.

        :param nodes: Nova's compute nodes, by uuid
        :param new: nodes that always count as changed
        """
        groups = self._grouped()
        before, self._groups = self._groups, groups
        new = set(new)
        changed = [uuid for uuid, node in nodes.items() if uuid in new
                   or before.get(node.host) != groups.get(node.host)]
        columns = [groups.get(nodes[uuid].host, ()) for uuid in changed]
        return changed, {
            'aggregates': columns,
            'availability_zone': [self._zone(group) for group in columns]}

    def _grouped(self) -> dict[str, tuple[aggregate.HostAggregate, ...]]:
        """Return the aggregates by host, for hosts in at least one."""
        current = dict(self._host_manager.aggs_by_id)
        for number in self._known.keys() - current.keys():
            del self._known[number]
        for number, each in current.items():
            facts = (each.uuid, each.name, dict(each.metadata),
                     frozenset(each.hosts))
            if (number not in self._known
                    or self._known[number][0] != facts):
                self._known[number] = facts, aggregate.HostAggregate(
                    number, each.uuid, each.name, dict(each.metadata))
        groups: dict[str, list[aggregate.HostAggregate]] = {}
        for _, ((_, _, _, hosts), one) in sorted(self._known.items()):
            for host in hosts:
                groups.setdefault(host, []).append(one)
        # Hosts in the same aggregates share one tuple.
        shared: dict[Any, Any] = {}
        return {host: shared.setdefault(tuple(group), tuple(group))
                for host, group in groups.items()}

    def _zone(self, group: Iterable[aggregate.HostAggregate]) -> str:
        for each in group:
            zone = each.metadata.get(aggregate.ZONE_KEY)
            if zone:
                return zone
        zone = self._conf.default_availability_zone
        return str(zone)
