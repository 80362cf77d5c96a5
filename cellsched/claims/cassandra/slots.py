# SPDX-License-Identifier: Apache-2.0
"""The columns that count the used amounts of a provider's classes."""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import functools
import json
from typing import Any
from typing import NamedTuple

from cellsched.claims import base
from cellsched.claims.cassandra import requests
from cellsched import exception


class Slot(NamedTuple):
    """The column, the capacity and the units of a resource class."""

    number: int
    capacity: int
    units: base.Units

    def admits(self, amount: int) -> bool:
        return self.inventory().admits(amount)

    def inventory(self) -> base.Inventory:
        return base.Inventory(self.capacity, 0, 1.0, *self.units)


@dataclasses.dataclass(frozen=True)
class Slots:
    """The inventory of a provider, stored as JSON.

    A class without inventory keeps its column while some of it is used.

    :param revision: number of earlier inventories, so that no text is
        repeated
    :param unreadable: why the inventory cannot be read, or ''; it has no
        classes then
    """

    classes: Mapping[str, Slot]
    revision: int = 0
    unreadable: str = ''

    @classmethod
    def of(cls, figures: requests.Figures) -> 'Slots':
        """Return a provider's inventory; unreadable if a counter is null."""
        slots = parse(figures.inventory)
        if figures.consumers is None or figures.open is None or any(
                figures.used[slot.number] is None
                for slot in slots.classes.values()):
            return cls({}, unreadable='a counter has no value')
        return slots

    def text(self) -> str:
        return json.dumps(
            [self.revision, {name: [slot.number, slot.capacity, *slot.units]
                             for name, slot in self.classes.items()}],
            separators=(',', ':'))

    def used(self, figures: requests.Figures) -> dict[str, int]:
        """Return the used amounts, by resource class."""
        return {name: figures.used[slot.number] or 0
                for name, slot in self.classes.items()}

    def usage(self, figures: requests.Figures) -> base.Usage:
        return base.Usage(
            provider=figures.provider,
            capacity={name: slot.capacity
                      for name, slot in self.classes.items()},
            used=self.used(figures), consumers=figures.consumers or 0,
            units={name: slot.units for name, slot in self.classes.items()
                   if slot.units != base.Units()})

    def amounts(
        self, resources: Iterable[Mapping[str, int]], sign: int = 1
    ) -> dict[int, int]:
        """Return the sum of the amounts, by column."""
        added: dict[int, int] = {}
        for each in resources:
            for name, amount in each.items():
                slot = self.classes.get(name)
                # A class without a column is not counted.
                if slot is not None:
                    added[slot.number] = (
                        added.get(slot.number, 0) + sign * amount)
        return added


def change(
    provider: str, figures: requests.Figures | None,
    inventory: Mapping[str, base.Inventory],
) -> requests.ChangeProvider | None:
    """Return the request that sets an inventory; None for no change.

    :param figures: the counters; None for a new provider
    :raises cellsched.exception.ClaimStoreFailed: the inventory is unreadable
    """
    known = Slots.of(figures) if figures is not None else Slots({}, -1)
    if known.unreadable:
        raise unreadable(provider, known.unreadable)
    used = known.used(figures) if figures is not None else {}
    kept = {name: Slot(slot.number, 0, base.Units())
            for name, slot in known.classes.items()
            if name in inventory or used[name]}
    classes = _assigned(provider, kept, inventory)
    numbers = {slot.number for slot in kept.values()}
    put: dict[str, Any] = {
        requests.USED[slot.number]: 0 for slot in classes.values()
        if slot.number not in numbers}
    put['inventory'] = Slots(classes, known.revision + 1).text()
    if figures is None:
        return requests.ChangeProvider(provider, {'inventory': None}, {
            'generation': 1, 'consumers': 0, 'open': 0, **put})
    if _admitted(classes) == _admitted(known.classes):
        return None
    unused = {requests.USED[slot.number]: 0
              for name, slot in known.classes.items() if name not in kept}
    return requests.ChangeProvider(
        provider, {'inventory': figures.inventory, **unused}, put,
        added={'generation': 1})


def with_room(
    providers: Iterable[requests.Figures], nested: Mapping[str, str],
    resources: Mapping[str, Iterable[int]],
) -> set[str]:
    """Return the roots of the trees that have the requested capacity.

    :param nested: roots of the providers that are not roots
    :param resources: amounts by resource class, of which one is needed
    """
    lacking: dict[str, set[str]] = {}
    for each in providers:
        lacks = lacking.setdefault(
            nested.get(each.provider, each.provider), {*resources})
        classes = parse(each.inventory).classes if lacks else {}
        for name in classes.keys() & lacks:
            slot = classes[name]
            free = slot.capacity - (each.used[slot.number] or 0)
            if any(amount <= free and slot.admits(amount)
                   for amount in resources[name]):
                lacks.remove(name)
    return {root for root, lacks in lacking.items() if not lacks}


def unreadable(provider: str, reason: str) -> exception.ClaimStoreFailed:
    """Return the error of a change of an unreadable provider."""
    return exception.ClaimStoreFailed(
        reason=f'provider {provider!r:.80} in the table claims: {reason}')


def _slot(number: int, capacity: int, *units: int) -> Slot:
    if not all(type(value) is int for value in (number, capacity, *units)) or (
            not 0 <= number < requests.SLOTS or any(
                unit < 1 for unit in units)):
        raise ValueError
    return Slot(number, capacity, base.Units(*units))


def resources_of(row: requests.ClaimRow) -> dict[str, int] | None:
    """Return the amounts of a claim's row; None if they cannot be read."""
    try:
        found = json.loads(row.resources)
        readable = all(type(amount) is int for amount in found.values())
    except (AttributeError, RecursionError, TypeError, ValueError):
        return None
    return found if readable else None


@functools.lru_cache(maxsize=4096)
def parse(text: str) -> Slots:
    """Return the inventory in a text; see ``unreadable``."""
    try:
        revision, classes = json.loads(text)
        return Slots({name: _slot(*fields)
                      for name, fields in classes.items()}, revision)
    except (AttributeError, RecursionError, TypeError, ValueError):
        return Slots({}, unreadable=f'the inventory {text!r:.80} cannot be '
                                    'read by this release')


def _assigned(
    provider: str, kept: Mapping[str, Slot],
    inventory: Mapping[str, base.Inventory],
) -> dict[str, Slot]:
    taken = {slot.number for slot in kept.values()}
    free = iter(number for number in range(requests.SLOTS)
                if number not in taken)
    classes = dict(kept)
    for name, has in inventory.items():
        number = kept[name].number if name in kept else next(free, None)
        if number is None:
            raise exception.InvalidField(
                where=f'inventory of {provider!r:.80}',
                field='resource classes',
                problem='too many resource classes in the inventory and in '
                        'use', expected=f'at most {requests.SLOTS}')
        classes[name] = Slot(number, has.capacity, has.units)
    return classes


def _admitted(
    classes: Mapping[str, Slot]
) -> dict[str, tuple[int, base.Units]]:
    return {name: (slot.capacity, slot.units)
            for name, slot in classes.items()}
