# SPDX-License-Identifier: Apache-2.0
"""Parsing of the ``query`` hint into a tree."""

import dataclasses
import json
from typing import Any
from typing import NoReturn

from cellsched import exception

LENGTH_MAX = 16384
DEPTH_MAX = 8
NODES_MAX = 64
TEXT_MAX = 255
NUMBER_MAX = 2 ** 63

OPERATORS = '= < > <= >= in not or and'.split()


@dataclasses.dataclass(frozen=True)
class Name:
    """An attribute of a host: its name, and JSON keys in it."""

    path: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class QueryCall:
    """An operator with its arguments."""

    operator: str
    arguments: tuple[Any, ...]


def refuse(place: str, expected: str) -> NoReturn:
    """Return the error for a part of the query, such as ``[1][0]``."""
    raise exception.InvalidField(
        where='request', field=f'scheduler_hints.query{place}',
        expected=expected)


def read(text: str) -> QueryCall:
    """Return a query as a tree.

    :raises cellsched.exception.InvalidField: names the invalid part
    """
    if len(text) > LENGTH_MAX:
        refuse('', f'at most {LENGTH_MAX} characters')
    try:
        value = json.loads(text)
    except RecursionError:
        refuse('', f'at most {DEPTH_MAX} lists in each other')
    except ValueError:
        refuse('', 'a JSON list')
    return _call(value, '', 1, iter(range(1, NODES_MAX)))


def _call(value: Any, place: str, depth: int, remaining: Any) -> QueryCall:
    if not isinstance(value, list) or not value:
        refuse(place, 'a list of an operator and its arguments')
    if depth > DEPTH_MAX:
        refuse(place, f'at most {DEPTH_MAX} lists in each other')
    operator, *arguments = value
    if not isinstance(operator, str) or operator not in OPERATORS:
        refuse(f'{place}[0]', f'one of the operators {" ".join(OPERATORS)}')
    return QueryCall(operator, tuple(
        _node(argument, f'{place}[{number}]', depth, remaining)
        for number, argument in enumerate(arguments, 1)))


def _node(value: Any, place: str, depth: int, remaining: Any) -> Any:
    if next(remaining, None) is None:
        refuse(place, f'at most {NODES_MAX} lists, numbers and texts in all')
    if isinstance(value, list):
        return _call(value, place, depth + 1, remaining)
    if isinstance(value, str):
        if len(value) > TEXT_MAX:
            refuse(place, f'at most {TEXT_MAX} characters')
        return _name(value, place) if value.startswith('$') else value
    if not isinstance(value, (int, float)):
        refuse(place, 'a number, a text, true, false or a list')
    if not abs(value) < NUMBER_MAX:
        refuse(place, 'a number below 2 to the 63rd')
    return value


def _name(text: str, place: str) -> Name:
    path = tuple(text[1:].split('.'))
    if not all(path) or any(part.startswith('_') for part in path):
        refuse(place, '$name or $name.key, none of which begins with _')
    return Name(path)
