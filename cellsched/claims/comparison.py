# SPDX-License-Identifier: Apache-2.0
"""Comparing two claim stores: providers and consumers they do not agree on.

Nobody else is to change either meanwhile.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import heapq
import itertools
from typing import Any

from cellsched.claims import base
from cellsched.claims import listing

PROVIDER, CONSUMER = 'provider', 'consumer'

#: Is told how many more providers and claims are done.
Looked = Callable[[int], None]


def ignore(done: int) -> None:
    """Tell nobody."""


@dataclasses.dataclass(frozen=True)
class StoreDifference:
    """A provider or a consumer of which two stores do not say the same.

    :param kind: :data:`PROVIDER` or :data:`CONSUMER`
    :param name: its uuid
    :param text: for people, what each of the stores says
    """

    kind: str
    name: str
    text: str


class StoreComparison:
    """Compares a store, the source, with another one, the target.

    :param batch: consumers that are compared at a time
    """

    def __init__(
        self, source: base.ClaimStore, target: base.ClaimStore, batch: int
    ) -> None:
        self._stores = source, target
        self._batch = batch
        #: Who is in which group is compared only where both know.
        self.groups = all(base.Capability.GROUPS in store.capabilities
                          for store in self._stores)

    def differences(
        self, looked: Looked = ignore
    ) -> Iterator[StoreDifference]:
        """Yield each provider and consumer that the stores do not agree on.

        A class of which there is nothing, and nothing is taken, is as good as
        none, and so is a provider without any.
        """
        facts = [_providers(store) for store in self._stores]
        for provider in sorted(facts[0].keys() | facts[1].keys()):
            first, second = (each.get(provider, _Provider())
                             for each in facts)
            if not first.agrees(second):
                yield StoreDifference(PROVIDER, provider, _texts(
                    first.shown(), second.shown()))
            looked(1)
        for names in self._together():
            yield from self._compare(names, looked)

    def surplus(self, looked: Looked = ignore) -> Iterator[StoreDifference]:
        """Yield what the target has and a part of the source has not.

        Inventories of providers that both know may differ.
        """
        source, target = self._stores
        providers = {usage.provider for usage in source.usages().usages}
        for provider, fact in sorted(_providers(target).items()):
            if provider not in providers and not fact.agrees(_Provider()):
                yield StoreDifference(PROVIDER, provider, _texts(
                    _NOTHING, fact.shown()))
        looked(len(providers))
        for names in listing.pages(target, self._batch):
            yield from self._compare(names, looked)

    def _compare(
        self, names: Sequence[str], looked: Looked
    ) -> Iterator[StoreDifference]:
        """Yield those of some consumers that the stores do not agree on."""
        held = [store.claims_of(names) for store in self._stores]
        joins = [store.memberships(names) if self.groups else {}
                 for store in self._stores]
        for name in names:
            first, second = (
                (contents(claims.get(name, ())), joined.get(name))
                for claims, joined in zip(held, joins))
            if first != second:
                yield StoreDifference(CONSUMER, name, _texts(
                    _shown(*first), _shown(*second)))
            looked(len(first[0]))

    def _together(self) -> Iterator[list[str]]:
        """Yield consumers that hold something in either store, in order."""
        merged = heapq.merge(*(
            itertools.chain.from_iterable(listing.pages(store, self._batch))
            for store in self._stores))
        names = (name for name, _ in itertools.groupby(merged))
        while page := list(itertools.islice(names, self._batch)):
            yield page


#: What is said of what a store does not have.
_NOTHING = 'nothing'


@dataclasses.dataclass(frozen=True)
class _Provider:
    """A provider as a store tells of it, less what is as good as absent."""

    inventory: Mapping[str, base.Inventory] = dataclasses.field(
        default_factory=dict)
    capacity: Mapping[str, int] = dataclasses.field(default_factory=dict)
    units: Mapping[str, base.Units] = dataclasses.field(default_factory=dict)
    used: Mapping[str, int] = dataclasses.field(default_factory=dict)
    consumers: int = 0

    def agrees(self, other: '_Provider') -> bool:
        return ((self.capacity, self.units, self.used, self.consumers)
                == (other.capacity, other.units, other.used, other.consumers)
                and self.inventory.keys() == other.inventory.keys()
                and all(_come_to_the_same(has, other.inventory[resource])
                        for resource, has in self.inventory.items()))

    def shown(self) -> str:
        parts = [
            *(_shown_inventory(*each)
              for each in sorted(self.inventory.items())),
            *(f'{amount} {resource} taken'
              for resource, amount in sorted(self.used.items())),
            *([f'{self.consumers} consumers'] if self.consumers else [])]
        return ', '.join(parts) or _NOTHING


def _come_to_the_same(
    first: base.Inventory, second: base.Inventory
) -> bool:
    """Return whether two inventories are one that two stores were told.

    A store may keep no more of it than what claims are checked by.
    """
    return first == second or (
        _checked(first) == second or first == _checked(second))


def _checked(has: base.Inventory) -> base.Inventory:
    return base.Inventory(has.capacity, 0, 1.0, *has.units)


def _providers(store: base.ClaimStore) -> dict[str, _Provider]:
    inventories = store.inventories()
    return {
        usage.provider: _Provider(
            {resource: has for resource, has
             in inventories.get(usage.provider, {}).items() if has.capacity},
            _some(usage.capacity),
            {resource: units for resource, units in usage.units.items()
             if usage.capacity.get(resource)},
            _some(usage.used), usage.consumers)
        for usage in store.usages().usages}


def _some(amounts: Mapping[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in amounts.items() if amount}


def contents(claims: Iterable[base.Claim]) -> dict[str, base.Claim]:
    """Return a consumer's claims by provider, to be compared."""
    return {claim.provider: dataclasses.replace(
        claim, resources=dict(claim.resources), group=None)
        for claim in claims}


def _texts(source: str, target: str) -> str:
    return f'{source} in the source, {target} in the target'


def _shown(
    claims: Mapping[str, base.Claim], joined: base.Membership | None
) -> str:
    parts = [_shown_claim(claims[provider]) for provider in sorted(claims)]
    if joined is not None:
        parts.append(f'member {joined.member} of server group '
                     f'{joined.group} on host {joined.host}')
    return ', '.join(parts) or _NOTHING


def _shown_claim(claim: base.Claim) -> str:
    """Return all of a claim but whose it is."""
    amounts = ' and '.join(f'{amount} {resource}' for resource, amount
                           in sorted(claim.resources.items()))
    more: dict[str, Any] = {
        field.name: getattr(claim, field.name)
        for field in dataclasses.fields(claim)
        if field.name not in ('consumer', 'provider', 'resources', 'group')}
    return ' '.join((
        f'{amounts} of {claim.provider}',
        *(f'{name} {value}' for name, value in more.items() if value)))


def _shown_inventory(resource: str, has: base.Inventory) -> str:
    fields = ' '.join(
        f'{field.name} {getattr(has, field.name)}'
        for field in dataclasses.fields(has)
        if getattr(has, field.name) != field.default)
    return f'{resource} {fields}'
