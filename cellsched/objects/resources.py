# SPDX-License-Identifier: Apache-2.0
"""Resources: their classes, inventories of a provider, requests of a flavor.

A class of another package that cannot be loaded is named in the log. Requests
for it are refused, as the amounts that it would take are unknown.
"""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import functools
import logging
import math
import re
from typing import Any
from typing import NamedTuple

import os_resource_classes

from cellsched import exception
from cellsched.hardware import units
from cellsched.objects import resource_class
from cellsched import plugins

LOG = logging.getLogger(__name__)

#: Prefix of the extra specs that request an amount of the host.
AMOUNT = 'resources:'

#: The largest amount of a resource class, in its unit.
AMOUNT_MAX = 2 ** 31 - 1

#: In error messages: the valid classes and amounts, and why an amount cannot
#: be charged.
CLASSES = ('a resource class of os-resource-classes, or CUSTOM_ and capital '
           'letters, digits and _; not the class of a CPU, pages or devices '
           'of a host')
AMOUNTS = f'a whole number from 0 to {AMOUNT_MAX}'
FAILED = 'a resource class with a working plug-in; see the log'
TOO_MUCH = f'an amount for which the class charges at most {AMOUNT_MAX}'

#: No amount has more digits; parsing a very long number takes long.
_AMOUNT = re.compile(r'[0-9]{1,10}')

_KNOWN = frozenset(os_resource_classes.STANDARDS)
_CUSTOM = re.compile(r'CUSTOM_[A-Z0-9_]{1,248}')

#: The nouns of standard classes in messages; other classes have their names.
_NOUNS = {
    'VCPU': 'CPUs', 'PCPU': 'dedicated CPUs', 'MEMORY_MB': 'memory',
    'DISK_GB': 'disk',
    'NET_BW_EGR_KILOBIT_PER_SEC': 'outgoing bandwidth',
    'NET_BW_IGR_KILOBIT_PER_SEC': 'incoming bandwidth',
    'NET_PACKET_RATE_KILOPACKET_PER_SEC': 'packet rate',
    'NET_PACKET_RATE_EGR_KILOPACKET_PER_SEC': 'outgoing packet rate',
    'NET_PACKET_RATE_IGR_KILOPACKET_PER_SEC': 'incoming packet rate'}

#: Units by the suffix of the class name.
_UNITS = {
    '_GB': 'GB', '_MB': 'MB', '_KB': 'kB',
    '_KILOBIT_PER_SEC': 'kbit/s', '_KILOPACKET_PER_SEC': 'kpacket/s'}

#: The most characters of a class's noun and of its unit.
_WORD_MAX = 40


#: The defaults, for a class without a plug-in.
_PLAIN = resource_class.ResourceClass()


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


class InstalledClasses(NamedTuple):
    """Resource classes of other packages.

    :param usable: by name
    :param broken: names of classes that cannot be loaded
    """

    usable: dict[str, resource_class.ResourceClass]
    broken: frozenset[str]


def is_known(name: str) -> bool:
    """Return whether a string is the name of a resource class.

    The classes of single CPUs, pages and devices of hosts are left out: their
    agents offer them, and the scheduler selects them.
    """
    return name in _KNOWN or (_CUSTOM.fullmatch(name) is not None
                              and not units.is_named(name))


@functools.cache
def load_classes() -> InstalledClasses:
    """Return the installed classes of other packages; cached.

    No option enables them. A broken class is named in the log and affects
    only requests for it.
    """
    usable, broken = plugins.load_installed(
        plugins.RESOURCE_CLASSES, _load_class)
    for problem in broken.values():
        LOG.error('Resource class cannot be used: %s', problem)
    return InstalledClasses(
        {name: made for name, made in usable.items() if name not in _KNOWN},
        frozenset(broken) - _KNOWN)


def _load_class(name: str) -> resource_class.ResourceClass:
    found = plugins.load(plugins.RESOURCE_CLASSES, name)
    field = plugins.field_of(plugins.RESOURCE_CLASSES, name)
    check_class(field, found)
    if not is_known(name):
        raise exception.ConfigurationInvalid(
            field=field, problem=f'{name!a:.80} is not the name of a resource '
                                 'class', expected=CLASSES)
    made: resource_class.ResourceClass = plugins.attempt(
        field, 'a class that is made without arguments', found)
    return made


def check_class(field: str, found: Any) -> None:
    """Check that a plug-in is a resource class.

    :param field: its name in the error
    :raises cellsched.exception.ConfigurationInvalid: it is not
    """
    plugins.check_class(field, found, resource_class.ResourceClass)
    for name in 'word', 'unit':
        value = getattr(found, name)
        if not (isinstance(value, str) and value.isprintable()
                and len(value) <= _WORD_MAX):
            raise exception.ConfigurationInvalid(
                field=field, problem=f'its {name} is not valid',
                expected=f'at most {_WORD_MAX} printable characters')


def describe(name: str) -> tuple[str, str]:
    """Return the noun of a resource class in messages, and its unit."""
    found = _get(name) or _PLAIN
    return (found.word or _NOUNS.get(name, name),
            found.unit or next((
                unit for end, unit in _UNITS.items() if name.endswith(end)),
                name))


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
    found = _get(name)
    if found is None:
        raise refused(FAILED)
    if not amount:
        return 0
    try:
        value: Any = found.amount_taken(amount)
        if type(value) is not int or value < amount:
            raise ValueError(f'{amount} is asked for, and {value!a:.80} is no '
                             'whole number of at least that')
    except exception.STOPS:
        raise
    except BaseException:
        LOG.exception('Resource class %s failed', name)
        raise refused(FAILED) from None
    if value > AMOUNT_MAX:
        raise refused(TOO_MUCH)
    return value


def _get(name: str) -> resource_class.ResourceClass | None:
    """Return a class; None if it cannot be loaded."""
    if name in _KNOWN:
        return _PLAIN
    installed = load_classes()
    if name in installed.broken:
        return None
    return installed.usable.get(name, _PLAIN)


def refuse(
    key: str, expected: str, problem: str | None = None
) -> exception.InvalidField:
    """Return the error for an invalid extra spec of a flavor."""
    return exception.InvalidField(
        where='flavor', field=f'extra_specs.{ascii(key[:80])[1:-1][:80]}',
        problem=problem, expected=expected)
