# SPDX-License-Identifier: Apache-2.0
"""The hosts of a Nova deployment, read incrementally."""

import collections
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import logging
import math
import random
import threading
import time
from typing import Any

from nova import context as nova_context
from nova.objects import aggregate as nova_aggregate
from oslo_db import exception as db_exc
from oslo_log import log
from oslo_utils import timeutils

from cellsched.claims import remote
from cellsched import clock
from cellsched.db.api import aggregates
from cellsched import exception
from cellsched.hardware import units
from cellsched.host_manager import aggregate_groups
from cellsched.host_manager import node_columns
from cellsched.host_manager import source
from cellsched.hosts import document
from cellsched.hosts import table
from cellsched.hosts import view
from cellsched.observability.conditions import Conditions
from cellsched_nova import cells as nova_cells
from cellsched_nova import placement

LOG = log.getLogger(__name__)

#: Conditions that are logged.
_EARLIER = 'Decisions are on the hosts as they were before'
_AGGREGATES = ('Aggregates cannot be read; decisions use the last known '
               'aggregates')
_PLACEMENT = 'Placement cannot be read'
_UNREAD = 'Hosts could not be read'

#: Seconds that a request waits at most for a newer read while the hosts are
#: recent enough for a decision.
_WAIT_S = 5.0

#: Seconds that Nova needs to delete the allocations of a server after its
#: host reported that the server is gone.
_DELETING_S = 3.0

#: Seconds to count a build that no host reports, or a selection without claim.
_PENDING_S = 60.0

#: The pause between two reads, as a multiple of the duration of a read. A
#: request during a read is answered more slowly, above all by Placement.
_PAUSES = 8


class HostsChanged(Exception):
    """The facts of a selected host changed since they were read."""


