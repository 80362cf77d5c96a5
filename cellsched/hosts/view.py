# SPDX-License-Identifier: Apache-2.0
"""The hosts for one request, as filters and weighers read them."""

from __future__ import annotations

import collections
from collections.abc import Callable
from collections.abc import Hashable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import functools
from typing import Any
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from cellsched.hardware import units
from cellsched.hosts import cell_health
from cellsched.hosts.columns import AT
from cellsched.hosts.columns import AVAILABLE
from cellsched.hosts.columns import sharing_provider
from cellsched.hosts.columns import WHOLE
from cellsched.hosts.providers import SharingProvider
from cellsched.hosts import snapshot as host_snapshot
from cellsched.hosts.snapshot import Changes

#: The columns with Nova's names that a resource class changes: (column,
#: factor). Memory is in MB, disk in GB.
_TAKES = {
    'VCPU': (('vcpus_used', 1),),
    'MEMORY_MB': (('free_ram_mb', -1),),
    'DISK_GB': (('free_disk_mb', -1024), ('disk_mb_used', 1024)),
}

#: The column that counts the builds in progress on a host.
BUILDS = 'num_io_ops'


class MergedColumns:
    """The snapshot and overlay merged into columns, for one decision.

    A column that the overlay changes is a copy; the rest are the snapshot's
    own arrays. An update costs the new overlay entries, and the rows that
    changed up to a new snapshot; only a snapshot with other rows is copied
    again.
    """

    def __init__(self, snapshot: host_snapshot.Snapshot) -> None:
        #: Whether another object has the changes; see :meth:`detach`.
        self.is_detached = False
        self._begin(snapshot)

    def _begin(self, snapshot: host_snapshot.Snapshot) -> None:
        self.snapshot = snapshot
        #: The number of overlay entries applied.
        self.position = 0
        #: The number of take and give-back operations.
        self.revision = 0
        #: Cache of results, cleared when any column changes.
        self.current: dict[Any, Any] = {}
        #: The rows that changed, for results that are kept and repaired.
        self.log = host_snapshot.ChangeLog()
        #: The same without those in which only the usage changed.
        self.reports = host_snapshot.ChangeLog()
        #: These results, by kind; their users manage them.
        self.kept: dict[str, Any] = {}
        #: Figures for each row that follow the changes; a decision that goes
        #: on without these columns does not need them.
        self.tables: dict[type[Any], Any] = {}
        #: The decision's allocations: rows and resources.
        self.taken: list[tuple[int, Mapping[str, int]]] = []
        #: The pending allocations that this decision ignores, or None.
        self.discounted: Sequence[tuple[int, Changes]] | None = None
        #: The position of these allocations in the overlay, once they are
        #: reserved.
        self.reserved_at: int | None = None
        self._copies: dict[str, host_snapshot.Column] = {}
        self._shared: dict[str, float] = {}
        #: All columns, read-only.
        self._shown = dict(snapshot.columns)
        #: The minima and the maxima of the copies, as far as they are known.
        self._least: dict[str, float] = {}
        self._most: dict[str, float] = {}
        self._length = len(snapshot)

    def __len__(self) -> int:
        return self._length

    def __contains__(self, name: str) -> bool:
        return name in self._shown

    def __getitem__(self, name: str) -> host_snapshot.Column:
        """Return a column by name, as a read-only array.

        :raises cellsched.exception.ColumnNotFound: a ``KeyError`` that names
            the nearest column
        """
        column = self._shown.get(name)
        if column is None:
            raise self.snapshot.missing(name)
        return column

    def values_at(self, row: int, names: Iterable[str]) -> list[Any]:
        """Return the values of columns in a row, with codes decoded."""
        encodings, found = self.snapshot.encodings, []
        for name in names:
            given, encoding = self[name][row], encodings.get(name)
            found.append(given if encoding is None else encoding.values[given])
        return found

    def amounts(self, row: int, classes: tuple[str, ...]) -> list[float]:
        """Return the available amounts of classes in a row; 0 without one."""
        shown = self._shown
        return [0.0 if (column := shown.get(name)) is None
                else column.item(row) for name in _available(classes)]

    @property
    def names(self) -> list[str]:
        """The names of all columns."""
        return list(self._shown)

    def least(self, name: str) -> float:
        """Return the minimum of a column."""
        if name not in self._copies:
            return self._extrema(name)[0]
        if name not in self._least:
            self._least[name] = host_snapshot.least_of(self[name])
        return self._least[name]

    def most(self, name: str) -> float:
        """Return the maximum of a column."""
        if name not in self._copies:
            return self._extrema(name)[1]
        if name not in self._most:
            self._most[name] = host_snapshot.most_of(self[name])
        return self._most[name]

    def _extrema(self, name: str) -> host_snapshot.Pair:
        """Return the extrema of a column of the snapshot."""
        known = self.snapshot.extrema
        if name not in known:
            known[name] = (host_snapshot.least_of(self[name]),
                           host_snapshot.most_of(self[name]))
        return known[name]

    def follow(self, snapshot: host_snapshot.Snapshot) -> None:
        """Update to this snapshot and its overlay."""
        if snapshot is not self.snapshot:
            rows = snapshot.changed_since(self.snapshot)
            if rows is None:
                self._begin(snapshot)
            else:
                self._advance(snapshot, rows)
        overlay = snapshot.overlay
        end = len(overlay)
        if self.position < end:
            for row, changed in overlay[self.position:end]:
                self._add(row, changed)
            self.position = end

    def _advance(
        self, snapshot: host_snapshot.Snapshot, rows: host_snapshot.Column
    ) -> None:
        """Update to a snapshot that differs in these rows.

        The rows that the earlier overlay changed differ, too.
        """
        self.reports.add(rows)
        taken = [row for row, _ in self.snapshot.overlay[:self.position]]
        rows = np.union1d(rows, np.array(taken, dtype='int64'))
        copies = {name: self._shown[name] for name in self._copies}
        for name, changed in self._copies.items():
            column = snapshot.columns.get(name)
            changed[rows] = 0 if column is None else column[rows]
        self._shown = {**snapshot.columns, **copies}
        self.snapshot, self.position = snapshot, 0
        self._shared.clear()
        self._note(rows)
        for table in self.tables.values():
            table.forget(rows)
        self._least.clear()
        self._most.clear()

    def _note(self, rows: host_snapshot.Column | tuple[int]) -> None:
        """Note that rows changed."""
        self.revision += 1
        self.current.clear()
        self.log.add(rows)

    def take(self, row: int, resources: Mapping[str, int]) -> None:
        """Subtract an instance from a host, for this decision only."""
        self.taken.append((row, resources))
        self._add(row, changes(tuple(resources.items())))

    def discount(self, chosen: Sequence[tuple[int, Changes]]) -> None:
        """Ignore some pending allocations, for this decision only.

        :param chosen: their rows and column changes
        """
        for row, changed in chosen:
            self._add(row, changed, -1)
        self.discounted = chosen

    def free(self, row: int, resources: Mapping[str, int]) -> None:
        """Treat claimed resources as free, for this decision only."""
        self._add(row, _resource_changes(tuple(resources.items())), -1)

    def give_back(self) -> None:
        """Undo all changes that this decision made to the columns."""
        for row, resources in self.taken:
            self._add(row, changes(tuple(resources.items())), -1)
        for row, changed in self.discounted or ():
            self._add(row, changed)
        self.taken, self.discounted, self.reserved_at = [], None, None

    def end(self) -> None:
        """End the decision; what it has reserved is in the overlay."""
        if self.reserved_at == self.position:
            # The next entries are applied already.
            self.position += len(self.taken)
            self.taken = []
        self.give_back()

    def detach(self) -> 'MergedColumns | None':
        """Return the columns for later decisions; these show the snapshot.

        This decision can go on without what it took, and without the overlay.

        :returns: None, with nothing changed, if results are kept with the
            columns: two decisions cannot use these at the same time
        """
        if self.kept:
            return None
        self.end()
        # A copy would take longer than the rest.
        other = MergedColumns(self.snapshot)
        other.__dict__, self.__dict__ = self.__dict__, other.__dict__
        self.is_detached, self.revision = True, other.revision + 1
        return other

    def _add(self, row: int, changed: Changes, times: int = 1) -> None:
        self._note((row,))
        for table in self.tables.values():
            table.add(row, changed, times)
        for name, amount in changed:
            column = self._copies.get(name)
            if column is None:
                if AT in name and sharing_provider(name):
                    self._shared[name] = (
                        self._shared.get(name, 0) + times * amount)
                    continue
                column = self._copy(name)
            column[row] += times * amount
            # A lower value is the minimum, or does not change it.
            least = self._least.get(name)
            if least is not None:
                if times * amount < 0:
                    self._least[name] = min(least, float(column[row]))
                else:
                    del self._least[name]
            self._most.pop(name, None)

    def shared_available(self, uuid: str, resource: str) -> float:
        """Return the available amounts of a sharing provider."""
        provider = self.snapshot.sharing.get(uuid)
        if provider is None:
            return 0.0
        return provider.available.get(resource, 0) + self._shared.get(
            f'{AVAILABLE}{resource}{AT}{uuid}', 0)

    def _copy(self, name: str) -> host_snapshot.Column:
        column = self.snapshot.columns.get(name)
        copied = np.zeros(len(self)) if column is None else column.copy()
        self._copies[name] = copied
        shown = self._shown[name] = copied[:]
        shown.flags.writeable = False
        return copied


