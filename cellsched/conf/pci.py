# SPDX-License-Identifier: Apache-2.0
"""Options of PCI devices: ``[pci]``."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import json
import re
from typing import Any

from oslo_config import cfg
from oslo_utils import strutils

from cellsched import exception

GROUP = cfg.OptGroup('pci', title='PCI devices')

#: The affinity of an alias that names none.
LEGACY = 'legacy'

#: A test of a text, and the texts that pass in words.
_Field = tuple[Callable[[str], Any], str]


def _pattern(pattern: str, expected: str) -> _Field:
    return re.compile(pattern).fullmatch, expected


def _is_boolean(text: str) -> bool:
    try:
        strutils.bool_from_string(text, strict=True)
    except ValueError:
        return False
    return True


_ID = _pattern('[0-9a-fA-F]{4}', 'four hexadecimal digits')
_TEXT = _pattern(r'(?s)(?=.*\S).{1,256}', '1 to 256 characters')

#: The fields of an alias.
FIELDS: Mapping[str, _Field] = {
    'name': _TEXT, 'vendor_id': _ID, 'product_id': _ID,
    'device_type': _pattern(
        'type-PCI|type-PF|type-VF', 'type-PCI, type-PF or type-VF'),
    'numa_policy': _pattern(
        'required|legacy|preferred|socket',
        'required, legacy, preferred or socket'),
    'resource_class': _TEXT, 'traits': _TEXT,
    'live_migratable': (_is_boolean, 'yes or no'),
}


OPTS = [
    cfg.MultiStrOpt('alias', default=[], deprecated_name='pci_alias',
                    deprecated_group='DEFAULT', help="""
PCI devices with a name, which flavors ask for.

The value is a JSON object of texts, and may be repeated. A flavor asks for
devices by ``pci_passthrough:alias``, such as ``gpu:2``. The API, commands and
services that embed a conductor read the option. The fields are:

* ``name``, and ``vendor_id`` and ``product_id`` in hexadecimal digits, which
  are required
* ``device_type``: ``type-PCI``, ``type-PF`` or ``type-VF``. A physical
  function is used only if it is asked for by ``type-PF``
* ``numa_policy``: ``required``, ``legacy``, ``preferred`` or ``socket``; by
  default ``legacy``. ``hw:pci_numa_affinity_policy`` overrides it
* ``live_migratable``: ``yes`` or ``no``; without it, any device is used
* ``resource_class`` and ``traits``, separated by commas: those of the devices

Aliases with one name are alternatives, and have the same ``device_type`` and
``numa_policy``.

Example::

    alias = { "name": "gpu", "vendor_id": "10de", "product_id": "1db4" }
"""),
]


def parse(text: str) -> dict[str, str]:
    """Return the fields of an alias.

    :raises cellsched.exception.ConfigurationInvalid: names the alias and the
        field
    """
    try:
        alias = json.loads(text)
    except (RecursionError, ValueError):
        alias = None
    if not isinstance(alias, dict):
        raise exception.ConfigurationInvalid(
            field='[pci] alias', problem=f'{text!a:.60} is not valid',
            expected='a JSON object such as {"name": "gpu", '
                     '"vendor_id": "10de", "product_id": "1db4"}')
    name = alias.get('name')
    for field, given in alias.items():
        if field not in FIELDS:
            raise _invalid(name, field, 'it is an unknown field',
                           f'one of {", ".join(FIELDS)}')
        test, expected = FIELDS[field]
        if not isinstance(given, str) or not test(given):
            raise _invalid(name, field, f'{given!a:.60} is not valid',
                           expected)
    if name is None:
        raise _invalid(name, 'name', 'it is missing', FIELDS['name'][1])
    return {**alias, 'name': name.strip()}


def problems(
    texts: Iterable[str]
) -> Iterator[exception.ConfigurationInvalid]:
    """Yield the problems of aliases, of each and of those with one name."""
    first: dict[str, Mapping[str, str]] = {}
    for text in texts:
        try:
            alias = parse(text)
        except exception.ConfigurationInvalid as exc:
            yield exc
            continue
        name = alias['name']
        same = first.setdefault(name, alias)
        for field, default in ('device_type', None), ('numa_policy', LEGACY):
            if alias.get(field, default) != same.get(field, default):
                yield _invalid(
                    name, field, 'it differs in aliases of this name',
                    'one value')
        for field in 'vendor_id', 'product_id':
            # The pools of Nova's agents have no class, and match any class.
            if field not in alias:
                yield _invalid(name, field, 'it is missing', FIELDS[field][1])


def _invalid(
    name: Any, field: str, problem: str, expected: str
) -> exception.ConfigurationInvalid:
    return exception.ConfigurationInvalid(
        field=f'[pci] alias {name!a:.80}: {ascii(field)[1:-1]:.60}',
        problem=problem, expected=expected)
