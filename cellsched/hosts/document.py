# SPDX-License-Identifier: Apache-2.0
"""A host table as a JSON document, to store, edit and plan with.

The document has the table's columns, the cells and the aggregates. It has no
credentials. A column is a list with one value for each host. A column whose
values are shared by many hosts is an object with the list ``values`` and the
list ``codes``, which has the index of each host's value::

    {"format": "cellsched-hosts", "version": 1, "taken_at": 1700000000.0,
     "silent": [], "cells": [{"uuid": …, "name": "north", …}],
     "aggregates": [{"id": 1, "uuid": …, "name": …, "metadata": {…}}],
     "sharing": [{"uuid": …, "name": …, "aggregate": …, "traits": […],
                  "available": {"DISK_GB": 512}, "units": []}],
     "columns": {"host": ["n1", "n2"], "available:VCPU": [8, 6],
                 "availability_zone": {"values": ["nova"], "codes": [0, 0]},
                 …}}

The values of the column ``aggregates`` are ids of aggregates. A column that is
left out has its default.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import json
from typing import Any

from cellsched import exception
from cellsched.hosts import aggregate
from cellsched.hosts import cell_health
from cellsched.hosts import columns
from cellsched.hosts import providers
from cellsched.hosts import snapshot_schema
from cellsched.hosts.table import HostTable

FORMAT = 'cellsched-hosts'
VERSION = 1

HOSTS_MAX = 1_000_000
CELLS_MAX = 10_000
AGGREGATES_MAX = 100_000
AVAILABLE_MAX = 1000
SHARING_MAX = 100_000

#: Required columns, which identify hosts.
_NEEDED = ('uuid', 'host', 'nodename', 'cell')

#: The latest time, in the year 9999.
_TIME_MAX = 253_402_300_799.0


@dataclasses.dataclass
class HostDocument:
    """Hosts at one time.

    :param now: the time, in seconds since the epoch
    :param cells: names of cells, by uuid
    :param silent: names of the cells that did not answer
    """

    table: HostTable
    now: float
    cells: Mapping[str, str] = dataclasses.field(default_factory=dict)
    silent: list[str] = dataclasses.field(default_factory=list)


def dump(snapshot: HostDocument) -> dict[str, Any]:
    """Return the document of a snapshot; the snapshot must not change."""
    table = snapshot.table
    aggregates = {
        each.id: each for group in table.encoding('aggregates').values
        for each in group}
    return {
        'format': FORMAT, 'version': VERSION, 'taken_at': snapshot.now,
        'silent': list(snapshot.silent),
        'cells': [_cell(uuid, name, table.cells.known.get(uuid))
                  for uuid, name in snapshot.cells.items()],
        'aggregates': [
            {'id': each.id, 'uuid': each.uuid, 'name': each.name,
             'metadata': dict(each.metadata)}
            for _, each in sorted(aggregates.items())],
        'sharing': [
            {'uuid': uuid, 'name': each.name, 'aggregate': each.aggregate,
             'traits': sorted(each.traits), 'available': dict(each.available),
             'units': _plain(each.units)}
            for uuid, each in sorted(table.sharing.items())],
        'columns': {name: _column(table, name) for name in table.names},
    }


def parse(text: str | bytes) -> Any:
    """Parse JSON text into the argument of :func:`load`.

    :raises cellsched.exception.InvalidField: the text is not JSON, or has a
        number that JSON does not allow
    """
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise snapshot_schema.invalid(
            'document', 'less nested lists') from None
    except ValueError as exc:
        raise snapshot_schema.invalid(
            'document', f'JSON: {exc!s:.200}') from None


def load(
    document: Any, extra_columns: Iterable[columns.Column] = (),
    half_life_s: float = 300.0,
) -> HostDocument:
    """Return the snapshot that a document describes.

    :param extra_columns: columns of plug-ins
    :param half_life_s: half-life of a cell's failure count, in seconds
    :raises cellsched.exception.InvalidField: names the field
    """
    snapshot_schema.check_keys(document, '', {
        'format', 'version', 'taken_at', 'silent', 'cells', 'aggregates',
        'sharing', 'columns'}, {'format', 'version', 'taken_at', 'columns'})
    if document['format'] != FORMAT or document['version'] != VERSION:
        raise snapshot_schema.invalid(
            'version', f'format {FORMAT!r} and version {VERSION}, which is '
            'what this release reads')
    now = snapshot_schema.number(
        'taken_at', document['taken_at'], 0, _TIME_MAX)
    table = HostTable(
        (*columns.STANDARD, *extra_columns), cell_health.Cells(half_life_s))
    names = _load_cells(document.get('cells', []), table.cells)
    groups = _load_aggregates(document.get('aggregates', []))
    silent = [snapshot_schema.shown(f'silent[{place}]', each) for place, each
              in snapshot_schema.items('silent', document.get('silent', []),
                                       CELLS_MAX)]
    _load_columns(table, document['columns'], groups)
    _load_sharing(table, document.get('sharing', []))
    return HostDocument(table, now, names, silent)


def _cell(
    uuid: str, name: str, known: cell_health.CellHealth | None
) -> dict[str, Any]:
    known = known or cell_health.CellHealth()
    return {'uuid': uuid, 'name': name, **dataclasses.asdict(known)}


def _column(table: HostTable, name: str) -> Any:
    spec = table.specs.get(name)
    if spec is None or spec.dtype == columns.WHOLE:
        column = table[name]
        whole = column.astype('int64')
        return (whole if (whole == column).all() else column).tolist()
    if spec.dtype != columns.CODED:
        return table[name].tolist()
    values = table.encoding(name).values
    used: dict[int, int] = {}
    codes = [used.setdefault(code, len(used))
             for code in table[name].tolist()]
    return {'values': [_plain(values[code]) for code in used],
            'codes': codes}


def _plain(value: Any) -> Any:
    if isinstance(value, aggregate.HostAggregate):
        return value.id
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return sorted(value) if isinstance(value, frozenset) else value


def _load_cells(given: Any, cells: cell_health.Cells) -> dict[str, str]:
    names: dict[str, str] = {}
    for place, value in snapshot_schema.items('cells', given, CELLS_MAX):
        where = f'cells[{place}]'
        snapshot_schema.check_keys(
            value, where, {'uuid', 'name', 'heard_at', 'failures',
                           'failed_at'}, {'uuid', 'name'})
        uuid = snapshot_schema.text(f'{where}.uuid', value['uuid'], 36)
        if uuid in names:
            raise snapshot_schema.invalid(f'{where}.uuid', 'each cell once')
        names[uuid] = snapshot_schema.shown(f'{where}.name', value['name'])
        if value.get('heard_at') is not None:
            cells.heard(uuid, snapshot_schema.number(
                f'{where}.heard_at', value['heard_at'], 0, _TIME_MAX))
        if value.get('failures'):
            cells.failed(uuid, *(
                snapshot_schema.number(
                    f'{where}.{name}', value.get(name), 0, most)
                for name, most in (('failures', snapshot_schema.NUMBER_MAX),
                                   ('failed_at', _TIME_MAX))))
    return names


def _load_aggregates(given: Any) -> dict[int, aggregate.HostAggregate]:
    found: dict[int, aggregate.HostAggregate] = {}
    for place, entry in snapshot_schema.items(
        'aggregates', given, AGGREGATES_MAX):
        where = f'aggregates[{place}]'
        names = {'id', 'uuid', 'name', 'metadata'}
        snapshot_schema.check_keys(entry, where, names, names)
        number = entry['id']
        if type(number) is not int or number in found:
            raise snapshot_schema.invalid(
                f'{where}.id', 'a whole number, unique among aggregates')
        metadata = entry['metadata']
        if not isinstance(metadata, dict):
            raise snapshot_schema.invalid(f'{where}.metadata', 'texts by key')
        found[number] = aggregate.HostAggregate(
            number, snapshot_schema.text(f'{where}.uuid', entry['uuid'], 36),
            snapshot_schema.text(f'{where}.name', entry['name']), {
                snapshot_schema.text(f'{where}.metadata', key):
                snapshot_schema.text(f'{where}.metadata', value, least=0)
                for key, value in metadata.items()})
    return found


def _load_columns(
    table: HostTable, given: Any,
    groups: Mapping[int, aggregate.HostAggregate],
) -> None:
    snapshot_schema.check_keys(given, 'columns', None, set(_NEEDED))
    count = len(
        snapshot_schema.items('columns.uuid', given['uuid'], HOSTS_MAX))
    values = {}
    amounts = 0
    for name, value in given.items():
        spec = table.specs.get(name)
        if spec is None:
            amounts += 1
            snapshot_schema.check_available(name, amounts, AVAILABLE_MAX)
        column = snapshot_schema.column(f'columns.{name}', value, spec, count)
        if name == 'aggregates':
            column = [_group(groups, ids) for ids in column]
        elif name == 'children':
            known = {value: snapshot_schema.children(
                'columns.children', value) for value in set(column)}
            column = [known[value] for value in column]
        elif name in ('child_uuids', 'sharing'):
            for value in set(column):
                for uuid in value:
                    snapshot_schema.text(f'columns.{name}', uuid, 36)
        elif name == 'child_units':
            for value in set(column):
                for units in value:
                    snapshot_schema.check_units('columns.child_units', units)
        elif name == 'units':
            for units in set(column):
                snapshot_schema.check_units('columns.units', units)
        values[name] = column
    _check_children(values)
    uuids = values.pop('uuid')
    if len(set(uuids)) < count:
        raise snapshot_schema.invalid('columns.uuid', 'each host once')
    table.put(uuids, values)


def _check_children(values: Mapping[str, Any]) -> None:
    """Check that the child provider columns have the same lengths."""
    names = 'children', 'child_uuids', 'child_units'
    counts = [[*map(len, values[name])] for name in names if name in values]
    if counts and (len(counts) < len(names)
                   or any(each != counts[0] for each in counts)):
        raise snapshot_schema.invalid(
            'columns.child_uuids', 'as many values as in children and '
            'child_units')


def _load_sharing(table: HostTable, given: Any) -> None:
    names = {'uuid', 'name', 'aggregate', 'traits', 'available', 'units'}
    found = {}
    for place, value in snapshot_schema.items('sharing', given, SHARING_MAX):
        where = f'sharing[{place}]'
        snapshot_schema.check_keys(value, where, names, names)
        if not isinstance(value['available'], dict):
            raise snapshot_schema.invalid(
                f'{where}.available', 'numbers by resource class')
        traits, units = (
            snapshot_schema.listed(f'{where}.{name}', value[name])
            for name in ('traits', 'units'))
        snapshot_schema.check_units(f'{where}.units', units)
        found[snapshot_schema.text(f'{where}.uuid', value['uuid'], 36)] = (
            providers.SharingProvider(
                snapshot_schema.shown(f'{where}.name', value['name']),
                snapshot_schema.text(
                    f'{where}.aggregate', value['aggregate'], 36),
                frozenset(snapshot_schema.text(f'{where}.traits', each)
                          for each in traits),
                {snapshot_schema.text(f'{where}.available', name):
                 snapshot_schema.number(
                     f'{where}.available', amount, -snapshot_schema.NUMBER_MAX,
                     snapshot_schema.NUMBER_MAX)
                 for name, amount in value['available'].items()}, units))
    table.set_sharing(found)


def _group(
    groups: Mapping[int, aggregate.HostAggregate], ids: Iterable[Any]
) -> tuple[aggregate.HostAggregate, ...]:
    try:
        return tuple(groups[number] for number in ids)
    except (KeyError, TypeError):
        raise snapshot_schema.invalid(
            'columns.aggregates', 'ids of aggregates in the document'
        ) from None


def _refuse(constant: str) -> Any:
    raise exception.InvalidField(
        where='snapshot', field='document',
        expected=f'finite numbers, not {constant}')