# The classes are those of the parts of hosts, of which there are few kinds.
@functools.lru_cache(1024)
def _available(classes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns of available amounts."""
    return tuple(map(AVAILABLE.__add__, classes))


# The cache is small, because flavors are few.
@functools.lru_cache(1024)
def changes(resources: tuple[tuple[str, int], ...]) -> Changes:
    """Return the column changes of an instance on its host."""
    return (*_resource_changes(resources), ('num_instances', 1), (BUILDS, 1))


def _resource_changes(resources: tuple[tuple[str, int], ...]) -> Changes:
    """Return the column changes of a claim on its host."""
    devices = units.devices_in(dict(resources))
    return (*((AVAILABLE + resource, -amount)
              for resource, amount in resources),
            *([('free_pci_devices', -devices)] if devices else ()),
            *((name, factor * amount) for resource, amount in resources
              for name, factor in _TAKES.get(resource, ())))


def inverse(changed: Iterable[tuple[str, int]]) -> Changes:
    """Return the changes that undo these changes."""
    return tuple((name, -amount) for name, amount in changed)


Column = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]

_Made = TypeVar('_Made')

#: The size limit of the cache of unchanged columns; it is cleared beyond.
_KEPT_MAX = 64

#: The same for stable columns.
_MEMO_MAX = 256


class Hosts:
    """Hosts in rows, facts in columns.

    ``hosts['free_ram_mb']`` is a column: an array with one value for each
    host. Arrays are read-only.

    The hosts are all hosts of a table, or the subset that passed so far. They
    do not change during the request, except for its own allocations.

    :param now: time of the request, in seconds since the epoch, by the table's
        monotonic wall clock
    :param located: compute node uuids by instance uuid
    :param rows: ascending rows of the table; None for all rows
    """

    def __init__(
        self, columns: MergedColumns, now: float,
        located: dict[str, str], rows: Column | None = None,
    ) -> None:
        #: The columns that the hosts are read from, for the pipeline.
        self.columns = columns
        self.now = now
        self._located = located
        self._rows = rows
        self._gathered: dict[str, Column] = {}
        self._gathered_at = columns.revision
        self._length = len(columns if rows is None else rows)

    def __len__(self) -> int:
        return self._length

    def __contains__(self, name: str) -> bool:
        return name in self.columns or name in host_snapshot.FACTS

    def __getitem__(self, name: str) -> Column:
        """Return a column by name.

        :raises cellsched.exception.ColumnNotFound: a ``KeyError`` that names
            the nearest column
        """
        if name in host_snapshot.FACTS:
            return self._fact(name)
        if self._rows is None:
            return self.columns[name]
        if self._gathered_at != self.columns.revision:
            self._gathered.clear()
            self._gathered_at = self.columns.revision
        column = self._gathered.get(name)
        if column is None:
            column = self.columns[name]
            # take() copies a column with a stride of 0.
            column = self._gathered[name] = (
                column.take(self._rows) if column.flags.c_contiguous
                else column[self._rows])
        return column

    @property
    def names(self) -> list[str]:
        """The names of all columns."""
        return [*self.columns.names, *host_snapshot.FACTS]

    def kind(self, name: str) -> str:
        """Return the type of a column; see :class:`~.columns.Column`."""
        spec = (host_snapshot.FACTS.get(name)
                or self.columns.snapshot.specs.get(name))
        return spec.dtype if spec else WHOLE

    @property
    def rows(self) -> Column:
        """The rows of these hosts in the table."""
        return np.arange(len(self)) if self._rows is None else self._rows

    def table_rows(self, places: Any) -> Any:
        """Return the table's rows for indices of these hosts."""
        return places if self._rows is None else self._rows[places]

    def place(self, row: int) -> int | None:
        """Return the index of a table row among these hosts, or None."""
        if self._rows is None:
            return row
        place = int(np.searchsorted(self._rows, row))
        present = place < len(self._rows) and self._rows[place] == row
        return place if present else None

    def places(self, rows: Column) -> Column:
        """Return the indices of ascending table rows among these hosts.

        Rows that are not among these hosts are skipped.
        """
        if self._rows is None:
            return rows
        return np.flatnonzero(np.isin(self._rows, rows, assume_unique=True))

    def at(self, rows: Column) -> Hosts:
        """Return the hosts at these ascending rows of the table."""
        return Hosts(self.columns, self.now, self._located, rows)

    @property
    def is_whole(self) -> bool:
        """Return whether these are all hosts of the table."""
        return self._rows is None

    @property
    def whole(self) -> Hosts:
        """All hosts of the table."""
        if self.is_whole:
            return self
        return Hosts(self.columns, self.now, self._located)

    def available(self, resource: str) -> Column:
        """Return the available amount of a resource class on each host."""
        name = AVAILABLE + resource
        if name in self.columns:
            return self[name]
        return np.zeros(len(self))

    def least_available(self, resource: str) -> float:
        """Return the least amount of a resource class on any host."""
        name = AVAILABLE + resource
        return self.least(name) if name in self.columns else 0.0

    def least(self, name: str) -> float:
        """Return the minimum of a column; infinity without hosts.

        For all hosts of a table the result is cached until the column changes.
        """
        return (self.columns.least(name) if self._is_in_columns(name)
                else host_snapshot.least_of(self[name]))

    def most(self, name: str) -> float:
        """Return the maximum of a column; minus infinity without hosts."""
        return (self.columns.most(name) if self._is_in_columns(name)
                else host_snapshot.most_of(self[name]))

    def _is_in_columns(self, name: str) -> bool:
        return self._rows is None and name not in host_snapshot.FACTS

    @property
    def most_children(self) -> int:
        """Return the greatest number of child providers of any host."""
        return self.memo('most children', lambda hosts: int(hosts.each(
            'children', len, 'int64').max(initial=0)))

    def given_by_others(self, names: Iterable[str]) -> frozenset[str]:
        """Return the classes that providers other than hosts may have."""
        snapshot = self.columns.snapshot
        return frozenset([
            name for name in names if name in snapshot.places
            or snapshot.sharing and any(
                name in each.available for each in snapshot.sharing.values())])

    def row_of_provider(self, uuid: str) -> int | None:
        """Return the table row of a provider: a host or its child."""
        snapshot = self.columns.snapshot
        row = snapshot.rows.get(uuid)
        if row is None and uuid in snapshot.children:
            row = snapshot.rows.get(snapshot.children[uuid][0])
        return row

    @property
    def sharing(self) -> Mapping[str, SharingProvider]:
        """Return the sharing providers, by uuid.

        Use :meth:`shared_available` for the current available amount.
        """
        return self.columns.snapshot.sharing

    def shared_available(self, uuid: str, resource: str) -> float:
        """Return the available amount of a class on a sharing provider."""
        return self.columns.shared_available(uuid, resource)

    def children_with(self, resource: str) -> tuple[int, ...]:
        """Return the numbers of child providers that may have a class.

        The resource name for each number is ``CLASS@number``.
        """
        return self.columns.snapshot.places.get(resource, ())

    # Coded columns.

    def code(self, name: str, value: Any) -> int:
        """Return the code of a value in a coded column; -1 if it has none."""
        return self.columns.snapshot.encoding(name).code(value)

    def value(self, name: str, code: int) -> Any:
        """Return the value of a code in a coded column."""
        return self.columns.snapshot.encoding(name).values[code]

    def values_at(self, row: int, *names: str) -> list[Any]:
        """Return one host's column values, with codes decoded.

        :param row: index of the host among these hosts
        """
        return self.columns.values_at(self.table_rows(row), names)

    def each(
        self, name: str, function: Callable[[Any], Any], dtype: str = 'bool'
    ) -> Column:
        """Return a function's result for each host's value of a coded column.

        The function is called once for each distinct value, possibly also for
        values that no host has any more.
        """
        encoding = self.columns.snapshot.encoding(name)
        return encoding.spread(self[name], function, dtype)

    def number(
        self, key: str, default: float, least: float | None = None
    ) -> float | Column:
        """Return the least number of each host's aggregates for a key.

        :param default: the number of a host without one
        :param least: a lower number is ignored
        :returns: one number if no aggregate has the key, else one for each
            host
        """
        encoding = self.columns.snapshot.encodings['aggregates']
        # Without aggregates the default applies to all hosts.
        numbers = encoding.numbers(key) if len(encoding.values) > 1 else None
        if numbers is None:
            return default
        bad = np.isnan(numbers)
        if least is not None:
            bad |= numbers < least
        return np.where(bad, default, numbers).take(self['aggregates'])

    def memo(self, key: Any, make: Callable[[Hosts], _Made]) -> _Made:
        """Return a cached result for all hosts, until a stable column changes.

        The stable columns are the hosts' names, addresses, cells, aggregates,
        physical resources, capabilities and disabled state. The function must
        read no other column.
        """
        cache = self.columns.snapshot.kept
        try:
            result: _Made = cache[key]
        except KeyError:
            # Requests name the keys of some results.
            if len(cache) >= _MEMO_MAX:
                cache.clear()
            result = cache[key] = make(self.whole)
        return result

    def memo_until_change(
        self, key: Hashable, make: Callable[[], _Made]
    ) -> _Made:
        """Return a cached result, until any column changes.

        For the pipeline. The result may depend on the key and on the table's
        columns, but not on the time or on facts of cells. It is cached for all
        hosts of a table, and computed each time for a subset.
        """
        if self._rows is not None:
            return make()
        cache = self.columns.current
        if key not in cache:
            if len(cache) >= _KEPT_MAX:
                cache.clear()
            cache[key] = make()
        result: _Made = cache[key]
        return result

    def all_heard_within(self, seconds: float) -> bool:
        """Return whether every cell answered within this time."""
        return self.columns.snapshot.cells.oldest >= self.now - seconds

    @property
    def any_cell_disabled(self) -> bool:
        """Return whether any cell takes no new servers."""
        return bool(self.columns.snapshot.cells.disabled)

    @property
    def any_cell_fails(self) -> bool:
        """Return whether any cell has a failure count above the threshold."""
        return self.columns.snapshot.cells.any_fails(self.now)

    # Locations of instances.

    def row(self, uuid: str) -> int | None:
        """Return the table row of a compute node, or None."""
        return self.columns.snapshot.rows.get(uuid)

    def rows_of(self, instances: Iterable[str]) -> Column:
        """Return the indices of the hosts that have these instances.

        Only the instances that a filter's or a weigher's ``located`` named are
        known; unknown ones are skipped.
        """
        return self.tally(instances)[0]

    def counts_of(self, instances: Iterable[str]) -> Column:
        """Return the number of these instances on each host."""
        counts = np.zeros(len(self))
        places, found = self.tally(instances)
        counts[places] = found
        return counts

    def tally(self, instances: Iterable[str]) -> tuple[Column, Column]:
        """Return :meth:`rows_of`, with the number of instances on each.

        For few instances and many hosts this is faster than :meth:`counts_of`.
        """
        found = collections.Counter(
            row for uuid in instances
            if (node := self._located.get(uuid)) is not None
            and (row := self.columns.snapshot.rows.get(node)) is not None)
        rows = np.array(sorted(found), dtype='int64')
        counts = np.array([found[row] for row in rows.tolist()], dtype='int64')
        if self._rows is None:
            return rows, counts
        places = np.searchsorted(self._rows, rows)
        present = np.isin(rows, self._rows, assume_unique=True)
        return places[present], counts[present]

    def placed(self, instances: Iterable[str]) -> list[str]:
        """Return the instances that are on any host, known or unknown."""
        return [uuid for uuid in instances if uuid in self._located]

    def instances_on(self, uuid: str) -> list[str]:
        """Return the known instances on a compute node."""
        return [instance for instance, node in self._located.items()
                if node == uuid]

    def named(self, host: str) -> list[int]:
        """Return the table rows of a host's nodes.

        The case is ignored, unless a host has exactly this name.
        """
        rows = self.memo('rows by host', _by_host).get(host.lower(), [])
        names = self.columns['host']
        return [row for row in rows if names[row] == host] or rows

    # Allocations of the request.

    def take(
        self, row: int, resources: Mapping[str, int],
        instance: str | None = None,
    ) -> None:
        """Take the resources of an instance from the host in a table row.

        Only this request counts them, until the table reserves them.
        """
        self.columns.take(row, resources)
        if instance is not None:
            self._located[instance] = self.columns['uuid'][row]

    def free(self, row: int, resources: Mapping[str, int]) -> None:
        """Treat claimed resources of the host in a table row as free.

        This shows the hosts as they were before a claim, for this request
        only. The view cannot be reused by another request.

        :param resources: amounts by resource class
        """
        self.columns.free(row, resources)

    def _fact(self, name: str) -> Column:
        snapshot = self.columns.snapshot
        known, encoding = snapshot.cells, snapshot.encoding('cell')
        if name == 'cell_silent_s':
            return encoding.spread(
                self['cell'], lambda uuid: known.silent_s(uuid, self.now),
                'float64')
        if name == 'cell_failures':
            return encoding.spread(
                self['cell'], lambda uuid: known.failures(uuid, self.now),
                'float64')
        if name == 'cell_disabled':
            return encoding.spread(
                self['cell'], lambda uuid: uuid in known.disabled, 'bool')
        count, whole = len(encoding.values), self.columns
        facts_: Column
        if name == 'cell_builds':
            facts_ = np.bincount(whole['cell'], whole['num_io_ops'], count)
        else:
            facts_ = cell_health.free_shares(whole, count)
        return facts_.take(self['cell'])


def _by_host(hosts: Hosts) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = {}
    for row, host in enumerate(hosts['host']):
        rows.setdefault(host.lower(), []).append(row)
    return rows
