# SPDX-License-Identifier: Apache-2.0
"""The states of a host table in a recording, each as changes to the last.

A state is a snapshot with the first entries of its overlay. It is written as a
list of documents, plain data, each with one of these keys:

* ``specs`` begins a table: the columns of plug-ins.
* ``add`` has uuids of compute nodes, which follow the present ones. Earlier
  releases did not begin a table for other hosts: ``drop`` has the hosts to
  remove before.
* ``columns`` has values by column, for the hosts at ``rows``. A coded column
  has the different ``values``, and the index of each host's value, ``codes``.
* ``cells`` has times and failures of the cells that changed, or null.
* ``disabled`` and ``sharing`` replace what they name.
* ``overlay`` has entries that follow the first ``start`` ones.
"""

from collections.abc import Iterable
from collections.abc import Iterator
import itertools
import operator
from typing import Any

import numpy as np

from cellsched.hardware.devices import Pool
from cellsched.hardware import documents
from cellsched.hardware.host import HostTopology
from cellsched.hosts import aggregate
from cellsched.hosts.cell_health import Cells
from cellsched.hosts import columns as host_columns
from cellsched.hosts.providers import SharingProvider
from cellsched.hosts.snapshot import Changes
from cellsched.hosts.snapshot import Column
from cellsched.hosts.snapshot import DictionaryEncoding
from cellsched.hosts.snapshot import Snapshot
from cellsched.hosts.table import HostTable

Document = dict[str, Any]

#: Hosts in one document: encoding it must not delay other threads.
_CHUNK = 2000

#: Names of the standard columns.
_STANDARD = frozenset(each.name for each in host_columns.STANDARD)

_NONE = Snapshot(-1, {}, {}, {}, {}, Cells())


class StateEncoder:
    """Encodes states of a table, each as changes to the state before.

    It keeps the last snapshot, and no copy of a column.
    """

    def __init__(self) -> None:
        self._last: tuple[Snapshot, int, dict[str, str]] = _NONE, 0, {}

    def encode(
        self, snapshot: Snapshot, position: int, closed: Iterable[str] = ()
    ) -> Iterator[Document]:
        """Yield the documents of a state; all of them must be read.

        :param position: the number of overlay entries
        :param closed: cells that take no servers, beyond those of the table
        """
        before, last, known = self._last
        disabled = {**snapshot.cells.disabled, **dict.fromkeys(closed, '')}
        if before.rows is not snapshot.rows or (
                before.columns['child_uuids']
                is not snapshot.columns['child_uuids']):
            # Other hosts, or other providers, are rare.
            before, known = _NONE, {}
            yield {'specs': [[spec.name, spec.dtype, _plain(spec.default)]
                             for spec in snapshot.specs.values()
                             if spec.name not in _STANDARD]}
            yield {'add': snapshot.columns['uuid'].tolist()}
        if before is not snapshot:
            yield from _difference(before, snapshot)
        if disabled != known:
            yield {'disabled': disabled}
        is_same = before is snapshot and disabled == known
        if not is_same or position != last:
            # Another thread may have decided on a newer state before.
            start = last if is_same and position > last else 0
            yield {'overlay': snapshot.overlay[start:position],
                   'start': start}
        self._last = snapshot, position, disabled


def _difference(before: Snapshot, after: Snapshot) -> Iterator[Document]:
    # 1. Changed values; adjacent columns with the same rows are together.
    changed = [
        (name, rows.tolist()) for name, column in after.columns.items()
        if name != 'uuid' and before.columns.get(name) is not column
        and (len(rows := _changed(name, before, after)) or not (
            name in before.columns or name in after.specs))]
    for rows, same in itertools.groupby(changed, operator.itemgetter(1)):
        names = [name for name, _ in same]
        for first in range(0, len(rows) or 1, _CHUNK):
            some = rows[first:first + _CHUNK]
            yield {'rows': some, 'columns': {
                name: _listed(after.columns[name][some],
                              after.encodings.get(name)) for name in names}}
    # 2. Facts of cells, and sharing providers.
    cells, known = after.cells.known, before.cells.known
    if changes := {
            uuid: cell and [cell.heard_at, cell.failures, cell.failed_at]
            for uuid in {**known, **cells}
            if (cell := cells.get(uuid)) != known.get(uuid)}:
        yield {'cells': changes}
    if before.sharing is not after.sharing:
        yield {'sharing': {
            uuid: [each.name, each.aggregate, sorted(each.traits),
                   dict(each.available), each.units]
            for uuid, each in after.sharing.items()}}


