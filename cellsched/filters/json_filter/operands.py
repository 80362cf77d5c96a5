# SPDX-License-Identifier: Apache-2.0
"""Operands of a query: constants, masks, and attributes of hosts."""

from collections.abc import Sequence
import functools
import operator
from typing import Any

import numpy as np

from cellsched.filters import attributes

COMPARES = {'=': operator.eq, '<': operator.lt, '>': operator.gt,
            '<=': operator.le, '>=': operator.ge, 'in': operator.eq}


def present(operand: Any) -> Any:
    """Return which hosts have the value: a mask, or one boolean for all."""
    if _kind(operand) != attributes.MIXED:
        return np.True_
    return operand.each(lambda value: value is not None)


def compare(operator_: str, operands: Sequence[Any]) -> Any:
    """Return for which hosts the first operand compares with the rest.

    Values that a host does not have are dropped, the first one too. A host
    with fewer than two remaining operands does not match.
    """
    some = operator_ == 'in'
    holds = functools.partial(_holds, COMPARES[operator_])
    existing = [present(operand) for operand in operands]
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
