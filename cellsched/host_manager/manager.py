# SPDX-License-Identifier: Apache-2.0
"""Keeping the host table as the cells and the claim store are."""

import collections
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from collections.abc import Set
import dataclasses
import math
from typing import Any
import zlib

from oslo_log import log

from cellsched.cells.discovery import Discovery
from cellsched.cells import gather
from cellsched.cells import registry
from cellsched.clock import Clock
from cellsched.context import RequestContext
from cellsched.db.api import aggregates
from cellsched.db.api import shared_providers
from cellsched.db import session
from cellsched import exception
from cellsched.host_manager import aggregate_groups
from cellsched.host_manager import cell_follower
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

LOG = log.getLogger(__name__)

#: Seconds after which a build that was begun on a host, and that the host did
#: not report, is counted there no more.
PENDING_S = 60.0

#: The share of the time between refreshes after which what was read of one
#: that lasts is published again.
_PUBLISHING_SHARE = 0.1


@dataclasses.dataclass(frozen=True)
class RefreshPolicy:
    """The intervals at which a table is brought up to date.

    :param interval_s: seconds between readings of what changed
    :param full_interval_s: seconds between readings of everything
    :param half_life_s: seconds in which half of a cell's failures are
        forgotten
    :param limits: how long hosts and cells may be silent
    :param maps_hosts: whether hosts that nobody mapped are mapped when they
        are first seen
    """

    interval_s: float = 1.0
    full_interval_s: float = 300.0
    half_life_s: float = 300.0
    limits: OutageLimits = OutageLimits()
    maps_hosts: bool = True


