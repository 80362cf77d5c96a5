# SPDX-License-Identifier: Apache-2.0
"""Resource classes that are installed, by name.

A class of others that cannot be used is named in the log. It does not become
one that takes other amounts: nobody is given any of it.
"""

import functools
import logging
import re
from typing import Any
from typing import NamedTuple

import os_resource_classes

from cellsched import exception
from cellsched.objects import resource_class
from cellsched.objects import standard_classes
from cellsched import plugins

LOG = logging.getLogger(__name__)

#: The largest amount of anything, in its unit.
AMOUNT_MAX = 2 ** 31 - 1

#: For people: which classes there are.
CLASSES = ('a resource class of os-resource-classes, or CUSTOM_ and capital '
           'letters, digits and _')

_STANDARD = frozenset(os_resource_classes.STANDARDS)
_CUSTOM = re.compile(r'CUSTOM_[A-Z0-9_]{1,248}')

#: Units, by how names of classes end that are counted in them.
_UNITS = {
    '_GB': 'GB', '_MB': 'MB', '_KB': 'kB',
    '_KILOBIT_PER_SEC': 'kbit/s', '_KILOPACKET_PER_SEC': 'kpacket/s'}

#: The most characters of what people call a class, and of its unit.
_WORD_MAX = 40

#: Has nothing to say of itself.
_PLAIN = resource_class.ResourceClass()


class Installed(NamedTuple):
    """The classes of others.

    :param usable: by name
    :param broken: names of those that cannot be used
    """

    usable: dict[str, resource_class.ResourceClass]
    broken: frozenset[str]


def is_known(name: str) -> bool:
    """Return whether a text is the name of a resource class."""
    return name in _STANDARD or _CUSTOM.fullmatch(name) is not None


@functools.cache
def load() -> Installed:
    """Return the classes that others have installed; it looks once.

    No option enables them, so that one that is broken stops nobody who asks
    for none of it. It is named in the log.
    """
    usable, broken = plugins.load_installed(plugins.RESOURCE_CLASSES, _load)
    for problem in broken.values():
        LOG.error('Resource class cannot be used: %s', problem)
    return Installed(
        {name: made for name, made in usable.items()
         if name not in standard_classes.STANDARD},
        frozenset(broken) - standard_classes.STANDARD.keys())


def _load(name: str) -> resource_class.ResourceClass:
    found = plugins.load(plugins.RESOURCE_CLASSES, name)
    field = plugins.field_of(plugins.RESOURCE_CLASSES, name)
    check(field, found)
    if not is_known(name):
        raise exception.ConfigurationInvalid(
            field=field, expected=f'the name of {CLASSES}')
    made: resource_class.ResourceClass = plugins.attempt(
        field, 'a class that is made without arguments', found)
    return made


def check(field: str, found: Any) -> None:
    """Make sure that something is a resource class.

    :param field: what an error calls it
    :raises cellsched.exception.ConfigurationInvalid: it is none
    """
    plugins.check_class(field, found, resource_class.ResourceClass)
    for name in 'word', 'unit':
        said = getattr(found, name)
        if not (isinstance(said, str) and said.isprintable()
                and len(said) <= _WORD_MAX):
            raise exception.ConfigurationInvalid(
                field=field, expected=f'a {name} of at most {_WORD_MAX} '
                                      'printable characters')


def words(name: str) -> tuple[str, str]:
    """Return what people call a resource class, and its unit."""
    found = _get(name) or _PLAIN
    return found.word or name, found.unit or _unit(name)


def _unit(name: str) -> str:
    return next((unit for end, unit in _UNITS.items() if name.endswith(end)),
                name)


def taken(name: str, amount: int) -> int | None:
    """Return what a demand takes of an inventory of a class.

    :param name: one that is known
    :param amount: from 0 to :data:`AMOUNT_MAX`; nothing takes nothing
    :returns: None if the class cannot say it; why, is in the log
    """
    found = _get(name)
    if found is None or not amount:
        return None if found is None else 0
    try:
        said: Any = found.amount_taken(amount)
        if type(said) is not int or said < amount:
            raise ValueError(f'{amount} is asked for, and {said!a:.80} is no '
                             'whole number of at least that')
    except exception.STOPS:
        raise
    except BaseException:
        LOG.exception('Resource class %s failed', name)
        return None
    return said


def _get(name: str) -> resource_class.ResourceClass | None:
    """Return a class; None for one that cannot be used."""
    found = standard_classes.STANDARD.get(name)
    if found is not None:
        return found
    installed = load()
    if name in installed.broken:
        return None
    return installed.usable.get(name, _PLAIN)
