# SPDX-License-Identifier: Apache-2.0
"""Resource classes by name: the standard ones and installed ones.

A class of another package that cannot be loaded is named in the log. Requests
for it are refused, as the amounts that it would take are unknown.
"""

import functools
import logging
import re
from typing import Any
from typing import NamedTuple

import os_resource_classes

from cellsched import exception
from cellsched.hardware import units
from cellsched.objects import resource_class
from cellsched import plugins

LOG = logging.getLogger(__name__)

#: The largest amount of a resource class, in its unit.
AMOUNT_MAX = 2 ** 31 - 1

#: In error messages: the valid classes.
CLASSES = ('a resource class of os-resource-classes, or CUSTOM_ and capital '
           'letters, digits and _; not the class of a CPU, pages or devices '
           'of a host')

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
def load() -> InstalledClasses:
    """Return the installed classes of other packages; cached.

    No option enables them. A broken class is named in the log and affects
    only requests for it.
    """
    usable, broken = plugins.load_installed(plugins.RESOURCE_CLASSES, _load)
    for problem in broken.values():
        LOG.error('Resource class cannot be used: %s', problem)
    return InstalledClasses(
        {name: made for name, made in usable.items() if name not in _KNOWN},
        frozenset(broken) - _KNOWN)


def _load(name: str) -> resource_class.ResourceClass:
    found = plugins.load(plugins.RESOURCE_CLASSES, name)
    field = plugins.field_of(plugins.RESOURCE_CLASSES, name)
    check(field, found)
    if not is_known(name):
        raise exception.ConfigurationInvalid(
            field=field, problem=f'{name!a:.80} is not the name of a resource '
                                 'class', expected=CLASSES)
    made: resource_class.ResourceClass = plugins.attempt(
        field, 'a class that is made without arguments', found)
    return made


def check(field: str, found: Any) -> None:
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
            found.unit or _unit(name))


def _unit(name: str) -> str:
    return next((unit for end, unit in _UNITS.items() if name.endswith(end)),
                name)


def charge(name: str, amount: int) -> int | None:
    """Return the amount that a demand takes of an inventory of a class.

    :param name: a known class
    :param amount: from 0 to :data:`AMOUNT_MAX`; zero takes zero
    :returns: None if the plug-in fails; the log has the error
    """
    found = _get(name)
    if found is None or not amount:
        return None if found is None else 0
    try:
        value: Any = found.amount_taken(amount)
        if type(value) is not int or value < amount:
            raise ValueError(f'{amount} is asked for, and {value!a:.80} is no '
                             'whole number of at least that')
    except exception.STOPS:
        raise
    except BaseException:
        LOG.exception('Resource class %s failed', name)
        return None
    return value


def _get(name: str) -> resource_class.ResourceClass | None:
    """Return a class; None if it cannot be loaded."""
    if name in _KNOWN:
        return _PLAIN
    installed = load()
    if name in installed.broken:
        return None
    return installed.usable.get(name, _PLAIN)
