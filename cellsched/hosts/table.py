# SPDX-License-Identifier: Apache-2.0
"""The host table: every host that a scheduler knows, as NumPy columns."""

import collections
from collections.abc import Callable
from collections.abc import Hashable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import enum
import math
import threading
from typing import Any
from typing import NamedTuple

import numpy as np

from cellsched import exception
from cellsched.hosts import cell_health
from cellsched.hosts import columns as columns_
from cellsched.hosts.providers import OtherProviders
from cellsched.hosts.providers import SharingProvider
from cellsched.hosts.providers import Units
from cellsched.hosts.snapshot import Column
from cellsched.hosts.snapshot import DictionaryEncoding
from cellsched.hosts.snapshot import FACTS
from cellsched.hosts.snapshot import Snapshot
from cellsched.hosts import view as view_

#: Columns that change seldom, on which what is kept of a table relies.
_LASTING = frozenset({
    'host', 'nodename', 'host_ip', 'cell', 'aggregates',
    'service_disabled', 'forced_down', 'vcpus_total', 'total_usable_ram_mb',
    'total_usable_disk_gb', 'supported_instances', 'traits', 'units',
    'children', 'child_uuids', 'child_units', 'sharing'})

_UNBOUNDED: Mapping[str, tuple[int, int, int]] = {}

#: Values of a coded column that may be there for nothing, beyond one for each
#: host.
_SPARE_VALUES = 1000

#: Sets of merged columns that are kept for the next decisions.
_IDLE_MAX = 16


class Verify(enum.Enum):
    """A condition on the chosen hosts when a choice is noted."""

    #: Nothing else was chosen on them since the view was made, and where they
    #: were written anew, there is room.
    UNCHANGED = enum.auto()
    #: There is room.
    CAPACITY = enum.auto()
    NONE = enum.auto()


@dataclasses.dataclass(eq=False)
class PendingAllocation:
    """The resources that one instance takes of a host chosen for it.

    :param node: the uuid of the compute node
    :param resources: amounts by resource class; ``CLASS@2`` is of the second
        child provider, ``CLASS@uuid`` of a sharing provider
    :param at: wall clock time, in seconds since the epoch
    :param claimed: whether the claim store has it
    :param maybe_reported: whether the claim store reported usage of the host
        before that; that usage may include this allocation
    :param providers: all of which it takes
    :param watchers: are called when the store has it, or it counts no more
    """

    node: str
    resources: tuple[tuple[str, int], ...]
    at: float
    providers: tuple[str, ...]
    claimed: bool = False
    maybe_reported: bool = False
    watchers: list[Callable[[], None]] = dataclasses.field(
        default_factory=list)

    def notify(self) -> None:
        """Tell all that watch."""
        for watcher in self.watchers:
            watcher()
        self.watchers.clear()

    def amount(self, resource: str, count_pending: bool) -> int:
        """Return how much of a resource class it takes, if that counts."""
        if self.maybe_reported and not count_pending:
            return 0
        return sum(amount for name, amount in self.resources
                   if name == resource)


class _Published(NamedTuple):
    """The state of the table that decisions read.

    :param overlay: rows of the snapshot on which something was chosen since,
        and how that changes them; only ever added to
    :param earlier: how many changes were in overlays before those in this one
    """

    snapshot: Snapshot
    overlay: list[tuple[int, view_.Changes]]
    earlier: int = 0


