# SPDX-License-Identifier: Apache-2.0
"""Checks that a query does not order a number and a text."""

import functools
from typing import Any

from cellsched.filters import attribute_kinds
from cellsched.filters.json_filter import query

_ORDERS = frozenset(('<', '>', '<=', '>='))


@functools.lru_cache(128)
def read(text: str) -> query.QueryCall:
    """Return a query that does not order a number and a text.

    The check depends on the query alone, not on the values of the hosts: the
    same query is always refused or always accepted.

    :raises cellsched.exception.InvalidField: names the invalid part
    """
    call = query.read(text)
    _check(call, '')
    return call


def _check(call: query.QueryCall, place: str) -> None:
    for number, node in enumerate(call.arguments, 1):
        if isinstance(node, query.QueryCall):
            _check(node, f'{place}[{number}]')
    if call.operator not in _ORDERS:
        return
    remaining = list(filter(None, map(_kind, call.arguments)))
    while remaining:
        first, *remaining = remaining
        # If a host lacks the first value, the next one takes its place.
        if first != attribute_kinds.MIXED:
            if not {first, attribute_kinds.MIXED}.issuperset(remaining):
                query.refuse(
                    place, 'to compare two numbers or two texts')
            return


def _kind(node: Any) -> str | None:
    """Return the kind of an argument; None if it is always dropped."""
    if isinstance(node, query.Name):
        return attribute_kinds.kind(node.path)
    if isinstance(node, str):
        return attribute_kinds.TEXT if node else None
    return attribute_kinds.NUMBER
