# SPDX-License-Identifier: Apache-2.0
"""All known hosts at one version of the table, and later reservations."""

from __future__ import annotations
from collections.abc import Callable
from collections.abc import Hashable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import copy
import dataclasses
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from cellsched import exception
from cellsched.hosts import aggregate
from cellsched.hosts import cell_health
from cellsched.hosts import columns as host_columns
from cellsched.hosts.providers import SharingProvider


#: The code of a value that no host has.
NONE = -1


class DictionaryEncoding:
    """The values of one column, by code; the default has code 0.

    Values are only appended. Codes keep their meaning, so that a thread can
    read while another thread encodes.
    """

    def __init__(self, default: Hashable) -> None:
        self.values: list[Any] = [default]
        self._codes: dict[Hashable, int] = {default: 0}
        #: By metadata key, the number of values and the aggregates' numbers.
        self._numbers: dict[str, tuple[int, npt.NDArray[Any] | None]] = {}

    def code(self, value: Hashable) -> int:
        """Return the code of a value; :data:`NONE` if it has none."""
        return self._codes.get(value, NONE)

    def encode(self, values: Iterable[Hashable]) -> list[int]:
        """Return the codes of values; a new value gets a new code."""
        codes = self._codes
        result = []
        for value in values:
            code = codes.get(value)
            if code is None:
                code = codes[value] = len(self.values)
                self.values.append(value)
            result.append(code)
        return result

    def spread(
        self, codes: npt.NDArray[Any], function: Callable[[Any], Any],
        dtype: str,
    ) -> npt.NDArray[Any]:
        """Return the function's result for the value of each code."""
        if len(self.values) <= len(codes):
            answers = np.fromiter(
                map(function, self.values), dtype, len(self.values))
            return answers.take(codes)
        used, places = np.unique(codes, return_inverse=True)
        answers = np.fromiter(
            (function(self.values[code]) for code in used), dtype, len(used))
        return answers.take(places)

    def numbers(self, key: str) -> npt.NDArray[Any] | None:
        """Return the least number of the aggregates for a key, by code.

        A value without a number has NaN. The result is None if no value has
        one.
        """
        count = len(self.values)
        known, numbers = self._numbers.get(key, (-1, None))
        if known != count:
            least = np.array([aggregate.least(value, key)
                              for value in self.values[:count]], 'float64')
            numbers = None if np.isnan(least).all() else least
            self._numbers[key] = count, numbers
        return numbers

    def compacted(
        self, codes: npt.NDArray[Any]
    ) -> tuple['DictionaryEncoding', npt.NDArray[Any]]:
        """Return an encoding without unused values, and the new codes."""
        # Keep the default, which new hosts need.
        used = np.union1d(codes, [0])
        compact = DictionaryEncoding(self.values[0])
        compact.encode(self.values[code] for code in used)
        return compact, np.searchsorted(used, codes).astype(codes.dtype)


Column = npt.NDArray[Any]


class RowIndex(Mapping[str, int]):
    """Rows by the uuid of the compute node.

    It is a hash table of row numbers, with open addressing. A Python
    dictionary takes seven times the memory, because it stores the uuids and
    the numbers again. One thread adds rows while others read.

    :param uuids: the uuids by row; the array may be longer than the table
    """

    #: The contents of a slot that was never used.
    _FREE = -1
    #: The contents of the slot of a dropped row.
    _DROPPED = 2 ** 31 - 1

    def __init__(self, uuids: Column) -> None:
        self._uuids = uuids
        self._length = self._used = 0
        self._slots = _slots(8)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[str]:
        return iter(self._uuids[:self._length])

    def __getitem__(self, uuid: str) -> int:
        row = self.get(uuid)
        if row is None:
            raise KeyError(uuid)
        return row

    def __contains__(self, uuid: object) -> bool:
        return self.get(uuid) is not None

    def get(self, uuid: Any, default: Any = None) -> Any:
        """Return the row of a uuid, or the default."""
        slots, uuids, length = self._slots, self._uuids, self._length
        last = len(slots) - 1
        place = hash(uuid) & last
        while (row := slots[place]) != self._FREE:
            # Later rows belong to later snapshots.
            if row < length and uuids[row] == uuid:
                return row
            place = (place + 1) & last
        return default

    def add(self, uuids: Column, length: int) -> None:
        """Add the rows from the present length up to this one."""
        self._uuids = uuids
        new = range(self._length, length)
        if 2 * (self._used + len(new)) > len(self._slots):
            self._used, new = 0, range(length)
            slots = _slots(2 * length)
        else:
            slots = self._slots
        last = len(slots) - 1
        for row in new:
            place = hash(uuids[row]) & last
            while slots[place] != self._FREE:
                place = (place + 1) & last
            slots[place] = row
        self._used += len(new)
        self._slots, self._length = slots, length

    def frozen(self) -> RowIndex:
        """Return a copy without the rows that are added later."""
        return copy.copy(self)

    def without(self, stay: Column, uuids: Column) -> RowIndex:
        """Return an index without some rows.

        :param stay: mask of the rows that stay, in order
        :param uuids: the uuids of these rows
        """
        made = self.frozen()
        slots = np.array(self._slots)
        full = np.flatnonzero((slots >= 0) & (slots < self._length))
        rows = slots[full]
        slots[full] = np.where(
            stay[rows], (np.cumsum(stay) - 1)[rows], self._DROPPED)
        made._slots = slots.data
        made._uuids, made._length = uuids, len(uuids)
        return made


