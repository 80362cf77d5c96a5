# SPDX-License-Identifier: Apache-2.0
"""Keep hosts that match the user's query."""

from collections.abc import Sequence
import functools
import operator
from typing import Any

import numpy as np

from cellsched.filters import attributes
from cellsched.filters import base
from cellsched.hosts import view
from cellsched import objects
from cellsched.objects import queries

_COMPARES = {'=': operator.eq, '<': operator.lt, '>': operator.gt,
             '<=': operator.le, '>=': operator.ge, 'in': operator.eq}

_ORDERS = frozenset(('<', '>', '<=', '>='))


class JsonFilter(base.Filter):
    """Reject a host that does not match the scheduler hint ``query``.

    The query is a JSON list of an operator and its arguments. Arguments are
    numbers, texts, ``true``, ``false`` or nested lists, as in ``["and",
    [">=", "$free_ram_mb", 4096], ["=", "$stats.ssd", "yes"]]``. ``$name`` is
    a column of the host table, and ``$name.key`` a key of its JSON value.
    Values that a host does not have are dropped from the arguments.

    ``=``, ``<``, ``>``, ``<=`` and ``>=`` compare the first argument with
    each further one. ``in`` is true if the first equals one of the further
    ones. With fewer than two arguments all of these are false. ``and`` is
    true if all arguments are true, ``or`` if any is true, and ``not`` if any
    is false.

    Numbers and texts cannot be ordered. A query that always orders a number
    and a text is refused; otherwise the comparison is false.

    A query has at most 16384 characters, 64 values, and 8 levels of lists. A
    text in it has at most 255 characters.
    """

    reason = 'does not fit the query'
    local = True
    hints = frozenset({'query'})

    def applies(self, request: objects.RequestSpec) -> bool:
        # Refuse an invalid query even if no hosts remain.
        return any(request.hint('query')) and bool(_query(request))

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask:
        fits = _Evaluation(hosts).call(_query(request))
        return np.array(np.broadcast_to(fits, len(hosts)))


class _Evaluation:
    """Evaluates a query on hosts; each attribute is looked up once."""

    def __init__(self, hosts: view.Hosts) -> None:
        self._find = functools.cache(functools.partial(attributes.find, hosts))

    def call(self, call: queries.QueryCall) -> Any:
        """Return a mask, or one boolean for all hosts."""
        arguments = [found for argument in call.arguments
                     if (found := self._operand(argument)) is not None]
        if call.operator in _COMPARES:
            return _compare(call.operator, arguments)
        truths = list(map(_truth, arguments))
        if call.operator == 'or':
            return functools.reduce(operator.or_, truths, np.False_)
        present = map(_present, arguments)
        # A missing value is not true.
        false = functools.reduce(operator.or_, (
            here & ~true for here, true in zip(present, truths)), np.False_)
        return ~false if call.operator == 'and' else false

    def _operand(self, node: Any) -> Any:
        if isinstance(node, queries.QueryCall):
            return self.call(node)
        if isinstance(node, queries.Name):
            return self._find(node.path)
        return None if node == '' else node


def _query(request: objects.RequestSpec) -> queries.QueryCall:
    texts = request.hint('query')
    if len(texts) > 1:
        queries.refuse('', 'one', f'{len(texts)} queries are given')
    return _read(texts[0])


def _truth(operand: Any) -> Any:
    """Return for which hosts a value counts as true."""
    if isinstance(operand, attributes.Attribute):
        return operand.each(bool)
    return operand if np.ndim(operand) else np.bool_(bool(operand))


@functools.lru_cache(128)
def _read(text: str) -> queries.QueryCall:
    """Return a query that does not order a number and a text.

    The check depends on the query alone, not on the values of the hosts: the
    same query is always refused or always accepted.

    :raises cellsched.exception.InvalidField: names the invalid part
    """
    call = queries.parse(text)
    _check_order(call, '')
    return call


def _check_order(call: queries.QueryCall, place: str) -> None:
    for number, node in enumerate(call.arguments, 1):
        if isinstance(node, queries.QueryCall):
            _check_order(node, f'{place}[{number}]')
    if call.operator not in _ORDERS:
        return
    remaining = list(filter(None, map(_argument_kind, call.arguments)))
    while remaining:
        first, *remaining = remaining
        # If a host lacks the first value, the next one takes its place.
        if first != attributes.MIXED:
            if not {first, attributes.MIXED}.issuperset(remaining):
                queries.refuse(
                    place, 'two numbers or two strings',
                    f'{call.operator} cannot compare a number with a string')
            return


def _argument_kind(node: Any) -> str | None:
    """Return the kind of an argument; None if it is always dropped."""
    if isinstance(node, queries.Name):
        return attributes.kind_of(node.path)
    if isinstance(node, str):
        return attributes.TEXT if node else None
    return attributes.NUMBER


def _present(operand: Any) -> Any:
    """Return which hosts have the value: a mask, or one boolean for all."""
    if _kind(operand) != attributes.MIXED:
        return np.True_
    return operand.each(lambda value: value is not None)


def _compare(name: str, operands: Sequence[Any]) -> Any:
    """Return for which hosts the first operand compares with the rest.

    Values that a host does not have are dropped, the first one too. A host
    with fewer than two remaining operands does not match.
    """
    some = name == 'in'
    holds = functools.partial(_holds, _COMPARES[name])
    existing = [_present(operand) for operand in operands]
    # open_ has the hosts without any earlier operand. Of these, the hosts with
    # this operand have it as their first one, and compare it with the rest.
    result, open_ = np.False_, np.True_
    for place, first in enumerate(operands, 1):
        own = open_ & existing[place - 1]
        met, rest = own & (not some), np.False_
        for here, other in zip(existing[place:], operands[place:]):
            rest = rest | here
            if some:
                met = met | own & here & holds(first, other)
            elif met.any():
                met = met & (~here | holds(first, other))
        result = result | met & rest
        open_ = open_ & ~existing[place - 1]
        if not open_.any():
            break
    return result


def _holds(compares: Any, first: Any, second: Any) -> Any:
    """Return where a comparison holds; text never compares with a number."""
    kinds = {_kind(first), _kind(second)}
    if attributes.MIXED not in kinds:
        if len(kinds) == 1:
            return np.asarray(compares(_plain(first), _plain(second)))
        return np.False_
    if _is_one(second):
        return first.each(lambda value: _compared(compares, value, second))
    if _is_one(first):
        return second.each(lambda value: _compared(compares, first, value))
    if compares is operator.eq and attributes.NUMBER not in kinds:
        return first.values == second.values
    result = compares(_numbers(first), _numbers(second))
    if attributes.NUMBER not in kinds:
        both = np.logical_and(*(operand.each(
            lambda value: isinstance(value, str)) for operand in (
                first, second)))
        result[both] = compares(first.values[both], second.values[both])
    return result


def _compared(compares: Any, first: Any, second: Any) -> bool:
    try:
        return bool(compares(first, second))
    except TypeError:
        return False


def _numbers(operand: Any) -> Any:
    known = isinstance(operand, attributes.Attribute)
    return operand.numbers if known else operand


def _plain(operand: Any) -> Any:
    known = isinstance(operand, attributes.Attribute)
    return operand.column if known else operand


def _kind(operand: Any) -> str:
    if isinstance(operand, attributes.Attribute):
        return operand.kind
    return attributes.TEXT if isinstance(operand, str) else attributes.NUMBER


def _is_one(operand: Any) -> bool:
    """Return whether the operand is the same for all hosts."""
    return not isinstance(operand, attributes.Attribute) and (
        np.ndim(operand) == 0)
