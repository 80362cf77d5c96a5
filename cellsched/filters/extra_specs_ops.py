# SPDX-License-Identifier: Apache-2.0
"""Operators of a flavor's extra specs, and the values that they match.

The first word may be an operator; operands are separated by spaces.

* ``=``, ``==``, ``!=``, ``>=``, ``<=``: a number that compares so; ``=`` asks
  for that much at least
* ``s==``, ``s!=``, ``s<``, ``s<=``, ``s>``, ``s>=``: a text that compares so
* ``<in> a``: a text that contains this one; ``<all-in> a b``: all of these
* ``<or> a <or> b``: one of these texts
* anything else: this very text

Words that an operator has no use for are passed over. An operator without an
operand, or a number that is asked of a value which is none, matches nothing.
"""

from collections.abc import Callable
import functools
import math
import operator

from cellsched import exception

#: Characters that a requirement may have.
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


def match(
    value: str | None, requirement: str, field: str = 'extra_specs'
) -> bool:
    """Return whether a value meets a requirement; see :func:`matcher`."""
    return matcher(requirement, field)(value)


def matcher(requirement: str, field: str = 'extra_specs') -> Match:
    """Return a function that says whether a value meets a requirement.

    None is no value, and meets none.

    :param field: what errors call the requirement
    :raises cellsched.exception.InvalidField: the requirement is too long, or
        compares with what is no number
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
        return functools.partial(
            _compares, _NUMBERS[sign], _number(words[0]))
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
    compare: Callable[[float, float], bool], wanted: float, value: str | None
) -> bool:
    try:
        return value is not None and compare(_number(value), wanted)
    except ValueError:
        return False


def _number(text: str) -> float:
    number = float(text)
    if math.isnan(number):
        raise ValueError(text)
    return number