class HostManager(source.HostSource):
    """Keeps a host table as the databases of a deployment are.

    Facts of hosts come from their cells, aggregates from the API database,
    and what is taken from the claim store. A cell that does not answer keeps
    what was last known of it, and holds up no other.

    What is read is published at the end of a refresh, and for requests that
    come meanwhile, so that a slow cell keeps nobody from what others say.

    :param database: the API database
    :param claims: the claim store
    :param default_zone: availability zone of hosts that are in none
    """

    def __init__(
        self, database: session.Database, cells: registry.CellRegistry,
        gatherer: gather.Gatherer, discovery: Discovery,
        claims: Any, clock: Clock, policy: RefreshPolicy,
        default_zone: str, extra_columns: Iterable[columns.Column] = (),
    ) -> None:
        self._database = database
        self._cells = cells
        self._gatherer = gatherer
        self._discovery = discovery
        self._claims = claims
        self._clock = clock
        self._policy = policy
        self._aggregate_groups = aggregate_groups.AggregateGroups(default_zone)
        self._host_mappings = cell_follower.HostMappings(database)
        self._followers: dict[str, cell_follower.CellFollower] = {}
        self._refreshing = clock.lock()
        # What is read first is applied first.
        self._reading = clock.lock()
        self._read_at: float | None = None
        self._claims_token: Any = None
        self._aggregates_token: Any = None
        self._aggregates_full_at = 0.0
        self._doubtful: set[str] = set()
        # What was chosen and not claimed, and until when that counts.
        self._held: collections.deque[tuple[float, list[str]]] = (
            collections.deque())
        self._instance_reports = InstanceReports()
        # Guards what is remembered here, and who writes the table. Nothing
        # that blocks is done with it.
        self._lock = clock.lock()
        self._published_at = -math.inf
        self.table = table.HostTable(
            (*columns.STANDARD, *extra_columns),
            cell_health.Cells(policy.half_life_s, policy.limits.silence_s))
        self._doubted_at = -math.inf
        #: Cells that did not answer when they were last asked, by identity.
        self.silent: list[str] = []

    def follow(self, context: RequestContext) -> bool:
        """Make sure that the table is as new as a request may expect.

        Waits only for the first reading, and for one that comes after a break
        in which hosts may have seemed to die. Somebody else should call
        :meth:`refresh` all the time; if nobody did, it is done here.

        :returns: whether the table was read just now
        """
        if self._read_at is None:
            return self.refresh(context, -math.inf)
        now = self._clock.monotonic()
        age_s = now - self._read_at
        if self._refreshing.locked() and age_s < self._policy.limits.silence_s:
            # To publish takes a copy of what changed in any cell.
            if now >= (self._published_at
                       + self._policy.interval_s * _PUBLISHING_SHARE):
                self._published_at = now
                self.table.publish()
            return False
        if age_s < 2 * self._policy.interval_s:
            return False
        return self.refresh(context, self._read_at)

    def refresh(
        self, context: RequestContext, since: float | None = None
    ) -> bool:
        """Bring the table up to date.

        :param since: a monotonic time; unless it was read after that
        :returns: whether it was read now
        """
        with self._refreshing:
            now = self._clock.monotonic()
            if (since is not None and self._read_at is not None
                    and self._read_at > since):
                return False
            first = self._claims_token is None
            if not first:
                self._read_claims()
            with self.table.batch():
                self._read_aggregates(now)
                self._host_mappings.read()
                self._read_cells(context, now)
            with self._lock:
                while self._held and (
                        self._held[0][0] < self._clock.steady()):
                    self._doubtful.update(self._held.popleft()[1])
                if first:
                    # What is taken anywhere is read now.
                    self._doubtful.clear()
                unread = first or bool(self._doubtful)
                self.table.expire(self._clock.steady() - PENDING_S)
            if unread:
                self._read_claims()
            self._read_at = now
            return True

    def snapshot(
        self, context: RequestContext
    ) -> document.HostDocument:
        """Return the hosts as they are now.

        Its table is this one, and follows the deployment.
        """
        self.follow(context)
        return document.HostDocument(
            self.table, self._clock.steady(),
            {cell.uuid: cell.name or cell.uuid
             for cell in self._cells.enabled()}, self.silent)

    def mass_outage_error(self) -> exception.HostStateUncertain | None:
        """Return why it cannot be told here whether hosts are up, if so."""
        with self._lock:
            now = self._clock.steady()
            found = find(self.table, now, self._policy.limits)
            if found is None:
                return None
            log_it = now - self._doubted_at >= self._policy.limits.down_s
            if log_it:
                self._doubted_at = now
        if log_it:
            ahead = [each.ahead_s for each in self._followers.values()]
            LOG.warning(
                'Suspected clock skew: %d of %d hosts in %d cells went down '
                'at the same time; requests that need them are rejected with '
                'HostStateUncertain. The clocks of the '
                "cells' databases are ahead of ours by %.1f to %.1f seconds",
                found.hosts, found.known, found.cells, min(ahead, default=0),
                max(ahead, default=0))
        return exception.HostStateUncertain(
            hosts=found.hosts, known=found.known)

    def reload(self, providers: Sequence[str]) -> None:
        """Set what is taken to what the claim store says by now.

        That is done for what changed, and for these hosts in any case. Where
        it fails it is done with the next refresh.
        """
        self.mark_stale(providers)
        self._read_claims()

    def mark_stale(self, providers: Iterable[str]) -> None:
        """Have the next refresh ask for what is taken on these hosts."""
        with self._lock:
            self._doubtful.update(providers)

    def confirm(
        self, allocations: Iterable[table.PendingAllocation],
        claimed: bool = True,
    ) -> None:
        """Count what was chosen, from now on.

        :param claimed: whether the claim store has it; if not, it counts for
            a time
        """
        allocations = list(allocations)
        doubtful = self.table.confirm(allocations)
        if claimed:
            self.mark_stale(doubtful)
        else:
            self.hold({provider for allocation in allocations
                       for provider in allocation.providers})

    def hold(self, providers: Iterable[str]) -> None:
        """Leave what was taken on these hosts, and not claimed, for a time.

        Whoever builds there has told its cell by then.
        """
        until = self._clock.steady() + PENDING_S
        with self._lock:
            self._held.append((until, list(providers)))

    def tell_aggregates(
        self, aggregates: Iterable[objects.Aggregate]
    ) -> None:
        """Take over aggregates that callers tell of, until the end."""
        with self._lock:
            self._regroup(frozenset[str]().union(*map(
                self._aggregate_groups.tell, aggregates)))

    def forget_aggregate(self, number: int) -> None:
        """Forget an aggregate that callers told of."""
        with self._lock:
            self._regroup(self._aggregate_groups.forget(number))

    def tell_instances(
        self, host: str, instances: Iterable[str], complete: bool
    ) -> None:
        """Take over which instances a host says that it has.

        :param complete: whether it has no others
        """
        with self._lock:
            if complete:
                self._instance_reports.replace(host, instances)
            else:
                self._instance_reports.update(host, instances)

    def forget_instance(self, instance: str) -> None:
        """Forget where an instance is said to be."""
        with self._lock:
            self._instance_reports.forget(instance)

    def reported_nodes(self, instances: Iterable[str]) -> dict[str, str]:
        """Return the nodes of instances, of those that a host told of."""
        with self._lock:
            reported = self._instance_reports.hosts(instances)
        if not reported:
            return {}
        return nodes(
            reported, self.table.view(self._clock.steady()))

    def _regroup(self, hosts: Set[str]) -> None:
        if hosts:
            for follower in self._followers.values():
                follower.regroup(hosts)

    def _read_cells(
        self, context: RequestContext, now: float
    ) -> None:
        cells = {cell.uuid: cell for cell in self._cells.enabled()}
        for uuid in self._followers.keys() - cells.keys():
            self._followers.pop(uuid).forget()
        for uuid, cell in cells.items():
            if uuid not in self._followers:
                self._followers[uuid] = cell_follower.CellFollower(
                    cell, self.table, self._lock, self._aggregate_groups,
                    self._discovery, self._clock, self._policy.maps_hosts)
            self._followers[uuid].cell = cell
            self._followers[uuid].mapped = self._host_mappings.hosts(uuid)
        gathered = self._gatherer.gather(
            context, cells.values(),
            lambda cell_context: self._read_cell(cell_context, now))
        for uuid, failure in gathered.failures.items():
            LOG.warning('Cell %s cannot be read: %s', cells[uuid].identity,
                        failure)
        quiet = gathered.silent | gathered.failures.keys()
        with self._lock:
            for uuid in quiet:
                self.table.cells.failed(uuid, 1, self._clock.steady())
            self.silent = sorted(cells[uuid].identity for uuid in quiet)

    def _read_cell(
        self, cell_context: RequestContext, now: float
    ) -> None:
        """Read a cell, within the time that the cell has."""
        assert cell_context.cell is not None
        follower = self._followers[cell_context.cell.uuid]
        everything = now >= follower.full_at
        new = follower.read(cell_context.cell.database, everything)
        if everything:
            # Not all cells at once, for that takes its time.
            share = zlib.crc32(cell_context.cell.uuid.encode()) % 1000 / 2000
            follower.full_at = now + self._policy.full_interval_s * (1 - share)
        if new:
            self.mark_stale(new)

    def _read_aggregates(self, now: float) -> None:
        if now >= self._aggregates_full_at:
            self._aggregates_token = None
            self._aggregates_full_at = now + self._policy.full_interval_s
        with self._database.reader() as connection:
            changes = aggregates.changes(connection, self._aggregates_token)
            # One feed tells of both.
            shared = (None if changes.token == self._aggregates_token
                      else shared_providers.list_all(connection))
        with self._lock:
            hosts = self._aggregate_groups.apply(changes)
            if shared is not None:
                hosts |= self._share(shared)
            self._regroup(hosts)
        self._aggregates_token = changes.token

    def _share(
        self, providers: Iterable[shared_providers.SharedProvider]
    ) -> set[str]:
        """Take over the sharing providers; return the hosts that it touches.

        The lock is held.
        """
        found = {each.uuid: SharingProvider(
            each.name, each.aggregate_uuid, each.traits)
            for each in providers}
        self._doubtful.update(self.table.set_sharing(found))
        return self._aggregate_groups.share(
            {uuid: each.aggregate for uuid, each in found.items()})

    def _read_claims(self) -> None:
        with self._reading:
            changes = self._claims.usages(since=self._claims_token)
            with self._lock:
                self._apply(changes.usages)
                self._claims_token = changes.token
                doubtful = list(self._doubtful)
            if doubtful:
                changes = self._claims.usages(providers=doubtful)
                with self._lock:
                    self._apply(changes.usages)
                    self._doubtful.difference_update(doubtful)
            self.table.publish()

    def _apply(self, usages: Iterable[Any]) -> None:
        for usage in usages:
            self.table.set_usage(usage.provider, usage.capacity, usage.used,
                                 usage.consumers, usage.units)


