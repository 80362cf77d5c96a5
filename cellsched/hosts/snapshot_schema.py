# SPDX-License-Identifier: Apache-2.0
"""Validation of a snapshot document, field by field."""

from collections.abc import Sequence
import math
import re
from typing import Any

import numpy as np

from cellsched import exception
from cellsched.hosts import columns

#: The greatest number that a column holds exactly.
NUMBER_MAX = 2.0 ** 53

#: The maximum length of a text, as JSON, that describes a host.
TEXT_MAX = 65_536

#: Limits of a host's lists: the number of values, and the nesting depth.
_LISTED_MAX = 10_000
_DEPTH_MAX = 5

_ROOM = re.compile(
    re.escape(columns.AVAILABLE) + r'[A-Z0-9_]{1,255}(@[1-9][0-9]{0,2})?')


def invalid(field: str, expected: str) -> exception.InvalidField:
    """Return the error for a field."""
    return exception.InvalidField(
        where='snapshot', field=field, expected=expected)


def check_keys(
    given: Any, where: str, known: set[str] | None, needed: set[str]
) -> None:
    """Check that a value is an object with these fields.

    :param known: the allowed fields; None allows any further field
    """
    field = where or 'document'
    if not isinstance(given, dict):
        raise invalid(field, 'an object')
    for name in sorted(needed - given.keys()):
        raise invalid(f'{where}.{name}'.lstrip('.'), 'is needed')
    for name in sorted(given.keys() - (given.keys() if known is None
                                       else known)):
        raise invalid(field, f'no field {name!r:.80}')


def items(field: str, given: Any, most: int) -> list[tuple[int, Any]]:
    """Yield the items of a list, each with its field name."""
    if not isinstance(given, list) or len(given) > most:
        raise invalid(field, f'a list of at most {most}')
    return list(enumerate(given))


def text(field: str, given: Any, most: int = 255, least: int = 1) -> str:
    """Return a text of an allowed length."""
    if not isinstance(given, str) or not least <= len(given) <= most:
        raise invalid(field, f'a text of {least} to {most} characters')
    try:
        given.encode()
    except UnicodeError:
        # JSON can hold a lone surrogate, which cannot be encoded.
        raise invalid(field, 'whole characters') from None
    return given


def shown(field: str, given: Any, least: int = 1) -> str:
    """Return a name that is safe to print on a terminal."""
    if not text(field, given, least=least).isprintable():
        raise invalid(field, 'printable characters')
    return str(given)


def number(field: str, given: Any, least: float, most: float) -> float:
    """Return a finite number between two bounds."""
    if type(given) not in (int, float) or not least <= given <= most:
        raise invalid(field, f'a number from {least:g} to {most:g}')
    return float(given)


def check_available(name: str, count: int, most: int) -> None:
    """Check that an unknown column is an ``available`` column."""
    if not _ROOM.fullmatch(name):
        raise invalid(
            'columns', f'columns that exist; {name!r:.80} is unknown')
    if count > most:
        raise invalid('columns', f'at most {most} of {columns.AVAILABLE}…')


def check_units(field: str, units: Any) -> None:
    """Check that a host's allocation units are well-formed."""
    if not isinstance(units, tuple) or not all(
            isinstance(each, tuple) and len(each) == 4
            and isinstance(each[0], str)
            and all(type(bound) is int and bound >= 1
                    for bound in each[1:]) for each in units):
        raise invalid(field, 'lists of a resource class, and of the least, '
                             'the most and the step of an amount, from 1 on')


def children(field: str, given: Any) -> tuple[Any, ...]:
    """Return the child providers of a host, in the form of the table."""
    if len(given) > columns.CHILDREN_MAX or not all(
            isinstance(each, tuple) and len(each) == 2
            and type(each[0]) is int and 0 <= each[0] <= len(given)
            and isinstance(each[1], tuple)
            and all(isinstance(trait, str) for trait in each[1])
            for each in given):
        raise invalid(
            field, f'at most {columns.CHILDREN_MAX} lists of the number of '
            'another one, or 0, and of a list of traits')
    return tuple((parent, frozenset(traits)) for parent, traits in given)


