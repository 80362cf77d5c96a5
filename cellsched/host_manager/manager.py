# SPDX-License-Identifier: Apache-2.0
"""Keeping the host table consistent with the cells and the claim store."""

import collections
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from collections.abc import Set
import dataclasses
import functools
import logging
import math
import threading
from typing import Any
from typing import NamedTuple
import zlib

from oslo_log import log

from cellsched.cells.discovery import Discovery
from cellsched.cells import gather
from cellsched.cells import registry
from cellsched.claims import base as claims_base
from cellsched.clock import Clock
from cellsched.context import RequestContext
from cellsched.db.api import aggregates
from cellsched.db.api import operator_changes
from cellsched.db.api import shared_providers
from cellsched.db import feed
from cellsched.db import session
from cellsched import exception
from cellsched.host_manager import aggregate_groups
from cellsched.host_manager import cell_follower
from cellsched.host_manager import mass_outage
from cellsched.host_manager.mass_outage import find
from cellsched.host_manager.mass_outage import OutageLimits
from cellsched.host_manager import source
from cellsched.hosts import cell_health
from cellsched.hosts import columns
from cellsched.hosts import document
from cellsched.hosts.providers import SharingProvider
from cellsched.hosts import table
from cellsched.hosts import view
from cellsched import objects
from cellsched.observability.conditions import Conditions

LOG = log.getLogger(__name__)

#: Seconds after which a build that the host has not reported expires.
PENDING_S = 60.0

#: The share of the refresh interval after which a running refresh publishes
#: its partial results again.
_PUBLISHING_SHARE = 0.1


#: Seconds that a request waits for another thread that reads the claims.
_RELOAD_S = 1.0

#: The pause after a read of the claims, in durations of that read.
_CLAIMS_PAUSES = 4

#: Seconds that a request waits for the API database, and for the cells, to
#: know what operators have changed.
_CHANGES_S = 2.0

#: The name of the API database beside the uuids of cells.
API_DATABASE = 'API database'

#: The condition that a provider cannot be read.
_UNREADABLE = ('Provider %s in the claim store cannot be read, and gets no '
               'servers')


class RefreshPolicy(NamedTuple):
    """The intervals at which a table is refreshed.

    :param interval_s: seconds between reads of changes
    :param full_interval_s: seconds between full reads
    :param half_life_s: half-life of a cell's failure count, in seconds
    :param limits: the longest silence of hosts and cells
    :param maps_hosts: whether to map unmapped hosts when they are first seen
    """

    interval_s: float = 1.0
    full_interval_s: float = 300.0
    half_life_s: float = 300.0
    limits: OutageLimits = OutageLimits()
    maps_hosts: bool = True


