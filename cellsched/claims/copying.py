# SPDX-License-Identifier: Apache-2.0
"""Copies the claims of one store to another, and compares two stores.

No other program may claim, release or set inventories in either store
meanwhile. A copy is idempotent: an interrupted one continues when it is
started again.
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
from cellsched import exception
from cellsched.objects import resources


PROVIDER, CONSUMER = 'provider', 'consumer'

#: Called with the number of further providers and claims that are done.
Progress = Callable[[int], None]


def ignore(done: int) -> None:
    """Ignore the progress."""


@dataclasses.dataclass(frozen=True)
class StoreDifference:
    """A provider or a consumer that differs between two stores.

    :param kind: :data:`PROVIDER` or :data:`CONSUMER`
    :param name: its uuid
    :param text: a description of it in both stores
    """

    kind: str
    name: str
    text: str


class StoreComparison:
    """Compares a source with a target.

    :param batch: number of consumers that are compared at a time
    """

    def __init__(
        self, source: base.ClaimStore, target: base.ClaimStore, batch: int
    ) -> None:
        self._stores = source, target
        self._batch = batch
        #: Memberships are compared only if both stores have them.
        self.groups = all(base.Capability.GROUPS in store.capabilities
                          for store in self._stores)

    def differences(
        self, progress: Progress = ignore
    ) -> Iterator[StoreDifference]:
        """Yield the providers and consumers that differ.

        A class without capacity and use equals a missing class, and a
        provider without such classes equals a missing provider.
        """
        facts = [_providers(store) for store in self._stores]
        for provider in sorted(facts[0].keys() | facts[1].keys()):
            first, second = (each.get(provider, _Provider()) for each in facts)
            if not first.agrees(second):
                yield StoreDifference(PROVIDER, provider, _texts(
                    first.shown(), second.shown()))
            progress(1)
        for names in self._consumer_pages():
            yield from self._compare(names, progress)

    def extra(self, progress: Progress = ignore) -> Iterator[StoreDifference]:
        """Yield what the target has beyond a part of the source.

        Inventories of providers that both stores have may differ.
        """
        source, target = self._stores
        providers = {usage.provider for usage in listing.usages(source).usages}
        for provider, fact in sorted(_providers(target).items()):
            if provider not in providers and not fact.agrees(_Provider()):
                yield StoreDifference(PROVIDER, provider, _texts(
                    _NOTHING, fact.shown()))
        progress(len(providers))
        for names in listing.pages(target, self._batch):
            yield from self._compare(names, progress)

    def _compare(
        self, names: Sequence[str], progress: Progress
    ) -> Iterator[StoreDifference]:
        """Yield the consumers that differ, of some consumers."""
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
            progress(len(first[0]))

    def _consumer_pages(self) -> Iterator[list[str]]:
        """Yield sorted pages of the consumers of both stores."""
        merged = heapq.merge(*(
            itertools.chain.from_iterable(listing.pages(store, self._batch))
            for store in self._stores))
        names = (name for name, _ in itertools.groupby(merged))
        while page := list(itertools.islice(names, self._batch)):
            yield page


#: Describes a missing provider or consumer.
_NOTHING = 'nothing'


@dataclasses.dataclass(frozen=True)
class _Provider:
    """A provider in a store, without classes that equal missing ones."""

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
                and all(_are_equivalent(has, other.inventory[resource])
                        for resource, has in self.inventory.items()))

    def shown(self) -> str:
        parts = [
            *(_shown_inventory(*each)
              for each in sorted(self.inventory.items())),
            *(f'{amount} {resource} taken'
              for resource, amount in sorted(self.used.items())),
            *([f'{self.consumers} consumers'] if self.consumers else [])]
        return ', '.join(parts) or _NOTHING


def _are_equivalent(first: base.Inventory, second: base.Inventory) -> bool:
    """Return whether two inventories are the same for claims.

    A store may keep only the capacity and the units.
    """
    return first == second or (
        _checked(first) == second or first == _checked(second))


def _checked(has: base.Inventory) -> base.Inventory:
    return base.Inventory(has.capacity, 0, 1.0, *has.units)


def _providers(store: base.ClaimStore) -> dict[str, _Provider]:
    inventories = listing.inventories(store)
    return {
        usage.provider: _Provider(
            {resource: has for resource, has
             in inventories.get(usage.provider, {}).items() if has.capacity},
            _some(usage.capacity),
            {resource: units for resource, units in usage.units.items()
             if usage.capacity.get(resource)},
            _some(usage.used), usage.consumers)
        for usage in listing.usages(store).usages}


def _some(amounts: Mapping[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in amounts.items() if amount}


def contents(claims: Iterable[base.Claim]) -> dict[str, base.Claim]:
    """Return a consumer's claims by provider, for a comparison."""
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
    """Return the description of a claim without its consumer."""
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


#: Default number of consumers that are copied and compared at a time.
BATCH = 500
BATCH_MAX = 10_000

#: Maximum number of differences in an error.
_NAMED_MAX = 5


@dataclasses.dataclass(frozen=True)
class CopyResult:
    """The numbers of a copy.

    :param providers: providers of the source
    :param consumers: consumers of the source with claims
    :param claims: claims of the source
    :param new: consumers that were not in the target before
    :param memberships_lost: consumers with memberships, if the target does
        not store memberships
    """

    providers: int
    consumers: int
    claims: int
    new: int
    memberships_lost: int


