# SPDX-License-Identifier: Apache-2.0
"""Hosts as one request sees them, which is what filters and weighers read."""

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

from cellsched.hosts import cell_health
from cellsched.hosts.columns import AT
from cellsched.hosts.columns import AVAILABLE
from cellsched.hosts.columns import sharing_provider
from cellsched.hosts.columns import WHOLE
from cellsched.hosts.providers import SharingProvider
from cellsched.hosts import snapshot as snapshot_

#: By how much columns of one host change: (column, amount).
Changes = tuple[tuple[str, int], ...]

#: What a resource class takes from columns with Nova's names:
#: (column, the amount's factor). Memory is in MB, disk in GB.
_TAKES = {
    'VCPU': (('vcpus_used', 1),),
    'MEMORY_MB': (('free_ram_mb', -1),),
    'DISK_GB': (('free_disk_mb', -1024), ('disk_mb_used', 1024)),
}

#: What counts the builds that a host works on.
BUILDS = 'num_io_ops'


class MergedColumns:
    """The columns that one decision at a time reads.

    A column that the overlay changes is a copy of the snapshot's; the others
    are the snapshot's own. To follow the table costs what changed there since
    it was done last, and all copies anew after another snapshot.
    """

    def __init__(self, snapshot: snapshot_.Snapshot) -> None:
        self._begin(snapshot)

    def _begin(self, snapshot: snapshot_.Snapshot) -> None:
        self.snapshot = snapshot
        #: How much of the overlay is in the columns.
        self.position = 0
        #: How many changes were in overlays, up to those in the columns.
        self.seen = 0
        #: How often something was taken or given back.
        self.revision = 0
        #: What was made of the columns, until any of them changes.
        self.current: dict[Any, Any] = {}
        #: What the decision took: rows and resources.
        self.taken: list[tuple[int, Mapping[str, int]]] = []
        #: What others chose and this decision does not count, if so.
        self.discounted: Sequence[tuple[int, Changes]] | None = None
        self._copies: dict[str, snapshot_.Column] = {}
        self._shared: dict[str, float] = {}
        self._shown: dict[str, snapshot_.Column] = {}
        self._extrema: dict[str, snapshot_.Pair] = {}
        self._length = len(snapshot)

    def __len__(self) -> int:
        return self._length

    def __contains__(self, name: str) -> bool:
        return name in self.snapshot.columns or name in self._copies

    def __getitem__(self, name: str) -> snapshot_.Column:
        """Return a column by name, which cannot be written.

        :raises cellsched.exception.ColumnNotFound: a ``KeyError`` that names
            the nearest
        """
        column = self._shown.get(name)
        if column is None:
            column = self.snapshot.columns.get(name)
            if column is None:
                raise self.snapshot.missing(name)
        return column

    @property
    def names(self) -> list[str]:
        """The names of all columns."""
        return list({**self.snapshot.columns, **self._copies})

    def extrema(self, name: str) -> snapshot_.Pair:
        """Return the least and the greatest number of a column."""
        known = (self._extrema if name in self._copies
                 else self.snapshot.extrema)
        found = known.get(name)
        if found is None:
            found = known[name] = snapshot_.extrema_of(self[name])
        return found

    def follow(
        self, snapshot: snapshot_.Snapshot,
        overlay: Sequence[tuple[int, Changes]], earlier: int,
    ) -> None:
        """Read this snapshot, and what was chosen on it since.

        :param overlay: rows of the snapshot and how they change, to which
            more are added and none is taken away
        :param earlier: how many changes were in overlays before those
        """
        if snapshot is not self.snapshot:
            self._begin(snapshot)
        end = len(overlay)
        if self.position < end:
            for row, changed in overlay[self.position:end]:
                self._add(row, changed)
            self.position = end
        self.seen = earlier + end

    def take(self, row: int, resources: Mapping[str, int]) -> None:
        """Count one more instance on a host, for this decision only."""
        self.taken.append((row, resources))
        self._add(row, changes(tuple(resources.items())))

    def discount(self, chosen: Sequence[tuple[int, Changes]]) -> None:
        """Do not count some of what others chose, for this decision only.

        :param chosen: the rows, and how they change
        """
        for row, changed in chosen:
            self._add(row, changed, -1)
        self.discounted = chosen

    def free(self, row: int, resources: Mapping[str, int]) -> None:
        """Count what is claimed on a host as free, for this decision only."""
        self._add(row, _resource_changes(tuple(resources.items())), -1)

    def give_back(self) -> None:
        """Take back all that the decision took; count what it did not."""
        for row, resources in self.taken:
            self._add(row, changes(tuple(resources.items())), -1)
        for row, changed in self.discounted or ():
            self._add(row, changed)
        self.taken, self.discounted = [], None

    def _add(self, row: int, changed: Changes, times: int = 1) -> None:
        self.revision += 1
        self.current.clear()
        for name, amount in changed:
            column = self._copies.get(name)
            if column is None:
                if AT in name and sharing_provider(name):
                    self._shared[name] = (
                        self._shared.get(name, 0) + times * amount)
                    continue
                column = self._copy(name)
            column[row] += times * amount
            self._extrema.pop(name, None)

    def shared_available(self, uuid: str, resource: str) -> float:
        """Return what is left of a sharing provider."""
        provider = self.snapshot.sharing.get(uuid)
        if provider is None:
            return 0.0
        return provider.available.get(resource, 0) + self._shared.get(
            f'{AVAILABLE}{resource}{AT}{uuid}', 0)

    def _copy(self, name: str) -> snapshot_.Column:
        column = self.snapshot.columns.get(name)
        copy = np.zeros(len(self)) if column is None else column.copy()
        self._copies[name] = copy
        shown = self._shown[name] = copy[:]
        shown.flags.writeable = False
        return copy


