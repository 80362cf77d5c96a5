# SPDX-License-Identifier: Apache-2.0
"""Data types of host attributes, derived from their names alone."""

from cellsched.hosts import columns

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


def column(path: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Return the column of a name, and the JSON keys in the name."""
    if '.'.join(path[:2]) in _ALIASES:
        return _ALIASES['.'.join(path[:2])], path[2:]
    return _ALIASES.get(path[0], path[0]), path[1:]


def kind(path: tuple[str, ...]) -> str:
    """Return the kind that a name with keys has in every table.

    It is mixed if it depends on the table, as with columns of plug-ins.
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
