# SPDX-License-Identifier: Apache-2.0
"""Operators in a flavor's extra specs, and the values that they match.

The first word may be an operator. Spaces separate operands.

* ``=``, ``==``, ``!=``, ``>=``, ``<=`` compare numbers; ``=`` means at least
* ``s==``, ``s!=``, ``s<``, ``s<=``, ``s>``, ``s>=`` compare text
* ``<in> a``: text with ``a``; ``<all-in> a b``: text with all of them
* ``<or> a <or> b``: one of these texts
* anything else: exactly this text

Words after the operands are ignored. An operator without an operand, or a
number compared with a value that is not numeric, matches nothing.
"""

from collections.abc import Callable
import functools
import math
import operator

from cellsched import exception

#: Maximum length of a requirement.
LENGTH_MAX = 1024

Match = Callable[[str | None], bool]

_NUMBERS: dict[str, Callable[[float, float], bool]] = {
    '=': operator.ge, '==': operator.eq, '!=': operator.ne,
    '>=': operator.ge, '<=': operator.le,
}

_TEXTS: dict[str, Callable[[str, str], bool]] = {
    's==': operator.eq, 's!=': operator.ne, 's<': operator.lt,
    's<=': operator.le, 's>': operator.gt, 's>=': operator.ge,
    '<in>': operator.contains,
}


def matcher(requirement: str, field: str) -> Match:
    """Return a function that tests whether a value meets a requirement.

    None is a missing value and meets no requirement.

    :param field: the name of the requirement in errors
    :raises cellsched.exception.InvalidField: the requirement is too long, or
        a number is expected and missing
    """
    if len(requirement) > LENGTH_MAX:
        raise exception.InvalidField(
            where='flavor', field=field,
            expected=f'at most {LENGTH_MAX} characters')
    try:
        return _matcher(requirement)
    except ValueError:
        raise exception.InvalidField(
            where='flavor', field=field,
            expected='a number after the operator') from None


@functools.lru_cache(512)
def _matcher(requirement: str) -> Match:
    sign, *words = requirement.split() or ['']
    if sign in _NUMBERS and words:
        return functools.partial(_compares, _NUMBERS[sign], _number(words[0]))
    if sign in _TEXTS:
        compare = _TEXTS[sign]
        return lambda value: value is not None and any(
            compare(value, word) for word in words[:1])
    if sign == '<all-in>':
        return lambda value: value is not None and bool(words) and all(
            word in value for word in words)
    if sign == '<or>':
        return frozenset[str | None](words[::2]).__contains__
    return lambda value: value == requirement and sign not in _NUMBERS


def _compares(
    compare: Callable[[float, float], bool], requested: float,
    value: str | None
) -> bool:
    try:
        return value is not None and compare(_number(value), requested)
    except ValueError:
        return False


def _number(text: str) -> float:
    number = float(text)
    if math.isnan(number):
        raise ValueError(text)
    return number
