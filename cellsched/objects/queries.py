# SPDX-License-Identifier: Apache-2.0
"""Queries: the texts of the scheduler hint ``query``, as trees."""

import dataclasses
import json
from typing import Any
from typing import NoReturn

from cellsched import exception

_LENGTH_MAX = 16384
_DEPTH_MAX = 8
_NODES_MAX = 64
_TEXT_MAX = 255
_NUMBER_MAX = 2 ** 63

_OPERATORS = '= < > <= >= in not or and'.split()


@dataclasses.dataclass(frozen=True)
class Name:
    """An attribute of a host: its name, and JSON keys in it."""

    path: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class QueryCall:
    """An operator with its arguments."""

    operator: str
    arguments: tuple[Any, ...]


def refuse(
    place: str, expected: str, problem: str | None = None
) -> NoReturn:
    """Refuse a part of the query, such as ``[1][0]``."""
    raise exception.InvalidField(
        where='request', field=f'scheduler_hints.query{place}',
        problem=problem, expected=expected)


def parse(text: str) -> QueryCall:
    """Return a query as a tree.

    :raises cellsched.exception.InvalidField: names the invalid part
    """
    if len(text) > _LENGTH_MAX:
        refuse('', f'at most {_LENGTH_MAX} characters')
    try:
        value = json.loads(text)
    except RecursionError:
        refuse('', f'at most {_DEPTH_MAX} levels of lists')
    except ValueError:
        refuse('', 'a JSON list')
    return _call(value, '', 1, iter(range(1, _NODES_MAX)))


def _call(value: Any, place: str, depth: int, budget: Any) -> QueryCall:
    if not isinstance(value, list) or not value:
        refuse(place, 'a list of an operator and its arguments')
    if depth > _DEPTH_MAX:
        refuse(place, f'at most {_DEPTH_MAX} levels of lists')
    name, *arguments = value
    if not isinstance(name, str) or name not in _OPERATORS:
        refuse(f'{place}[0]', f'one of the operators {" ".join(_OPERATORS)}')
    return QueryCall(name, tuple(
        _node(argument, f'{place}[{number}]', depth, budget)
        for number, argument in enumerate(arguments, 1)))


def _node(value: Any, place: str, depth: int, budget: Any) -> Any:
    if next(budget, None) is None:
        refuse(place, f'at most {_NODES_MAX} lists, numbers and strings')
    if isinstance(value, list):
        return _call(value, place, depth + 1, budget)
    if isinstance(value, str):
        if len(value) > _TEXT_MAX:
            refuse(place, f'at most {_TEXT_MAX} characters')
        if not value.startswith('$'):
            return value
        path = tuple(value[1:].split('.'))
        if not all(path) or any(part.startswith('_') for part in path):
            refuse(place, '$name or $name.key, where no part begins with _')
        return Name(path)
    if not isinstance(value, (int, float)):
        refuse(place, 'a number, a string, true, false or a list')
    if not abs(value) < _NUMBER_MAX:
        refuse(place, 'a number below 2 to the 63rd')
    return value


def is_query(text: str) -> bool:
    """Return whether a text is a query."""
    try:
        parse(text)
    except exception.InvalidField:
        return False
    return True
