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

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import json
import math
import re
from typing import Any

import numpy as np

from cellsched import exception
from cellsched.hardware.devices import Pool
from cellsched.hardware import documents
from cellsched.hardware.host import HostTopology
from cellsched.hosts import aggregate
from cellsched.hosts import cell_health
from cellsched.hosts import columns
from cellsched.hosts import providers
from cellsched.hosts.table import HostTable

FORMAT = 'cellsched-hosts'
VERSION = 1

HOSTS_MAX = 1_000_000
CELLS_MAX = 10_000
AGGREGATES_MAX = 100_000
AVAILABLE_MAX = 10_000
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
        'cells': [{**_cell(uuid, name, table.cells.known.get(uuid)),
                   **({'disabled': True} if uuid in table.cells.disabled
                      else {})}
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
        raise invalid(
            'document', 'fewer levels', 'it is nested too deeply') from None
    except ValueError as exc:
        raise invalid(
            'document', 'JSON', f'it is not valid: {exc!s:.200}') from None


def load(
    document: Any, extra_columns: Iterable[columns.Column] = (),
    half_life_s: float = 300.0,
) -> HostDocument:
    """Return the snapshot that a document describes.

    :param extra_columns: columns of plug-ins
    :param half_life_s: half-life of a cell's failure count, in seconds
    :raises cellsched.exception.InvalidField: names the field
    """
    check_keys(document, '', {
        'format', 'version', 'taken_at', 'silent', 'cells', 'aggregates',
        'sharing', 'columns'}, {'format', 'version', 'taken_at', 'columns'})
    if document['format'] != FORMAT or document['version'] != VERSION:
        raise invalid(
            'version', f'format {FORMAT!r} and version {VERSION}',
            'this release cannot read the document')
    now = number(
        'taken_at', document['taken_at'], 0, _TIME_MAX)
    table = HostTable(
        (*columns.STANDARD, *extra_columns), cell_health.Cells(half_life_s))
    names = _load_cells(document.get('cells', []), table.cells)
    groups = _load_aggregates(document.get('aggregates', []))
    silent = [shown(f'silent[{place}]', each) for place, each
              in items('silent', document.get('silent', []),
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
    if isinstance(value, HostTopology):
        return documents.written_host(value)
    if isinstance(value, Pool):
        return documents.written_pool(value)
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return sorted(value) if isinstance(value, frozenset) else value


def _load_cells(data: Any, cells: cell_health.Cells) -> dict[str, str]:
    names: dict[str, str] = {}
    disabled = {}
    for place, value in items('cells', data, CELLS_MAX):
        where = f'cells[{place}]'
        check_keys(
            value, where, {'uuid', 'name', 'heard_at', 'failures',
                           'failed_at', 'disabled'}, {'uuid', 'name'})
        uuid = text(f'{where}.uuid', value['uuid'], 36)
        if uuid in names:
            raise invalid(f'{where}.uuid', 'each cell once',
                          'the cell is repeated')
        names[uuid] = shown(f'{where}.name', value['name'])
        if value.get('heard_at') is not None:
            cells.heard(uuid, number(
                f'{where}.heard_at', value['heard_at'], 0, _TIME_MAX))
        if value.get('failures'):
            cells.failed(uuid, *(
                number(
                    f'{where}.{name}', value.get(name), 0, most)
                for name, most in (('failures', columns.NUMBER_MAX),
                                   ('failed_at', _TIME_MAX))))
        if value.get('disabled', False) not in (True, False):
            raise invalid(f'{where}.disabled', 'true or false')
        if value.get('disabled'):
            disabled[uuid] = names[uuid]
    cells.disable(disabled)
    return names


def _load_aggregates(data: Any) -> dict[int, aggregate.HostAggregate]:
    found: dict[int, aggregate.HostAggregate] = {}
    for place, entry in items(
        'aggregates', data, AGGREGATES_MAX):
        where = f'aggregates[{place}]'
        names = {'id', 'uuid', 'name', 'metadata'}
        check_keys(entry, where, names, names)
        number = entry['id']
        if type(number) is not int or number in found:
            raise invalid(
                f'{where}.id', 'a whole number, unique among aggregates')
        metadata = entry['metadata']
        if not isinstance(metadata, dict):
            raise invalid(f'{where}.metadata', 'a mapping of keys to strings')
        found[number] = aggregate.HostAggregate(
            number, text(f'{where}.uuid', entry['uuid'], 36),
            text(f'{where}.name', entry['name']), {
                text(f'{where}.metadata', key):
                text(f'{where}.metadata', value, least=0)
                for key, value in metadata.items()})
    return found


def _load_columns(
    table: HostTable, data: Any,
    groups: Mapping[int, aggregate.HostAggregate],
) -> None:
    check_keys(data, 'columns', None, set(_NEEDED))
    count = len(
        items('columns.uuid', data['uuid'], HOSTS_MAX))
    values = {}
    amounts = 0
    for name, value in data.items():
        spec = table.specs.get(name)
        if spec is None:
            amounts += 1
            check_available(name, amounts, AVAILABLE_MAX)
        column = parse_column(f'columns.{name}', value, spec, count)
        if name == 'aggregates':
            column = [_group(groups, ids) for ids in column]
        elif name == 'children':
            known = {value: children(
                'columns.children', value) for value in set(column)}
            column = [known[value] for value in column]
        elif name in ('child_uuids', 'sharing'):
            for value in set(column):
                for uuid in value:
                    text(f'columns.{name}', uuid, 36)
        elif name == 'child_units':
            for value in set(column):
                for units in value:
                    check_units('columns.child_units', units)
        elif name == 'units':
            for units in set(column):
                check_units('columns.units', units)
        values[name] = column
    _check_children(values)
    uuids = values.pop('uuid')
    if len(set(uuids)) < count:
        raise invalid('columns.uuid', 'each host once', 'a host is repeated')
    table.put(uuids, values)


def _check_children(values: Mapping[str, Any]) -> None:
    """Check that the child provider columns have the same lengths."""
    names = 'children', 'child_uuids', 'child_units'
    counts = [[*map(len, values[name])] for name in names if name in values]
    if counts and (len(counts) < len(names)
                   or any(each != counts[0] for each in counts)):
        raise invalid(
            'columns.child_uuids', 'as many values as children and '
            'child_units have')


def _load_sharing(table: HostTable, data: Any) -> None:
    names = {'uuid', 'name', 'aggregate', 'traits', 'available', 'units'}
    found = {}
    for place, value in items('sharing', data, SHARING_MAX):
        where = f'sharing[{place}]'
        check_keys(value, where, names, names)
        if not isinstance(value['available'], dict):
            raise invalid(
                f'{where}.available', 'a mapping of resource classes to '
                'numbers')
        traits, units = (
            listed(f'{where}.{name}', value[name])
            for name in ('traits', 'units'))
        check_units(f'{where}.units', units)
        found[text(f'{where}.uuid', value['uuid'], 36)] = (
            providers.SharingProvider(
                shown(f'{where}.name', value['name']),
                text(
                    f'{where}.aggregate', value['aggregate'], 36),
                frozenset(text(f'{where}.traits', each)
                          for each in traits),
                {text(f'{where}.available', name):
                 number(
                     f'{where}.available', amount, -columns.NUMBER_MAX,
                     columns.NUMBER_MAX)
                 for name, amount in value['available'].items()}, units))
    table.set_sharing(found)


def _group(
    groups: Mapping[int, aggregate.HostAggregate], ids: Iterable[Any]
) -> tuple[aggregate.HostAggregate, ...]:
    try:
        return tuple(groups[number] for number in ids)
    except (KeyError, TypeError):
        raise invalid(
            'columns.aggregates', 'ids of aggregates in the document',
            'unknown aggregate') from None


def _refuse(constant: str) -> Any:
    raise exception.InvalidField(
        where='snapshot', field='document',
        problem=f'{constant} is not a JSON number', expected='finite numbers')


#: The maximum length of a text, as JSON, that describes a host.
TEXT_MAX = 65_536

#: Limits of a host's lists: the number of values, and the nesting depth.
_LISTED_MAX = 10_000
_DEPTH_MAX = 5

_ROOM = re.compile(
    re.escape(columns.AVAILABLE) + r'[A-Z0-9_]{1,255}(@[1-9][0-9]{0,2})?')


def invalid(
    field: str, expected: str | None, problem: str | None = None
) -> exception.InvalidField:
    """Return the error for a field."""
    return exception.InvalidField(
        where='snapshot', field=field, problem=problem, expected=expected)


def check_keys(
    data: Any, where: str, known: set[str] | None, needed: set[str]
) -> None:
    """Check that a value is an object with these fields.

    :param known: the allowed fields; None allows any further field
    """
    field = where or 'document'
    if not isinstance(data, dict):
        raise invalid(field, 'an object')
    for name in sorted(needed - data.keys()):
        raise invalid(f'{where}.{name}'.lstrip('.'), None, 'it is missing')
    for name in sorted(data.keys() - (data.keys() if known is None
                                      else known)):
        raise invalid(field, None, f'unknown field {name!r:.80}')


def items(field: str, data: Any, most: int) -> list[tuple[int, Any]]:
    """Yield the items of a list, each with its field name."""
    if not isinstance(data, list) or len(data) > most:
        raise invalid(field, f'a list of at most {most}')
    return list(enumerate(data))


def text(field: str, data: Any, most: int = 255, least: int = 1) -> str:
    """Return a text of an allowed length."""
    if not isinstance(data, str) or not least <= len(data) <= most:
        raise invalid(field, f'a string of {least} to {most} characters')
    try:
        data.encode()
    except UnicodeError:
        # JSON can hold a lone surrogate, which cannot be encoded.
        raise invalid(field, 'valid Unicode') from None
    return data


def shown(field: str, data: Any, least: int = 1) -> str:
    """Return a name that is safe to print on a terminal."""
    if not text(field, data, least=least).isprintable():
        raise invalid(field, 'printable characters')
    return str(data)


def number(field: str, data: Any, least: float, most: float) -> float:
    """Return a finite number between two bounds."""
    if type(data) not in (int, float) or not least <= data <= most:
        raise invalid(field, f'a number from {least:g} to {most:g}')
    return float(data)


def check_available(name: str, count: int, most: int) -> None:
    """Check that an unknown column is an ``available`` column."""
    if not _ROOM.fullmatch(name):
        raise invalid(
            'columns', f'a column of the host table, or {columns.AVAILABLE}…',
            f'unknown column {name!r:.80}')
    if count > most:
        raise invalid('columns', f'at most {most} of {columns.AVAILABLE}…')


def check_units(field: str, units: Any) -> None:
    """Check that a host's allocation units are well-formed."""
    if not isinstance(units, tuple) or not all(
            isinstance(each, tuple) and len(each) == 4
            and isinstance(each[0], str)
            and all(type(bound) is int and bound >= 1
                    for bound in each[1:]) for each in units):
        raise invalid(field, 'lists of a resource class, the minimum, the '
                             'maximum and the step of an amount, each at '
                             'least 1')


def children(field: str, data: Any) -> tuple[Any, ...]:
    """Return the child providers of a host, in the form of the table."""
    if len(data) > columns.CHILDREN_MAX or not all(
            isinstance(each, tuple) and len(each) == 2
            and type(each[0]) is int and 0 <= each[0] <= len(data)
            and isinstance(each[1], tuple)
            and all(isinstance(trait, str) for trait in each[1])
            for each in data):
        raise invalid(
            field, f'at most {columns.CHILDREN_MAX} lists, each of the number '
            'of the parent or 0, and of a list of traits')
    return tuple((parent, frozenset(traits)) for parent, traits in data)


def parse_column(
    field: str, data: Any, spec: columns.Column | None, count: int
) -> Any:
    """Return a column's values, one for each host.

    :param spec: None for an ``available`` column
    :param count: the required number of values
    """
    kind = columns.WHOLE if spec is None else spec.dtype
    if kind == columns.CODED:
        assert spec is not None
        check_keys(data, field, {'values', 'codes'}, {'values', 'codes'})
        read = _DOCUMENTS.get(spec.name)
        values = [_read(f'{field}.values[{place}]', value, read) if read else
                  _value(f'{field}.values[{place}]', value, spec.default)
                  for place, value in items(
                      f'{field}.values', data['values'], max(count, 1))]
        codes = _numbers(f'{field}.codes', data['codes'], count)
        if count and not (codes.min() >= 0 and codes.max() < len(values)
                          and (codes == np.floor(codes)).all()):
            raise invalid(f'{field}.codes', 'indexes of its values')
        return [values[int(code)] for code in codes]
    if kind == 'object':
        assert spec is not None
        _check_length(field, data, count)
        return [each if each is None and spec.default is None
                else shown(f'{field}[{place}]', each, least=0)
                for place, each in enumerate(data)]
    if kind == 'bool':
        _check_length(field, data, count)
        if not all(type(each) is bool for each in data):
            raise invalid(field, 'true or false for each host')
        return data
    found = _numbers(field, data, count)
    if kind == columns.WHOLE and not (found == np.floor(found)).all():
        raise invalid(field, 'whole numbers')
    return found


def _numbers(field: str, data: Any, count: int) -> Any:
    _check_length(field, data, count)
    if not {*map(type, data)} <= {int, float}:
        place = next(place for place, each in enumerate(data)
                     if type(each) not in (int, float))
        raise invalid(f'{field}[{place}]', 'a number')
    try:
        found = np.array(data, dtype='float64')
    except OverflowError:
        found = np.full(1, np.nan)
    if not (np.abs(found) <= columns.NUMBER_MAX).all():
        raise invalid(
            field, f'finite numbers of at most {columns.NUMBER_MAX:.0f}')
    return found


def _check_length(field: str, data: Any, count: int) -> None:
    if not isinstance(data, list) or len(data) != count:
        raise invalid(
            field, f'a list of {count} values, one for each host')


#: Readers of the columns that have documents.
_DOCUMENTS = {'numa_topology': documents.host_topology,
              'device_pools': documents.device_pools}


def _read(field: str, data: Any, read: Callable[[Any], Any]) -> Any:
    """Return a value that is a document."""
    with contextlib.suppress(exception.InvalidField, RecursionError):
        if _is_bounded(data):
            return read(data)
    raise invalid(field, "a document of Nova's form, with whole numbers from "
                  f'0 to {columns.NUMBER_MAX:.0f}')


def _is_bounded(data: Any) -> bool:
    """Return whether all numbers in a document are in their bounds."""
    if isinstance(data, (Mapping, list)):
        return all(map(_is_bounded, data.values() if isinstance(
            data, Mapping) else data))
    return not isinstance(data, (int, float)) or (
        0 <= data <= columns.NUMBER_MAX)


def _value(field: str, data: Any, default: Any) -> Any:
    """Return a value of a coded column; the default determines its type."""
    if isinstance(default, (tuple, frozenset)):
        if not isinstance(data, list):
            raise invalid(field, 'a list')
        made = _hashable(field, data, [_LISTED_MAX], 0)
        if isinstance(default, tuple):
            return made
        return frozenset(text(f'{field}[{place}]', each, TEXT_MAX, 0)
                         for place, each in enumerate(made))
    if isinstance(default, str):
        return text(field, data, TEXT_MAX, 0)
    return _hashable(field, data, [_LISTED_MAX], 0)


def listed(field: str, data: Any) -> tuple[Any, ...]:
    """Return a list as a tuple."""
    if not isinstance(data, list):
        raise invalid(field, 'a list')
    made: tuple[Any, ...] = _hashable(field, data, [_LISTED_MAX], 0)
    return made


def _hashable(field: str, data: Any, remaining: list[int], depth: int) -> Any:
    remaining[0] -= 1
    if remaining[0] < 0 or depth > _DEPTH_MAX:
        raise invalid(field, f'at most {_LISTED_MAX} values, in at most '
                             f'{_DEPTH_MAX} levels of lists')
    if isinstance(data, Sequence) and not isinstance(data, str):
        return tuple(
            _hashable(field, each, remaining, depth + 1) for each in data)
    if data is not None and not isinstance(data, (str, int, float)):
        raise invalid(field, 'strings, numbers or lists of these')
    if isinstance(data, str):
        return text(field, data, TEXT_MAX, 0)
    if isinstance(data, float) and not math.isfinite(data):
        raise invalid(field, 'finite numbers')
    return data