def _slots(least: int) -> memoryview:
    """Return free slots: at least this many, and a power of two."""
    size = 1 << (least - 1).bit_length()
    return np.full(size, RowIndex._FREE, dtype='int32').data


NO_ROWS: Column = np.empty(0, dtype='int64')

#: The entries after which a log begins anew.
_LOG_MAX = 2 ** 17


class ChangeLog:
    """The rows that changed, for readers that remember a position.

    One thread writes it while others read.
    """

    def __init__(self) -> None:
        # The position of the first entry, and the entries.
        self._entries: tuple[int, list[int]] = 0, []
        # The latest answer, for readers at the same position.
        self._latest: tuple[int, int, Column] = 0, 0, NO_ROWS

    @property
    def end(self) -> int:
        """The position after the last entry."""
        first, rows = self._entries
        return first + len(rows)

    def add(self, rows: Column | tuple[int]) -> None:
        """Add rows that changed."""
        if len(self._entries[1]) + len(rows) > _LOG_MAX:
            self.clear()
        else:
            self._entries[1].extend(
                rows if isinstance(rows, tuple) else rows.tolist())

    def clear(self) -> None:
        """Begin anew: all rows changed."""
        self._entries = self.end + 1, []

    def since(self, position: int) -> Column | None:
        """Return the rows that changed since a position, ascending.

        None means any rows.
        """
        first, entries = self._entries
        if position < first:
            return None
        start, count, rows = self._latest
        if (start, count) != (position, first + len(entries)):
            later = entries[position - first:]
            rows = np.array(sorted({*later}), dtype='int64')
            self._latest = position, position + len(later), rows
        return rows


#: Changes of one host's columns: (column, amount).
Changes = tuple[tuple[str, int], ...]

#: The minimum and the maximum of a column.
Pair = tuple[float, float]


def least_of(column: Column) -> float:
    """Return the minimum of a column; NaN if any value is NaN."""
    return float(np.minimum.reduce(column)) if len(column) else math.inf


def most_of(column: Column) -> float:
    """Return the maximum of a column; NaN if any value is NaN."""
    return float(np.maximum.reduce(column)) if len(column) else -math.inf


@dataclasses.dataclass(frozen=True, eq=False)
class Snapshot:
    """Immutable hosts: one row for each host, one column for each fact.

    Only the overlay grows: it has the reservations since this version. Cached
    values are computed on first use. Two threads that compute one at the same
    time get equal results.

    :param version: the number of earlier versions
    :param columns: read-only arrays by name, with one value for each host
    :param encodings: the values of the coded columns
    :param rows: rows by the uuid of the compute node
    :param cells: the health of the cells
    :param sharing: sharing providers, by uuid
    :param places: numbers of the child providers with an ``available`` column,
        by resource class, ascending
    :param children: nodes of child providers, with their numbers there
    :param overlay: changes by reservations since this version: (row, column
        changes); append-only
    :param log: the rows that changed before any version, and ``logged`` the
        position at this version
    :param kept: cache of results from columns that seldom change; the next
        version shares it if none of these columns changed
    :param extrema: cache of the extrema of columns; the next version keeps the
        entries of unchanged columns
    """

    version: int
    specs: Mapping[str, host_columns.Column]
    columns: Mapping[str, Column]
    encodings: Mapping[str, DictionaryEncoding]
    rows: Mapping[str, int]
    cells: cell_health.Cells
    sharing: Mapping[str, SharingProvider] = dataclasses.field(
        default_factory=dict)
    places: Mapping[str, tuple[int, ...]] = dataclasses.field(
        default_factory=dict)
    children: Mapping[str, tuple[str, int]] = dataclasses.field(
        default_factory=dict)
    overlay: list[tuple[int, Changes]] = dataclasses.field(
        default_factory=list)
    log: ChangeLog = dataclasses.field(default_factory=ChangeLog)
    logged: int = 0
    kept: dict[Any, Any] = dataclasses.field(default_factory=dict)
    extrema: dict[str, Pair] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    def changed_since(self, earlier: Snapshot) -> Column | None:
        """Return the rows that may differ from an earlier version.

        None means any rows, also in another order.
        """
        if earlier.log is not self.log:
            return None
        rows = self.log.since(earlier.logged)
        # Rows are logged before they are published.
        return rows if rows is None else rows[rows < len(self)]

    def encoding(self, name: str) -> DictionaryEncoding:
        """Return the values of a coded column.

        :raises cellsched.exception.ColumnNotFound: the column does not exist
            or is not coded
        """
        encoding = self.encodings.get(name)
        if encoding is None:
            if name in self.columns:
                raise exception.ColumnNotFound(column=name, near=' of codes.')
            raise self.missing(name)
        return encoding

    def missing(self, name: str) -> exception.ColumnNotFound:
        """Return the error for a column that does not exist."""
        return exception.ColumnNotFound(column=name, near=host_columns.near(
            str(name), (*self.columns, *FACTS)))


#: Columns of facts of the cells, by name.
FACTS = {column.name: column for column in host_columns.CELL_FACTS}
