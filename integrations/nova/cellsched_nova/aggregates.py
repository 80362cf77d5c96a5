# SPDX-License-Identifier: Apache-2.0
"""Aggregates as Nova's host manager has them, as columns of hosts."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import time
from typing import Any

from nova.objects import aggregate as nova_aggregate

from cellsched.hosts import aggregate


class NovaAggregates:
    """Knows which hosts are in which aggregates, and what changed of that.

    :param host_manager: Nova's, which hears of changes
    :param conf: Nova's configuration
    :param read_all: returns all aggregates, as Nova's own method does
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
        """Read all aggregates, if that was not done for long.

        Nova's API tells each scheduler of a change once; one that was not
        there then would never know.
        """
        now = time.monotonic()
        if now < self._read_at + self._conf.cellsched.full_refresh_interval:
            return
        self._read_at = now
        manager = self._host_manager
        found = self._read_all(context)
        manager.update_aggregates(found)
        there = {each.id for each in found}
        for number in [*manager.aggs_by_id]:
            if number not in there:
                manager.delete_aggregate(manager.aggs_by_id[number])

    def changes(
        self, nodes: Mapping[str, Any], new: Iterable[str]
    ) -> tuple[list[str], dict[str, list[Any]]]:
        """Return the compute nodes whose aggregates changed, and the columns.

        :param nodes: Nova's compute nodes, by uuid
        :param new: the nodes that count as changed in any case
        """
        groups = self._grouped()
        before, self._groups = self._groups, groups
        new = set(new)
        changed = [uuid for uuid, node in nodes.items() if uuid in new
                   or before.get(node.host) != groups.get(node.host)]
        mine = [groups.get(nodes[uuid].host, ()) for uuid in changed]
        return changed, {
            'aggregates': mine,
            'availability_zone': [self._zone(group) for group in mine]}

    def _grouped(self) -> dict[str, tuple[aggregate.HostAggregate, ...]]:
        """Return the aggregates of each host that is in any."""
        said = dict(self._host_manager.aggs_by_id)
        for number in self._known.keys() - said.keys():
            del self._known[number]
        for number, each in said.items():
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
        # Hosts in the same aggregates share what is said of them.
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