def _changed(name: str, before: Snapshot, after: Snapshot) -> Column:
    """Return the rows with another value than before, or than the default."""
    encoding = after.encodings.get(name)
    known: Any = before.columns.get(name)
    if known is None:
        # The code of a default is 0.
        spec = after.specs.get(name)
        known = 0 if spec is None or encoding is not None else spec.default
    elif encoding is not None and before.encodings[name] is not encoding:
        # The table has removed unused values, and has other codes.
        known = np.array([*map(
            encoding.code, before.encodings[name].values)])[known]
    return np.flatnonzero(after.columns[name] != known)


def _listed(column: Column, encoding: DictionaryEncoding | None) -> Any:
    if encoding is not None:
        used, codes = np.unique(column, return_inverse=True)
        return {'values': [_plain(encoding.values[code])
                           for code in used.tolist()], 'codes': codes.tolist()}
    return column.tolist()


def _plain(value: Any) -> Any:
    """Return a value of a coded column as plain data."""
    if isinstance(value, aggregate.HostAggregate):
        return {'aggregate': [value.id, value.uuid, value.name,
                              dict(value.metadata)]}
    if isinstance(value, HostTopology):
        return {'numa_topology': documents.written_host(value)}
    if isinstance(value, Pool):
        return {'device_pool': documents.written_pool(value)}
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return {'set': sorted(value)} if isinstance(value, frozenset) else value


class StateDecoder:
    """Applies documents of states to a table.

    :param extra_columns: columns of plug-ins that the recording may lack
    """

    def __init__(
        self, extra_columns: Iterable[host_columns.Column] = ()
    ) -> None:
        self._extra = {each.name: each for each in extra_columns}
        self._aggregates: dict[Any, aggregate.HostAggregate] = {}
        self.table = HostTable()

    def apply(self, document: Document) -> None:
        """Apply a document to the table."""
        table, cells = self.table, self.table.cells
        if 'specs' in document:
            self.table = HostTable([*host_columns.STANDARD, *{
                **self._extra, **{
                    name: host_columns.Column(
                        name, dtype, self._value(default), '')
                    for name, dtype, default in document['specs']}}.values()])
        elif 'columns' in document:
            table.put(
                table.written('uuid')[document['rows']].tolist(), {
                    name: self._column(given)
                    for name, given in document['columns'].items()})
        elif 'sharing' in document:
            # A provider that the table knows would keep its amounts.
            table.set_sharing({})
            table.set_sharing({
                uuid: SharingProvider(
                    name, of, frozenset(traits), available, self._value(units))
                for uuid, (name, of, traits, available, units)
                in document['sharing'].items()})
        elif 'overlay' in document:
            if not document['start']:
                # The next snapshot has an overlay without entries.
                table.put([], {})
            table.snapshot.overlay.extend(changes_of(document['overlay']))
        else:
            table.drop(document.get('drop', ()))
            table.put(document.get('add', ()), {})
            cells.disable(document.get('disabled', cells.disabled))
            for uuid, health in document.get('cells', {}).items():
                cells.drop(uuid)
                heard_at, failures, failed_at = health or (None, 0, 0)
                if failures or failed_at:
                    cells.failed(uuid, failures, failed_at)
                if heard_at is not None:
                    cells.heard(uuid, heard_at)

    def _column(self, given: Any) -> list[Any]:
        if isinstance(given, dict):
            values = [*map(self._value, given['values'])]
            return [values[code] for code in given['codes']]
        return given

    def _value(self, given: Any) -> Any:
        """Return a value of a coded column."""
        if isinstance(given, dict):
            if 'set' in given:
                return frozenset(given['set'])
            if 'numa_topology' in given:
                return documents.host_topology(given['numa_topology'])
            if 'device_pool' in given:
                [pool] = documents.device_pools([given['device_pool']])
                return pool
            number, uuid, name, metadata = given['aggregate']
            # Aggregates are equal only if they are the same object.
            key = number, uuid, name, tuple(sorted(metadata.items()))
            return self._aggregates.setdefault(key, aggregate.HostAggregate(
                number, uuid, name, metadata))
        return tuple(map(self._value, given)) if isinstance(
            given, list) else given


def changes_of(entries: Iterable[Any]) -> list[tuple[int, Changes]]:
    """Return the overlay entries of a document."""
    return [(row, tuple((name, amount) for name, amount in changed))
            for row, changed in entries]