@dataclasses.dataclass(eq=False)
class HostManager(source.HostSource):
    """Keeps a host table consistent with a deployment's databases.

    Facts of hosts come from their cells, aggregates from the API database, and
    usage from the claim store. A cell that does not answer keeps its last
    known hosts, and delays no other cell.

    Changes are published at the end of a refresh, and during it when a request
    arrives, so that a slow cell does not hide the changes of other cells.

    Changes of operators are read before the next request is decided. An API
    database or a cell that does not answer delays the request by two seconds,
    and later requests not at all: the last known facts decide then.

    :param database: the API database
    :param claims: the claim store
    :param default_zone: availability zone of hosts without one
    """

    database: session.Database
    cells: registry.CellRegistry
    gatherer: gather.Gatherer
    discovery: Discovery
    claims: Any
    clock: Clock
    policy: RefreshPolicy
    default_zone: str
    extra_columns: Iterable[columns.Column] = ()

    def __post_init__(self) -> None:
        self._aggregate_groups = aggregate_groups.AggregateGroups(
            self.default_zone)
        self._host_mappings = cell_follower.HostMappings(self.database)
        self._followers: dict[str, cell_follower.CellFollower] = {}
        self._refreshing = self.clock.lock()
        # Apply what the API database has in the order in which it was read.
        self._reading_api = self.clock.lock()
        # Requests share a read of operators' changes.
        self._reading_changes = self.clock.lock()
        self._changes_read_at = -math.inf
        #: The token of the feed before all cells were read last.
        self._changes_token: feed.Token | None = None
        # Apply changes in the order in which they were read.
        self._reading = self.clock.lock()
        self._read_at: float | None = None
        #: When the claims of the table were read, and when they are due again.
        self._claims_read_at = self._claims_due_at = -math.inf
        self._claims_token: Any = None
        self._aggregates_token: Any = None
        self._cells_token: Any = None
        self._aggregates_full_at = 0.0
        self._doubtful: set[str] = set()
        #: Why providers of the claim store cannot be read.
        self._flaws: set[str] = set()
        self._conditions = Conditions(LOG, self.clock.monotonic)
        # Unclaimed choices, with the times at which they expire.
        self._held: collections.deque[tuple[float, list[str]]] = (
            collections.deque())
        self._instance_reports = InstanceReports()
        # Guards the state of the manager and writes to the table. Never held
        # during I/O.
        self._lock = self.clock.lock()
        self._published_at = -math.inf
        self.table = table.HostTable(
            (*columns.STANDARD, *self.extra_columns),
            cell_health.Cells(self.policy.half_life_s,
                              self.policy.limits.silence_s))
        #: Cells that did not answer the last query, by identity.
        self.silent: list[str] = []

    def follow(self, context: RequestContext) -> bool:
        """Make sure that the table is recent enough for a request.

        This waits only for the first read, for changes of operators, and for
        a read after a pause in which hosts may appear to have failed. A
        background thread should call :meth:`refresh` periodically; if none
        does, this method refreshes.

        :returns: whether the table was read by this call
        """
        if self._read_at is None:
            return self.refresh(context, -math.inf)
        self.read_changes(context)
        now = self.clock.monotonic()
        age_s = now - self._read_at
        if self._refreshing.locked() and age_s < self.policy.limits.silence_s:
            # Publishing copies all columns that changed in any cell.
            if now >= (self._published_at
                       + self.policy.interval_s * _PUBLISHING_SHARE):
                self._published_at = now
                self.table.publish()
            return False
        if age_s < 2 * self.policy.interval_s:
            return False
        return self.refresh(
            context, max(self._read_at, self._claims_read_at))

    def refresh(
        self, context: RequestContext, since: float | None = None
    ) -> bool:
        """Refresh the table.

        :param since: a monotonic time; skip the refresh if the table was read
            after it. None for a periodic refresh, which reads the claims less
            often if that takes long, as it slows the claims down
        :returns: whether the table was read by this call
        """
        with self._refreshing:
            now = self.clock.monotonic()
            if (since is not None and self._read_at is not None
                    and min(self._read_at, self._claims_read_at) > since):
                # Hosts may have become stale since then.
                with self._lock:
                    is_right = not (self._doubtful or self._reading.locked())
                if is_right:
                    return False
                self._read_claims(only_stale=True)
                return True
            first = self._claims_token is None
            is_due = since is not None or now >= self._claims_due_at
            if not first and is_due and (
                    since is None or self._claims_read_at <= since):
                self._read_claims()
            with self.table.batch():
                self.read_facts(context, now)
            with self._lock:
                while self._held and (
                        self._held[0][0] < self.clock.steady()):
                    self._doubtful.update(self._held.popleft()[1])
                if first:
                    # Read the usage of all providers.
                    self._doubtful.clear()
                self.table.expire(self.clock.steady() - PENDING_S)
            if first or is_due:
                self._read_claims(only_stale=not first)
            self._read_at = now
            return True

    def read_facts(self, context: RequestContext, now: float) -> None:
        """Write what changed of aggregates, cells and hosts to the table.

        :param now: monotonic time
        """
        token, followers = self._read_api(now)
        gathered = self._read_cells(context, followers, now)
        # Count the cells that did not answer.
        cells = {uuid: each.cell for uuid, each in followers.items()}
        disabled = _disabled(cells.values())
        unanswered = gathered.silent | gathered.failures.keys()
        with self._lock:
            for uuid in unanswered:
                self.table.cells.failed(uuid, 1, self.clock.steady())
            self.silent = sorted(
                cells[uuid].identity for uuid in unanswered - disabled.keys())
        self._changes_token = token

    def read_changes(self, context: RequestContext) -> None:
        """Read what operators have changed before the caller's request.

        The guarantee is that of :mod:`.db.api.operator_changes`. This reads
        nothing if another request has looked at the feed since
        :data:`~.db.api.operator_changes.KNOWN_S`, and one row if nothing has
        changed.
        """
        arrived = self.clock.monotonic()
        with self._reading_changes:
            # A look that began while this request waited serves it, too.
            if arrived - self._changes_read_at < operator_changes.KNOWN_S:
                return
            now = self.clock.monotonic()
            # 1. Read the API database, if the feed has advanced.
            known = self.gatherer.call(
                API_DATABASE, functools.partial(self._read_changed_api, now),
                _CHANGES_S)
            # Without an answer, the last known facts decide.
            self._changes_read_at = now
            if API_DATABASE not in known.results:
                return
            # 2. Read the cells, as the change may be of a service there. The
            # refresh counts those that do not answer.
            token, followers = known.results[API_DATABASE]
            if followers:
                with self.table.batch():
                    self._read_cells(context, followers, now, _CHANGES_S)
                self._changes_token = token

    def _read_changed_api(
        self, now: float
    ) -> tuple[feed.Token, Mapping[str, cell_follower.CellFollower]]:
        """Read the API database; return no cells if nothing has changed."""
        token = operator_changes.token(self.database)
        if token == self._changes_token:
            return token, {}
        return self._read_api(now)

    def _read_api(
        self, now: float
    ) -> tuple[feed.Token, Mapping[str, cell_follower.CellFollower]]:
        """Read the aggregates, the mappings of hosts, and the cells.

        :returns: the token of the feed before, and the cells to read
        """
        with self._reading_api:
            self._read_aggregates(now)
            token = self._aggregates_token
            if self._cells_token != token:
                # Operators may have changed a cell.
                self.cells.refresh()
                self._cells_token = token
            self._host_mappings.read()
            return token, self._follow_cells()

    def read_at(self) -> float | None:
        if self._read_at is None:
            return None
        return self.clock.timestamp() - (
            self.clock.monotonic() - self._read_at)

    def snapshot(
        self, context: RequestContext
    ) -> document.HostDocument:
        """Return the current hosts.

        The snapshot's table is this manager's, and follows the deployment.
        """
        self.follow(context)
        return document.HostDocument(
            self.table, self.clock.steady(),
            {cell.uuid: cell.name or cell.uuid
             for cell in self.cells.real()}, self.silent)

    def mass_outage_error(self) -> exception.HostStateUncertain | None:
        """Return an error if the state of hosts is uncertain, else None."""
        with self._lock:
            found = find(self.table, self.clock.steady(), self.policy.limits)
        if found is None:
            self._conditions.end(mass_outage.CONDITION)
            return None
        ahead = [each.ahead_s for each in self._followers.values()]
        self._conditions.occur(
            mass_outage.CONDITION,
            f'{found.text}. The clocks of the cells\' databases are ahead of '
            f'ours by {min(ahead, default=0):.1f} to '
            f'{max(ahead, default=0):.1f} seconds')
        return exception.HostStateUncertain(
            hosts=found.hosts, known=found.known)

    def reload(self, providers: Sequence[str]) -> None:
        """Set the usage that the claim store has now.

        This reads the providers that changed, and the given hosts in any case.
        If it fails, or another thread reads for long, the next refresh reads
        them. Threads that wait for another one share the next reading.
        """
        self.mark_stale(providers)
        self._read_claims(_RELOAD_S, only_stale=True)

    def mark_stale(self, providers: Iterable[str]) -> None:
        """Make the next refresh read the usage of these hosts."""
        with self._lock:
            self._doubtful.update(providers)

    def confirm(
        self, allocations: Iterable[table.PendingAllocation],
        claimed: bool = True,
    ) -> None:
        """Count allocations from now on.

        :param claimed: whether they are in the claim store; if not, they
            expire
        """
        allocations = list(allocations)
        doubtful = self.table.confirm(allocations)
        if claimed:
            self.mark_stale(doubtful)
        else:
            self.hold({provider for allocation in allocations
                       for provider in allocation.providers})

    def hold(self, providers: Iterable[str]) -> None:
        """Keep unclaimed allocations on these hosts until they expire.

        Until then the service that builds has recorded the instance in its
        cell.
        """
        until = self.clock.steady() + PENDING_S
        with self._lock:
            self._held.append((until, list(providers)))

    def tell_aggregates(
        self, aggregates: Iterable[objects.Aggregate]
    ) -> None:
        """Apply callers' updates of aggregates; they last for the process."""
        with self._lock:
            self._regroup(frozenset[str]().union(*map(
                self._aggregate_groups.tell, aggregates)))

    def forget_aggregate(self, number: int) -> None:
        """Remove an aggregate from callers' updates."""
        with self._lock:
            self._regroup(self._aggregate_groups.forget(number))

    def tell_instances(
        self, host: str, instances: Iterable[str], complete: bool
    ) -> None:
        """Record the instances that a host reports.

        :param complete: whether the host has no other instances
        """
        self._instance_reports.add(host, instances, complete)

    def forget_instance(self, instance: str) -> None:
        """Forget the reported host of an instance."""
        self._instance_reports.forget(instance)

    def reported_nodes(self, instances: Iterable[str]) -> dict[str, str]:
        """Return the nodes of instances that a host has reported."""
        reported = self._instance_reports.hosts(instances)
        if not reported:
            return {}
        with self.table.viewed(self.clock.steady()) as hosts:
            return nodes(reported, hosts)

    def _regroup(self, hosts: Set[str]) -> None:
        if hosts:
            for follower in self._followers.values():
                follower.regroup(hosts)

    def _follow_cells(self) -> dict[str, cell_follower.CellFollower]:
        """Follow the cells that are mapped now; return them by uuid."""
        # The hosts of a disabled cell take the servers that move inside it.
        cells = {cell.uuid: cell for cell in self.cells.real()}
        with self._lock:
            self.table.cells.disable(_disabled(cells.values()))
        for uuid in self._followers.keys() - cells.keys():
            self._followers.pop(uuid).forget()
        for uuid, cell in cells.items():
            if uuid not in self._followers:
                self._followers[uuid] = cell_follower.CellFollower(
                    cell, self.table, self._lock, self._aggregate_groups,
                    self.discovery, self.clock, self._conditions,
                    self.policy.maps_hosts)
            self._followers[uuid].cell = cell
            self._followers[uuid].mapped = self._host_mappings.hosts(uuid)
        return dict(self._followers)

    def _read_cells(
        self, context: RequestContext,
        followers: Mapping[str, cell_follower.CellFollower], now: float,
        timeout_s: float | None = None,
    ) -> gather.GatherResult:
        return self.gatherer.gather(
            context, [each.cell for each in followers.values()],
            lambda cell_context: self._read_cell(
                cell_context, followers, now), timeout_s)

    def _read_cell(
        self, cell_context: RequestContext,
        followers: Mapping[str, cell_follower.CellFollower], now: float,
    ) -> None:
        """Read a cell, within the cell's time limit."""
        assert cell_context.cell is not None
        follower = followers[cell_context.cell.uuid]
        everything = now >= follower.full_at
        new = follower.read(cell_context.cell.database, everything)
        if everything:
            # Spread full reads over time, because they are slow.
            share = zlib.crc32(cell_context.cell.uuid.encode()) % 1000 / 2000
            follower.full_at = now + self.policy.full_interval_s * (1 - share)
        if new:
            self.mark_stale(new)

    def _read_aggregates(self, now: float) -> None:
        if now >= self._aggregates_full_at:
            self._aggregates_token = None
            self._aggregates_full_at = now + self.policy.full_interval_s
        with self.database.reader() as connection:
            changes = aggregates.changes(connection, self._aggregates_token)
            # The feed of aggregates also announces changes of sharing
            # providers.
            shared = (None if changes.token == self._aggregates_token
                      else shared_providers.list_all(
                          connection, self.database.conditions))
        with self._lock:
            hosts = self._aggregate_groups.apply(changes)
            if shared is not None:
                found = {each.uuid: SharingProvider(
                    each.name, each.aggregate_uuid, each.traits)
                    for each in shared}
                self._doubtful.update(self.table.set_sharing(found))
                hosts |= self._aggregate_groups.share({
                    uuid: each.aggregate for uuid, each in found.items()})
            self._regroup(hosts)
        self._aggregates_token = changes.token

    def _read_claims(
        self, wait_s: float = -1, only_stale: bool = False
    ) -> None:
        """Read the claims.

        :param wait_s: seconds to wait for another thread that reads them; it
            may wait for the claim store
        :param only_stale: wait for another thread that reads them, and read
            nothing if no provider is stale then
        """
        if not self._reading.acquire(timeout=wait_s):
            return
        try:
            if self._doubtful or not only_stale:
                self._read_usages()
        finally:
            self._reading.release()

    def _read_usages(self) -> None:
        """Read the usage of the providers that changed or are stale."""
        began = self.clock.monotonic()
        # Providers that are marked from now on may change after the reading.
        unread = self._take_doubtful()
        try:
            with claims_base.translated_errors():
                changes = self.claims.usages(since=self._claims_token)
            with self._lock:
                self._apply(changes.usages)
                self._claims_token = changes.token
            unread.difference_update(each.provider for each in changes.usages)
            unread |= self._take_doubtful()
            if providers := sorted(unread | self._flaws):
                with claims_base.translated_errors():
                    changes = self.claims.usages(providers=providers)
                with self._lock:
                    self._apply(changes.usages)
            unread, self._claims_read_at = set(), began
            self.table.publish()
        finally:
            self.mark_stale(unread)
            ended = self.clock.monotonic()
            self._claims_due_at = ended + _CLAIMS_PAUSES * (ended - began)

    def _take_doubtful(self) -> set[str]:
        with self._lock:
            taken, self._doubtful = self._doubtful, set()
            return taken

    def _apply(self, usages: Iterable[Any]) -> None:
        self.table.set_usages(map(self._readable, usages))

    def _readable(self, usage: Any) -> table.Usage:
        """Return a usage in the form of the table; log one with a flaw."""
        problem = claims_base.flaw(usage)
        if problem:
            # It keeps no other provider, and is read again each time, as a
            # correction by hand is no reported change.
            self._conditions.occur(
                _UNREADABLE % usage.provider, problem, logging.ERROR)
            self._flaws.add(usage.provider)
            return usage.provider, {}, {}, 0, {}
        if self._flaws:
            self._flaws.discard(usage.provider)
            self._conditions.end(_UNREADABLE % usage.provider)
        return (usage.provider, usage.capacity, usage.used, usage.consumers,
                usage.units)


