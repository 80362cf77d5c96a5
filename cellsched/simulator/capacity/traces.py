# SPDX-License-Identifier: Apache-2.0
"""Readers of recorded load: traces of servers in files of public data sets.

``huawei`` is a CSV file with the columns ``vmid``, ``cpu``, ``memory`` in GB,
``time`` in seconds, and ``type``: 0 for a creation, 1 for a deletion. The form
is that of Huawei-East-1.

``azure-packing`` is an SQLite database with the tables ``vm`` and ``vmType``.
The form is that of Azure's traces for packing of 2020. Sizes are parts of a
machine; a server takes them of a machine of a given size.

No data set is part of this project.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import csv
import math
import pathlib
import sqlite3
from typing import Any
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cellsched.validation import json_schema

#: The machine that sizes of ``azure-packing`` are parts of, by default.
MACHINE: Mapping[str, int] = {
    'vcpus': 64, 'memory_mb': 262144, 'disk_gb': 4000}

_SQLITE = b'SQLite format 3\0'
_DAY_S = 86400

#: The columns of the file, each with its expectation.
_HUAWEI: Mapping[str, tuple[str, Callable[[float], bool]]] = {
    'vmid': ('a whole number', float.is_integer),
    'cpu': ('a whole number of at least 1',
            lambda value: value >= 1 and value.is_integer()),
    'memory': ('a number above 0', lambda value: value > 0),
    'time': ('a number of at least 0', lambda value: value >= 0),
    'type': ('0 for a creation, or 1 for a deletion',
             lambda value: value in (0, 1))}

#: The columns of the tables.
_AZURE = {
    'vm': ('tenantId', 'vmTypeId', 'starttime', 'endtime'),
    'vmType': ('vmTypeId', 'machineId', 'core', 'memory', 'hdd', 'ssd')}

Column = npt.NDArray[Any]

Size = tuple[int, int, int]


class Trace(NamedTuple):
    """Servers in the order of their creation.

    :param at: seconds since the start; 0 for a server that was there before
    :param lifetimes: seconds; infinity for a server without an end
    :param projects: the project of each, a number
    :param flavors: the place of each in ``sizes``
    :param sizes: vCPUs, memory in MB and disk in GB of each flavor
    :param batched: whether equal servers of one project that are created at
        the same time are one request
    """

    at: Column
    lifetimes: Column
    projects: Column
    flavors: Column
    sizes: list[Size]
    batched: bool = False


def read(
    path: pathlib.Path, form: str | None = None,
    machine: Mapping[str, int] | None = None,
) -> Trace:
    """Read a trace.

    :param form: a key of :data:`FORMS`; by default the content tells it
    :param machine: ``vcpus``, ``memory_mb`` and ``disk_gb`` of a machine, and
        ``id``, the kind of machine whose sizes are read; by default the kind
        that offers most types
    :raises cellsched.exception.InvalidField: names the file, the field and
        the expectation
    """
    try:
        with path.open('rb') as file:
            is_database = file.read(len(_SQLITE)) == _SQLITE
    except OSError as exc:
        raise json_schema.invalid(
            path, (), 'a readable file',
            f'the file cannot be read: {exc.strerror}') from None
    if form is None:
        form = 'azure-packing' if is_database else 'huawei'
    trace = FORMS[form](path, {**MACHINE, **(machine or {})})
    if not len(trace.at):
        raise json_schema.invalid(path, (), 'at least one server',
                                  'it has no servers')
    # Servers of one request are beside each other.
    order = np.lexsort((trace.flavors, trace.projects, trace.at))
    return trace._replace(
        at=trace.at[order], lifetimes=trace.lifetimes[order],
        projects=trace.projects[order], flavors=trace.flavors[order])


def _read_huawei(path: pathlib.Path, machine: Mapping[str, int]) -> Trace:
    """Read creations, and the deletions that end them."""
    at: list[float] = []
    lifetimes: list[float] = []
    flavors: list[int] = []
    sizes: dict[Size, int] = {}
    alive: dict[float, int] = {}
    for server, cpu, memory, time, kind in _rows(path):
        if kind:
            place = alive.pop(server, None)
            if place is not None:
                lifetimes[place] = max(time - at[place], 0.0)
            continue
        alive[server] = len(at)
        at.append(time)
        lifetimes.append(math.inf)
        size = int(cpu), round(memory * 1024), 0
        flavors.append(sizes.setdefault(size, len(sizes)))
    return Trace(np.array(at), np.array(lifetimes),
                 np.zeros(len(at), 'int64'), np.array(flavors, 'int64'),
                 [*sizes])


def _rows(path: pathlib.Path) -> Iterator[list[float]]:
    """Yield the values of the rows, checked."""
    try:
        with path.open(encoding='utf-8', newline='') as file:
            rows = csv.DictReader(file)
            rows.fieldnames = [each.strip() for each in rows.fieldnames or ()]
            for name in _HUAWEI:
                if name not in rows.fieldnames:
                    raise json_schema.invalid(
                        path, ('line 1',), f'a header with the column {name}',
                        'the column is missing')
            for row in rows:
                yield [_number(path, rows.line_num, name, row[name])
                       for name in _HUAWEI]
    except (csv.Error, UnicodeDecodeError):
        raise json_schema.invalid(path, (), 'a CSV file in UTF-8',
                                  'it cannot be parsed') from None


def _number(
    path: pathlib.Path, line: int, name: str, text: str | None
) -> float:
    expected, holds = _HUAWEI[name]
    with contextlib.suppress(ValueError):
        value = float(text or '')
        if math.isfinite(value) and holds(value):
            return value
    raise json_schema.invalid(path, (f'line {line}', name), expected)


def _read_azure(path: pathlib.Path, machine: Mapping[str, int]) -> Trace:
    """Read the servers whose types a kind of machine offers."""
    try:
        with contextlib.closing(sqlite3.connect(
                f'{path.resolve().as_uri()}?mode=ro', uri=True)) as database:
            _check_tables(path, database)
            sizes, places = _types(path, database, machine)
            columns: list[list[Any]] = [[], [], [], []]
            for row in database.execute(
                    'SELECT starttime, endtime, tenantId, vmTypeId FROM vm'):
                for column, value in zip(columns, row):
                    column.append(value)
    except sqlite3.Error as exc:
        raise json_schema.invalid(
            path, (), 'an SQLite database', f'{exc}') from None
    try:
        starts, ends = (np.array([
            math.inf if each is None else each for each in column], 'float64')
            for column in columns[:2])
    except (TypeError, ValueError):
        raise json_schema.invalid(
            path, ('vm', 'starttime or endtime'), 'numbers of days') from None
    projects = np.unique(
        np.array(list(map(str, columns[2]))), return_inverse=True)[1]
    flavors = np.array([places.get(each, -1) for each in columns[3]], 'int64')
    kept = (flavors >= 0) & np.isfinite(starts) & (
        ends > np.maximum(starts, 0))
    at = np.maximum(starts[kept], 0)
    return Trace(
        at * _DAY_S, (ends[kept] - at) * _DAY_S, projects[kept],
        flavors[kept], sizes, True)


def _check_tables(path: pathlib.Path, database: sqlite3.Connection) -> None:
    for table, names in _AZURE.items():
        present = {row[1].lower() for row in database.execute(
            f'PRAGMA table_info({table})')}
        for name in names:
            if name.lower() not in present:
                raise json_schema.invalid(
                    path, (table, name), 'a packing trace of Azure',
                    'the column is missing')


def _types(
    path: pathlib.Path, database: sqlite3.Connection,
    machine: Mapping[str, int],
) -> tuple[list[Size], dict[Any, int]]:
    """Return sizes, and the place among them of each type of server."""
    kinds = [row[0] for row in database.execute(
        'SELECT machineId FROM vmType GROUP BY machineId '
        'ORDER BY COUNT(*) DESC, machineId')]
    kind = machine.get('id', kinds[0] if kinds else None)
    if kind not in kinds:
        raise json_schema.invalid(
            path, ('vmType', 'machineId'),
            f'one of {", ".join(map(str, sorted(kinds)))}',
            f'unknown machine {kind}')
    sizes: dict[Size, int] = {}
    places = {}
    for name, core, memory, hdd, ssd in database.execute(
            'SELECT vmTypeId, core, memory, hdd, ssd FROM vmType '
            'WHERE machineId = ? ORDER BY vmTypeId', (kind,)):
        size = (max(round((core or 0) * machine['vcpus']), 1),
                max(round((memory or 0) * machine['memory_mb']), 1),
                round(((hdd or 0) + (ssd or 0)) * machine['disk_gb']))
        places[name] = sizes.setdefault(size, len(sizes))
    return [*sizes], places


#: The readers of traces, by form.
FORMS: Mapping[
    str, Callable[[pathlib.Path, Mapping[str, int]], Trace]] = {
        'azure-packing': _read_azure, 'huawei': _read_huawei}
