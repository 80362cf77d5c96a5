# SPDX-License-Identifier: Apache-2.0
"""The states of a host table in a recording, each as changes to the last.

A state is a snapshot with the first entries of its overlay. It is written as a
list of documents, plain data with bytes:

* ``whole`` begins a table: the columns of plug-ins.
* ``drop`` and ``add`` have uuids of compute nodes. New hosts follow the
  present ones.
* ``columns`` has values by column: for the hosts at ``rows``, or for those
  from ``first`` on. The values of a coded column are positions in all values
  of the column that the recording had so far, to which ``new`` adds some.
* ``cells``, ``gone``, ``disabled`` and ``sharing`` replace what they name.
* ``overlay`` adds to the overlay, or begins it again, if ``start`` is 0: pairs
  of a row and the position of a change in ``changes`` so far.
"""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any

import numpy as np

from cellsched.hosts import aggregate
from cellsched.hosts import columns as host_columns
from cellsched.hosts.columns import AT
from cellsched.hosts.columns import AVAILABLE
from cellsched.hosts.providers import SharingProvider
from cellsched.hosts.snapshot import Changes
from cellsched.hosts.snapshot import Column
from cellsched.hosts.snapshot import DictionaryEncoding
from cellsched.hosts.snapshot import Snapshot
from cellsched.hosts.table import HostTable
from cellsched.hosts import view

Document = dict[str, Any]

#: Hosts in one document: packing it must not delay other threads.
_CHUNK = 10_000

#: A value that no code has.
_UNKNOWN = -1

_ROW = np.dtype('<i4')

#: Names of the standard columns.
_STANDARD = frozenset(each.name for each in host_columns.STANDARD)


@dataclasses.dataclass
class _FileCodes:
    """The codes in the recording of a column's values.

    :param codes: by the code in the encoding
    """

    encoding: DictionaryEncoding
    codes: Column
    count: int = 0

    def of(
        self, encoding: DictionaryEncoding, codes: Column
    ) -> tuple[Column, list[Any]]:
        """Return codes in the recording, and the values that are new."""
        if encoding is not self.encoding:
            # The table has removed unused values.
            before = self.encoding
            known = [before.code(value) for value in encoding.values]
            self.codes = np.array(
                [self.codes[code] if 0 <= code < len(self.codes) else _UNKNOWN
                 for code in known], _ROW)
            self.encoding = encoding
        more = len(encoding.values) - len(self.codes)
        if more > 0:
            self.codes = np.concatenate(
                (self.codes, np.full(more, _UNKNOWN, _ROW)))
        used = np.unique(codes)
        new = used[self.codes[used] == _UNKNOWN]
        self.codes[new] = np.arange(self.count, self.count + len(new))
        self.count += len(new)
        return self.codes[codes], [
            _plain(encoding.values[code]) for code in new.tolist()]


