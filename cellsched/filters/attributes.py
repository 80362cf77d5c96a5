# SPDX-License-Identifier: Apache-2.0
"""Attributes of a host that users and flavors name: columns, JSON keys."""

from collections.abc import Callable
from collections.abc import Mapping
import functools
import math
from typing import Any

import numpy as np

from cellsched.hosts import columns
from cellsched.hosts import state
from cellsched.hosts import view

#: Kinds of values; a mixed value has any type, and may be missing.
NUMBER, TEXT, MIXED = 'number', 'text', 'mixed'

#: Names in Nova's host state, with the columns of another name.
_ALIASES = {
    'cell_uuid': 'cell', 'hypervisor_hostname': 'nodename',
    'service.disabled': 'service_disabled', 'service.host': 'host',
    'service.forced_down': 'forced_down',
}

#: Columns that Nova's host state does not have as attributes.
OURS = ('availability_zone', 'cell', 'forced_down', 'free_pci_devices',
        'image_props', 'last_seen_up', 'service_disabled', 'traits',
        'unreserved_disk_mb', 'unreserved_ram_mb')

#: Text columns that every host has.
_TEXTS = frozenset(
    column.name for column in columns.STANDARD
    if column.dtype == 'object' and column.default is not None)

_STANDARD = {column.name: column.dtype for column in columns.STANDARD}

#: Values of a cell change with the usage of any of its hosts.
_FACTS = frozenset(column.name for column in columns.CELL_FACTS)


class Attribute:
    """One value for each host; None if a host has no value."""

    def __init__(self, hosts: view.Hosts, name: str, *keys: str) -> None:
        self._hosts, self._name, self._keys = hosts, name, keys
        stored = hosts.kind(name)
        self._coded = stored == columns.CODED
        self._whole = stored == columns.WHOLE
        #: The values, unless they are dictionary-encoded.
        self.column = (
            hosts.available(name.removeprefix(columns.AVAILABLE))
            if name.startswith(columns.AVAILABLE) else hosts[name])
        self.kind = _stored_kind(name, stored)

    @functools.cached_property
    def values(self) -> view.Column:
        """The values as objects."""
        if self._coded:
            return self._hosts.each(self._name, self._look_up, 'object')
        return self.column.astype('object')

    @functools.cached_property
    def numbers(self) -> view.Column:
        """The numeric values; NaN for every other value."""
        if not self._coded:
            known = self.column if self.kind == NUMBER else math.nan
            return np.full(len(self.column), known, dtype='float64')
        return self._hosts.each(
            self._name, lambda value: _number(self._look_up(value)), 'float64')

    def each(self, function: Callable[[Any], bool]) -> view.Mask:
        """Return a function of each host's value, called once per value."""
        if self._coded:
            return self._hosts.each(
                self._name, lambda value: function(self._look_up(value)))
        if self.kind != NUMBER:
            return np.fromiter(map(function, self.column), bool)
        values, places = np.unique(self.column, return_inverse=True)
        values = values.astype('int64' if self._whole else values.dtype)
        answers = np.fromiter(map(function, values.tolist()), bool)
        return answers.take(places)

    def _look_up(self, value: Any) -> Any:
        if not self._keys and self._name in ('stats', 'metrics'):
            return state.parsed(value) or {}
        for key in self._keys:
            if isinstance(value, str):
                # Skip texts that cannot contain the key without parsing them.
                maybe = '\\' in value or f'"{key}"' in value
                value = state.parsed(value) if maybe else None
            value = value.get(key) if isinstance(value, Mapping) else None
        return value


def _number(value: Any) -> float:
    good = isinstance(value, (int, float)) and abs(value) < 1e300
    return value if good else math.nan


def find(hosts: view.Hosts, path: tuple[str, ...]) -> Attribute | None:
    """Return the attribute of a name with keys; None if it is unknown.

    The free amount of a resource class is a number for every host, even
    before a host reports the class.
    """
    name, keys = column_of(path)
    known = name in hosts or name.startswith(columns.AVAILABLE)
    if name.startswith('_') or name in _FACTS or not known:
        return None
    if keys and hosts.kind(name) != columns.CODED:
        return None
    return Attribute(hosts, name, *keys)


def column_of(path: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Return the column of a name, and the JSON keys in the name."""
    if '.'.join(path[:2]) in _ALIASES:
        return _ALIASES['.'.join(path[:2])], path[2:]
    return _ALIASES.get(path[0], path[0]), path[1:]


def kind_of(path: tuple[str, ...]) -> str:
    """Return the kind that a name with keys has in every table.

    It is mixed if it depends on the table, as with columns of plug-ins.
    """
    name, keys = column_of(path)
    if keys or name not in _STANDARD:
        return NUMBER if name.startswith(columns.AVAILABLE) else MIXED
    return _stored_kind(name, _STANDARD[name])


def _stored_kind(name: str, dtype: str) -> str:
    """Return the kind of a column's values; see ``columns.Column``."""
    if dtype in (columns.CODED, 'object'):
        return TEXT if name in _TEXTS else MIXED
    return NUMBER
