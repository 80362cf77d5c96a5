# SPDX-License-Identifier: Apache-2.0
"""Hosts as one request sees them, which is what filters and weighers read."""

from __future__ import annotations

import collections
from collections.abc import Callable
from collections.abc import Hashable
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from cellsched.hosts import cell_health
from cellsched.hosts import columns as columns_
from cellsched.hosts import extrema
from cellsched.hosts import merged_columns
from cellsched.hosts import snapshot as snapshot_

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
        self, columns: merged_columns.MergedColumns, now: float,
        located: dict[str, str], rows: Column | None = None,
    ) -> None:
        #: What the hosts are read from, for the pipeline.
        self.columns = columns
        self.now = now
        self._located = located
        self._rows = rows
        self._gathered: dict[str, Column] = {}
        self._gathered_at = columns.takings

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
        if self._gathered_at != self.columns.takings:
            self._gathered.clear()
            self._gathered_at = self.columns.takings
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
        return spec.dtype if spec else columns_.WHOLE

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

    def room(self, resource: str) -> Column:
        """Return how much of a resource class each host has left to claim."""
        name = columns_.ROOM + resource
        if name in self.columns:
            return self[name]
        return np.zeros(len(self))

    def least_room(self, resource: str) -> float:
        """Return how much the host has left that has least."""
        name = columns_.ROOM + resource
        return self.least(name) if name in self.columns else 0.0

    def least(self, name: str) -> float:
        """Return the least number of a column; infinity without hosts.

        Of all hosts of a table, that is known while nothing changes.
        """
        return self._extrema(name)[0]

    def most(self, name: str) -> float:
        """Return the greatest, which is minus infinity without hosts."""
        return self._extrema(name)[1]

    def _extrema(self, name: str) -> extrema.Pair:
        if self._rows is None and name not in snapshot_.FACTS:
            return self.columns.extrema(name)
        return extrema.of(self[name])

    # Coded columns.

    def code(self, name: str, value: Any) -> int:
        """Return the code of a value in a coded column; -1 if it has none."""
        return self.columns.snapshot.encoding(name).code(value)

    def value(self, name: str, code: int) -> Any:
        """Return the value that a code of a coded column stands for."""
        return self.columns.snapshot.encoding(name).values[code]

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
        numbers = self.columns.snapshot.encoding('aggregates').numbers(key)
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