class StateEncoder:
    """Encodes states of a table, each as changes to the state before.

    It keeps the last snapshot, and no copy of a column.
    """

    def __init__(self) -> None:
        self._snapshot: Snapshot | None = None
        self._position = 0
        self._disabled: Mapping[str, str] = {}
        self._codes: dict[str, _FileCodes] = {}
        self._changes: dict[Changes, int] = {}

    def encode(
        self, snapshot: Snapshot, position: int, closed: Iterable[str] = ()
    ) -> Iterator[Document]:
        """Yield the documents of a state; all of them must be read.

        :param position: the number of overlay entries
        :param closed: cells that take no servers, beyond those of the table
        """
        before = self._snapshot
        disabled = {**snapshot.cells.disabled, **dict.fromkeys(closed, '')}
        is_same = before is snapshot and disabled == self._disabled
        # Another thread may have decided on a newer state before.
        start = self._position if is_same and (
            position >= self._position) else 0
        if before is None or not _follows(before, snapshot):
            yield from self._whole(snapshot)
        elif before is not snapshot:
            yield from self._difference(before, snapshot)
        if disabled != self._disabled or before is None:
            yield {'disabled': disabled}
        if not is_same or position != self._position:
            yield self._overlay(snapshot, start, position)
        self._snapshot, self._position = snapshot, position
        self._disabled = disabled

    def pairs(self, entries: Iterable[tuple[int, Changes]]) -> Document:
        """Return overlay entries as a document, for :func:`StateDecoder`."""
        known, new = self._changes, []
        found: list[int] = []
        for row, changed in entries:
            number = known.get(changed)
            if number is None:
                number = known[changed] = len(known)
                new.append([[*each] for each in changed])
            found += row, number
        return {'changes': new, 'pairs': np.array(found, _ROW).tobytes()}

    def _overlay(
        self, snapshot: Snapshot, start: int, position: int
    ) -> Document:
        return {'overlay': True, 'start': start,
                **self.pairs(snapshot.overlay[start:position])}

    def _whole(self, snapshot: Snapshot) -> Iterator[Document]:
        self._codes.clear()
        self._changes.clear()
        yield {'whole': [
            [spec.name, spec.dtype, _plain(spec.default)]
            for spec in snapshot.specs.values()
            if spec.name not in _STANDARD]}
        uuids = snapshot.columns['uuid']
        for first in range(0, len(uuids) or 1, _CHUNK):
            rows = slice(first, first + _CHUNK)
            yield {'add': uuids[rows].tolist()}
            yield {'first': first, 'columns': {
                name: self._values(name, snapshot, column[rows])
                for name, column in snapshot.columns.items()
                if name != 'uuid'}}
        yield _cells(None, snapshot)
        yield {'sharing': _sharing(snapshot)}

    def _difference(
        self, before: Snapshot, after: Snapshot
    ) -> Iterator[Document]:
        # 1. Hosts that are gone, and new ones.
        columns: Mapping[str, Column] = before.columns
        if before.rows is not after.rows:
            stays = np.array([uuid in after.rows
                              for uuid in before.columns['uuid']], bool)
            gone = before.columns['uuid'][~stays].tolist()
            added = after.columns['uuid'][len(stays) - len(gone):].tolist()
            if gone:
                yield {'drop': gone}
            for first in range(0, len(added), _CHUNK):
                yield {'add': added[first:first + _CHUNK]}
            columns = {name: column[stays] for name, column
                       in before.columns.items()}
        # 2. Changed values: a document for each set of rows.
        moved: Column = np.empty(0, _ROW)
        by_rows: dict[bytes, Document] = {}
        for name, column in after.columns.items():
            if name == 'uuid' or columns.get(name) is column:
                continue
            rows = self._changed(name, before, after, columns.get(name))
            if name == 'child_uuids':
                moved = rows
            elif len(moved) and (name == 'child_units' or (
                    name.startswith(AVAILABLE) and AT in name)):
                # New children reset these columns in the reader's table.
                rows = np.union1d(rows, moved).astype(_ROW)
            if len(rows) or name not in before.columns:
                by_rows.setdefault(rows.tobytes(), {})[name] = self._values(
                    name, after, column[rows])
        children = by_rows.get(moved.tobytes(), {}).pop('child_uuids', None)
        if children is not None:
            yield {'rows': moved.tobytes(),
                   'columns': {'child_uuids': children}}
        for given, values in by_rows.items():
            if values:
                yield {'rows': given, 'columns': values}
        # 3. Facts of cells, and sharing providers.
        if before.cells is not after.cells:
            cells = _cells(before, after)
            if cells['cells'] or cells['gone']:
                yield cells
        if before.sharing is not after.sharing:
            yield {'sharing': _sharing(after)}

    def _changed(
        self, name: str, before: Snapshot, after: Snapshot,
        known: Column | None,
    ) -> Column:
        """Return the rows with another value.

        :param known: the values before, without the hosts that are gone
        """
        column = after.columns[name]
        spec = after.specs.get(name)
        if known is None:
            rows = np.flatnonzero(column)
        else:
            old, new = known, column[:len(known)]
            encoding = after.encodings.get(name)
            if (encoding is not None
                    and before.encodings.get(name) is not encoding):
                old, _ = self._codes[name].of(before.encodings[name], old)
                # Values that are new are not known yet: compare them.
                new = np.array([self._peek(name, encoding, code)
                                for code in range(len(encoding.values))],
                               _ROW)[new]
            rows = np.flatnonzero(old != new)
            if len(column) > len(known):
                # A new host has defaults; those are not written.
                rest = column[len(known):]
                default = 0 if spec is None or encoding is not None else (
                    spec.default)
                rows = np.concatenate((
                    rows, len(known) + np.flatnonzero(rest != default)))
        return rows.astype(_ROW)

    def _peek(self, name: str, encoding: DictionaryEncoding, code: int) -> int:
        """Return the code in the recording of a value, or one of no value."""
        known = self._codes[name]
        old = known.encoding.code(encoding.values[code])
        if 0 <= old < len(known.codes):
            return int(known.codes[old])
        return _UNKNOWN

    def _values(
        self, name: str, snapshot: Snapshot, column: Column
    ) -> Document:
        encoding = snapshot.encodings.get(name)
        if encoding is not None:
            known = self._codes.get(name)
            if known is None:
                known = self._codes[name] = _FileCodes(
                    encoding, np.empty(0, _ROW))
            codes, new = known.of(encoding, column)
            found: Document = {'codes': codes.astype(_ROW).tobytes()}
            if new:
                found['new'] = new
            return found
        if column.dtype == object:
            return {'values': column.tolist()}
        return {'type': column.dtype.str, 'values': column.tobytes()}


def _follows(before: Snapshot, after: Snapshot) -> bool:
    """Return whether a state can be written as changes to another one."""
    if not before.columns.keys() <= after.columns.keys():
        return False
    if before.rows is after.rows:
        return True
    # The hosts that stay keep their order, and new ones follow.
    stay = [uuid for uuid in before.columns['uuid'] if uuid in after.rows]
    return stay == after.columns['uuid'][:len(stay)].tolist()


def _plain(value: Any) -> Any:
    """Return a value of a coded column as plain data."""
    if isinstance(value, aggregate.HostAggregate):
        return {'aggregate': [value.id, value.uuid, value.name,
                              dict(value.metadata)]}
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, frozenset):
        return {'set': sorted(value)}
    return value