class HostTable:
    """Hosts in rows, facts in columns.

    Loaders write it; a decision reads the snapshot that was published last
    and the overlay of what was chosen since, through a
    :class:`~cellsched.hosts.view.Hosts`. Arrays that somebody reads are never
    written: a column is copied before it is written for the first time after
    a snapshot was published. What is written is published when somebody next
    reads, or, within :meth:`batch`, when :meth:`publish` is called.

    What a decision takes is counted in its own view only, until it is noted
    (:meth:`reserve`). From then on all see it in the overlay; when the claim
    store has it (:meth:`confirm`) it goes into the columns, and is replaced
    there by what the store tells next.

    Any thread may call any method; none blocks. Rows move when hosts are
    dropped, so only uuids last.
    """

    def __init__(
        self, columns: Iterable[columns_.Column] = columns_.STANDARD,
        cells: cell_health.Cells | None = None,
    ) -> None:
        self.specs = {column.name: column for column in columns}
        #: What was heard of cells.
        self.cells = cells or cell_health.Cells()
        # Held for moments, and never while something blocks.
        self._lock = threading.RLock()
        self._columns = {
            name: np.empty(0, dtype=spec.stored)
            for name, spec in self.specs.items()}
        self._encodings = {
            name: DictionaryEncoding(spec.default)
            for name, spec in self.specs.items()
            if spec.dtype == columns_.CODED}
        self._length = 0
        self._rows: dict[str, int] = {}
        # Builds that are in the columns and that no host reported yet.
        self._inflight_builds = InflightBuilds()
        # By node, what was noted and is not in the columns yet.
        self._pending: dict[str, list[PendingAllocation]] = {}
        # How many changes were in overlays when a node was chosen last.
        self._noted_at: dict[str, int] = {}
        self._others = OtherProviders()
        # By resource class, the numbers of child providers with a column.
        self._places: Mapping[str, tuple[int, ...]] = {}
        # Columns that are no published snapshot's.
        self._private = set(self._columns)
        self._rows_changed = self._lasting_changed = True
        self._changed = True
        self._batches = 0
        self._idle: list[view_.MergedColumns] = []
        self._published = _Published(Snapshot(
            -1, self.specs, {}, {}, {}, self.cells), [])

    def __len__(self) -> int:
        return self._length

    def __contains__(self, name: str) -> bool:
        return name in self._columns

    def __getitem__(self, name: str) -> Column:
        """Return a column by name, with what is in the overlay.

        :raises cellsched.exception.ColumnNotFound: a ``KeyError`` that names
            the nearest
        """
        return self.view(0.0)[name]

    @property
    def names(self) -> list[str]:
        """The names of all columns."""
        return list(self._columns)

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot that was published last."""
        return self._current().snapshot

    def encoding(self, name: str) -> DictionaryEncoding:
        """Return the values of a coded column; see ``Snapshot.encoding``."""
        return self.snapshot.encoding(name)

    def row(self, uuid: str) -> int | None:
        """Return the row of a compute node, or None."""
        return self._rows.get(uuid)

    def view(
        self, now: float, located: Mapping[str, str] | None = None,
        count_pending: bool = True,
    ) -> view_.Hosts:
        """Return the hosts as one request sees them.

        What was chosen and is in doubt may be in what the claim store told,
        too. Counted once more, hosts may have more room than it seems; left
        out, they may have less, and the store has to tell.

        :param now: wall clock time, seconds since the epoch
        :param located: compute node uuids by instance uuid
        :param count_pending: whether that is counted
        """
        if count_pending:
            columns = self._columns_of(self._current())
        else:
            with self._lock:
                columns = self._columns_of(self._current())
                columns.discount(self._doubted(columns.snapshot))
        return view_.Hosts(columns, now, dict(located or {}))

    def _columns_of(self, published: _Published) -> view_.MergedColumns:
        snapshot, overlay, earlier = published
        try:
            columns = self._idle.pop()
        except IndexError:
            columns = view_.MergedColumns(snapshot)
        columns.follow(snapshot, overlay, earlier)
        return columns

    def _doubted(
        self, snapshot: Snapshot
    ) -> list[tuple[int, view_.Changes]]:
        """Return the changes that are in doubt, which the overlay has."""
        return [
            (row, view_.changes(allocation.resources))
            for node, allocations in self._pending.items()
            if (row := snapshot.rows.get(node)) is not None
            for allocation in allocations if allocation.maybe_reported]

    def reuse(self, hosts: view_.Hosts) -> None:
        """Let another request have the columns of a view.

        They follow the table at less cost than new ones. Nobody may use the
        view any more.
        """
        columns = hosts.columns
        columns.give_back()
        if len(self._idle) < _IDLE_MAX:
            self._idle.append(columns)

    # What was chosen.

    def reserve(
        self, hosts: view_.Hosts, check: Verify = Verify.UNCHANGED
    ) -> list[PendingAllocation] | None:
        """Have everybody count what was taken in a view.

        That is the one step of a decision which others wait for. It looks at
        the chosen hosts once more.

        :returns: None, and nothing is noted, if one does not do any more
        """
        columns = hosts.columns
        taken = [(columns.snapshot.columns['uuid'][row],
                  tuple(resources.items()))
                 for row, resources in columns.taken]
        with self._lock:
            if check is not Verify.NONE and self._is_behind(columns) and (
                    check is Verify.UNCHANGED
                    and self._is_touched(columns, taken)
                    or not self._has_capacity(
                        taken, columns.discounted is None)):
                return None
            allocations = [
                PendingAllocation(node, resources, hosts.now,
                                  self._given(node, resources))
                for node, resources in taken]
            snapshot, overlay, earlier = self._published
            for allocation in allocations:
                self._pending.setdefault(
                    allocation.node, []).append(allocation)
                row = snapshot.rows.get(allocation.node)
                if row is not None:
                    overlay.append((
                        row, view_.changes(allocation.resources)))
                    self._noted_at[allocation.node] = earlier + len(overlay)
        return allocations

    def rollback(self, allocations: Iterable[PendingAllocation]) -> None:
        """Count no more what was noted and not confirmed."""
        with self._lock:
            snapshot, overlay, _ = self._published
            for allocation in allocations:
                self._remove(allocation)
                allocation.notify()
                row = snapshot.rows.get(allocation.node)
                if row is not None:
                    overlay.append((row, view_.inverse(
                        view_.changes(allocation.resources))))

    def confirm(self, allocations: Iterable[PendingAllocation]) -> list[str]:
        """Learn that the claim store has what was noted.

        :returns: the providers of which the store told meanwhile, so that
            nobody knows whether that had this in it
        """
        doubtful: list[str] = []
        with self._lock:
            for allocation in allocations:
                allocation.claimed = True
                allocation.notify()
                if allocation.maybe_reported:
                    doubtful.extend(allocation.providers)
        return doubtful

    def watch(self, make_watcher: Callable[[], Callable[[], None]]) -> None:
        """Have it told when all that is noted by now is confirmed or undone.

        :param make_watcher: is called for each of them that is neither, and
            returns what is called then; it may not block, nor may that
        """
        with self._lock:
            for allocations in self._pending.values():
                for allocation in allocations:
                    if not allocation.claimed:
                        allocation.watchers.append(make_watcher())

    def _is_behind(self, columns: view_.MergedColumns) -> bool:
        """Return whether the table changed since the columns followed it."""
        snapshot, overlay, _ = self._published
        return (columns.snapshot is not snapshot or self._changed
                or columns.position < len(overlay))

    def _is_touched(
        self, columns: view_.MergedColumns,
        taken: Iterable[tuple[str, Any]],
    ) -> bool:
        """Return whether others chose nodes since these columns followed it.

        It does not matter what was published since.
        """
        return any(self._noted_at.get(node, 0) > columns.seen
                   for node, _ in taken)

    def _has_capacity(
        self, taken: Iterable[tuple[str, tuple[tuple[str, int], ...]]],
        count_pending: bool,
    ) -> bool:
        wanted: dict[tuple[str, str], int] = {}
        for node, resources in taken:
            for resource, amount in resources:
                key = (node, resource)
                wanted[key] = wanted.get(key, 0) + amount
        return all(self._available(*key, count_pending) >= amount
                   for key, amount in wanted.items())

    def _available(
        self, node: str, resource: str, count_pending: bool
    ) -> float:
        """Return what is left on a host, by all that is known."""
        if columns_.AT in resource:
            uuid = columns_.sharing_provider(resource)
            if uuid is not None:
                return self._others.available(uuid, resource) - sum(
                    allocation.amount(resource, count_pending)
                    for allocations in self._pending.values()
                    for allocation in allocations)
        row = self._rows.get(node)
        column = self._columns.get(columns_.AVAILABLE + resource)
        if row is None or column is None:
            return 0.0
        return float(column[row]) - sum(
            allocation.amount(resource, count_pending)
            for allocation in self._pending.get(node, ()))

    def _given(
        self, node: str, resources: tuple[tuple[str, int], ...]
    ) -> tuple[str, ...]:
        """Return the providers of which something is taken on a host."""
        row = self._rows.get(node)
        if row is None or not any(
                columns_.AT in name for name, _ in resources):
            return node,
        return self._others.given(
            node, self._value('child_uuids', row), resources)

    def _value(self, name: str, row: int) -> Any:
        """Return what a coded column says of a host."""
        return self._encodings[name].values[self._columns[name][row]]

    def _remove(self, allocation: PendingAllocation) -> None:
        left = self._pending.get(allocation.node)
        if left is not None and allocation in left:
            left.remove(allocation)
            if not left:
                del self._pending[allocation.node]

    # What is written.

    @contextlib.contextmanager
    def batch(self) -> Iterator[None]:
        """Publish what is written only when that is asked for, or at last."""
        with self._lock:
            self._current()
            self._batches += 1
        try:
            yield
        finally:
            with self._lock:
                self._batches -= 1
                self.publish()

    def publish(self) -> None:
        """Have what was written read by the decisions that begin now."""
        with self._lock:
            self._fold()
            if not (self._changed
                    or self.cells.version != self._published.snapshot.cells
                    .version):
                return
            before = self._published.snapshot
            columns = dict(before.columns)
            for name in (self._columns if self._rows_changed
                         else self._private):
                shown = columns[name] = self._columns[name][:self._length]
                shown.flags.writeable = False
            lasting = self._rows_changed or self._lasting_changed
            snapshot = Snapshot(
                before.version + 1, self.specs, columns, dict(self._encodings),
                dict(self._rows) if self._rows_changed else before.rows,
                self.cells.copy(), self._others.sharing, self._places,
                self._others.children,
                {} if lasting else before.kept,
                {} if self._rows_changed else {
                    # Decisions add to it meanwhile.
                    name: pair for name, pair in list(before.extrema.items())
                    if name not in self._private})
            overlay = [
                (self._rows[node], view_.changes(allocation.resources))
                for node, allocations in self._pending.items()
                if node in self._rows for allocation in allocations]
            seen = self._published.earlier + len(self._published.overlay)
            self._published = _Published(
                snapshot, overlay, seen - len(overlay))
            self._private = set()
            self._changed = self._rows_changed = False
            self._lasting_changed = False

    def _current(self) -> _Published:
        if not self._batches and (
                self._changed or self.cells.version
                != self._published.snapshot.cells.version):
            self.publish()
        return self._published

    def written(self, name: str) -> Column:
        """Return a column as it was last written, for who writes it."""
        return self._column(name)[:self._length]

    def written_value(self, name: str, row: int) -> Any:
        """Return what a coded column says of a host, as last written."""
        return self._value(name, row)

    def put(self, uuids: Sequence[str], values: Mapping[str, Any]) -> None:
        """Add hosts or change them.

        :param values: by column a list or an array of one value for each
            uuid, or one value for all. Columns that are left out keep what
            they had, or their default in a new row.
        :raises cellsched.exception.ColumnNotFound: no such column
        """
        with self._lock:
            self._fold()
            rows = self._place(uuids)
            self._changed = True
            if 'child_uuids' in values:
                values = {**self._put_children(
                    uuids, rows, _listed(values['child_uuids'])), **values}
            for name, given in values.items():
                self._put(name, rows, given)
            if view_.BUILDS in values:
                self._inflight_builds.forget(uuids)

    def _put_children(
        self, nodes: Sequence[str], rows: Column,
        given: Iterable[tuple[str, ...]],
    ) -> dict[str, Any]:
        """Learn which child providers hosts have.

        Of those that have others than before nothing more is known.

        :returns: columns to be set with them
        """
        units, changes = [], []
        for node, row, uuids in zip(nodes, rows.tolist(), given):
            before = self._value('child_uuids', row)
            if uuids == before:
                units.append(self._value('child_units', row))
                continue
            changes.append((node, before, uuids))
            for name in self._columns:
                if name.startswith(columns_.AVAILABLE) and columns_.AT in name:
                    self._writable(name)[row] = 0
            units.append(((),) * len(uuids))
        if changes:
            self._others.replace(changes)
        return {'child_units': units}

    def _put(self, name: str, rows: Column, given: Any) -> None:
        if name.startswith(columns_.AVAILABLE):
            self._available_column(name.removeprefix(columns_.AVAILABLE))
        encoding = self._encodings.get(name)
        if encoding is not None:
            given = encoding.encode(_listed(given))
        column = self._writable(name)
        before = column[rows] if name in _LASTING else None
        column[rows] = given
        if before is not None and not np.array_equal(before, column[rows]):
            self._lasting_changed = True
        if encoding is not None:
            self._compact(name)

    def _compact(self, name: str) -> None:
        """Forget values of a coded column if too many are no host's."""
        encoding = self._encodings[name]
        if len(encoding.values) > self._length + _SPARE_VALUES:
            self._encodings[name], self._columns[name] = encoding.compacted(
                self._columns[name][:self._length])
            self._lasting_changed = True

    def drop(self, uuids: Iterable[str]) -> None:
        """Remove hosts; those that are not there are no matter."""
        with self._lock:
            gone = {row for row in map(self._rows.get, uuids)
                    if row is not None}
            if not gone:
                return
            self._fold()
            stay = np.ones(self._length, dtype=bool)
            stay[list(gone)] = False
            left = self.written('uuid')[~stay]
            self._others.replace([
                (self._columns['uuid'][row],
                 self._value('child_uuids', row), ()) for row in gone])
            self._inflight_builds.forget(left)
            for uuid in left:
                self._noted_at.pop(uuid, None)
            for name, column in self._columns.items():
                self._columns[name] = column[:self._length][stay]
            self._length = int(stay.sum())
            self._rows = {
                uuid: row for row, uuid in enumerate(self._columns['uuid'])}
            self._changed = self._rows_changed = True
            self._private.update(self._columns)

    def set_usage(
        self, uuid: str, capacity: Mapping[str, int], used: Mapping[str, int],
        consumers: int,
        units: Mapping[str, tuple[int, int, int]] = _UNBOUNDED,
    ) -> None:
        """Set what is taken of a provider, as the claim store says.

        That is a host, or a child provider of one, or a sharing provider.

        :param units: the least, the most and the step of what one server may
            take, by resource class; of others it may take any amount
        """
        with self._lock:
            row = self._rows.get(uuid)
            if row is None:
                self._set_other(uuid, _left(capacity, used), _bounds(units))
                return
            self._fold(told=uuid)
            for allocation in self._pending.get(uuid, ()):
                allocation.maybe_reported = True
            self._changed = True
            self._set_available(row, _left(capacity, used))
            memory_mb = used.get('MEMORY_MB', 0)
            disk_mb = used.get('DISK_GB', 0) * 1024
            for name, value in (
                    ('vcpus_used', used.get('VCPU', 0)),
                    ('free_ram_mb',
                     self._columns['unreserved_ram_mb'][row] - memory_mb),
                    ('free_disk_mb',
                     self._columns['unreserved_disk_mb'][row] - disk_mb),
                    ('disk_mb_used', disk_mb), ('num_instances', consumers)):
                self._writable(name)[row] = value
            self._set_lasting('units', row, _bounds(units))

    def _set_available(
        self, row: int, left: Mapping[str, float], place: str = ''
    ) -> None:
        """Set what is left of a provider of a host.

        :param place: what the names of its resource classes end with
        """
        for name in self._columns:
            if name.startswith(columns_.AVAILABLE) and (
                    name.endswith(place) if place
                    else columns_.AT not in name):
                self._writable(name)[row] = 0
        for resource, room in left.items():
            self._available_column(resource + place)
            self._writable(columns_.AVAILABLE + resource + place)[row] = room

    def _set_other(
        self, uuid: str, left: Mapping[str, float],
        units: Units,
    ) -> None:
        """Set what is taken of a provider that is no host."""
        node, number = self._others.children.get(uuid, ('', 0))
        if not node and uuid not in self._others.sharing:
            return
        self._fold(told=uuid)
        for allocations in (
                [self._pending.get(node, [])] if node
                else self._pending.values()):
            for allocation in allocations:
                allocation.maybe_reported |= uuid in allocation.providers
        self._changed = True
        if not node:
            self._others.set_available(uuid, left, units)
            return
        row = self._rows[node]
        self._set_available(row, left, f'{columns_.AT}{number}')
        said = list(self._value('child_units', row))
        said[number - 1] = units
        self._set_lasting('child_units', row, tuple(said))

    def _set_lasting(self, name: str, row: int, value: Hashable) -> None:
        """Set what a coded column says of a host, which seldom changes."""
        if self._value(name, row) == value:
            return
        self._writable(name)[row] = self._encodings[name].encode([value])[0]
        self._lasting_changed = True
        self._compact(name)

    @property
    def sharing(self) -> Mapping[str, SharingProvider]:
        """The sharing providers by uuid, with what is left of each."""
        return self._current().snapshot.sharing

    def set_sharing(
        self, providers: Mapping[str, SharingProvider]
    ) -> list[str]:
        """Learn which sharing providers there are, by their uuids.

        What is left of those that were known before is kept.

        :returns: those that are new
        """
        with self._lock:
            self._changed = self._lasting_changed = True
            return self._others.set_sharing(providers)

    def expire(self, before: float) -> None:
        """Count no more builds that were begun before then.

        A host reports builds in progress itself; until it does, what was
        taken here is counted in their place.
        """
        with self._lock:
            self._fold(before=before)
            for uuid, count in self._inflight_builds.expire(before):
                self._writable(view_.BUILDS)[
                    self._rows[uuid]] -= count
                self._changed = True

    def _fold(self, told: str = '', before: float = -math.inf) -> None:
        """Put what is claimed into the columns.

        What they may have in them already stays out, so that it can be told
        apart, until the claim store tells of the provider again.

        :param told: the provider that the store tells of now
        :param before: wall clock time; what was chosen earlier does not wait
        """
        for node, allocations in list(self._pending.items()):
            claimed = [each for each in allocations if each.claimed and (
                not each.maybe_reported or told in each.providers
                or each.at < before)]
            row = self._rows.get(node)
            for allocation in claimed:
                self._remove(allocation)
                if row is None:
                    continue
                self._changed = True
                for name, amount in view_.changes(allocation.resources):
                    if columns_.AT in name and self._others.add(name, amount):
                        continue
                    if name.startswith(columns_.AVAILABLE):
                        self._available_column(
                            name.removeprefix(columns_.AVAILABLE))
                    self._writable(name)[row] += amount
                self._inflight_builds.add(node, allocation.at)

    def _place(self, uuids: Sequence[str]) -> Column:
        """Return the rows of these hosts; new ones get a row of defaults."""
        new = [uuid for uuid in dict.fromkeys(uuids)
               if uuid not in self._rows]
        if new:
            end = self._length + len(new)
            for name, column in self._columns.items():
                self._columns[name] = self._grown(name, column, end)
            self._columns['uuid'][self._length:end] = new
            self._rows.update(zip(new, range(self._length, end)))
            self._length = end
            self._rows_changed = True
        return np.fromiter((self._rows[uuid] for uuid in uuids), 'int64')

    def _grown(
        self, name: str, column: Column, end: int
    ) -> Column:
        """Return a column with more rows; nobody reads those yet."""
        if len(column) < end:
            bigger = np.empty(max(end, len(column) * 2), dtype=column.dtype)
            bigger[:self._length] = column[:self._length]
            column = bigger
            self._private.add(name)
        spec = self.specs.get(name)
        column[self._length:end] = (
            spec.default if spec and name not in self._encodings else 0)
        return column

    def _writable(self, name: str) -> Column:
        """Return the array of a column that nobody reads."""
        column = self._column(name)
        if name not in self._private:
            column = self._columns[name] = column.copy()
            self._private.add(name)
        return column

    def _column(self, name: str) -> Column:
        """Return the array of a column, which may have rows to spare."""
        column = self._columns.get(name)
        if column is None:
            raise exception.ColumnNotFound(column=name, near=columns_.near(
                str(name), (*self._columns, *FACTS)))
        return column

    def _available_column(self, resource: str) -> None:
        """Make sure that there is a column for a resource class."""
        name = columns_.AVAILABLE + resource
        if name not in self._columns:
            self._columns[name] = np.zeros(len(self._columns['uuid']))
            self._private.add(name)
            resource, _, number = resource.partition(columns_.AT)
            if number:
                self._places = {**self._places, resource: (
                    *self._places.get(resource, ()), int(number))}


