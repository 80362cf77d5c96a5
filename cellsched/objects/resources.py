# SPDX-License-Identifier: Apache-2.0
"""Resources: inventories of a provider, and requests of a flavor."""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import functools
import math
import re
from typing import NamedTuple

from cellsched import exception
from cellsched.objects import resource_classes

#: Prefix of the extra specs that request an amount of the host.
AMOUNT = 'resources:'

AMOUNT_MAX = resource_classes.AMOUNT_MAX

#: In error messages: the valid classes and amounts, and why an amount cannot
#: be charged.
CLASSES = resource_classes.CLASSES
AMOUNTS = f'a whole number from 0 to {AMOUNT_MAX}'
FAILED = 'a resource class with a working plug-in; see the log'
TOO_MUCH = f'an amount for which the class charges at most {AMOUNT_MAX}'

#: No amount has more digits; parsing a very long number takes long.
_AMOUNT = re.compile(r'[0-9]{1,10}')


class Units(NamedTuple):
    """Bounds on what one claim may take of a resource class.

    An amount is from ``min_unit`` to ``max_unit``, and a multiple of
    ``step_size``.
    """

    min_unit: int = 1
    max_unit: int = AMOUNT_MAX
    step_size: int = 1


@dataclasses.dataclass(frozen=True)
class Inventory:
    """The inventory of one resource class of a provider, in its unit."""

    total: int
    reserved: int = 0
    allocation_ratio: float = 1.0
    min_unit: int = 1
    max_unit: int = AMOUNT_MAX
    step_size: int = 1

    @property
    def units(self) -> Units:
        """Bounds on the amount of one claim."""
        return Units(self.min_unit, self.max_unit, self.step_size)

    @property
    def capacity(self) -> int:
        """The most that all claims together may take; never below zero."""
        room = (self.total - self.reserved) * self.allocation_ratio
        return max(math.floor(room + 1e-9), 0)

    def admits(self, amount: int) -> bool:
        """Return whether one claim may take this amount, given capacity."""
        return (self.min_unit <= amount <= self.max_unit
                and amount % self.step_size == 0)


is_known = resource_classes.is_known
describe = resource_classes.describe


def requested(extra_specs: Mapping[str, str] | None) -> dict[str, int]:
    """Return the amounts that extra specs request of the host, by class.

    Zero removes a class that the flavor would otherwise request. Numbered
    groups are left out.

    :raises cellsched.exception.InvalidField: names the extra spec with an
        unknown class or an invalid amount
    """
    return {name: parse_amount(key, name, value)
            for key, value in (extra_specs.items() if extra_specs else ())
            for name in (key.removeprefix(AMOUNT),) if name != key}


def parse_amount(key: str, name: str, value: str) -> int:
    """Return the amount that an extra spec takes.

    :param key: the extra spec
    :param name: the resource class in the key
    :param value: the value
    :raises cellsched.exception.InvalidField: names the extra spec with an
        unknown class or an invalid amount
    """
    if not is_known(name):
        raise refuse(key, CLASSES)
    if not is_amount(value):
        raise refuse(key, AMOUNTS)
    return charge(name, int(value), functools.partial(refuse, key))


def is_amount(value: object) -> bool:
    """Return whether the value of an extra spec is an amount."""
    return (isinstance(value, str) and _AMOUNT.fullmatch(value) is not None
            and int(value) <= AMOUNT_MAX)


def charge(
    name: str, amount: int,
    refused: Callable[[str], exception.InvalidField],
) -> int:
    """Return the amount that a demand takes, by its resource class.

    :param refused: returns the error, given the expectation
    :raises cellsched.exception.InvalidField: the plug-in fails, or returns
        more than :data:`AMOUNT_MAX`
    """
    found = resource_classes.charge(name, amount)
    if found is None:
        raise refused(FAILED)
    if found > AMOUNT_MAX:
        raise refused(TOO_MUCH)
    return found


def refuse(
    key: str, expected: str, problem: str | None = None
) -> exception.InvalidField:
    """Return the error for an invalid extra spec of a flavor."""
    return exception.InvalidField(
        where='flavor', field=f'extra_specs.{ascii(key[:80])[1:-1][:80]}',
        problem=problem, expected=expected)
