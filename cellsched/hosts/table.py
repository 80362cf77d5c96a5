# SPDX-License-Identifier: Apache-2.0
"""The host table: every host that a scheduler knows, as NumPy columns."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import functools
from typing import Any

import numpy as np

from cellsched import exception
from cellsched.hosts import coding as coding_
from cellsched.hosts import columns as columns_
from cellsched.hosts import extrema
from cellsched.hosts import facts
from cellsched.hosts import pending
from cellsched.hosts import view as view_

#: What a resource class takes from columns with Nova's names:
#: (column, the amount's factor). Memory is in MB, disk in GB.
_TAKES = {
    'VCPU': (('vcpus_used', 1),),
    'MEMORY_MB': (('free_ram_mb', -1),),
    'DISK_GB': (('free_disk_mb', -1024), ('disk_mb_used', 1024)),
}

#: Columns that change seldom, on which what is kept of a table relies.
_LASTING = frozenset({
    'host', 'nodename', 'host_ip', 'cell', 'aggregates',
    'service_disabled', 'forced_down', 'vcpus_total', 'total_usable_ram_mb',
    'total_usable_disk_gb', 'supported_instances'})

#: Values of a coded column that may be there for nothing, beyond one for each
#: host.
_SPARE_VALUES = 1000


class HostTable:
    """Hosts in rows, facts in columns; what loaders write.

    Plug-ins read it through a :class:`~cellsched.hosts.view.Hosts`; the
    arrays that they get are read-only.

    A table has one writer at a time, and nobody reads while it writes. Rows
    move when hosts are dropped, so only uuids last.
    """

    def __init__(
        self, columns: Iterable[columns_.Column] = columns_.STANDARD,
        cells: facts.Cells | None = None,
    ) -> None:
        self.specs = {column.name: column for column in columns}
        self._columns = {
            name: np.empty(0, dtype=spec.stored)
            for name, spec in self.specs.items()}
        self._codings = {
            name: coding_.Coding(spec.default)
            for name, spec in self.specs.items()
            if spec.dtype == columns_.CODED}
        self._length = 0
        self._rows: dict[str, int] = {}
        self._pending = pending.Pending()
        #: How often something was taken or given back.
        self.takings = 0
        #: What was heard of cells.
        self.cells = cells or facts.Cells()
        #: What was made of the hosts, until something lasting changes.
        self.kept: dict[Any, Any] = {}
        #: Columns as they were last read, while their arrays are the same.
        self._read: dict[str, view_.Column] = {}
        self._extrema = extrema.Extrema()
        #: What was made of the columns, until anything changes.
        self.current: dict[Any, Any] = {}

    def __len__(self) -> int:
        return self._length

    def __contains__(self, name: str) -> bool:
        return name in self._columns

    def __getitem__(self, name: str) -> view_.Column:
        """Return a column by name.

        :raises cellsched.exception.ColumnNotFound: a ``KeyError`` that names
            the nearest
        """
        column = self._read.get(name)
        if column is None:
            column = self._read[name] = self._column(name)[:self._length]
            column.flags.writeable = False
        return column

    def extrema(self, name: str) -> extrema.Pair:
        """Return the least and the greatest number of a column."""
        return self._extrema.get(name, self[name])

    @property
    def names(self) -> list[str]:
        """The names of all columns."""
        return list(self._columns)

    def coding(self, name: str) -> coding_.Coding:
        """Return the values of a coded column.

        :raises cellsched.exception.ColumnNotFound: no such column, or it is
            not coded
        """
        coding = self._codings.get(name)
        if coding is None:
            self._column(name)
            raise exception.ColumnNotFound(column=name, near=' of codes.')
        return coding

    def row(self, uuid: str) -> int | None:
        """Return the row of a compute node, or None."""
        return self._rows.get(uuid)

    def view(
        self, now: float, located: Mapping[str, str] | None = None
    ) -> view_.Hosts:
        """Return the hosts as one request sees them, at no cost.

        :param now: wall clock time, seconds since the epoch
        :param located: compute node uuids by instance uuid
        """
        return view_.Hosts(self, now, dict(located or {}))

    # What follows writes, and is for loaders, placing and tests.

    def put(self, uuids: Sequence[str], values: Mapping[str, Any]) -> None:
        """Add hosts or change them.

        :param values: by column a list or an array of one value for each
            uuid, or one value for all. Columns that are left out keep what
            they had, or their default in a new row.
        :raises cellsched.exception.ColumnNotFound: no such column
        """
        rows = self._place(uuids)
        self._extrema.clear()
        self.current.clear()
        for name, given in values.items():
            coding = self._codings.get(name)
            if coding is not None:
                given = coding.encode(_listed(given))
            elif name.startswith(columns_.ROOM):
                self._room_column(name.removeprefix(columns_.ROOM))
            column = self._column(name)
            if name in _LASTING:
                before = column[rows]
                column[rows] = given
                if self.kept and not np.array_equal(before, column[rows]):
                    self.kept.clear()
            else:
                column[rows] = given
            if coding is not None and (
                    len(coding.values) > self._length + _SPARE_VALUES):
                self._compact(name, coding)
        if 'num_io_ops' in values:
            self._pending.forget(uuids)

    def drop(self, uuids: Iterable[str]) -> None:
        """Remove hosts; those that are not there are no matter."""
        gone = [row for row in map(self._rows.get, uuids) if row is not None]
        if not gone:
            return
        stay = np.ones(self._length, dtype=bool)
        stay[gone] = False
        self._pending.forget(self['uuid'][~stay])
        for name, column in self._columns.items():
            self._columns[name] = column[:self._length][stay]
        self._length = int(stay.sum())
        self._forget()
        self._rows = {uuid: row for row, uuid in enumerate(self['uuid'])}

    def set_usage(
        self, uuid: str, capacity: Mapping[str, int], used: Mapping[str, int],
        consumers: int,
    ) -> None:
        """Set what is taken on a host, as the claim store says."""
        row = self._rows.get(uuid)
        if row is None:
            return
        self._extrema.clear()
        self.current.clear()
        for name in self._columns:
            if name.startswith(columns_.ROOM):
                self._columns[name][row] = 0
        for resource in capacity.keys() | used.keys():
            self._room_column(resource)[row] = (
                capacity.get(resource, 0) - used.get(resource, 0))
        columns = self._columns
        columns['vcpus_used'][row] = used.get('VCPU', 0)
        columns['free_ram_mb'][row] = (
            columns['unreserved_ram_mb'][row] - used.get('MEMORY_MB', 0))
        disk_mb = used.get('DISK_GB', 0) * 1024
        columns['free_disk_mb'][row] = (
            columns['unreserved_disk_mb'][row] - disk_mb)
        columns['disk_mb_used'][row] = disk_mb
        columns['num_instances'][row] = consumers

    def take(
        self, row: int, resources: Mapping[str, int], count: int = 1,
        now: float = 0.0,
    ) -> None:
        """Count one more instance on a host, ahead of the store's report.

        :param count: -1 to take it back
        :param now: wall clock time, in seconds since the epoch
        """
        self.takings += 1
        self._add(row, count, _changes(tuple(resources.items())))
        self._pending.add(self._columns['uuid'][row], count, now)

    def settle(self, before: float) -> None:
        """Count no more builds that were begun before then.

        A host reports builds in progress itself; until it does, what was
        taken here is counted in their place.
        """
        for uuid, count in self._pending.expire(before):
            self._add(self._rows[uuid], -count, (('num_io_ops', 1),))

    def _add(
        self, row: int, times: int, changes: Iterable[tuple[str, int]]
    ) -> None:
        self.current.clear()
        for name, amount in changes:
            column = self._columns.get(name)
            if column is None:
                column = self._room_column(name.removeprefix(columns_.ROOM))
            column[row] += times * amount
            self._extrema.forget(name)

    def _place(self, uuids: Sequence[str]) -> view_.Column:
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
            self._forget()
        return np.fromiter((self._rows[uuid] for uuid in uuids), 'int64')

    def _grown(
        self, name: str, column: view_.Column, end: int
    ) -> view_.Column:
        if len(column) < end:
            bigger = np.empty(max(end, len(column) * 2), dtype=column.dtype)
            bigger[:self._length] = column[:self._length]
            column = bigger
        spec = self.specs.get(name)
        column[self._length:end] = (
            spec.default if spec and name not in self._codings else 0)
        return column

    def _compact(self, name: str, coding: coding_.Coding) -> None:
        self._columns[name] = coding.compact(self[name])
        self._forget()

    def _forget(self) -> None:
        """Forget what was made of columns that have other arrays now."""
        self._read.clear()
        self._extrema.clear()
        self.current.clear()
        self.kept.clear()

    def _column(self, name: str) -> view_.Column:
        """Return the array of a column, which may have rows to spare."""
        column = self._columns.get(name)
        if column is None:
            raise exception.ColumnNotFound(column=name, near=columns_.near(
                str(name), (*self._columns, *view_.FACTS)))
        return column

    def _room_column(self, resource: str) -> view_.Column:
        name = columns_.ROOM + resource
        if name not in self._columns:
            self._columns[name] = np.zeros(len(self._columns['uuid']))
        return self._columns[name]


def _listed(given: Any) -> Iterable[Any]:
    return given if isinstance(given, (list, np.ndarray)) else [given]


# Flavors are few.
@functools.lru_cache(1024)
def _changes(
    resources: tuple[tuple[str, int], ...]
) -> tuple[tuple[str, int], ...]:
    """Return what an instance adds to columns of its host."""
    return (*((columns_.ROOM + resource, -amount)
              for resource, amount in resources),
            *((name, factor * amount) for resource, amount in resources
              for name, factor in _TAKES.get(resource, ())),
            ('num_instances', 1), ('num_io_ops', 1))
