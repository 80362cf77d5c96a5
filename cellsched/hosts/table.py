# SPDX-License-Identifier: Apache-2.0
"""The host table: every host that a scheduler knows, as NumPy columns."""

import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from collections.abc import Set
import contextlib
import dataclasses
import math
import threading
from typing import Any

import numpy as np

from cellsched import exception
from cellsched.hosts import cell_health
from cellsched.hosts import columns as host_columns
from cellsched.hosts.providers import OtherProviders
from cellsched.hosts.providers import SharingProvider
from cellsched.hosts.providers import Units
from cellsched.hosts.snapshot import ChangeLog
from cellsched.hosts.snapshot import Column
from cellsched.hosts.snapshot import DictionaryEncoding
from cellsched.hosts.snapshot import FACTS
from cellsched.hosts.snapshot import RowIndex
from cellsched.hosts.snapshot import Snapshot
from cellsched.hosts import view as host_view

#: Columns that seldom change. A change discards the results that are cached
#: across snapshots.
_LASTING = frozenset({
    'host', 'nodename', 'host_ip', 'cell', 'aggregates',
    'service_disabled', 'forced_down', 'vcpus_total', 'total_usable_ram_mb',
    'total_usable_disk_gb', 'supported_instances', 'traits', 'units',
    'children', 'child_uuids', 'child_units', 'sharing'})

_UNBOUNDED: Mapping[str, tuple[int, int, int]] = {}

#: The usage of a provider, as :meth:`HostTable.set_usages` takes it.
Usage = tuple[str, Mapping[str, int], Mapping[str, int], int,
              Mapping[str, tuple[int, int, int]]]

#: The number of unused values that a coded column may hold, beyond one for
#: each host.
_SPARE_VALUES = 1000

#: The growth factor of the columns, which limits their unused part.
_GROWTH = 1.125

#: The number of idle merged column sets that are kept for reuse, and of their
#: hosts: each set may have a copy of a column and results for each host.
_IDLE_MAX, _IDLE_HOSTS_MAX = 16, 2_000_000


@dataclasses.dataclass(eq=False)
class PendingAllocation:
    """The resources that one instance takes on the host selected for it.

    :param node: the uuid of the compute node
    :param resources: amounts by resource class; ``CLASS@2`` is from the second
        child provider, ``CLASS@uuid`` from a sharing provider
    :param at: wall clock time, in seconds since the epoch
    :param claimed: whether the claim is in the claim store
    :param maybe_reported: whether the claim store reported the provider's
        usage after the reservation; the usage may include this allocation
    :param providers: all providers of the resources
    :param is_last: whether it was reserved in a view without doubtful
        allocations. Such views count it, so that two requests that find no
        other host do not claim the same room
    :param watchers: callbacks for when the allocation is confirmed or rolled
        back
    """

    node: str
    resources: tuple[tuple[str, int], ...]
    at: float
    providers: tuple[str, ...]
    claimed: bool = False
    maybe_reported: bool = False
    is_last: bool = False
    watchers: list[Callable[[], None]] = dataclasses.field(
        default_factory=list)

    def notify(self) -> None:
        """Call the watchers once."""
        for watcher in self.watchers:
            watcher()
        self.watchers.clear()

    @property
    def is_doubtful(self) -> bool:
        """True if views may leave it out; see :meth:`HostTable.view`."""
        return self.maybe_reported or not (self.claimed or self.is_last)


