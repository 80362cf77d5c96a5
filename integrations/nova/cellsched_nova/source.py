# SPDX-License-Identifier: Apache-2.0
"""The hosts of a deployment of Nova, read by what changed."""

import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import math
import random
import threading
import time
from typing import Any

from nova import context as nova_context
from oslo_log import log
from oslo_utils import timeutils

from cellsched.claims import remote
from cellsched import clock
from cellsched.host_manager import source
from cellsched.hosts import document
from cellsched.hosts import table
from cellsched_nova import aggregates
from cellsched_nova import cells as nova_cells
from cellsched_nova import placement

LOG = log.getLogger(__name__)

#: Seconds after which what is known is too old to decide by.
_OLD_S = 30.0

#: Seconds after which Nova has deleted the allocations of a server that its
#: host has told to be gone.
_DELETING_S = 3.0

#: Seconds after which a build that no host reported counts no more, and what
#: was chosen and not claimed.
_PENDING_S = 60.0


class NovaHosts(source.HostSource):
    """Keeps a host table as Nova's cells and Placement are.

    :param host_manager: Nova's, which knows cells and aggregates
    :param client: Nova's report client
    :param conf: Nova's configuration, whose options count as they are when a
        request comes
    :param make_context: returns an administrator's context
    """

    def __init__(
        self, host_manager: Any, client: Any, conf: Any,
        make_context: Callable[[], Any] = nova_context.get_admin_context,
    ) -> None:
        self.table = table.HostTable()
        self.silent: list[str] = []
        #: How often hosts were read.
        self.readings = 0
        self.silent_cells: frozenset[str] = frozenset()
        #: Why Placement could not be read last; None where it was.
        self.unread: str | None = None
        self._host_manager = host_manager
        self._providers = placement.ProviderReader(client)
        self._conf = conf
        self._make_context = make_context
        self._lock = threading.Lock()
        # Monotonic time at which the last reading began.
        self._read_at = -math.inf
        # Seconds that it took.
        self._took_s = 0.0
        self._expired = False
        self._stopping = threading.Event()
        self._marks: dict[str, nova_cells.Marks] = {}
        self._nodes: dict[str, Any] = {}
        self._aggregates = aggregates.NovaAggregates(host_manager, conf)
        # When to ask for what is taken of a node; the oldest is first.
        self._freed: collections.deque[tuple[float, str]] = (
            collections.deque())
        self._unclaimed = PendingChoices()

    @property
    def given_by_others(self) -> frozenset[str]:
        """Resource classes that not only hosts themselves give."""
        return self._providers.given_by_others

    def follow(self, context: Any) -> bool:
        """Make sure that the table is as new as a request may expect.

        Where somebody reads just now, and every reading need not be new, that
        is not waited for, unless it has taken very long.

        :param context: an administrator's
        """
        # Somebody reads at that interval, which begins when the last reading
        # ends: that was begun longer ago, by the time that it took.
        fresh_s = 2 * self._conf.cellsched.refresh_interval
        if fresh_s:
            fresh_s = min(fresh_s + self._took_s, max(fresh_s, _OLD_S))
        now = time.monotonic()
        if fresh_s and self._lock.locked() and not self._expired and (
                self._read_at >= now - _OLD_S):
            return False
        return self.refresh(context, now - fresh_s)

    def refresh(self, context: Any, since: float | None = None) -> bool:
        with self._lock:
            if not self._expired and since is not None and (
                    self._read_at >= since):
                return False
            self._renew(context)
            return True

    def await_placement(self, context: Any, patience_s: float) -> None:
        """Read hosts until Placement has answered, where there are any.

        :param patience_s: seconds for which that is tried
        :raises cellsched_nova.placement.PlacementUnavailable: it has not
        """
        attempts = remote.attempts(
            clock.Clock(), random.Random(), patience_s)
        while self.unread is not None and self._nodes:
            if next(attempts, None) is None:
                raise placement.PlacementUnavailable(reason=self.unread)
            self.refresh(context)

    def reload(self, providers: Iterable[str]) -> None:
        self.expire(providers)
        self.refresh(self._make_context())

    def expire(self, providers: Iterable[str]) -> None:
        """Have these hosts read anew before anything else is decided."""
        self._providers.forget(providers)
        self._expired = True

    def find_freed(
        self, context: Any, resources: Mapping[str, int], readings: int
    ) -> bool:
        """Look in Placement for hosts that were freed, and read them anew.

        Placement does not tell of allocations that are deleted. Where a host
        says that less is used, it is asked some seconds later; a request that
        comes before has this.

        :param resources: what they are to have room for
        :param readings: how many there had been when hosts were looked at
        :returns: whether there is room that may not have been seen then;
            False where it cannot be told
        """
        try:
            taken = self._providers.with_room(
                context, resources, self._conf.scheduler.max_placement_results)
        except placement.PlacementUnavailable as exc:
            LOG.warning('Refused on hosts as they were: %s', exc)
            return False
        if not taken:
            return False
        # What somebody else reads just now is waited for: it may be that.
        with self._lock:
            freed = self._providers.overrated(taken)
            if freed:
                self._providers.forget(freed)
                self._renew(context)
            return self.readings != readings

    def confirm(
        self, allocations: Iterable[table.PendingAllocation],
        claimed: bool = True,
    ) -> None:
        allocations = list(allocations)
        if not claimed:
            # First, as the next reading of its provider would forget it.
            self._unclaimed.add(allocations)
        doubtful = self.table.confirm(allocations)
        if doubtful:
            self.expire(doubtful)

    def claimed(
        self, writes: Iterable[Mapping[str, Mapping[str, int]]]
    ) -> None:
        """Learn of claims that were taken here, and are in the table.

        :param writes: for each, amounts by provider and resource class
        """
        for write in writes:
            for uuid, resources in write.items():
                self._providers.claimed(uuid, resources)

    def snapshot(self, context: Any) -> document.HostDocument:
        self.follow(context)
        return document.HostDocument(
            self.table, timeutils.utcnow_ts(microsecond=True),
            {uuid: cell.name or uuid
             for uuid, cell in self._host_manager.cells.items()}, self.silent)

    def start(self, every_s: float) -> None:
        """Have what changes read all the time, in a thread."""
        def work() -> None:
            while not self._stopping.wait(every_s):
                try:
                    self.refresh(self._make_context())
                except Exception:
                    # Nobody else hears of it, and the next may do.
                    LOG.exception('Hosts could not be read')

        self._stopping.clear()
        threading.Thread(target=work, name='hosts', daemon=True).start()

    def stop(self) -> None:
        """Have nothing read any more but for requests."""
        self._stopping.set()

    def reported_nodes(self, instances: Iterable[str]) -> dict[str, str]:
        """Return the compute nodes of instances, as their cells say.

        May block: each cell is asked.
        """
        return {uuid: place.node for uuid, place
                in self.places(instances)[0].items()
                if place.node is not None}

    def places(
        self, instances: Iterable[str]
    ) -> tuple[dict[str, nova_cells.Place], bool]:
        """Return where instances are, and whether all cells have answered.

        May block: each cell is asked.
        """
        uuids = list(instances)
        if not uuids:
            return {}, True
        by_name = {(node.host, node.hypervisor_hostname): uuid
                   for uuid, node in list(self._nodes.items())}
        found, is_complete = nova_cells.places(
            self._make_context(), list(self._host_manager.cells.values()),
            uuids)
        return {uuid: dataclasses.replace(
            place, node=by_name.get((place.host, place.node)))
            for uuid, place in found.items()}, is_complete

    # What is read. The lock is held.

    def _renew(self, context: Any) -> None:
        # What changes while it is read may be missing.
        began_at, self._expired = time.monotonic(), False
        with self.table.batch():
            self._read(context)
        self.readings += 1
        self._read_at = began_at
        self._took_s = time.monotonic() - began_at

    def _read(self, context: Any) -> None:
        new = self._read_cells(context)
        now = time.monotonic()
        while self._freed and self._freed[0][0] <= now:
            self._providers.forget([self._freed.popleft()[1]])
        pending_since = timeutils.utcnow_ts(microsecond=True) - _PENDING_S
        self._providers.forget(self._unclaimed.expire(pending_since))
        try:
            for uuid, facts in self._providers.changes(
                    context, list(self._nodes)):
                self._set_facts(uuid, facts)
            self.unread = None
        except placement.PlacementUnavailable as exc:
            self.unread = exc.kwargs['reason']
            LOG.warning('Placement cannot be read; hosts are decided on as '
                        'they were: %s', exc)
        self._aggregates.read(context)
        changed, columns = self._aggregates.changes(self._nodes, new)
        if changed:
            self.table.put(changed, columns)
        self.table.expire(pending_since)

    def _read_cells(self, context: Any) -> set[str]:
        """Read what changed in the cells; return nodes that are new."""
        cells = self._host_manager.cells
        for uuid in self._marks.keys() - cells.keys():
            self._drop(self._marks.pop(uuid))
            self.table.cells.drop(uuid)
        found = dict(nova_cells.changes(
            context, list(cells.values()), self._marks))
        now = timeutils.utcnow_ts(microsecond=True)
        new: set[str] = set()
        silent: dict[str, str] = {}
        for uuid, changes in found.items():
            if changes is None:
                LOG.warning('Cell %s cannot be read', cells[uuid].identity)
                silent[uuid] = cells[uuid].identity
                self.table.cells.failed(uuid, 1, now)
                continue
            self.table.cells.heard(uuid, now)
            new |= self._apply(uuid, changes)
        self.silent = sorted(silent.values())
        self.silent_cells = frozenset(silent)
        return new

    def _apply(self, cell: str, changes: nova_cells.CellChanges) -> set[str]:
        """Take over what changed in a cell; return nodes that are new."""
        before = self._marks.get(cell, {})
        known = [uuid for uuid in before if uuid in self._nodes]
        # Nova leaves a node out whose service is gone, or that has not said
        # yet what there is.
        gone = {uuid for uuid in known if uuid not in changes.marks
                or self._nodes[uuid].host not in changes.services}
        self._drop(gone)
        nodes = [node for node in changes.nodes
                 if node.host in changes.services
                 and nova_cells.has_reported(node)]
        uuids = [node.uuid for node in nodes]
        new = {uuid for uuid in uuids if uuid not in self._nodes}
        again_at = time.monotonic() + _DELETING_S
        self._freed.extend(
            (again_at, node.uuid) for node in nodes if node.uuid not in new
            and nova_cells.uses_less(node, self._nodes[node.uuid]))
        self._nodes.update(zip(uuids, nodes))
        if nodes:
            self.table.put(uuids, nova_cells.columns(nodes, cell))
            for uuid in uuids:
                # What Placement said before is newer than what hosts say.
                facts = self._providers.facts(uuid)
                if facts is not None:
                    self._set_facts(uuid, facts)
        self._marks[cell] = {
            uuid: mark for uuid, mark in changes.marks.items()
            if uuid in self._nodes}
        mine = list(self._marks[cell])
        if mine:
            self.table.put(mine, nova_cells.service_columns([
                changes.services[self._nodes[uuid].host] for uuid in mine]))
        return new

    def _drop(self, uuids: Iterable[str]) -> None:
        gone = [uuid for uuid in uuids if self._nodes.pop(uuid, None)]
        self.table.drop(gone)
        self._providers.forget(gone)

    def _set_facts(self, uuid: str, facts: placement.ProviderFacts) -> None:
        """Take over what Placement says of a host."""
        node = self._nodes[uuid]
        told = nova_cells.usage([node])
        reserved_mb = facts.reserved.get('MEMORY_MB', 0)
        used = collections.Counter(self._unclaimed.held(uuid))
        used.update(facts.used)
        self.table.put([uuid], {
            'traits': [facts.traits],
            'unreserved_ram_mb': node.memory_mb - reserved_mb})
        self.table.set_usage(uuid, facts.capacity, used,
                             told['num_instances'][0], facts.units)
        # Memory and CPUs that are taken are known there first; of disks the
        # host alone knows what is free.
        self.table.put([uuid], {
            name: told[name] for name in (
                'free_disk_mb', 'disk_mb_used', 'unreserved_disk_mb')})


class PendingChoices:
    """Chosen hosts without a claim, counted as used for a limited time.

    The caller named no servers, so the scheduler could claim nothing. Any
    thread may call any method; none blocks.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: dict[str, list[table.PendingAllocation]] = {}

    def add(self, allocations: Iterable[table.PendingAllocation]) -> None:
        """Count these allocations from now on."""
        with self._lock:
            for allocation in allocations:
                self._pending.setdefault(
                    allocation.node, []).append(allocation)

    def held(self, node: str) -> Mapping[str, int]:
        """Return the counted amounts of a host, by resource class."""
        held = collections.Counter[str]()
        with self._lock:
            for allocation in self._pending.get(node, ()):
                held.update(dict(allocation.resources))
        return held

    def expire(self, before: float) -> list[str]:
        """Stop counting what was chosen before a time.

        :param before: wall clock time, in seconds since the epoch
        :returns: the hosts with expired allocations
        """
        with self._lock:
            expired = [node for node, allocations in self._pending.items()
                       if any(each.at < before for each in allocations)]
            for node in expired:
                current = [each for each in self._pending.pop(node)
                           if each.at >= before]
                if current:
                    self._pending[node] = current
            return expired
