# SPDX-License-Identifier: Apache-2.0
"""Columns of plug-ins, filled from the agents' reports on nodes.

A host has the column's default if its report has no value for the column, or a
value that does not fit.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import logging
import re
from typing import Any

import numpy as np
from oslo_utils import strutils

from cellsched import exception
from cellsched.hosts import columns
from cellsched import plugins

#: The parts of a report that can fill a column.
STATS, METRICS, TRAITS = PARTS = ('stats', 'metrics', 'traits')

#: The maximum length of a text, which must also be printable.
TEXT_MAX = 255

_SOURCE = re.compile(rf'({"|".join(PARTS)})\.(.{{1,255}})')


def check(field: str, column: columns.Column) -> None:
    """Check that a column can be filled from its source.

    :param field: name of the plug-in in an error
    :raises cellsched.exception.ConfigurationInvalid: the source or the type of
        the column is not supported
    """
    if column.source is None:
        return
    if not (isinstance(column.source, str)
            and _SOURCE.fullmatch(column.source)):
        raise exception.ConfigurationInvalid(
            field=field,
            problem=f'the source of column {column.name} is not valid',
            expected=f'one of {", ".join(f"{part}.NAME" for part in PARTS)}')
    try:
        holds = (isinstance(column.default, str | None)
                 if column.dtype == columns.CODED
                 else np.dtype(column.stored).kind in 'biufO')
    except TypeError:
        holds = False
    if not holds:
        raise exception.ConfigurationInvalid(
            field=field, problem=f'column {column.name} has a source, and '
            'its type is not supported',
            expected='numbers, booleans or strings')


def filled(
    sourced: Iterable[columns.Column],
    parts: Mapping[str, Sequence[Mapping[str, Any]]],
) -> dict[str, list[Any]]:
    """Return the values that nodes report for columns, by column name.

    :param sourced: columns with sources
    :param parts: for each part of a report, one mapping for each node
    """
    found: dict[str, list[Any]] = {}
    for column in sourced:
        assert column.source is not None
        part, _, name = column.source.partition('.')
        read = _reader(column)
        values = found[column.name] = []
        for each in parts[part]:
            value = None
            try:
                value = read(each[name])
            except (KeyError, OverflowError, TypeError, ValueError):
                pass
            values.append(column.default if value is None else value)
    return found


def _reader(column: columns.Column) -> Callable[[Any], Any]:
    """Return the function that converts a reported value.

    For a value that does not fit the column, the function returns None or
    raises ``OverflowError``, ``TypeError`` or ``ValueError``.
    """
    if column.dtype in (columns.CODED, 'object'):
        return _text
    dtype = np.dtype(column.stored)
    if dtype.kind == 'b':
        return _truth
    bounds = np.iinfo(dtype) if dtype.kind in 'iu' else np.finfo(dtype)
    most = min(float(bounds.max), columns.NUMBER_MAX)
    least = max(float(bounds.min), -columns.NUMBER_MAX)
    kind: type[float] = float
    if column.dtype == columns.WHOLE or dtype.kind in 'iu':
        kind = int

    def read(value: Any) -> float | None:
        number = kind(value)
        # NaN has no order.
        return number if least <= number <= most else None
    return read


def _truth(value: Any) -> bool:
    return (value if isinstance(value, bool)
            else strutils.bool_from_string(value, strict=True))


def _text(value: Any) -> str | None:
    return value if (isinstance(value, str) and len(value) <= TEXT_MAX
                     and value.isprintable()) else None


LOG = logging.getLogger(__name__)


def load() -> list[columns.Column]:
    """Return the columns of every installed plug-in.

    No option enables these plug-ins, so a broken one must not stop the
    service: it is logged and skipped. A filter that reads its column fails
    with ``ColumnNotFound``.
    """
    usable, broken = plugins.load_installed(plugins.COLUMNS, _load)
    for problem in broken.values():
        LOG.error('Columns of a plug-in are ignored: %s', problem)
    return [column for more in usable.values() for column in more]


def _load(name: str) -> list[columns.Column]:
    value = plugins.load(plugins.COLUMNS, name)
    return check_columns(plugins.field_of(plugins.COLUMNS, name), value)


def check_columns(field: str, value: Any) -> list[columns.Column]:
    """Check the columns of a plug-in and return them.

    :param field: name of the plug-in in an error
    :raises cellsched.exception.ConfigurationInvalid: a column is not valid
    """
    found = plugins.attempt(field, 'columns in a sequence', lambda: [*value])
    standard = {column.name: column for column in (
        *columns.STANDARD, *columns.CELL_FACTS)}
    for column in found:
        if not isinstance(column, columns.Column):
            raise exception.ConfigurationInvalid(
                field=field, problem=f'{column!a:.60} is not a column',
                expected='a list of cellsched.hosts.columns.Column')
        if standard.get(column.name, column) != column:
            raise exception.ConfigurationInvalid(
                field=field,
                problem=f'the host table has a column {column.name} already',
                expected='a new name')
        check(field, column)
    return found
