# SPDX-License-Identifier: Apache-2.0
"""Resource classes: what there is of them, and what a flavor asks for.

Names are those of os-resource-classes, and others that begin with
``CUSTOM_``.
"""

from collections.abc import Mapping
import dataclasses
import math
import re
from typing import NamedTuple

import os_resource_classes

from cellsched import exception

#: The prefix of extra specs that ask the server's host for an amount.
AMOUNT = 'resources:'

#: The largest amount of anything, in its unit.
AMOUNT_MAX = 2 ** 31 - 1

#: For people: which classes there are, and which amounts.
CLASSES = ('a resource class of os-resource-classes, or CUSTOM_ and capital '
           'letters, digits and _')
AMOUNTS = f'a whole number from 0 to {AMOUNT_MAX}'

_STANDARD = frozenset(os_resource_classes.STANDARDS)
_CUSTOM = re.compile(r'CUSTOM_[A-Z0-9_]{1,248}')

#: No amount has more digits; Python takes its time with very many.
_AMOUNT = re.compile(r'[0-9]{1,10}')


#: For people: what is lacking, and the unit, by resource class.
_WORDS = {
    'DISK_GB': ('disk', 'GB'),
    'MEMORY_MB': ('memory', 'MB'),
    'PCPU': ('dedicated CPUs', 'PCPU'),
    'VCPU': ('CPUs', 'VCPU'),
}


class Units(NamedTuple):
    """Bounds on what one claim may take of a resource class.

    An amount is at least ``min_unit``, at most ``max_unit``, and a multiple of
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
        """Bounds on what one claim may take."""
        return Units(self.min_unit, self.max_unit, self.step_size)

    @property
    def capacity(self) -> int:
        """The most that may be taken in all; never below zero."""
        room = (self.total - self.reserved) * self.allocation_ratio
        return max(math.floor(room + 1e-9), 0)

    def admits(self, amount: int) -> bool:
        """Return whether one claim may take this amount, if there is room."""
        return (self.min_unit <= amount <= self.max_unit
                and amount % self.step_size == 0)


def is_known(name: str) -> bool:
    """Return whether a text is the name of a resource class."""
    return name in _STANDARD or _CUSTOM.fullmatch(name) is not None


def words(name: str) -> tuple[str, str]:
    """Return what people call a resource class, and its unit."""
    return _WORDS.get(name, (name, name))


def asked(extra_specs: Mapping[str, str] | None) -> dict[str, int]:
    """Return the amounts that extra specs ask the host for, by class.

    An amount of zero stands for none of a class, whatever else the flavor
    says. Those of numbered groups are left out.

    :raises cellsched.exception.InvalidField: names the extra spec that has no
        such class, or no amount
    """
    return {name: amount_of(key, name, said)
            for key, said in (extra_specs.items() if extra_specs else ())
            for name in (key.removeprefix(AMOUNT),) if name != key}


def amount_of(key: str, name: str, said: str) -> int:
    """Return the amount that an extra spec asks for.

    :param key: the extra spec
    :param name: the resource class, as it is in the key
    :param said: the value
    :raises cellsched.exception.InvalidField: names the extra spec that has no
        such class, or no amount
    """
    if not is_known(name):
        raise refuse(key, CLASSES)
    if isinstance(said, str) and _AMOUNT.fullmatch(said):
        amount = int(said)
        if amount <= AMOUNT_MAX:
            return amount
    raise refuse(key, AMOUNTS)


def refuse(key: str, expected: str) -> exception.InvalidField:
    """Return the error of an extra spec of a flavor."""
    return exception.InvalidField(
        where='flavor', field=f'extra_specs.{ascii(key[:80])[1:-1][:80]}',
        expected=expected)
