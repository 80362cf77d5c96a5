# SPDX-License-Identifier: Apache-2.0
"""Kinds of hosts' attributes, known by their names alone."""

from cellsched.hosts import columns

#: Kinds of values; mixed ones may be anything, and may be absent.
NUMBER, TEXT, MIXED = 'number', 'text', 'mixed'

#: Names that Nova's host state has for columns of other names.
_ALIASES = {
    'cell_uuid': 'cell', 'hypervisor_hostname': 'nodename',
    'service.disabled': 'service_disabled', 'service.host': 'host',
    'service.forced_down': 'forced_down',
}

#: Columns that are no attributes of Nova's host state.
OURS = ('availability_zone', 'cell', 'forced_down', 'free_pci_devices',
        'image_props', 'last_seen_up', 'service_disabled', 'traits',
        'unreserved_disk_mb', 'unreserved_ram_mb')

#: Columns of text that every host has.
_TEXTS = frozenset(
    column.name for column in columns.STANDARD
    if column.dtype == 'object' and column.default is not None)

_STANDARD = {column.name: column.dtype for column in columns.STANDARD}


def column(path: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Return the column that a name stands for, and the keys in it."""
    if '.'.join(path[:2]) in _ALIASES:
        return _ALIASES['.'.join(path[:2])], path[2:]
    return _ALIASES.get(path[0], path[0]), path[1:]


def kind(path: tuple[str, ...]) -> str:
    """Return the kind that a name with keys is of in every table.

    What depends on the table, as a plug-in's column does, is mixed.
    """
    name, keys = column(path)
    if keys or name not in _STANDARD:
        return NUMBER if name.startswith(columns.AVAILABLE) else MIXED
    return stored(name, _STANDARD[name])


def stored(name: str, dtype: str) -> str:
    """Return the kind of a column's values; see ``columns.Column``."""
    if dtype in (columns.CODED, 'object'):
        return TEXT if name in _TEXTS else MIXED
    return NUMBER
