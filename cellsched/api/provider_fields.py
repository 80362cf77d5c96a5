# SPDX-License-Identifier: Apache-2.0
"""Inventories and traits that an operator says a provider has."""

from collections.abc import Mapping
import dataclasses
import re
from typing import Any

import os_traits

from cellsched.api import validation
from cellsched.claims import validation as claims
from cellsched import exception
from cellsched.objects import resources

#: Resource classes or traits that one provider may have.
NAMED_MAX = 1000

_WHERE = 'provider'

_TRAITS = frozenset(os_traits.get_traits())
_CUSTOM = re.compile(r'CUSTOM_[A-Z0-9_]{1,248}')

_RATIO = 'allocation_ratio'

#: The least that fields of an inventory may be; the rest is a ratio.
_LEAST = {'total': 0, 'reserved': 0, 'min_unit': 1, 'max_unit': 1,
          'step_size': 1}


def changed(
    known: Mapping[str, resources.Inventory],
    changes: Mapping[str, Mapping[str, Any] | None],
) -> dict[str, resources.Inventory]:
    """Return inventories by class, after changes of some.

    :param changes: fields of an inventory by class; what a known one has
        besides stays, a new one needs its ``total``, and None removes one
    :raises cellsched.exception.InvalidField: names the field and the bound
    """
    _check_mapping('inventories', changes)
    inventories = dict(known)
    for name, fields in changes.items():
        if not (isinstance(name, str) and resources.is_known(name)):
            raise _invalid('inventories', (
                'resource classes of os-resource-classes, or CUSTOM_ and '
                'capital letters, digits and _'), name)
        if fields is None:
            inventories.pop(name, None)
            continue
        _check_mapping(name, fields)
        said = {**_fields_of(known.get(name)), **fields}
        _check_inventory(name, said)
        inventories[name] = resources.Inventory(**said)
    validation.check_count(_WHERE, 'number of resource classes',
                           len(inventories), NAMED_MAX, least=0)
    return inventories


def check_traits(field: str, traits: Any) -> frozenset[str]:
    """Return names as a set, once they are sure to be those of traits.

    :raises cellsched.exception.InvalidField: names the field and the bound
    """
    if not isinstance(traits, (list, tuple, set, frozenset)):
        raise _invalid(field, 'a list of names', traits)
    validation.check_count(
        _WHERE, f'number of {field}', len(traits), NAMED_MAX, least=0)
    for name in traits:
        if not (isinstance(name, str) and (
                name in _TRAITS or _CUSTOM.fullmatch(name))):
            raise _invalid(
                field, 'names of os-traits, or CUSTOM_ and 1 to 248 capital '
                       'letters, digits and _', name)
    return frozenset(traits)


def _fields_of(inventory: resources.Inventory | None) -> dict[str, Any]:
    return {} if inventory is None else dataclasses.asdict(inventory)


def _check_inventory(name: str, said: Mapping[str, Any]) -> None:
    for field in said:
        validation.check_choice(
            _WHERE, f'field of {name}', field, (*_LEAST, _RATIO))
    if 'total' not in said:
        raise exception.InvalidField(
            where=_WHERE, field=f'{name}.total', expected='it is needed')
    for field, least in _LEAST.items():
        if field in said:
            validation.check_count(
                _WHERE, f'{name}.{field}', said[field],
                resources.AMOUNT_MAX, least)
    ratio = said.get(_RATIO, 1.0)
    if not (isinstance(ratio, (int, float)) and not isinstance(ratio, bool)
            and 0 < ratio <= claims.RATIO_MAX):
        raise _invalid(f'{name}.{_RATIO}',
                       f'a number above 0, at most {claims.RATIO_MAX:.0f}',
                       ratio)
    for field, bound in (('reserved', 'total'), ('min_unit', 'max_unit')):
        most = said.get(bound, resources.AMOUNT_MAX)
        if said.get(field, 0) > most:
            raise _invalid(f'{name}.{field}',
                           f'at most the {bound}, {most}', said[field])


def _check_mapping(field: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise _invalid(field, 'a mapping', value)


def _invalid(field: str, expected: str, value: Any) -> exception.InvalidField:
    return exception.InvalidField(
        where=_WHERE, field=field,
        expected=f'{expected}, not {validation.shown(value)}')
