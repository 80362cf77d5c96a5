# SPDX-License-Identifier: Apache-2.0
"""Reading hosts for one request, without a table that is kept."""

import collections
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import itertools
import threading
from typing import Any
from typing import NamedTuple

from oslo_log import log

from cellsched.cells.discovery import Discovery
from cellsched.cells import gather
from cellsched.cells import registry
from cellsched.claims import base as claims_base
from cellsched.clock import Clock
from cellsched.context import RequestContext
from cellsched.db.api import aggregates
from cellsched.db.api import host_mappings
from cellsched.db.api import operator_changes
from cellsched.db.api import shared_providers
from cellsched.db.cell import hosts as feed
from cellsched.db import session
from cellsched.host_manager import aggregate_groups
from cellsched.host_manager import cell_follower
from cellsched.host_manager import manager
from cellsched.host_manager import node_columns
from cellsched.hosts import cell_health
from cellsched.hosts import columns
from cellsched.hosts.providers import SharingProvider
from cellsched.hosts.table import HostTable
from cellsched.hosts import view
from cellsched import objects
from cellsched.observability.conditions import Conditions

LOG = log.getLogger(__name__)


class HostScope(NamedTuple):
    """The hosts to read.

    :param nodes: uuids of compute nodes; None for all hosts
    :param names: names of hosts, case-insensitive
    """

    nodes: frozenset[str] | None
    names: frozenset[str] = frozenset()


#: All hosts.
EVERYTHING = HostScope(None)


class Sharing(NamedTuple):
    """The sharing providers, with their usage."""

    providers: Sequence[shared_providers.SharedProvider]
    usages: Sequence[claims_base.Usage]


NO_SHARING = Sharing((), ())


@dataclasses.dataclass(frozen=True)
class HostReading:
    """Hosts at the time of reading.

    :param silent: cells that did not answer, by identity
    :param marks: version marks of the nodes' rows in their cells, by node
    """

    table: HostTable
    silent: Sequence[str] = ()
    marks: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(eq=False)