def _disabled(cells: Iterable[objects.CellMapping]) -> dict[str, str]:
    """Return the names of disabled cells, by uuid."""
    return {cell.uuid: cell.name or cell.uuid
            for cell in cells if cell.disabled}


#: The maximum number of instances; the oldest ones are removed.
INSTANCES_MAX = 1_000_000


class InstanceReports:
    """The hosts of instances, as reported by the hosts; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hosts: dict[str, str] = {}
        self._instances: dict[str, set[str]] = {}

    def add(
        self, host: str, instances: Iterable[str], complete: bool
    ) -> None:
        """Add these instances to a host.

        :param complete: whether the host has no other instances
        """
        with self._lock:
            if complete:
                for each in tuple(self._instances.get(host, ())):
                    self._forget(each)
            for each in instances:
                self._forget(each)
                self._hosts[each] = host
                self._instances.setdefault(host, set()).add(each)
            while len(self._hosts) > INSTANCES_MAX:
                self._forget(next(iter(self._hosts)))

    def forget(self, instance: str) -> None:
        """Forget the host of an instance."""
        with self._lock:
            self._forget(instance)

    def _forget(self, instance: str) -> None:
        host = self._hosts.pop(instance, None)
        if host is not None:
            self._instances[host].discard(instance)
            if not self._instances[host]:
                del self._instances[host]

    def hosts(self, instances: Iterable[str]) -> dict[str, str]:
        """Return the hosts of the instances that were reported."""
        with self._lock:
            return {each: self._hosts[each] for each in instances
                    if each in self._hosts}


def nodes(reported: Mapping[str, str], hosts: view.Hosts) -> dict[str, str]:
    """Return the nodes of the instances whose hosts are known.

    :param reported: names of hosts by instance
    """
    rows = {each: hosts.named(host) for each, host in reported.items()}
    return {each: hosts['uuid'][found[0]]
            for each, found in rows.items() if found}