def column(
    field: str, given: Any, spec: columns.Column | None, count: int
) -> Any:
    """Return a column's values, one for each host.

    :param spec: None for an ``available`` column
    :param count: the required number of values
    """
    kind = columns.WHOLE if spec is None else spec.dtype
    if kind == columns.CODED:
        assert spec is not None
        check_keys(given, field, {'values', 'codes'}, {'values', 'codes'})
        values = [_value(f'{field}.values[{place}]', value, spec.default)
                  for place, value in items(
                      f'{field}.values', given['values'], max(count, 1))]
        codes = _numbers(f'{field}.codes', given['codes'], count)
        if count and not (codes.min() >= 0 and codes.max() < len(values)
                          and (codes == np.floor(codes)).all()):
            raise invalid(f'{field}.codes', 'places of its values')
        return [values[int(code)] for code in codes]
    if kind == 'object':
        assert spec is not None
        _check_length(field, given, count)
        return [each if each is None and spec.default is None
                else shown(f'{field}[{place}]', each, least=0)
                for place, each in enumerate(given)]
    if kind == 'bool':
        _check_length(field, given, count)
        if not all(type(each) is bool for each in given):
            raise invalid(field, 'true or false for each host')
        return given
    found = _numbers(field, given, count)
    if kind == columns.WHOLE and not (found == np.floor(found)).all():
        raise invalid(field, 'whole numbers')
    return found


def _numbers(field: str, given: Any, count: int) -> Any:
    _check_length(field, given, count)
    if not {*map(type, given)} <= {int, float}:
        place = next(place for place, each in enumerate(given)
                     if type(each) not in (int, float))
        raise invalid(f'{field}[{place}]', 'a number')
    try:
        found = np.array(given, dtype='float64')
    except OverflowError:
        found = np.full(1, np.nan)
    if not (np.abs(found) <= NUMBER_MAX).all():
        raise invalid(
            field, f'finite numbers, none beyond {NUMBER_MAX:.0f}')
    return found


def _check_length(field: str, given: Any, count: int) -> None:
    if not isinstance(given, list) or len(given) != count:
        raise invalid(
            field, f'a list of {count} values, one for each host')


def _value(field: str, given: Any, default: Any) -> Any:
    """Return a value of a coded column; the default determines its type."""
    if isinstance(default, (tuple, frozenset)):
        if not isinstance(given, list):
            raise invalid(field, 'a list')
        made = _hashable(field, given, [_LISTED_MAX], 0)
        if isinstance(default, tuple):
            return made
        return frozenset(text(f'{field}[{place}]', each, TEXT_MAX, 0)
                         for place, each in enumerate(made))
    if isinstance(default, str):
        return text(field, given, TEXT_MAX, 0)
    return _hashable(field, given, [_LISTED_MAX], 0)


def listed(field: str, given: Any) -> tuple[Any, ...]:
    """Return a list as a tuple."""
    if not isinstance(given, list):
        raise invalid(field, 'a list')
    made: tuple[Any, ...] = _hashable(field, given, [_LISTED_MAX], 0)
    return made


def _hashable(field: str, given: Any, remaining: list[int], depth: int) -> Any:
    remaining[0] -= 1
    if remaining[0] < 0 or depth > _DEPTH_MAX:
        raise invalid(field, f'at most {_LISTED_MAX} values, nested at most '
                             f'{_DEPTH_MAX} times')
    if isinstance(given, Sequence) and not isinstance(given, str):
        return tuple(
            _hashable(field, each, remaining, depth + 1) for each in given)
    if given is not None and not isinstance(given, (str, int, float)):
        raise invalid(field, 'texts, numbers or lists of these')
    if isinstance(given, str):
        return text(field, given, TEXT_MAX, 0)
    if isinstance(given, float) and not math.isfinite(given):
        raise invalid(field, 'finite numbers')
    return given
