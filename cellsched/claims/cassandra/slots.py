# SPDX-License-Identifier: Apache-2.0
"""The columns that count the used amounts of a provider's classes."""

from collections.abc import Iterable
from collections.abc import Mapping
import functools
import json
from typing import NamedTuple
from typing import Self

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


class Slots:
    """The inventory of a provider, stored as JSON.

    A class without inventory keeps its column while some of it is used.

    :param revision: number of earlier inventories, so that no text is
        repeated
    """

    def __init__(self, classes: Mapping[str, Slot], revision: int) -> None:
        self.classes = classes
        self._revision = revision
        self.text = json.dumps(
            [revision, {name: [slot.number, slot.capacity, *slot.units]
                        for name, slot in classes.items()}],
            separators=(',', ':'))

    @classmethod
    def parse(cls, text: str) -> Self:
        revision, classes = json.loads(text)
        return cls({name: Slot(number, capacity, base.Units(*units))
                    for name, (number, capacity, *units)
                    in classes.items()}, revision)

    def used(self, figures: requests.Figures) -> dict[str, int]:
        """Return the used amounts, by resource class."""
        return {name: figures.used[slot.number] or 0
                for name, slot in self.classes.items()}

    def usage(self, figures: requests.Figures) -> base.Usage:
        return base.Usage(
            provider=figures.provider,
            capacity={name: slot.capacity
                      for name, slot in self.classes.items()},
            used=self.used(figures), consumers=figures.consumers,
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


def first(
    provider: str, inventory: Mapping[str, base.Inventory]
) -> requests.SetInventory:
    """Return the request that creates a provider."""
    slots = Slots(_assigned(provider, {}, inventory), 0)
    return requests.SetInventory(
        provider, None, slots.text,
        cleared=tuple(slot.number for slot in slots.classes.values()))


def following(
    figures: requests.Figures, inventory: Mapping[str, base.Inventory],
    adds: bool,
) -> requests.SetInventory | None:
    """Return the request that changes an inventory; None for no change.

    :param adds: whether the server supports addition under a condition
    """
    known = parse(figures.inventory)
    used = known.used(figures)
    kept = {name: Slot(slot.number, 0, base.Units())
            for name, slot in known.classes.items()
            if name in inventory or used[name]}
    classes = _assigned(figures.provider, kept, inventory)
    if _admitted(classes) == _admitted(known.classes):
        return None
    before = {slot.number for slot in kept.values()}
    return requests.SetInventory(
        figures.provider, figures.inventory,
        Slots(classes, known._revision + 1).text,
        unused=tuple(slot.number for name, slot in known.classes.items()
                     if name not in kept),
        cleared=tuple(slot.number for slot in classes.values()
                      if slot.number not in before),
        generation=None if adds else figures.generation)


@functools.lru_cache(maxsize=4096)
def parse(text: str) -> Slots:
    """Return the inventory of a provider, cached by its text."""
    return Slots.parse(text)


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
                expected=f'at most {requests.SLOTS} with an amount in the '
                         'inventory or in use')
        classes[name] = Slot(number, has.capacity, has.units)
    return classes


def _admitted(
    classes: Mapping[str, Slot]
) -> dict[str, tuple[int, base.Units]]:
    return {name: (slot.capacity, slot.units)
            for name, slot in classes.items()}
