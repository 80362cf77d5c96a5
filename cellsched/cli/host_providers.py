# SPDX-License-Identifier: Apache-2.0
"""The providers of a host, beside itself, as they are shown."""

from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any
from typing import TYPE_CHECKING

from cliff import columns

if TYPE_CHECKING:
    from cellsched.hosts import view

#: Columns that say the same, beside those of rooms.
_TOLD = frozenset({'children', 'child_uuids', 'child_units', 'sharing'})


class HostProviders(columns.FormattableColumn[list[dict[str, Any]]]):
    """Child and sharing providers; for people, a line for each."""

    def human_readable(self) -> str:
        return '\n'.join(map(_line, self.machine_readable()))


def is_told(name: str) -> bool:
    """Return whether a column says what is told of providers."""
    from cellsched.hosts.columns import AT
    from cellsched.hosts.columns import ROOM

    return name in _TOLD or (
        name.startswith(ROOM) and AT in name)


def of(hosts: 'view.Hosts', row: int) -> list[dict[str, Any]]:
    """Return the child providers of a host, and what it shares with others.

    Each has ``number``, by which columns such as ``room:VGPU@1`` name a child,
    or None; ``name``, of what is shared, or None; ``uuid``; ``parent``, the
    uuid of what a child is directly below, or None; ``room``, what is left by
    resource class, where anything is; and ``traits``.
    """
    return [*_children(hosts, row), *_shared(hosts, row)]


def _children(hosts: 'view.Hosts', row: int) -> Iterator[dict[str, Any]]:
    from cellsched.hosts import columns as columns_

    root, children, uuids = hosts.values_at(
        row, 'uuid', 'children', 'child_uuids')
    for number, ((parent, traits), uuid) in enumerate(
            zip(children, uuids), start=1):
        end = f'{columns_.AT}{number}'
        yield {
            'number': number, 'name': None, 'uuid': uuid,
            'parent': uuids[parent - 1] if parent else root,
            'room': {
                name.removeprefix(columns_.ROOM).removesuffix(end):
                    int(hosts[name][row])
                for name in sorted(hosts.names)
                if name.startswith(columns_.ROOM) and name.endswith(end)
                and hosts[name][row]},
            'traits': sorted(traits)}


def _shared(hosts: 'view.Hosts', row: int) -> Iterator[dict[str, Any]]:
    [uuids] = hosts.values_at(row, 'sharing')
    for uuid in uuids:
        provider = hosts.sharing.get(uuid)
        if provider is not None:
            room = {name: int(hosts.shared_room(uuid, name))
                    for name in sorted(provider.room)}
            yield {
                'number': None, 'name': provider.name, 'uuid': uuid,
                'parent': None, 'room': {
                    name: left for name, left in room.items() if left},
                'traits': sorted(provider.traits)}


def _line(provider: dict[str, Any]) -> str:
    left = ', '.join(f'{amount} {name}'
                     for name, amount in provider['room'].items())
    which = (f'{provider["name"]}, shared' if provider['number'] is None
             else f'{provider["number"]}, {provider["uuid"]}')
    return (f'{which}: {left or "nothing"} left'
            + _traits(provider['traits']))


def _traits(names: Iterable[str]) -> str:
    said = ', '.join(names)
    return f'; {said}' if said else ''