# Flavors are few.
@functools.lru_cache(1024)
def changes(resources: tuple[tuple[str, int], ...]) -> Changes:
    """Return what an instance changes in the columns of its host."""
    return (*_resource_changes(resources), ('num_instances', 1), (BUILDS, 1))


def _resource_changes(resources: tuple[tuple[str, int], ...]) -> Changes:
    """Return what a claim changes in the columns of its host."""
    return (*((AVAILABLE + resource, -amount)
              for resource, amount in resources),
            *((name, factor * amount) for resource, amount in resources
              for name, factor in _TAKES.get(resource, ())))


def inverse(changed: Iterable[tuple[str, int]]) -> Changes:
    """Return what undoes changes."""
    return tuple((name, -amount) for name, amount in changed)


Column = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]

_Made = TypeVar('_Made')

#: What is kept of columns that do not change; then it is begun anew.
_KEPT_MAX = 64


class Hosts:
    """Hosts in rows, facts in columns.

    ``hosts['free_ram_mb']`` is a column, an array with one value for each
    host. Arrays are only read, never written.

    All hosts of a table, or those of them that are still in. They stay as
    they were when the request began, but for what it takes itself.

    :param now: time of the request, in seconds since the epoch; by the clock
        that the table goes by, which never steps
    :param located: compute node uuids by instance uuid
    :param rows: ascending rows of the table; all of them where it is None
    """

    def __init__(
        self, columns: MergedColumns, now: float,
        located: dict[str, str], rows: Column | None = None,
    ) -> None:
        #: What the hosts are read from, for the pipeline.
        self.columns = columns
        self.now = now
        self._located = located
        self._rows = rows
        self._gathered: dict[str, Column] = {}
        self._gathered_at = columns.revision

    def __len__(self) -> int:
        return len(self.columns) if self._rows is None else len(self._rows)

    def __contains__(self, name: str) -> bool:
        return name in self.columns or name in snapshot_.FACTS

    def __getitem__(self, name: str) -> Column:
        """Return a column by name.

        :raises cellsched.exception.ColumnNotFound: a ``KeyError`` that names
            the nearest
        """
        if name in snapshot_.FACTS:
            return self._fact(name)
        if self._rows is None:
            return self.columns[name]
        if self._gathered_at != self.columns.revision:
            self._gathered.clear()
            self._gathered_at = self.columns.revision
        column = self._gathered.get(name)
        if column is None:
            column = self._gathered[name] = self.columns[name].take(self._rows)
        return column

    @property
    def names(self) -> list[str]:
        """The names of all columns."""
        return [*self.columns.names, *snapshot_.FACTS]

    def kind(self, name: str) -> str:
        """Return what a column holds; see :class:`~.columns.Column`."""
        spec = (snapshot_.FACTS.get(name)
                or self.columns.snapshot.specs.get(name))
        return spec.dtype if spec else WHOLE

    @property
    def rows(self) -> Column:
        """The rows of the table that these hosts are in."""
        return np.arange(len(self)) if self._rows is None else self._rows

    def table_rows(self, places: Any) -> Any:
        """Return the rows of the table of places among these hosts."""
        return places if self._rows is None else self._rows[places]

    def place(self, row: int) -> int | None:
        """Return where a row of the table is among these hosts, or None."""
        if self._rows is None:
            return row
        place = int(np.searchsorted(self._rows, row))
        there = place < len(self._rows) and self._rows[place] == row
        return place if there else None

    def places(self, rows: Column) -> Column:
        """Return where rows of the table, ascending, are among these hosts.

        Those that are not are left out.
        """
        if self._rows is None:
            return rows
        return np.flatnonzero(np.isin(self._rows, rows, assume_unique=True))

    def at(self, rows: Column) -> Hosts:
        """Return the hosts at these rows of the table, ascending."""
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
        """Return how much of a resource class each host has left to claim."""
        name = AVAILABLE + resource
        if name in self.columns:
            return self[name]
        return np.zeros(len(self))

    def least_available(self, resource: str) -> float:
        """Return how much the host has left that has least."""
        name = AVAILABLE + resource
        return self.least(name) if name in self.columns else 0.0

    def least(self, name: str) -> float:
        """Return the least number of a column; infinity without hosts.

        Of all hosts of a table, that is known while nothing changes.
        """
        return self._extrema(name)[0]

    def most(self, name: str) -> float:
        """Return the greatest, which is minus infinity without hosts."""
        return self._extrema(name)[1]

    def _extrema(self, name: str) -> snapshot_.Pair:
        if self._rows is None and name not in snapshot_.FACTS:
            return self.columns.extrema(name)
        return snapshot_.extrema_of(self[name])

    @property
    def most_children(self) -> int:
        """Return how many child providers the host has that has most."""
        return self.memo('most children', lambda hosts: int(hosts.each(
            'children', len, 'int64').max(initial=0)))

    def given_by_others(self, names: Iterable[str]) -> frozenset[str]:
        """Return those resource classes that not only hosts may give."""
        snapshot = self.columns.snapshot
        return frozenset([
            name for name in names if name in snapshot.places
            or snapshot.sharing and any(
                name in each.available for each in snapshot.sharing.values())])

    def row_of_provider(self, uuid: str) -> int | None:
        """Return the row in the table of a host or of its child provider."""
        snapshot = self.columns.snapshot
        row = snapshot.rows.get(uuid)
        if row is None and uuid in snapshot.children:
            row = snapshot.rows.get(snapshot.children[uuid][0])
        return row

    @property
    def sharing(self) -> Mapping[str, SharingProvider]:
        """Return the sharing providers, by uuid.

        What is left of one as it is now says :meth:`shared_available`.
        """
        return self.columns.snapshot.sharing

    def shared_available(self, uuid: str, resource: str) -> float:
        """Return how much of a resource class a sharing provider has left."""
        return self.columns.shared_available(uuid, resource)

    def children_with(self, resource: str) -> tuple[int, ...]:
        """Return the numbers of child providers that may give something.

        The room of each is that of ``CLASS@number``.
        """
        return self.columns.snapshot.places.get(resource, ())

    # Coded columns.

    def code(self, name: str, value: Any) -> int:
        """Return the code of a value in a coded column; -1 if it has none."""
        return self.columns.snapshot.encoding(name).code(value)

    def value(self, name: str, code: int) -> Any:
        """Return the value that a code of a coded column stands for."""
        return self.columns.snapshot.encoding(name).values[code]

    def values_at(self, row: int, *names: str) -> list[Any]:
        """Return what columns say of one host; values in place of codes.

        :param row: where it is among these hosts
        """
        encodings, found = self.columns.snapshot.encodings, []
        for name in names:
            said, encoding = self[name][row], encodings.get(name)
            found.append(said if encoding is None else encoding.values[said])
        return found

    def each(
        self, name: str, function: Callable[[Any], Any], dtype: str = 'bool'
    ) -> Column:
        """Return what a function says of each host's value of a coded column.

        It is asked once for a value, however many hosts have it, and may be
        asked about values that no host has any more.
        """
        encoding = self.columns.snapshot.encoding(name)
        return encoding.spread(self[name], function, dtype)

    def number(
        self, key: str, default: float, least: float | None = None
    ) -> float | Column:
        """Return the least number that hosts' aggregates say for a key.

        :param default: the number of a host whose aggregates say none
        :param least: a lower number counts as none
        :returns: one number if no aggregate says any, else one for each host
        """
        encoding = self.columns.snapshot.encodings['aggregates']
        # Where no host is in any, there is nothing to look for.
        numbers = encoding.numbers(key) if len(encoding.values) > 1 else None
        if numbers is None:
            return default
        bad = np.isnan(numbers)
        if least is not None:
            bad |= numbers < least
        return np.where(bad, default, numbers).take(self['aggregates'])

    def memo(self, key: Any, make: Callable[[Hosts], _Made]) -> _Made:
        """Return what is made of all hosts, until something lasting changes.

        What lasts is which hosts there are, their names, addresses, cells
        and aggregates, what they physically have and can run, and whether
        they are disabled; nothing else may be read to make it.
        """
        kept = self.columns.snapshot.kept
        if key not in kept:
            kept[key] = make(self.whole)
        return kept[key]

    def memo_until_change(
        self, key: Hashable, make: Callable[[], _Made]
    ) -> _Made:
        """Return what is made of columns, until any of them changes.

        It is for the pipeline. What is made may depend on the key and on the
        columns of the table, and on neither time nor facts of cells. It is
        kept for all hosts of a table, and made each time for some of them.
        """
        if self._rows is not None:
            return make()
        kept = self.columns.current
        if key not in kept:
            if len(kept) >= _KEPT_MAX:
                kept.clear()
            kept[key] = make()
        made: _Made = kept[key]
        return made

    def all_heard_within(self, seconds: float) -> bool:
        """Return whether no cell has been silent for longer."""
        return self.columns.snapshot.cells.oldest >= self.now - seconds

    @property
    def any_cell_fails(self) -> bool:
        """Return whether a cell has failures not as good as forgotten."""
        return self.columns.snapshot.cells.any_fails(self.now)

    # Where instances are.

    def row(self, uuid: str) -> int | None:
        """Return the row in the table of a compute node, or None."""
        return self.columns.snapshot.rows.get(uuid)

    def rows_of(self, instances: Iterable[str]) -> Column:
        """Return where in these hosts those are that have these instances.

        Knows those that a filter's or a weigher's ``located`` named; others
        are left out.
        """
        return self.tally(instances)[0]

    def counts_of(self, instances: Iterable[str]) -> Column:
        """Return how many of these instances each host has."""
        counts = np.zeros(len(self))
        places, found = self.tally(instances)
        counts[places] = found
        return counts

    def tally(self, instances: Iterable[str]) -> tuple[Column, Column]:
        """Return :meth:`rows_of`, and how many instances each of them has.

        Of a few instances on many hosts, that is quicker than to count for
        each host.
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
        there = np.isin(rows, self._rows, assume_unique=True)
        return places[there], counts[there]

    def placed(self, instances: Iterable[str]) -> list[str]:
        """Return those of these instances that are on a host, known or not."""
        return [uuid for uuid in instances if uuid in self._located]

    def instances_on(self, uuid: str) -> list[str]:
        """Return the instances that are known to be on a compute node."""
        return [instance for instance, node in self._located.items()
                if node == uuid]

    def named(self, host: str) -> list[int]:
        """Return the rows in the table of a host's nodes, in any case."""
        return self.memo('rows by host', _by_host).get(host.lower(), [])

    # What the request takes.

    def take(
        self, row: int, resources: Mapping[str, int],
        instance: str | None = None,
    ) -> None:
        """Take what an instance needs from the host in a row of the table.

        It counts for this request only, until the table is told.
        """
        self.columns.take(row, resources)
        if instance is not None:
            self._located[instance] = self.columns['uuid'][row]

    def free(self, row: int, resources: Mapping[str, int]) -> None:
        """Count what is claimed on the host in a row of the table as free.

        That is for who looks at the hosts as they were before a claim. It
        counts for this request only, and the view cannot be used again by
        another one.

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