class ClaimCopier:
    """Copies everything in one store to another.

    The target may be empty, or have a part of the same copy. A provider looks
    free in the target until all of its claims are copied, so no program may
    claim there before :meth:`compare` finds nothing.

    :param batch: number of consumers that are copied at a time
    :raises cellsched.exception.ClaimsNotCopied: both are the same store
    :raises cellsched.exception.ConfigurationInvalid: a store has memberships
        and does not list them
    :raises cellsched.exception.InvalidField: the batch is out of range
    """

    def __init__(
        self, source: base.ClaimStore, target: base.ClaimStore,
        batch: int = BATCH,
    ) -> None:
        if not 1 <= batch <= BATCH_MAX:
            raise exception.InvalidField(
                where='claims copy', field='batch',
                problem=f'{batch} is out of range',
                expected=f'1 to {BATCH_MAX}')
        if source.same_backend(target):
            raise exception.ClaimsNotCopied(
                reason='the target is the same store as the source')
        self._source = source
        self._target = target
        self._batch = batch
        for store in source, target:
            store.memberships([])
        self._comparison = StoreComparison(source, target, batch)

    def size(self) -> int:
        """Return the number of providers and claims in the source."""
        return sum(1 + usage.consumers
                   for usage in listing.usages(self._source).usages)

    def check(self, progress: Progress = ignore) -> None:
        """Check that the target has nothing but a part of this copy.

        Inventories may differ, as they do during a copy. A record of the
        source that cannot be read would be lost.

        :raises cellsched.exception.ClaimsNotCopied: names the differences or
            the unreadable records
        """
        problems = [each for each in self._source.problems() if each.advice]
        if problems:
            raise exception.ClaimsNotCopied(
                reason='the source has records that cannot be read: '
                + '; '.join(f'{each.record}: {each.text}'
                            for each in problems[:_NAMED_MAX])
                + (f'; and {len(problems) - _NAMED_MAX} more'
                   if len(problems) > _NAMED_MAX else ''))
        found = self._comparison.extra(progress)
        named = list(itertools.islice(found, _NAMED_MAX))
        more = sum(1 for _ in found)
        if named:
            raise exception.ClaimsNotCopied(
                reason='the target has other claims or providers: '
                + '; '.join(
                    f'{each.kind} {each.name}: {each.text}' for each in named)
                + (f'; and {more} more' if more else ''))

    def copy(self, progress: Progress = ignore) -> CopyResult:
        """Copy everything, after :meth:`check`. Idempotent.

        :raises cellsched.exception.ClaimConflict: a consumer holds other
            claims in the target
        """
        inventories = _inventories(self._source)
        for provider in sorted(inventories):
            self._target.set_inventory(provider, inventories[provider])
            progress(1)
        consumers = claims = new = lost = 0
        for names in listing.pages(self._source, self._batch):
            held = self._source.claims_of(names)
            joins = self._source.memberships(names)
            if not self._comparison.groups:
                lost += len(joins)
                joins = {}
            existing = self._target.claims_of(names)
            # Consumers with other claims in the target raise a conflict.
            missing = [
                name for name in held if contents(held[name])
                != contents(existing.get(name, ()))]
            self._claim([
                dataclasses.replace(claim, group=joins.get(name))
                for name in missing for claim in held[name]], inventories)
            consumers += len(held)
            new += len(missing)
            claims += sum(map(len, held.values()))
            progress(sum(map(len, held.values())))
        return CopyResult(len(inventories), consumers, claims, new, lost)

    def compare(
        self, progress: Progress = ignore
    ) -> Iterator[StoreDifference]:
        """Yield the providers and consumers that differ."""
        return self._comparison.differences(progress)

    def _claim(
        self, claims: Sequence[base.Claim],
        inventories: Mapping[str, Mapping[str, base.Inventory]],
    ) -> None:
        """Claim a batch in the target, with or without enough capacity."""
        if not claims:
            return
        try:
            self._target.claim(claims)
            return
        except exception.GroupPolicyViolated:
            raise
        except exception.ClaimRefused:
            # An inventory was reduced below the used amount, or its units
            # were changed, after the source made these claims.
            widened = self._widened(claims)
        try:
            for provider, inventory in widened.items():
                self._target.set_inventory(provider, inventory)
            self._target.claim(claims)
        finally:
            for provider in widened:
                self._target.set_inventory(
                    provider, inventories.get(provider, {}))

    def _widened(
        self, claims: Iterable[base.Claim]
    ) -> dict[str, dict[str, base.Inventory]]:
        """Return the inventories that must be widened to fit a batch.

        Inventories that fit it already are not changed.
        """
        amounts: dict[str, dict[str, list[int]]] = {}
        for claim in claims:
            of = amounts.setdefault(claim.provider, {})
            for resource, amount in claim.resources.items():
                of.setdefault(resource, []).append(amount)
        inventories = self._target.inventories(amounts)
        used = {usage.provider: usage.used for usage
                in self._target.usages(providers=amounts).usages}
        widened: dict[str, dict[str, base.Inventory]] = {}
        for provider, requested in amounts.items():
            has = inventories.get(provider, {})
            for resource, each in requested.items():
                needed = sum(each) + used.get(provider, {}).get(resource, 0)
                current = has.get(resource, base.Inventory(total=0))
                if needed > current.capacity or not all(
                        map(current.admits, each)):
                    widened.setdefault(provider, dict(has))[resource] = (
                        _room_for(needed))
        return widened


def _inventories(
    store: base.ClaimStore
) -> dict[str, dict[str, base.Inventory]]:
    """Return the inventories of all providers, with empty ones."""
    return {**{usage.provider: {} for usage in listing.usages(store).usages},
            **listing.inventories(store)}


def _room_for(amount: int) -> base.Inventory:
    """Return an inventory with about this capacity."""
    if amount <= resources.AMOUNT_MAX:
        return base.Inventory(total=amount)
    # Such an amount was claimed with an allocation ratio above 1.
    return base.Inventory(
        total=resources.AMOUNT_MAX,
        allocation_ratio=float(-(-amount // resources.AMOUNT_MAX)))