class HostTable:
    """Hosts in rows, facts in columns.

    Loaders write the table. A decision reads the last published snapshot and
    the overlay of later reservations, through a
    :class:`~cellsched.hosts.view.Hosts`. An array that a reader may hold is
    never written: a column is copied before its first write after a snapshot
    is published. Writes are published by the next read, or inside
    :meth:`batch` by :meth:`publish`.

    An allocation goes through three states. While a decision runs, it is only
    in the decision's view. :meth:`reserve` adds it to the overlay, which all
    decisions read. After :meth:`confirm` it is added to the columns, where the
    next usage from the claim store replaces it.

    Any thread may call any method. No method blocks on I/O. Dropping hosts
    moves rows, so keep uuids, not rows.
    """

    def __init__(
        self, columns: Iterable[host_columns.Column] = host_columns.STANDARD,
        cells: cell_health.Cells | None = None,
    ) -> None:
        self.specs = {column.name: column for column in columns}
        #: The health of the cells.
        self.cells = cells or cell_health.Cells()
        # Held briefly, never during I/O.
        self._lock = threading.RLock()
        self._columns = {
            name: np.empty(0, dtype=spec.stored)
            for name, spec in self.specs.items()}
        # Columns in which all hosts have the default. They are arrays of one
        # element with a stride of 0, which take no memory.
        self._unset = self._columns.keys() - {'uuid'}
        self._encodings = {
            name: DictionaryEncoding(spec.default)
            for name, spec in self.specs.items()
            if spec.dtype == host_columns.CODED}
        self._length = 0
        self._rows = RowIndex(self._columns['uuid'])
        # Builds counted in the columns that no host has reported yet.
        self._inflight_builds = InflightBuilds()
        # Allocations that are in the overlay only, by node.
        self._pending: dict[str, list[PendingAllocation]] = {}
        self._others = OtherProviders()
        # The numbers of child providers with a column, by resource class.
        self._places: Mapping[str, tuple[int, ...]] = {}
        # The rows that changed, for those who hold an earlier snapshot.
        self._log = ChangeLog()
        # Columns that no published snapshot shares; safe to write in place.
        self._private = {'uuid'}
        self._rows_changed = self._lasting_changed = True
        self._changed = True
        self._batches = 0
        self._idle: list[host_view.MergedColumns] = []
        # The state that decisions read.
        self._published = Snapshot(-1, self.specs, {}, {}, {}, self.cells)

    def __len__(self) -> int:
        return self._length

    def __contains__(self, name: str) -> bool:
        return name in self._columns

    def __getitem__(self, name: str) -> Column:
        """Return a column by name, with the overlay applied.

        :raises cellsched.exception.ColumnNotFound: a ``KeyError`` that names
            the nearest column
        """
        with self.viewed(0.0) as hosts:
            column = hosts[name]
            if column is not hosts.columns.snapshot.columns.get(name):
                column = column.copy()
                column.flags.writeable = False
            return column

    @property
    def names(self) -> list[str]:
        """The names of all columns."""
        return list(self._columns)

    @property
    def snapshot(self) -> Snapshot:
        """The latest snapshot; pending writes are published first."""
        self._publish_pending()
        return self._published

    def _publish_pending(self) -> None:
        if not self._batches and (
                self._changed or self.cells.version
                != self._published.cells.version):
            self.publish()

    def encoding(self, name: str) -> DictionaryEncoding:
        """Return the values of a coded column; see ``Snapshot.encoding``."""
        return self.snapshot.encoding(name)

    def row(self, uuid: str) -> int | None:
        """Return the row of a compute node, or None."""
        return self._rows.get(uuid)

    def view(
        self, now: float, located: Mapping[str, str] | None = None,
        count_doubtful: bool = True,
        doubtful: list[PendingAllocation] | None = None,
    ) -> host_view.Hosts:
        """Return the hosts for one request.

        :param now: wall clock time, seconds since the epoch
        :param located: compute node uuids by instance uuid
        :param count_doubtful: subtract allocations that may be rolled back, or
            that the reported usage may already include. If they are, hosts may
            look fuller than they are; if not, the claim store refuses the
            excess. Those reserved in a view without doubtful allocations are
            subtracted in any case
        :param doubtful: a list that receives the allocations of other requests
            that may be rolled back, or that the reported usage may already
            include
        """
        if count_doubtful and doubtful is None:
            columns = self._columns_of(self.snapshot)
        else:
            with self._lock:
                columns = self._columns_of(self.snapshot)
                if not count_doubtful:
                    columns.discount(self._doubted(columns.snapshot))
                if doubtful is not None:
                    doubtful += (
                        each for allocations in self._pending.values()
                        for each in allocations
                        if each.maybe_reported or not each.claimed)
        return host_view.Hosts(columns, now, dict(located or {}))

    def _columns_of(self, snapshot: Snapshot) -> host_view.MergedColumns:
        try:
            columns = self._idle.pop()
        except IndexError:
            columns = host_view.MergedColumns(snapshot)
        columns.follow(snapshot)
        return columns

    def _doubted(
        self, snapshot: Snapshot
    ) -> list[tuple[int, host_view.Changes]]:
        """Return the changes of doubtful allocations."""
        return [
            (row, host_view.changes(allocation.resources))
            for node, allocations in self._pending.items()
            if (row := snapshot.rows.get(node)) is not None
            for allocation in allocations if allocation.is_doubtful]

    def reuse(self, hosts: host_view.Hosts) -> None:
        """Make the columns of a view available to another request.

        Updating them costs less than a new copy. The view must not be used
        after this call.
        """
        columns = hosts.columns
        if not columns.is_detached:
            columns.end()
            self._keep_idle(columns)

    def detach(self, hosts: host_view.Hosts) -> None:
        """Make the columns of a view available, if the view can do without.

        The view can be used afterwards; it shows the last snapshot, perhaps
        without later changes.
        """
        columns = hosts.columns.detach()
        if columns is not None:
            self._keep_idle(columns)

    def _keep_idle(self, columns: host_view.MergedColumns) -> None:
        if len(self._idle) < max(1, min(
                _IDLE_MAX, _IDLE_HOSTS_MAX // max(len(columns), 1))):
            self._idle.append(columns)

    @contextlib.contextmanager
    def viewed(
        self, now: float, located: Mapping[str, str] | None = None
    ) -> Iterator[host_view.Hosts]:
        """Return a view for a lookup, which another request then reuses.

        The arguments are those of :meth:`view`. No column of the view may be
        kept.
        """
        hosts = self.view(now, located)
        try:
            yield hosts
        finally:
            self.reuse(hosts)

    # Reservations.

    def reserve(self, hosts: host_view.Hosts) -> list[PendingAllocation]:
        """Add what a view has taken to the overlay, for all decisions.

        Each decision that begins after this one subtracts it.
        """
        columns = hosts.columns
        uuids = columns.snapshot.columns['uuid']
        is_last = columns.discounted is not None
        with self._lock:
            allocations = []
            for row, amounts in columns.taken:
                node, resources = uuids[row], tuple(amounts.items())
                allocations.append(PendingAllocation(
                    node, resources, hosts.now,
                    self._providers_of(node, resources), is_last=is_last))
            snapshot = self._published
            if columns.snapshot is snapshot:
                columns.reserved_at = len(snapshot.overlay)
            for allocation in allocations:
                self._pending.setdefault(
                    allocation.node, []).append(allocation)
                current = snapshot.rows.get(allocation.node)
                if current is not None:
                    snapshot.overlay.append((
                        current, host_view.changes(allocation.resources)))
            return allocations

    def rollback(self, allocations: Iterable[PendingAllocation]) -> None:
        """Undo the reservation of allocations that are not confirmed."""
        with self._lock:
            snapshot = self._published
            for allocation in allocations:
                self._remove(allocation)
                allocation.notify()
                row = snapshot.rows.get(allocation.node)
                if row is not None:
                    snapshot.overlay.append((row, host_view.inverse(
                        host_view.changes(allocation.resources))))

    def confirm(self, allocations: Iterable[PendingAllocation]) -> list[str]:
        """Record that the claim store has the claims of these allocations.

        :returns: the providers whose usage the caller must read again: it was
            reported after the reservation, or the host was dropped, so it is
            unknown whether the known usage includes the claim
        """
        doubtful: list[str] = []
        with self._lock:
            for allocation in allocations:
                allocation.claimed = True
                allocation.notify()
                gone = allocation.node not in self._rows
                if gone:
                    self._remove(allocation)
                if gone or allocation.maybe_reported:
                    doubtful.extend(allocation.providers)
        return doubtful

    def pending(self) -> list[PendingAllocation]:
        """Return the allocations that are neither confirmed nor undone."""
        with self._lock:
            return [each for allocations in self._pending.values()
                    for each in allocations if not each.claimed]

    def watch(
        self, allocations: Iterable[PendingAllocation],
        make_watcher: Callable[[], Callable[[], None]],
    ) -> None:
        """Watch those allocations that are neither confirmed nor rolled back.

        :param make_watcher: called once for each of them; returns the callback
            for when it is confirmed or rolled back. Neither may block
        """
        with self._lock:
            for each in allocations:
                if not each.claimed and each in self._pending.get(
                        each.node, ()):
                    each.watchers.append(make_watcher())

    def _providers_of(
        self, node: str, resources: tuple[tuple[str, int], ...]
    ) -> tuple[str, ...]:
        """Return the providers of an allocation on a host."""
        row = self._rows.get(node)
        if row is None or not any(
                host_columns.AT in name for name, _ in resources):
            return node,
        return self._others.providers_of(
            node, self._value('child_uuids', row), resources)

    def _value(self, name: str, row: int) -> Any:
        """Return a host's value of a coded column."""
        return self._encodings[name].values[self._columns[name][row]]

    def _remove(self, allocation: PendingAllocation) -> None:
        pending = self._pending.get(allocation.node)
        if pending is not None and allocation in pending:
            pending.remove(allocation)
            if not pending:
                del self._pending[allocation.node]

    # Writes.

    @contextlib.contextmanager
    def batch(self) -> Iterator[None]:
        """Publish writes on :meth:`publish` and at the end of the block."""
        with self._lock:
            self._publish_pending()
            self._batches += 1
        try:
            yield
        finally:
            with self._lock:
                self._batches -= 1
                self.publish()

    def publish(self) -> None:
        """Publish all writes to the decisions that begin after this call."""
        with self._lock:
            self._fold()
            if not (self._changed
                    or self.cells.version != self._published.cells.version):
                return
            # 1. Freeze the changed columns; the next write copies them.
            before = self._published
            columns = dict(before.columns)
            for name in (self._columns if self._rows_changed
                         else self._private):
                shown = columns[name] = self._columns[name][:self._length]
                shown.flags.writeable = False
            # 2. Begin an overlay with the allocations that are not in the
            # columns.
            overlay = [
                (self._rows[node], host_view.changes(allocation.resources))
                for node, allocations in self._pending.items()
                if node in self._rows for allocation in allocations]
            if self._rows_changed:
                self._log.clear()
            # 3. Keep the cached results that depend on unchanged columns.
            lasting = self._rows_changed or self._lasting_changed
            self._published = Snapshot(
                before.version + 1, self.specs, columns, dict(self._encodings),
                self._rows.frozen() if self._rows_changed else before.rows,
                self.cells.copy(), self._others.sharing, self._places,
                self._others.children, overlay, self._log, self._log.end,
                {} if lasting else before.kept,
                {} if self._rows_changed else {
                    # Copy the items: decisions add to it at the same time.
                    name: pair for name, pair in list(before.extrema.items())
                    if name not in self._private})
            self._private = set()
            self._changed = self._rows_changed = False
            self._lasting_changed = False

    def written(self, name: str) -> Column:
        """Return a column with unpublished writes, for writers."""
        return self._column(name)[:self._length]

    def written_value(self, name: str, row: int) -> Any:
        """Return a host's value of a coded column, with unpublished writes."""
        return self._value(name, row)

    def put(self, uuids: Sequence[str], values: Mapping[str, Any]) -> None:
        """Add or update hosts.

        :param values: for each column a list or an array of one value for each
            uuid, or one value for all. A column that is left out keeps its
            value, or has its default in a new row.
        :raises cellsched.exception.ColumnNotFound: a column does not exist
        """
        with self._lock:
            self._fold()
            rows = self._place(uuids)
            self._changed = True
            if 'child_uuids' in values:
                values = {**self._put_children(
                    uuids, rows, _listed(values['child_uuids'])), **values}
            for name, value in values.items():
                self._put(name, rows, value)
            if host_view.BUILDS in values:
                self._inflight_builds.forget(uuids)

    def _put_children(
        self, nodes: Sequence[str], rows: Column,
        given: Iterable[tuple[str, ...]],
    ) -> dict[str, Any]:
        """Set the child providers of hosts.

        The available amounts and units of a host are reset if its child
        providers changed.

        :returns: the values of further columns
        """
        units, changes = [], []
        for node, row, uuids in zip(nodes, rows.tolist(), given):
            before = self._value('child_uuids', row)
            if uuids == before:
                units.append(self._value('child_units', row))
                continue
            changes.append((node, before, uuids))
            for name in self._columns:
                if (name.startswith(host_columns.AVAILABLE)
                        and host_columns.AT in name):
                    self._assign(name, np.array([row]), 0)
            units.append(((),) * len(uuids))
        if changes:
            self._others.replace(changes)
        return {'child_units': units}

    def _put(self, name: str, rows: Column, given: Any) -> None:
        if name.startswith(host_columns.AVAILABLE):
            self._available_column(name.removeprefix(host_columns.AVAILABLE))
        encoding = self._encodings.get(name)
        if encoding is not None:
            given = encoding.encode(_listed(given))
        if self._assign(name, rows, given) and encoding is not None:
            self._compact(name)

    def _assign(self, name: str, rows: Column, given: Any) -> bool:
        """Set values of a column; return whether any differs from before.

        A column without a difference is not copied.
        """
        column = self._column(name)
        values = np.asarray(given, dtype=column.dtype)
        differs = column[rows] != values
        if not differs.any():
            return False
        self._writable(name)[rows] = values
        self._log.add(rows[differs])
        if name in _LASTING:
            self._lasting_changed = True
        return True

    def _compact(self, name: str) -> None:
        """Remove unused values of a coded column if it has too many."""
        encoding = self._encodings[name]
        if len(encoding.values) > self._length + _SPARE_VALUES:
            self._encodings[name], self._columns[name] = encoding.compacted(
                self._columns[name][:self._length])
            self._lasting_changed = True

    def drop(self, uuids: Iterable[str]) -> None:
        """Remove hosts; unknown uuids are ignored."""
        with self._lock:
            rows = {row for row in map(self._rows.get, uuids)
                    if row is not None}
            if not rows:
                return
            self._fold()
            stay = np.ones(self._length, dtype=bool)
            stay[list(rows)] = False
            dropped = self.written('uuid')[~stay]
            self._others.replace([
                (self._columns['uuid'][row],
                 self._value('child_uuids', row), ()) for row in rows])
            self._inflight_builds.forget(dropped)
            for uuid in dropped:
                # A confirmed allocation goes with its host. If the host
                # comes back, the claim store reports the claim.
                for allocation in list(self._pending.get(uuid, ())):
                    if allocation.claimed:
                        self._remove(allocation)
            count = int(stay.sum())
            for name, column in self._columns.items():
                self._columns[name] = (
                    column[:count] if name in self._unset
                    else column[:self._length][stay])
            self._length = count
            self._rows = self._rows.without(stay, self._columns['uuid'])
            self._changed = self._rows_changed = True
            self._private.update(self._columns.keys() - self._unset)

    def set_usage(
        self, uuid: str, capacity: Mapping[str, int], used: Mapping[str, int],
        consumers: int,
        units: Mapping[str, tuple[int, int, int]] = _UNBOUNDED,
    ) -> None:
        """Set the usage of one provider; see :meth:`set_usages`."""
        self.set_usages([(uuid, capacity, used, consumers, units)])

    def set_usages(self, usages: Iterable[Usage]) -> None:
        """Set the usage of providers, as reported by the claim store.

        A provider is a host, a child provider of a host, or a sharing
        provider. An unknown provider is ignored.

        :param usages: for each provider its uuid, its capacity and its usage
            by resource class, the number of its consumers, and the minimum,
            the maximum and the step size of one allocation by resource class;
            a class that is left out has no limits
        """
        usages = list(usages)
        with self._lock:
            self._fold(reported={uuid for uuid, *_ in usages})
            rows, of_hosts = [], []
            for usage in usages:
                uuid, capacity, used, _, units = usage
                row = self._rows.get(uuid)
                if row is None:
                    self._set_other(
                        uuid, _available(capacity, used), _bounds(units))
                    continue
                for allocation in self._pending.get(uuid, ()):
                    allocation.maybe_reported = True
                rows.append(row)
                of_hosts.append(usage)
            if rows:
                self._changed = True
                self._write_usages(np.array(rows), of_hosts)

    def bound(self, bounds: Iterable[tuple[str, str, int]]) -> None:
        """Set the free amounts of hosts to at most these.

        They are kept until the next usage of the host is set. Each decision
        that begins after this one counts them.

        :param bounds: uuids, resource classes, and the free amounts; one that
            the table does not have is ignored
        """
        changed = False
        with self._lock:
            for uuid, resource, most in bounds:
                name = host_columns.AVAILABLE + resource
                row = self._rows.get(uuid)
                if (row is not None and name in self._columns
                        and self._columns[name][row] > most):
                    self._fold()
                    self._assign(name, np.array([row]), [most])
                    self._changed = changed = True
        if changed:
            self.publish()

    def _write_usages(self, rows: Column, usages: Sequence[Usage]) -> None:
        """Set the usage of hosts, a column at a time."""
        # 1. The room for each class; 0 on the hosts that do not have it.
        rooms = {name: np.zeros(len(rows)) for name in self._columns
                 if name.startswith(host_columns.AVAILABLE)
                 and host_columns.AT not in name}
        for place, (_, capacity, used, _, _) in enumerate(usages):
            for resource, room in _available(capacity, used).items():
                name = host_columns.AVAILABLE + resource
                if name not in rooms:
                    self._available_column(resource)
                    rooms[name] = np.zeros(len(rows))
                rooms[name][place] = room
        # 2. The columns that are named as Nova's attributes.
        memory_mb = np.array([
            used.get('MEMORY_MB', 0) for _, _, used, _, _ in usages])
        disk_mb = np.array([
            used.get('DISK_GB', 0) * 1024 for _, _, used, _, _ in usages])
        for name, given in (
                *rooms.items(),
                ('vcpus_used', [
                    used.get('VCPU', 0) for _, _, used, _, _ in usages]),
                ('free_ram_mb',
                 self._columns['unreserved_ram_mb'][rows] - memory_mb),
                ('free_disk_mb',
                 self._columns['unreserved_disk_mb'][rows] - disk_mb),
                ('disk_mb_used', disk_mb),
                ('num_instances', [
                    consumers for _, _, _, consumers, _ in usages])):
            self._assign(name, rows, given)
        self._put('units', rows, [
            _bounds(units) for _, _, _, _, units in usages])

    def _set_other(
        self, uuid: str, available: Mapping[str, float], units: Units
    ) -> None:
        """Set the usage of a child provider or of a sharing provider."""
        node, number = self._others.children.get(uuid, ('', 0))
        if not node and uuid not in self._others.sharing:
            return
        for allocations in (
                [self._pending.get(node, [])] if node
                else self._pending.values()):
            for allocation in allocations:
                if uuid in allocation.providers:
                    allocation.maybe_reported = True
        self._changed = True
        if not node:
            self._others.set_available(uuid, available, units)
            return
        row, place = self._rows[node], f'{host_columns.AT}{number}'
        for name in self._columns:
            if name.startswith(host_columns.AVAILABLE) and (
                    name.endswith(place)):
                self._assign(name, np.array([row]), 0)
        for resource, room in available.items():
            self._available_column(resource + place)
            self._assign(host_columns.AVAILABLE + resource + place,
                         np.array([row]), room)
        value = list(self._value('child_units', row))
        value[number - 1] = units
        self._put('child_units', np.array([row]), [tuple(value)])

    @property
    def sharing(self) -> Mapping[str, SharingProvider]:
        """The sharing providers by uuid, with their available amounts."""
        return self.snapshot.sharing

    def set_sharing(
        self, providers: Mapping[str, SharingProvider]
    ) -> list[str]:
        """Replace the sharing providers, by uuid.

        A known provider keeps its available amounts.

        :returns: the uuids of the new providers
        """
        with self._lock:
            self._changed = self._lasting_changed = True
            return self._others.set_sharing(providers)

    def expire(self, before: float) -> None:
        """Expire builds that began before this time.

        A host reports its builds in progress. Until it does, the table counts
        the allocations that it confirmed for the host.
        """
        with self._lock:
            self._fold(before=before)
            for uuid in self._inflight_builds.expire(before):
                self._add(self._rows[uuid], [(host_view.BUILDS, -1)])

    def _fold(
        self, reported: Set[str] = frozenset(), before: float = -math.inf
    ) -> None:
        """Move confirmed allocations from the overlay to the columns.

        The last usage report may or may not contain a claim. Its allocation
        stays in the overlay until the next report, which does.

        :param reported: the providers whose usage is about to be set
        :param before: wall clock time; an earlier allocation does not wait
        """
        for node, allocations in list(self._pending.items()):
            # Select confirmed allocations that the columns do not include,
            # or whose wait for a usage report ends now.
            claimed = [each for each in allocations if each.claimed and (
                not each.maybe_reported or each.at < before
                or not reported.isdisjoint(each.providers))]
            for allocation in claimed:
                self._remove(allocation)
                if node in self._rows:
                    self._add(self._rows[node],
                              host_view.changes(allocation.resources))
                    self._inflight_builds.add(node, allocation.at)

    def _add(
        self, row: int, changes: Iterable[tuple[str, float]]
    ) -> None:
        """Apply changes to the columns of a host, or to sharing providers."""
        for name, amount in changes:
            if host_columns.AT in name and self._others.add(name, amount):
                continue
            if name.startswith(host_columns.AVAILABLE):
                self._available_column(
                    name.removeprefix(host_columns.AVAILABLE))
            self._writable(name)[row] += amount
        self._log.add((row,))
        self._changed = True

    def _place(self, uuids: Sequence[str]) -> Column:
        """Return the rows of these hosts; new ones get defaults."""
        if len(uuids) == self._length and np.array_equal(
                self.written('uuid'), np.array(uuids, dtype=object)):
            return np.arange(self._length)
        new = [uuid for uuid in dict.fromkeys(uuids) if uuid not in self._rows]
        if new:
            end = self._length + len(new)
            for name, column in self._columns.items():
                self._columns[name] = self._grown(name, column, end)
            self._columns['uuid'][self._length:end] = new
            self._rows.add(self._columns['uuid'], end)
            self._length = end
            self._rows_changed = True
        return np.fromiter((self._rows[uuid] for uuid in uuids), 'int64')

    def _grown(self, name: str, column: Column, end: int) -> Column:
        """Return a column extended with defaults, which readers ignore."""
        spec = self.specs.get(name)
        default = spec.default if spec and name not in self._encodings else 0
        if name in self._unset:
            return np.broadcast_to(np.array(default, column.dtype), end)
        if len(column) < end:
            bigger = np.empty(
                max(end, int(len(column) * _GROWTH)), dtype=column.dtype)
            bigger[:self._length] = column[:self._length]
            column = bigger
            self._private.add(name)
        column[self._length:end] = default
        return column

    def _writable(self, name: str) -> Column:
        """Return an array that is safe to write, copied if it is shared."""
        column = self._column(name)
        if name not in self._private:
            column = self._columns[name] = column.copy()
            self._private.add(name)
            self._unset.discard(name)
        return column

    def _column(self, name: str) -> Column:
        """Return the array of a column, which may be longer than the table."""
        column = self._columns.get(name)
        if column is None:
            raise exception.ColumnNotFound(column=name, near=host_columns.near(
                str(name), (*self._columns, *FACTS)))
        return column

    def _available_column(self, resource: str) -> None:
        """Create the column of a resource class if it does not exist."""
        name = host_columns.AVAILABLE + resource
        if name not in self._columns:
            self._columns[name] = np.zeros(len(self._columns['uuid']))
            self._private.add(name)
            resource, _, number = resource.partition(host_columns.AT)
            if number:
                self._places = {**self._places, resource: tuple(sorted(
                    (*self._places.get(resource, ()), int(number))))}


def _available(
    capacity: Mapping[str, int], used: Mapping[str, int]
) -> dict[str, float]:
    """Return the available amount of each resource class."""
    return {resource: capacity.get(resource, 0) - used.get(resource, 0)
            for resource in capacity.keys() | used.keys()}


def _bounds(units: Mapping[str, tuple[int, int, int]]) -> Units:
    """Return allocation units in the form of the units columns."""
    # Most providers have none.
    return tuple((name, *units[name])
                 for name in sorted(units)) if units else ()


def _listed(given: Any) -> Iterable[Any]:
    return given if isinstance(given, (list, np.ndarray)) else [given]


class InflightBuilds:
    """Start times of builds in progress, by compute node."""

    def __init__(self) -> None:
        self._times: dict[str, collections.deque[float]] = {}
        # Includes builds that were forgotten; skipped when they expire.
        self._begun: collections.deque[tuple[float, str]] = (
            collections.deque())

    def add(self, uuid: str, now: float) -> None:
        """Count a build on a host."""
        self._times.setdefault(uuid, collections.deque()).append(now)
        self._begun.append((now, uuid))

    def forget(self, uuids: Iterable[str]) -> None:
        """Remove the builds of hosts that reported or were dropped."""
        for uuid in uuids:
            self._times.pop(uuid, None)

    def expire(self, before: float) -> Iterator[str]:
        """Yield the host of each build that expires."""
        while self._begun and self._begun[0][0] < before:
            time, uuid = self._begun.popleft()
            times = self._times.get(uuid)
            if times and times[0] == time:
                times.popleft()
                if not times:
                    del self._times[uuid]
                yield uuid