class HostReader:
    """Reads hosts on demand and keeps no table.

    Facts come from the cells, aggregates and mappings from the API database,
    and usage from the claim store. A cell that does not answer has no hosts.
    The reader keeps only the health of cells, aggregates from callers'
    updates, and the choices of the last minute.

    :param database: the API database
    :param default_zone: availability zone of hosts without one
    """

    database: session.Database
    cells: registry.CellRegistry
    gatherer: gather.Gatherer
    discovery: Discovery
    claims: claims_base.UsageFeed
    clock: Clock
    policy: manager.RefreshPolicy
    default_zone: str
    extra_columns: Iterable[columns.Column] = ()

    def __post_init__(self) -> None:
        self._columns = (*columns.STANDARD, *self.extra_columns)
        #: The conditions that requests meet.
        self.conditions = Conditions(LOG, self.clock.monotonic)
        # Guards the state that requests share; never held during I/O.
        self._lock = self.clock.lock()
        #: The health of cells.
        self.health = cell_health.Cells(
            self.policy.half_life_s, self.policy.limits.silence_s)
        # Aggregates from callers' updates, by id.
        self._updates: dict[int, objects.Aggregate] = {}
        #: Cells that did not answer the last reading, by identity.
        self.silent: Sequence[str] = ()
        #: Recent choices.
        self.choices = RecentChoices(manager.PENDING_S)

    def nothing(self) -> HostReading:
        """Return a reading without hosts."""
        return HostReading(HostTable(self._columns, self.health))

    def cell_names(self) -> dict[str, str]:
        """Return the names of the cells that may have hosts, by uuid."""
        return {cell.uuid: cell.name or cell.uuid
                for cell in self.cells.real()}

    def sharing(self) -> Sharing:
        """Return the current sharing providers."""
        with self.database.reader() as connection:
            found = shared_providers.list_all(
                connection, self.database.conditions)
        return Sharing(found, self.claims.usages(
            providers=[each.uuid for each in found],
        ).usages if found else ())

    def read(
        self, context: RequestContext, scope: HostScope,
        sharing: Sharing,
    ) -> HostReading:
        """Return the current hosts."""
        # The hosts of a disabled cell take the servers that move inside it.
        cells = {cell.uuid: cell for cell
                 in self.cells.real(operator_changes.KNOWN_S)}
        disabled = {uuid: cell.name or uuid
                    for uuid, cell in cells.items() if cell.disabled}
        gathered = self.gatherer.gather(
            context, cells.values(),
            lambda cell_context: self._ask(cell_context, scope))
        unanswered = gathered.silent | gathered.failures.keys()
        reading = self.nothing()
        with self._lock:
            self.health.disable(disabled)
            for uuid in unanswered:
                self.health.failed(uuid, 1, self.clock.steady())
        # Use the order of the cells, and not the order of their answers.
        results = {uuid: gathered.results[uuid] for uuid in cells
                   if uuid in gathered.results}
        with reading.table.batch():
            self._fill(reading.table, cells, results, sharing)
            marks = {row.uuid: (row.lane, row.position)
                     for hosts, _ in results.values() for row in hosts.nodes}
            self._fill_usages(reading.table, marks, scope, sharing)
        silent = self.silent = sorted(
            cells[uuid].identity for uuid in unanswered - disabled.keys())
        return HostReading(reading.table, silent, marks)

    def beats(self, context: RequestContext) -> HostTable:
        """Return all hosts with only the times of their last reports.

        The hosts of cells that do not answer are missing.
        """
        gathered = self.gatherer.gather(
            context, self.cells.real(operator_changes.KNOWN_S),
            self._ask_beats)
        table = self.nothing().table
        with table.batch():
            for uuid, (rows, ahead_s) in gathered.results.items():
                if rows:
                    table.put([row.uuid for row in rows], {
                        'cell': uuid,
                        **node_columns.of_services(rows, ahead_s)})
        return table

    def hosts_kept_for(self, key: str, value: str, limit: int) -> list[str]:
        """Return the names of hosts in aggregates with certain metadata.

        :param key: prefix of the metadata key
        :param value: value of the key
        :param limit: the maximum number of hosts from the database
        """
        with self.database.reader() as connection:
            found = aggregates.hosts_kept_for(connection, key, value, limit)
        with self._lock:
            reported = list(self._updates.values())
        return found + [
            host for each in reported for host in each.get('hosts') or ()
            if any(name.startswith(key) and each_value == value
                   for name, each_value
                   in (each.get('metadata') or {}).items())]

    def tell_aggregates(
        self, aggregates_: Iterable[objects.Aggregate]
    ) -> None:
        """Apply callers' updates of aggregates; they last for the process."""
        with self._lock:
            self._updates.update((each.id, each) for each in aggregates_)

    def forget_aggregate(self, number: int) -> None:
        """Remove an aggregate from callers' updates."""
        with self._lock:
            self._updates.pop(number, None)

    def _ask(
        self, cell_context: RequestContext, scope: HostScope
    ) -> tuple[feed.HostChanges, float]:
        """Return a cell's hosts, and the seconds its clock is ahead."""
        assert cell_context.cell is not None
        database = cell_context.cell.database
        with database.reader() as connection:
            hosts = feed.selected(connection, scope.nodes, scope.names)
        return hosts, database.timestamp() - self.clock.steady()

    def _ask_beats(
        self, cell_context: RequestContext
    ) -> tuple[Sequence[Any], float]:
        assert cell_context.cell is not None
        database = cell_context.cell.database
        with database.reader() as connection:
            rows = feed.beats(connection)
        return rows, database.timestamp() - self.clock.steady()

    def _fill(
        self, table: HostTable,
        cells: Mapping[str, objects.CellMapping],
        results: Mapping[str, tuple[feed.HostChanges, float]],
        sharing: Sharing,
    ) -> None:
        """Write the facts of the hosts that are mapped to their cell."""
        names = {row.host for hosts, _ in results.values()
                 for row in hosts.nodes}
        with self.database.reader() as connection:
            owners = host_mappings.owners(connection, names)
            rows = aggregates.of_hosts(connection, names)
        groups = aggregate_groups.AggregateGroups(self.default_zone)
        groups.apply(aggregates.AggregateChanges(
            (), True, rows, frozenset(row.id for row in rows)))
        with self._lock:
            reported = list(self._updates.values())
        for each in reported:
            groups.tell(each)
        groups.share({each.uuid: each.aggregate_uuid
                      for each in sharing.providers})
        table.set_sharing({each.uuid: SharingProvider(
            each.name, each.aggregate_uuid, each.traits)
            for each in sharing.providers})
        # Each cell has a follower for this one reading.
        mapped: dict[str, set[str]] = {}
        for name, owner in owners.items():
            mapped.setdefault(owner, set()).add(name)
        for uuid, (hosts, ahead_s) in results.items():
            follower = cell_follower.CellFollower(
                cells[uuid], table, self._lock, groups, self.discovery,
                self.clock, self.conditions, self.policy.maps_hosts)
            of_cell = follower.mapped = mapped.get(uuid, set())
            follower.take(hosts._replace(nodes=[
                row for row in hosts.nodes
                # The host was mapped once and its mapping was deleted.
                if row.host in of_cell
                or row.host not in owners and row.mapped < 1]), ahead_s)

    def _fill_usages(
        self, table: HostTable, marks: Mapping[str, Any],
        scope: HostScope, sharing: Sharing,
    ) -> None:
        """Write the usage of hosts, and recent choices."""
        uuids = table.written('uuid').tolist()
        children = itertools.chain.from_iterable(
            table.written_value('child_uuids', row)
            for row in range(len(uuids)))
        usages = self.claims.usages(
            providers=None if scope.nodes is None else [*uuids, *children],
        ).usages if uuids else ()
        chosen = self.choices.current(self.clock.steady())
        table.set_usages(
            (each.provider, each.capacity, each.used, each.consumers,
             each.units)
            for each in with_held((*usages, *sharing.usages), chosen))
        count_builds(table, chosen, marks)