class NovaHosts(source.HostSource):
    """A host table with the hosts of Nova's cells and Placement.

    :param host_manager: Nova's host manager, with the cells and aggregates
    :param client: Nova's report client
    :param conf: Nova's configuration; each request reads its options again
    :param hardware: the columns of NUMA cells and devices that are read
    """

    def __init__(
        self, host_manager: Any, client: Any, conf: Any,
        hardware: Sequence[str] = nova_cells.HARDWARE,
    ) -> None:
        self.table = table.HostTable()
        self.silent: list[str] = []
        #: Number of reads of the hosts.
        self.readings = 0
        #: The hosts that the last read found changed, with their facts in
        #: Placement before it; None if their own reports changed.
        self.last_changes: dict[str, placement.ProviderFacts | None] = {}
        self.silent_cells: frozenset[str] = frozenset()
        #: Why the last read of Placement failed, or None.
        self.unread_reason: str | None = None
        # Whether a retry of that read is useless.
        self._is_refused = False
        self._conditions = Conditions(LOG, time.monotonic)
        self._host_manager = host_manager
        self._providers = placement.ProviderReader(client)
        self._conf = conf
        # Held during a read. A request never waits for it without a limit.
        self._lock = threading.Lock()
        # Monotonic times of the start of the last read, and of the end of the
        # last one that Placement answered.
        self._read_at = self._good_at = -math.inf
        # The start of the last read with all inventories and traits that
        # Placement answered.
        self._whole_at = -math.inf
        # Duration of the last read in seconds.
        self._took_s = 0.0
        self._expired = False
        # Held while hosts or their aggregates are written to the table, but
        # never while a database or Placement is read.
        self._write_lock = threading.RLock()
        self._stopping = threading.Event()
        self._marks: dict[str, nova_cells.Marks] = {}
        self._nodes: dict[str, Any] = {}
        self._hardware = hardware
        # The nodes with dedicated CPUs that Placement knows as VCPU only.
        self._without_pcpu: set[str] = set()
        self._aggregates = NovaAggregates(host_manager, conf)
        # Monotonic times to read the usage of nodes again, oldest first.
        self._freed: collections.deque[tuple[float, str]] = (
            collections.deque())
        self._pending_choices = PendingChoices()

    @property
    def non_host_classes(self) -> frozenset[str]:
        """Resource classes of child and sharing providers."""
        return self._providers.non_host_classes

    @property
    def any_without_pcpu(self) -> bool:
        """Return whether a host has dedicated CPUs, but no PCPU."""
        return bool(self._without_pcpu)

    def facts(self, uuid: str) -> placement.ProviderFacts | None:
        """Return the facts of a host in Placement, or None if unknown."""
        return self._providers.facts(uuid)

    def follow(self, context: Any, timeout_s: float = _WAIT_S) -> bool:
        """Read the hosts if the table is too old for a request.

        If another thread reads the hosts, this waits for the read only if
        every request needs a new read, or if the table is older than
        ``stale_hosts_timeout``.

        :param context: an administrator's context
        :param timeout_s: longest wait for a read
        :raises cellsched_nova.placement.PlacementUnavailable: there is no
            recent read until then
        """
        # A thread pauses after the end of each read. The age of the table
        # counts from the start of a read, and includes its duration.
        interval_s = self._conf.cellsched.refresh_interval
        fresh_s = 2 * interval_s
        if fresh_s:
            fresh_s = max(fresh_s, min(
                interval_s + self._pause_s(interval_s) + self._took_s,
                self._conf.cellsched.stale_hosts_timeout))
        since = time.monotonic() - fresh_s
        # 1. Read the hosts, or wait for the read of another thread.
        wait_s = timeout_s
        if not self._is_stale():
            wait_s = (min(timeout_s, _WAIT_S) if self._expired or not fresh_s
                      else 0.0)
        was_read = self.refresh(context, since, wait_s)
        # 2. Without a recent read, use the last good one if it is not stale.
        if self._is_stale():
            self.await_placement(context, timeout_s)
        elif self.unread_reason is not None or self._read_at < since:
            self._conditions.occur(
                _EARLIER, f'{time.monotonic() - self._good_at:.1f} seconds '
                'ago, ' + (self.unread_reason or 'a newer read has not ended'))
        else:
            self._conditions.end(_EARLIER)
        return was_read

    def refresh(
        self, context: Any, since: float | None = None,
        timeout_s: float | None = None, whole: bool = False,
    ) -> bool:
        """Read the hosts; one thread at a time.

        :param since: a monotonic time; do nothing after a read since then
        :param timeout_s: longest wait for the read of another thread; None
            for no limit
        :param whole: whether inventories and traits must not be older; they
            may be older by some seconds otherwise
        :returns: whether the hosts were read by this call
        """
        def is_recent() -> bool:
            return since is not None and since <= (
                self._whole_at if whole else self._read_at)

        if is_recent() and not self._expired:
            return False
        with self._reading(timeout_s) as may_read:
            if not may_read or is_recent() and not self._expired:
                return False
            if is_recent() and self.unread_reason is None:
                self._renew_expired(context)
            else:
                self._renew(context, whole)
            return True

    @contextlib.contextmanager
    def _reading(self, timeout_s: float | None) -> Iterator[bool]:
        """Hold the lock; yield whether it was free within the timeout."""
        is_held = self._lock.acquire(
            timeout=-1 if timeout_s is None else max(0.0, timeout_s))
        try:
            yield is_held
        finally:
            if is_held:
                self._lock.release()

    def read_whole(
        self, context: Any, since: float, timeout_s: float
    ) -> None:
        """Read the hosts with all inventories and traits, before a refusal.

        :param since: a monotonic time; a read since then is not repeated
        :param timeout_s: seconds to retry, and to wait for another thread
        :raises cellsched_nova.placement.PlacementUnavailable: there is no such
            read until then, and there are hosts
        """
        until = time.monotonic() + timeout_s
        self.refresh(context, since, timeout_s, whole=True)
        self.await_placement(
            context, max(0.0, until - time.monotonic()), since)

    def await_placement(
        self, context: Any, timeout_s: float, whole_since: float | None = None
    ) -> None:
        """Read the hosts until Placement answers, if there are any hosts.

        :param timeout_s: seconds to retry
        :param whole_since: a monotonic time; read until all inventories and
            traits were read since then. None to read until the hosts are not
            too old for a decision
        :raises cellsched_nova.placement.PlacementUnavailable: Placement did
            not answer, or refuses the request
        """
        def is_missing() -> bool:
            if whole_since is not None:
                return self._whole_at < whole_since
            return self.unread_reason is not None or self._is_stale()

        until = time.monotonic() + timeout_s
        attempts = remote.attempts(clock.Clock(), random.Random(), timeout_s)
        while self._nodes and is_missing():
            if self._is_refused or next(attempts, None) is None:
                kind = (placement.PlacementRefused if self._is_refused
                        else placement.PlacementUnavailable)
                raise kind(reason=self.unread_reason
                           or 'a read of the hosts has not ended')
            now = time.monotonic()
            self.refresh(context, now if whole_since is None else whole_since,
                         until - now, whole=whole_since is not None)

    def _is_stale(self) -> bool:
        """Return whether the last good read is too old for a decision."""
        return (time.monotonic() - self._good_at
                > self._conf.cellsched.stale_hosts_timeout)

    def reload(self, providers: Iterable[str]) -> None:
        self.expire(providers)
        self.refresh(nova_context.get_admin_context(), timeout_s=_WAIT_S)

    def expire(self, providers: Iterable[str]) -> None:
        """Read the usage of these hosts before the next decision."""
        providers = list(providers)
        if providers:
            self._providers.recount(providers)
            self._expired = True

    def note_full(self, refusals: Sequence[exception.ClaimRefused]) -> None:
        """Count hosts as full that refused claims, until they are read again.

        Requests that are decided afterwards do not select them. A request
        that finds no host reads them before it is refused.
        """
        providers = [each.provider for each in refusals]
        # A request that sees the bound must see that they are expired, and
        # a read in between may not have found them full.
        self.expire(providers)
        self.table.bound((each.provider, each.resource, each.amount - 1)
                         for each in refusals)
        self.expire(providers)

    def may_fit(self, context: Any, resources: Mapping[str, int]) -> bool:
        """Return False if Placement has no provider with these resources.

        Blocks for one request. It costs less than a read of all changes.
        """
        try:
            return not resources or bool(
                self._providers.with_capacity(context, resources, 1))
        except placement.PlacementUnavailable:
            # The following reads report why.
            return True

    def find_freed(
        self, context: Any, resources: Mapping[str, int], readings: int,
        timeout_s: float = _WAIT_S,
    ) -> bool:
        """Find hosts with freed capacity in Placement, and read them again.

        Placement does not report deleted allocations. If a host reports less
        usage, the usage in Placement is read again some seconds later. This
        method serves the requests that come before.

        :param resources: the required resources
        :param readings: value of ``readings`` at the last selection
        :param timeout_s: longest wait for the read of another thread
        :returns: True if the hosts were read again since then; False if no
            capacity was freed, or if Placement does not answer
        """
        try:
            taken = self._providers.with_capacity(
                context, resources, self._conf.scheduler.max_placement_results)
        except placement.PlacementUnavailable as exc:
            LOG.warning('A request is refused without another read of '
                        'Placement: %s', exc)
            return False
        if not taken:
            return False
        # Another thread may read the freed hosts just now: wait for it.
        with self._reading(timeout_s) as may_read:
            freed = self._providers.with_lower_usage(taken)
            if freed and may_read:
                self._providers.forget(freed)
                self._renew(context)
            return self.readings != readings

    def confirm(
        self, allocations: Iterable[table.PendingAllocation],
        claimed: bool = True, instances: Sequence[str] = (),
    ) -> None:
        """Record that allocations are final.

        :param claimed: whether Placement has their claims
        :param instances: the instance of each allocation
        """
        allocations = list(allocations)
        # Before the confirmation: the next read of a provider resets its
        # usage, and adds the pending choices.
        self._pending_choices.add(allocations, claimed, instances)
        outdated = self.table.confirm(allocations)
        if outdated:
            self.expire(outdated)

    def claimed(
        self, writes: Iterable[Mapping[str, Mapping[str, int]]]
    ) -> None:
        """Count claims of this process, which are already in the table.

        :param writes: for each write, amounts by provider and resource class
        """
        for write in writes:
            for uuid, resources in write.items():
                self._providers.claimed(uuid, resources)

    def apply_aggregates(self, new: Iterable[str] = ()) -> None:
        """Write the aggregates that the host manager has now to the table.

        Requests that begin afterwards are decided on them. Never blocks for
        long.

        :param new: compute nodes that had no aggregates before
        """
        with self._write_lock:
            changed, columns = self._aggregates.changes(self._nodes, new)
            if changed:
                self.table.put(changed, columns)
                self.table.publish()

    def follow_aggregates(self, context: Any) -> None:
        """Read the aggregates if they changed in the database.

        Blocks for a query of the API database. Nova reads them for a request
        that depends on them. The messages of nova-api arrive soon, but a
        message may be lost, or be later than the next request.
        """
        try:
            is_changed = self._aggregates.follow(context)
        except db_exc.DBError as exc:
            self._conditions.occur(_AGGREGATES, exc)
            return
        self._conditions.end(_AGGREGATES)
        if is_changed:
            self.apply_aggregates()

    def find_changed(
        self, context: Any, hosts: view.Hosts, rows: Iterable[int],
        with_traits: bool, hardware_of: Collection[int] = (),
    ) -> set[int]:
        """Return the hosts that changed since they were read.

        Nova reads for each request whether a compute service is disabled or
        forced down, and traits. Blocks for a query of each cell of the hosts,
        and with traits for a request to Placement for each host.

        :param rows: rows of the hosts
        :param with_traits: whether the request depends on traits
        :param hardware_of: those whose NUMA cells and devices matter
        :raises cellsched_nova.placement.PlacementUnavailable: Placement does
            not answer
        """
        known = {row: hosts.values_at(
            row, 'host', 'cell', 'service_disabled', 'forced_down',
            'numa_topology', 'device_pools', 'uuid', 'traits') for row in rows}
        cells = self._host_manager.cells
        asked = [cells[uuid] for uuid in {each[1] for each in known.values()}
                 if uuid in cells]
        states, _ = nova_cells.gathered(
            context, asked, nova_cells.service_states,
            [each[0] for each in known.values()])
        changed = {row for row, each in known.items()
                   if states.get(each[0]) != (each[2], each[3])}
        if hardware_of:
            reported, _ = nova_cells.gathered(
                context, asked, nova_cells.reported_hardware,
                [known[row][-2] for row in hardware_of], self._hardware)
            for row in hardware_of:
                *_, topology, pools, uuid, _ = known[row]
                if reported.get(uuid) != (topology, pools):
                    changed.add(row)
        if with_traits:
            for row, (*_, uuid, traits) in known.items():
                if self._providers.read_traits(context, uuid) != traits:
                    self._providers.forget([uuid])
                    changed.add(row)
        return changed

    def read_at(self) -> float | None:
        if self._good_at == -math.inf:
            return None
        return time.time() - (time.monotonic() - self._good_at)

    def snapshot(self, context: Any) -> document.HostDocument:
        self.follow(context)
        return document.HostDocument(
            self.table, timeutils.utcnow_ts(microsecond=True),
            {uuid: cell.name or uuid
             for uuid, cell in self._host_manager.cells.items()}, self.silent)

    def start(self, every_s: float) -> None:
        """Start the thread that reads the hosts periodically."""
        def work() -> None:
            while not self._stopping.wait(self._pause_s(every_s)):
                try:
                    self.refresh(nova_context.get_admin_context())
                    self._conditions.end(_UNREAD)
                except Exception as exc:
                    # While the service stops, Nova refuses further threads.
                    if self._stopping.is_set():
                        LOG.debug('Hosts are no longer read: %r', exc)
                        return
                    # The thread continues; the next read may succeed.
                    self._conditions.occur(
                        _UNREAD, exc, logging.ERROR, True)

        self._stopping.clear()
        threading.Thread(target=work, name='hosts', daemon=True).start()

    def stop(self) -> None:
        """Stop the thread; requests still read the hosts."""
        self._stopping.set()

    def reported_nodes(self, instances: Iterable[str]) -> dict[str, str]:
        """Return the compute nodes of instances from the cells.

        Blocks while all cells are read.
        """
        return {uuid: place.node for uuid, place
                in self.places(instances)[0].items()
                if place.node is not None}

    def places(
        self, instances: Iterable[str]
    ) -> tuple[dict[str, nova_cells.Place], bool]:
        """Return the places of instances, and whether all cells answered.

        Blocks while all cells are read.
        """
        uuids = list(instances)
        if not uuids:
            return {}, True
        by_name = {(node.host, node.hypervisor_hostname): uuid
                   for uuid, node in list(self._nodes.items())}
        found, silent = nova_cells.gathered(
            nova_context.get_admin_context(),
            list(self._host_manager.cells.values()), nova_cells.places, uuids)
        return {uuid: dataclasses.replace(
            place, node=by_name.get((place.host, place.node)))
            for uuid, place in found.items()}, not silent

    def _pause_s(self, least_s: float) -> float:
        """Return the seconds between two reads.

        Reads that take long are themselves a load on Placement.
        """
        return max(least_s, min(
            _PAUSES * self._took_s,
            self._conf.cellsched.stale_hosts_timeout / 2))

    # The methods below require the lock.

    def _renew(self, context: Any, whole: bool = False) -> None:
        # A change during the read may be missing.
        began_at, self._expired = time.monotonic(), False
        with self.table.batch():
            self._read(context, whole)
        self.readings += 1
        self._read_at = began_at
        now = time.monotonic()
        self._took_s = now - began_at
        if self.unread_reason is None:
            self._good_at, self._is_refused = now, False
            if whole:
                self._whole_at = began_at

    def _renew_expired(self, context: Any) -> None:
        """Read the expired hosts again; the others are recent."""
        self._expired = False
        with self.table.batch():
            self._read_facts(self._providers.outdated(context))
        self.readings += 1

    def _read(self, context: Any, whole: bool) -> None:
        # 1. Read the changes in the cells. The rows of compute nodes that are
        #    read afterwards show the claims that computes have made before.
        self.last_changes = {}
        ended = self._claimed_by_computes(context)
        new = self._read_cells(context)
        if self.silent_cells:
            # Rows of a silent cell do not show the claims.
            ended = []
        self._pending_choices.end(ended)
        # 2. Mark the providers to read again: their usage may be lower without
        #    a new generation, or pending choices have expired.
        now = time.monotonic()
        while self._freed and self._freed[0][0] <= now:
            self._providers.forget([self._freed.popleft()[1]])
        pending_since = timeutils.utcnow_ts(microsecond=True) - _PENDING_S
        self._providers.forget(self._pending_choices.expire(pending_since))
        self._set_facts({
            uuid: facts for _, uuid in ended if uuid in self._nodes
            and (facts := self._providers.facts(uuid)) is not None})
        # 3. Read the changed providers.
        self._read_facts(self._providers.changes(
            context, list(self._nodes), whole))
        # 4. Update the aggregates of hosts.
        self._aggregates.read(context)
        self.apply_aggregates(new)
        self.table.expire(pending_since)

    def _claimed_by_computes(self, context: Any) -> list[tuple[str, str]]:
        """Return the pending choices that computes have claimed.

        :returns: uuids of instances and of compute nodes
        """
        pending = self._pending_choices.listed()
        if not pending:
            return []
        claimed, _ = nova_cells.gathered(
            context, list(self._host_manager.cells.values()),
            nova_cells.claimed_by_computes,
            list({instance for instance, _ in pending}))
        return [
            (instance, uuid) for instance, uuid in pending
            if instance in claimed and (
                (places := claimed[instance]) is None
                or (node := self._nodes.get(uuid)) is not None
                and (node.host, node.hypervisor_hostname) in places)]

    def _read_facts(
        self, changes: Iterable[tuple[str, placement.ProviderFacts]]
    ) -> None:
        """Read changed providers. Without an answer the facts remain."""
        try:
            for uuid, facts in changes:
                before = self._providers.facts(uuid)
                if before is not None and before != facts:
                    self.last_changes.setdefault(uuid, before)
                self._set_facts({uuid: facts})
            self.unread_reason = None
            self._conditions.end(_PLACEMENT)
        except placement.PlacementUnavailable as exc:
            self.unread_reason = exc.kwargs['reason']
            self._is_refused = isinstance(exc, placement.PlacementRefused)
            self._conditions.occur(_PLACEMENT, self.unread_reason)

    def _read_cells(self, context: Any) -> set[str]:
        """Read the changes in the cells; return the new compute nodes."""
        cells = self._host_manager.cells
        self.table.cells.disable({
            uuid: cell.name or uuid for uuid, cell in cells.items()
            if cell.disabled})
        for uuid in self._marks.keys() - cells.keys():
            self._drop(self._marks.pop(uuid))
            self.table.cells.drop(uuid)
        found = dict(nova_cells.changes(
            context, list(cells.values()), self._marks, self._hardware))
        now = timeutils.utcnow_ts(microsecond=True)
        new: set[str] = set()
        silent: dict[str, str] = {}
        for uuid, changes in found.items():
            unreadable = f'Cell {cells[uuid].identity} cannot be read'
            if changes is None:
                self._conditions.occur(unreadable)
                silent[uuid] = cells[uuid].identity
                self.table.cells.failed(uuid, 1, now)
                continue
            self._conditions.end(unreadable)
            self.table.cells.heard(uuid, now)
            new |= self._apply(uuid, changes)
        self.silent = sorted(silent.values())
        self.silent_cells = frozenset(silent)
        return new

    def _apply(self, cell: str, changes: nova_cells.CellChanges) -> set[str]:
        """Apply the changes in a cell; return the new compute nodes."""
        before = self._marks.get(cell, {})
        known = [uuid for uuid in before if uuid in self._nodes]
        gone = {uuid for uuid in known if uuid not in changes.marks
                or self._nodes[uuid].host not in changes.services}
        self._drop(gone)
        nodes = changes.nodes
        uuids = [node.uuid for node in nodes]
        new = {uuid for uuid in uuids if uuid not in self._nodes}
        again_at = time.monotonic() + _DELETING_S
        self._freed.extend(
            (again_at, node.uuid) for node in nodes if node.uuid not in new
            and nova_cells.uses_less(node, self._nodes[node.uuid]))
        self.last_changes.update(
            (node.uuid, None) for node in nodes if node.uuid not in new
            and nova_cells.usage([node]) != nova_cells.usage(
                [self._nodes[node.uuid]]))
        with self._write_lock:
            self._nodes.update(zip(uuids, nodes))
            if nodes:
                self.table.put(uuids, changes.columns)
        # Placement's facts are newer than the report of the host.
        self._set_facts({
            uuid: facts for uuid in uuids
            if (facts := self._providers.facts(uuid)) is not None})
        self._marks[cell] = {
            uuid: mark for uuid, mark in changes.marks.items()
            if uuid in self._nodes}
        current = list(self._marks[cell])
        if current:
            self.table.put(current, node_columns.of_services([
                changes.services[self._nodes[uuid].host] for uuid in current]))
        return new

    def _drop(self, uuids: Iterable[str]) -> None:
        with self._write_lock:
            gone = [uuid for uuid in uuids if self._nodes.pop(uuid, None)]
            self.table.drop(gone)
        self._providers.forget(gone)
        self._without_pcpu.difference_update(gone)

    def _set_facts(
        self, changed: Mapping[str, placement.ProviderFacts]
    ) -> None:
        """Set the columns of hosts that come from Placement."""
        if not changed:
            return
        uuids = list(changed)
        nodes = [self._nodes[uuid] for uuid in uuids]
        held = [self._pending_choices.held(uuid) for uuid in uuids]
        reported = nova_cells.usage(nodes)
        self.table.put(uuids, {
            'traits': [each.traits for each in changed.values()],
            'unreserved_ram_mb': [
                node.memory_mb - facts.reserved.get('MEMORY_MB', 0)
                for node, facts in zip(nodes, changed.values())]})
        self.table.set_usages([
            (uuid, facts.capacity, collections.Counter(pending) + (
                collections.Counter(facts.used)), instances, facts.units)
            for (uuid, facts), pending, instances in zip(
                changed.items(), held, reported['num_instances'])])
        # Placement is the first to know the used memory and CPUs; only the
        # host knows the free space of its disks and its free devices.
        self.table.put(uuids, {
            **{name: reported[name] for name in (
                'free_disk_mb', 'disk_mb_used', 'unreserved_disk_mb')},
            'free_pci_devices': [
                node.free_pci_devices - units.devices_in(pending)
                for node, pending in zip(nodes, held)]})
        for (uuid, facts), node in zip(changed.items(), nodes):
            if node.has_pcpus and not facts.capacity.get('PCPU'):
                self._without_pcpu.add(uuid)
            else:
                self._without_pcpu.discard(uuid)