#: Instances that are remembered; older ones go when there are more.
INSTANCES_MAX = 1_000_000


class InstanceReports:
    """Remembers which host said that it has an instance.

    Who calls it sees to it that nobody else does at the time.
    """

    def __init__(self) -> None:
        self._hosts: dict[str, str] = {}
        self._instances: dict[str, set[str]] = {}

    def update(self, host: str, instances: Iterable[str]) -> None:
        """Take over that a host has these instances, among others."""
        for each in instances:
            self.forget(each)
            self._hosts[each] = host
            self._instances.setdefault(host, set()).add(each)
        while len(self._hosts) > INSTANCES_MAX:
            self.forget(next(iter(self._hosts)))

    def replace(self, host: str, instances: Iterable[str]) -> None:
        """Take over that a host has these instances and no others."""
        for each in tuple(self._instances.get(host, ())):
            self.forget(each)
        self.update(host, instances)

    def forget(self, instance: str) -> None:
        """Forget where an instance is."""
        host = self._hosts.pop(instance, None)
        if host is not None:
            self._instances[host].discard(instance)
            if not self._instances[host]:
                del self._instances[host]

    def host(self, instance: str) -> str | None:
        """Return the host of an instance, if one told."""
        return self._hosts.get(instance)

    def hosts(self, instances: Iterable[str]) -> dict[str, str]:
        """Return the hosts of those instances of which one told."""
        return {each: self._hosts[each] for each in instances
                if each in self._hosts}


def nodes(reported: Mapping[str, str], hosts: view.Hosts) -> dict[str, str]:
    """Return the nodes of instances, as far as their hosts are known.

    :param reported: names of hosts by instance
    """
    rows = {each: hosts.named(host) for each, host in reported.items()}
    return {each: hosts['uuid'][found[0]]
            for each, found in rows.items() if found}