def _left(
    capacity: Mapping[str, int], used: Mapping[str, int]
) -> dict[str, float]:
    """Return what is left to claim, by resource class."""
    return {resource: capacity.get(resource, 0) - used.get(resource, 0)
            for resource in capacity.keys() | used.keys()}


def _bounds(
    units: Mapping[str, tuple[int, int, int]]
) -> Units:
    """Return bounds as the columns of units have them."""
    return tuple((name, *units[name]) for name in sorted(units))


def _listed(given: Any) -> Iterable[Any]:
    return given if isinstance(given, (list, np.ndarray)) else [given]


class InflightBuilds:
    """Remembers when builds were begun, by compute node."""

    def __init__(self) -> None:
        self._times: dict[str, collections.deque[float]] = {}
        # What counts no more is still in here until its time has come.
        self._begun: collections.deque[tuple[float, str]] = (
            collections.deque())

    def add(self, uuid: str, now: float) -> None:
        """Count a build on a host."""
        self._times.setdefault(uuid, collections.deque()).append(now)
        self._begun.append((now, uuid))

    def forget(self, uuids: Iterable[str]) -> None:
        """Forget the builds of hosts that reported, or that are gone."""
        for uuid in uuids:
            self._times.pop(uuid, None)

    def expire(self, before: float) -> Iterator[tuple[str, int]]:
        """Yield hosts, and how many builds are to be counted no more."""
        while self._begun and self._begun[0][0] < before:
            time, uuid = self._begun.popleft()
            times = self._times.get(uuid)
            if times and times[0] == time:
                times.popleft()
                yield uuid, 1