@dataclasses.dataclass(frozen=True)
class _Choice:
    """A selected host that the facts do not show yet.

    :param instance: uuid of the instance; empty if the caller named none
    """

    instance: str
    at: float
    resources: Mapping[str, int]


class PendingChoices:
    """Selected hosts, counted as used until the facts show them.

    Without a claim, all resources of a selection are counted, for a limited
    time. With a claim, Placement has the resources, and only the CPUs, pages
    and devices of cells are counted, until the compute has claimed them, or
    for a limited time. Any thread may call any method; none blocks.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: dict[str, list[_Choice]] = {}

    def add(
        self, allocations: Sequence[table.PendingAllocation],
        claimed: bool = False, instances: Sequence[str] = (),
    ) -> None:
        """Count these allocations from now on.

        :param claimed: whether Placement has their claims
        :param instances: the instance of each allocation; empty if unknown
        """
        with self._lock:
            for each, instance in zip(
                    allocations, instances or [''] * len(allocations)):
                resources = dict(each.resources)
                if claimed:
                    resources = units.named(resources)
                if resources:
                    self._pending.setdefault(each.node, []).append(
                        _Choice(instance, each.at, resources))

    def held(self, node: str) -> Mapping[str, int]:
        """Return the counted amounts of a host, by resource class."""
        held = collections.Counter[str]()
        with self._lock:
            for choice in self._pending.get(node, ()):
                held.update(choice.resources)
        return held

    def listed(self) -> list[tuple[str, str]]:
        """Return the counted instances that are known, with their hosts."""
        with self._lock:
            return [(each.instance, node)
                    for node, choices in self._pending.items()
                    for each in choices if each.instance]

    def end(self, ended: Iterable[tuple[str, str]]) -> None:
        """Stop counting instances on hosts."""
        gone = set(ended)
        self._keep(lambda node, each: (each.instance, node) not in gone)

    def expire(self, before: float) -> list[str]:
        """Stop counting the allocations from before a time.

        :param before: wall clock time, in seconds since the epoch
        :returns: the hosts with expired allocations
        """
        return self._keep(lambda _, each: each.at >= before)

    def _keep(self, test: Callable[[str, _Choice], bool]) -> list[str]:
        """Keep some choices; return the hosts of the others."""
        changed = []
        with self._lock:
            for node, choices in list(self._pending.items()):
                kept = [each for each in choices if test(node, each)]
                if len(kept) < len(choices):
                    changed.append(node)
                    self._pending[node] = kept
                if not kept:
                    del self._pending[node]
        return changed


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
        self._sign: tuple[Any, ...] | None = None
        self._known: dict[int, aggregates.AggregateRow] = {}
        self._groups = aggregate_groups.AggregateGroups(
            str(conf.default_availability_zone))

    def read(self, context: Any) -> None:
        """Read all aggregates if the last read is too old.

        Nova's API sends a change once to each scheduler, so a scheduler that
        does not run at that time misses the change.
        """
        now = time.monotonic()
        if now < self._read_at + self._conf.cellsched.full_refresh_interval:
            return
        self._read_at = now
        self._read_now(context)

    def follow(self, context: Any) -> bool:
        """Read all aggregates if they changed; return whether they were read.

        Blocks for a query of the API database.
        """
        sign = nova_cells.aggregates_sign(context)
        if sign == self._sign:
            return False
        self._read_now(context)
        self._sign = (None if nova_cells.may_change_unseen(sign) else sign)
        return True

    def _read_now(self, context: Any) -> None:
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
        rows = {number: aggregates.AggregateRow(
            number, each.uuid, each.name, dict(each.metadata),
            sorted(each.hosts)) for number, each
            in dict(self._host_manager.aggs_by_id).items()}
        touched = self._groups.apply(aggregates.AggregateChanges(
            (), True, [row for number, row in rows.items()
                       if self._known.get(number) != row], frozenset(rows)))
        self._known = rows
        new = set(new)
        changed = [uuid for uuid, node in nodes.items()
                   if uuid in new or node.host in touched]
        hosts = [nodes[uuid].host for uuid in changed]
        return changed, {
            'aggregates': [*map(self._groups.group, hosts)],
            'availability_zone': [*map(self._groups.zone, hosts)]}
