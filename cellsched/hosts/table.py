# SPDX-License-Identifier: Apache-2.0
"""The host table: every host that a scheduler knows, as NumPy columns."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import copy
from typing import Any

import numpy as np
import numpy.typing as npt

from cellsched.hosts import columns as columns_

Column = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]

#: Columns that hold codes of texts, which compare as fast as numbers.
_CODED = ('cell', 'availability_zone')

#: What a resource class takes from columns with Nova's names:
#: (column, the amount's factor). Memory is in MB, disk in GB.
_TAKES = {
    'VCPU': (('vcpus_used', 1),),
    'MEMORY_MB': (('free_ram_mb', -1),),
    'DISK_GB': (('free_disk_mb', -1024), ('disk_mb_used', 1024)),
}


class HostTable:
    """Hosts in rows, facts in columns.

    ``hosts['free_ram_mb']`` is a column, an array with one value for each
    host. Plug-ins only read: the arrays that they get are read-only.

    A table has one writer at a time, and nobody reads while it writes. Rows
    move when hosts are dropped, so only uuids last.
    """

    def __init__(
        self, columns: Iterable[columns_.Column] = columns_.STANDARD
    ) -> None:
        self._specs = {column.name: column for column in columns}
        self._columns = {
            name: np.empty(0, dtype=spec.dtype)
            for name, spec in self._specs.items()}
        self._length = 0
        self._rows: dict[str, int] = {}
        self._codes: dict[str, dict[str, int]] = {name: {} for name in _CODED}
        self._texts: dict[str, list[str]] = {name: [] for name in _CODED}
        self._located: Mapping[str, str] = {}
        #: Wall clock time of the request, in seconds since the epoch.
        self.now = 0.0

    def __len__(self) -> int:
        return self._length

    def __contains__(self, name: str) -> bool:
        return name in self._columns

    def __getitem__(self, name: str) -> Column:
        """Return a column by name.

        :raises KeyError: no such column
        """
        column = self._columns[name][:self._length]
        column.flags.writeable = False
        return column

    @property
    def names(self) -> list[str]:
        """The names of all columns."""
        return list(self._columns)

    def room(self, resource: str) -> Column:
        """Return how much of a resource class each host has left to claim."""
        name = columns_.ROOM + resource
        if name in self._columns:
            return self[name]
        return np.zeros(self._length, dtype='int64')

    def code(self, name: str, text: str) -> int:
        """Return the code of a text in a coded column; -2 if it is in none."""
        return self._codes[name].get(text, -2)

    def text(self, name: str, code: int) -> str:
        """Return the text of a code; the empty text for no code."""
        texts = self._texts[name]
        return texts[code] if 0 <= code < len(texts) else ''

    @property
    def cells(self) -> list[str]:
        """The uuids of the cells, in the order of their codes."""
        return list(self._texts['cell'])

    def row(self, uuid: str) -> int | None:
        """Return the row of a compute node, or None."""
        return self._rows.get(uuid)

    def rows_of(self, instances: Iterable[str]) -> Column:
        """Return the rows of the hosts that these instances are on.

        Knows those that a filter's ``located`` named; others are left out.
        """
        rows = {self._rows.get(self._located.get(uuid, ''))
                for uuid in instances}
        return np.array(sorted(row for row in rows if row is not None),
                        dtype='int64')

    def view(
        self, now: float, located: Mapping[str, str] | None = None
    ) -> 'HostTable':
        """Return the same rows as one request sees them, at no cost.

        A view follows what is taken, and is good until hosts are put or
        dropped.

        :param now: wall clock time, seconds since the epoch
        :param located: compute node uuids by instance uuid
        """
        view = copy.copy(self)
        view.now = now
        view._located = located or {}
        return view

    # What follows writes, and is for loaders, placing and tests.

    def put(self, uuids: Sequence[str], values: Mapping[str, Any]) -> None:
        """Add hosts or change them.

        :param values: a sequence of one value for each uuid, or one value for
            all, by column; texts for coded columns. Columns that are left
            out keep what they had, or their default in a new row.
        :raises KeyError: no such column
        """
        rows = self._place(uuids)
        for name, given in values.items():
            if name in self._codes:
                given = self._encode(name, given)
            if name.startswith(columns_.ROOM):
                self._room_column(name.removeprefix(columns_.ROOM))
            self._columns[name][rows] = given

    def drop(self, uuids: Iterable[str]) -> None:
        """Remove hosts; those that are not there are no matter."""
        gone = [row for row in map(self._rows.get, uuids) if row is not None]
        if not gone:
            return
        stay = np.ones(self._length, dtype=bool)
        stay[gone] = False
        for name, column in self._columns.items():
            self._columns[name] = column[:self._length][stay]
        self._length = int(stay.sum())
        self._rows = {uuid: row for row, uuid in enumerate(self['uuid'])}

    def set_usage(
        self, uuid: str, capacity: Mapping[str, int], used: Mapping[str, int],
        consumers: int,
    ) -> None:
        """Set what is taken on a host, as the claim store says."""
        row = self._rows.get(uuid)
        if row is None:
            return
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
        self, row: int, resources: Mapping[str, int], count: int = 1
    ) -> None:
        """Count one more instance on a host, ahead of the store's report.

        :param count: -1 to take it back
        """
        for resource, amount in resources.items():
            self._room_column(resource)[row] -= count * amount
            for name, factor in _TAKES.get(resource, ()):
                self._columns[name][row] += count * factor * amount
        self._columns['num_instances'][row] += count
        self._columns['num_io_ops'][row] += count

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
        return np.fromiter((self._rows[uuid] for uuid in uuids), 'int64')

    def _grown(self, name: str, column: Column, end: int) -> Column:
        if len(column) < end:
            bigger = np.empty(max(end, len(column) * 2), dtype=column.dtype)
            bigger[:self._length] = column[:self._length]
            column = bigger
        spec = self._specs.get(name)
        column[self._length:end] = spec.default if spec else 0
        return column

    def _encode(self, name: str, given: Any) -> Any:
        if isinstance(given, str):
            return self._new_code(name, given)
        return [self._new_code(name, text) for text in given]

    def _new_code(self, name: str, text: str) -> int:
        codes, texts = self._codes[name], self._texts[name]
        if text not in codes:
            codes[text] = len(texts)
            texts.append(text)
        return codes[text]

    def _room_column(self, resource: str) -> Column:
        name = columns_.ROOM + resource
        if name not in self._columns:
            self._columns[name] = np.zeros(
                len(self._columns['uuid']), dtype='int64')
        return self._columns[name]