@dataclasses.dataclass(frozen=True)
class RecentChoice:
    """A host that was selected for one instance.

    :param node: uuid of the compute node
    :param at: wall clock time, in seconds since the epoch
    :param mark: version mark of the node's row in its cell; a different mark
        means that the host has reported since
    :param held: unclaimed amounts by resource class, by provider
    """

    node: str
    at: float
    mark: Any
    held: Mapping[str, Mapping[str, int]]


class RecentChoices:
    """Recent choices, until the host reports them or they expire.

    A host reports its builds, and its cell has the unclaimed instances by
    then. Any thread may call any method.

    :param lasting_s: seconds after which a choice expires
    """

    def __init__(self, lasting_s: float) -> None:
        self._lasting_s = lasting_s
        self._lock = threading.Lock()
        self._choices: collections.deque[RecentChoice] = collections.deque()

    def add(self, choices: Iterable[RecentChoice]) -> None:
        """Add choices."""
        with self._lock:
            self._choices.extend(choices)

    def current(self, now: float) -> list[RecentChoice]:
        """Return the choices that have not expired; remove the rest."""
        with self._lock:
            while self._choices and (
                    self._choices[0].at < now - self._lasting_s):
                self._choices.popleft()
            return list(self._choices)


def count_builds(
    table: HostTable, choices: Iterable[RecentChoice],
    marks: Mapping[str, Any],
) -> None:
    """Count builds on hosts that have not reported since the choice.

    :param marks: version marks of the nodes' rows, by node
    """
    builds = collections.Counter(
        each.node for each in choices
        if table.row(each.node) is not None
        and marks.get(each.node) == each.mark)
    if builds:
        present = table.written(view.BUILDS)
        table.put(list(builds), {view.BUILDS: [
            present[table.row(node)] + count
            for node, count in builds.items()]})


def with_held(
    usages: Iterable[claims_base.Usage], choices: Iterable[RecentChoice]
) -> list[claims_base.Usage]:
    """Return the usage of providers, with unclaimed amounts added."""
    held: dict[str, collections.Counter[str]] = {}
    consumers = collections.Counter[str]()
    for choice in choices:
        for provider, amounts in choice.held.items():
            held.setdefault(
                provider, collections.Counter()).update(amounts)
            consumers[provider] += 1
    return [
        usage if usage.provider not in held else dataclasses.replace(
            usage, used=held[usage.provider] + collections.Counter(
                usage.used),
            consumers=usage.consumers + consumers[usage.provider])
        for usage in usages]
