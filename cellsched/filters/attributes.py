# SPDX-License-Identifier: Apache-2.0
"""What users and flavors may name of a host: columns, and keys in JSON."""

from collections.abc import Callable
from collections.abc import Mapping
import functools
import math
from typing import Any

import numpy as np

from cellsched.hosts import columns
from cellsched.hosts import state
from cellsched.hosts import view

#: Kinds of values; mixed ones may be anything.
NUMBER, TEXT, MIXED = 'number', 'text', 'mixed'

#: Names that Nova's host state has for columns of other names.
_ALIASES = {
    'cell_uuid': 'cell', 'hypervisor_hostname': 'nodename',
    'service.disabled': 'service_disabled', 'service.host': 'host',
    'service.forced_down': 'forced_down',
}

#: Columns that are no attributes of Nova's host state.
OURS = ('availability_zone', 'cell', 'forced_down', 'free_pci_devices',
        'last_seen_up', 'service_disabled', 'traits', 'unreserved_disk_mb',
        'unreserved_ram_mb')

#: Facts of a cell change with what is taken on any of its hosts.
_FACTS = frozenset(column.name for column in columns.CELL_FACTS)


class Attribute:
    """A value of each host; None where a host has none."""

    def __init__(self, hosts: view.Hosts, name: str, *keys: str) -> None:
        self._hosts, self._name, self._keys = hosts, name, keys
        self._whole = hosts.kind(name) == columns.WHOLE
        #: The values, unless they are mixed.
        self.column = hosts[name]
        self.kind = {columns.CODED: MIXED, 'object': TEXT}.get(
            hosts.kind(name), NUMBER)

    @functools.cached_property
    def values(self) -> view.Column:
        """The values as objects."""
        if self.kind == MIXED:
            return self._hosts.each(self._name, self._look_up, 'object')
        return self.column.astype('object')

    @functools.cached_property
    def numbers(self) -> view.Column:
        """The values that are numbers; NaN in place of others."""
        if self.kind != MIXED:
            known = self.column if self.kind == NUMBER else math.nan
            return np.full(len(self.column), known, dtype='float64')
        return self._hosts.each(
            self._name, lambda value: _number(self._look_up(value)), 'float64')

    def each(self, function: Callable[[Any], bool]) -> view.Mask:
        """Return what a function says of each host's value, once for it."""
        if self.kind == MIXED:
            return self._hosts.each(
                self._name, lambda value: function(self._look_up(value)))
        if self.kind == TEXT:
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
                # Most texts that lack the key need not be read.
                maybe = '\\' in value or f'"{key}"' in value
                value = state.parsed(value) if maybe else None
            value = value.get(key) if isinstance(value, Mapping) else None
        return value


def _number(value: Any) -> float:
    good = isinstance(value, (int, float)) and abs(value) < 1e300
    return value if good else math.nan


def find(hosts: view.Hosts, path: tuple[str, ...]) -> Attribute | None:
    """Return what a name with keys stands for; None if it is nothing."""
    name, keys = _ALIASES.get(path[0], path[0]), path[1:]
    if '.'.join(path[:2]) in _ALIASES:
        name, keys = _ALIASES['.'.join(path[:2])], path[2:]
    if name.startswith('_') or name in _FACTS or name not in hosts:
        return None
    found = Attribute(hosts, name, *keys)
    return None if keys and found.kind != MIXED else found