def _cells(before: Snapshot | None, after: Snapshot) -> Document:
    known = {} if before is None else before.cells.known
    return {
        'cells': {uuid: [cell.heard_at, cell.failures, cell.failed_at]
                  for uuid, cell in after.cells.known.items()
                  if known.get(uuid) != cell},
        'gone': [uuid for uuid in known if uuid not in after.cells.known]}


def _sharing(snapshot: Snapshot) -> Document:
    return {uuid: [each.name, each.aggregate, sorted(each.traits),
                   dict(each.available), [[*unit] for unit in each.units]]
            for uuid, each in snapshot.sharing.items()}


class StateDecoder:
    """Applies documents of states to a table.

    :param extra_columns: columns of plug-ins that the recording may lack
    """

    def __init__(
        self, extra_columns: Iterable[host_columns.Column] = ()
    ) -> None:
        self._extra = {each.name: each for each in extra_columns}
        self._values: dict[str, list[Any]] = {}
        self._changes: list[Changes] = []
        self._aggregates: dict[Any, aggregate.HostAggregate] = {}
        self.table = HostTable()

    def apply(self, document: Document) -> None:
        """Apply a document to the table."""
        table = self.table
        if 'whole' in document:
            self._begin(document['whole'])
        elif 'drop' in document:
            table.drop(document['drop'])
        elif 'add' in document:
            table.put(document['add'], {})
        elif 'columns' in document:
            self._put(document)
        elif 'sharing' in document:
            self._share(document['sharing'])
        elif 'cells' in document:
            self._hear(document)
        elif 'disabled' in document:
            table.cells.disable(document['disabled'])
        else:
            if not document['start']:
                # The next snapshot has an overlay without entries.
                table.put([], {})
            table.snapshot.overlay.extend(self.entries(document))

    def entries(self, document: Document) -> list[tuple[int, Changes]]:
        """Return the overlay entries of :meth:`StateEncoder.pairs`."""
        self._changes += [
            tuple((name, amount) for name, amount in each)
            for each in document['changes']]
        pairs = np.frombuffer(document['pairs'], _ROW).reshape(-1, 2).tolist()
        return [(row, self._changes[number]) for row, number in pairs]

    def _begin(self, columns: Iterable[Sequence[Any]]) -> None:
        self._values.clear()
        self._changes.clear()
        recorded = {
            name: host_columns.Column(name, dtype, self._value(default), '')
            for name, dtype, default in columns}
        self.table = HostTable([
            *host_columns.STANDARD, *({**self._extra, **recorded}).values()])

    def _put(self, document: Document) -> None:
        table = self.table
        uuids = table.written('uuid')
        given = document.get('rows')
        rows: Any = (slice(document['first'], None) if given is None
                     else np.frombuffer(given, _ROW))
        table.put(uuids[rows].tolist(), {
            name: self._column(name, values)
            for name, values in document['columns'].items()})

    def _column(self, name: str, given: Document) -> Any:
        if 'codes' in given:
            known = self._values.setdefault(name, [])
            known += map(self._value, given.get('new', ()))
            return [known[code] for code
                    in np.frombuffer(given['codes'], _ROW).tolist()]
        if 'type' in given:
            return np.frombuffer(given['values'], given['type'])
        made = np.empty(len(given['values']), object)
        made[:] = given['values']
        return made

    def _value(self, given: Any) -> Any:
        """Return a value of a coded column."""
        if isinstance(given, dict):
            if 'set' in given:
                return frozenset(given['set'])
            number, uuid, name, metadata = given['aggregate']
            # Aggregates are equal only if they are the same object.
            key = number, uuid, name, tuple(sorted(metadata.items()))
            return self._aggregates.setdefault(key, aggregate.HostAggregate(
                number, uuid, name, metadata))
        if isinstance(given, list):
            return tuple(self._value(each) for each in given)
        return given

    def _hear(self, document: Document) -> None:
        cells = self.table.cells
        for uuid in (*document['gone'], *document['cells']):
            cells.drop(uuid)
        for uuid, (heard_at, failures, failed_at) in document['cells'].items():
            if failures or failed_at:
                cells.failed(uuid, failures, failed_at)
            if heard_at is not None:
                cells.heard(uuid, heard_at)

    def _share(self, given: Mapping[str, Sequence[Any]]) -> None:
        # A provider that the table knows would keep its amounts.
        self.table.set_sharing({})
        self.table.set_sharing({
            uuid: SharingProvider(
                name, of, frozenset(traits), available,
                tuple((unit, least, most, step)
                      for unit, least, most, step in units))
            for uuid, (name, of, traits, available, units) in given.items()})


def hosts_of(
    table: HostTable, now: float, located: Mapping[str, str],
    discounted: Sequence[tuple[int, Changes]] | None = None,
) -> view.Hosts:
    """Return the hosts of a recorded state, as a decision read them.

    :param discounted: the overlay entries that the decision ignored
    """
    hosts = table.view(now, located)
    if discounted:
        hosts.columns.discount(discounted)
    return hosts
