# SPDX-License-Identifier: Apache-2.0
"""Copying claims from one store to another.

Nobody else is to claim, release or report inventories in either store
meanwhile. What is written can be written again, so that a copy that was
killed is done again and goes on.
"""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import itertools

from cellsched.claims import base
from cellsched.claims import comparison
from cellsched.claims import listing
from cellsched import exception
from cellsched.objects import resources

#: Consumers that are copied and compared at a time.
BATCH = 500
BATCH_MAX = 10_000

#: What is in the way, at most, that an error names.
_NAMED_MAX = 5


@dataclasses.dataclass(frozen=True)
class Copied:
    """Numbers of what was copied.

    :param providers: those of the source
    :param consumers: those of the source that hold something
    :param claims: theirs
    :param new: those of the consumers that the target did not have before
    :param memberships_left: consumers that are in a server group, of which
        the target remembers nothing
    """

    providers: int
    consumers: int
    claims: int
    new: int
    memberships_left: int


class ClaimCopier:
    """Copies all that one store knows to another one.

    The target may be empty, or have a part of the same copy. Until all of it
    is there, what is still to be copied is room in the target: nobody is to
    claim there before :meth:`compare` finds nothing.

    :param batch: consumers that are copied at a time
    :raises cellsched.exception.ClaimsNotCopied: the two are one store
    :raises cellsched.exception.ConfigurationInvalid: one of them remembers
        who is in which server group, and does not tell
    :raises cellsched.exception.InvalidField: the batch is too large or none
    """

    def __init__(
        self, source: base.ClaimStore, target: base.ClaimStore,
        batch: int = BATCH,
    ) -> None:
        if not 1 <= batch <= BATCH_MAX:
            raise exception.InvalidField(
                where='claims copy', field='batch',
                expected=f'a number from 1 to {BATCH_MAX}, not {batch}')
        if source.same_backend(target):
            raise exception.ClaimsNotCopied(
                reason='the target is the store that they are in')
        self._source = source
        self._target = target
        self._batch = batch
        for store in source, target:
            store.memberships([])
        self._comparison = comparison.StoreComparison(source, target, batch)

    def size(self) -> int:
        """Return how many providers and claims the source has."""
        return sum(1 + usage.consumers
                   for usage in self._source.usages().usages)

    def check(self, looked: comparison.Looked = comparison.ignore) -> None:
        """Make sure that the target has nothing but a part of this copy.

        Inventories may differ, as they do while something is copied.

        :raises cellsched.exception.ClaimsNotCopied: names what is in the way
        """
        found = self._comparison.surplus(looked)
        named = list(itertools.islice(found, _NAMED_MAX))
        more = sum(1 for _ in found)
        if named:
            raise exception.ClaimsNotCopied(
                reason='the target has something else: ' + '; '.join(
                    f'{each.kind} {each.name}: {each.text}' for each in named)
                + (f'; and {more} more' if more else ''))

    def copy(self, looked: comparison.Looked = comparison.ignore) -> Copied:
        """Copy all, after :meth:`check`; done again it changes nothing.

        :raises cellsched.exception.ClaimConflict: a consumer came to hold
            something else in the target meanwhile
        """
        inventories = _inventories(self._source)
        for provider in sorted(inventories):
            self._target.set_inventory(provider, inventories[provider])
            looked(1)
        consumers = claims = new = left = 0
        for names in listing.pages(self._source, self._batch):
            held = self._source.claims_of(names)
            joins = self._source.memberships(names)
            if not self._comparison.groups:
                left += len(joins)
                joins = {}
            there = self._target.claims_of(names)
            # Whoever holds something else is a conflict.
            missing = [
                name for name in held if comparison.contents(held[name])
                != comparison.contents(there.get(name, ()))]
            self._claim([
                dataclasses.replace(claim, group=joins.get(name))
                for name in missing for claim in held[name]], inventories)
            consumers += len(held)
            new += len(missing)
            claims += sum(map(len, held.values()))
            looked(sum(map(len, held.values())))
        return Copied(len(inventories), consumers, claims, new, left)

    def compare(
        self, looked: comparison.Looked = comparison.ignore
    ) -> Iterator[comparison.StoreDifference]:
        """Yield each provider and consumer that the stores do not agree on."""
        return self._comparison.differences(looked)

    def _claim(
        self, claims: Sequence[base.Claim],
        inventories: Mapping[str, Mapping[str, base.Inventory]],
    ) -> None:
        """Take a batch in the target, whether there is room for it or not."""
        if not claims:
            return
        try:
            self._target.claim(claims)
            return
        except exception.GroupPolicyViolated:
            raise
        except exception.ClaimRefused:
            # A provider shrank below what is taken of it, or took to other
            # units, and the source holds what it would not give again.
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
        """Return inventories that have room for a batch, and for no more.

        Of providers that have room anyway there are none.
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
        for provider, wanted in amounts.items():
            has = inventories.get(provider, {})
            for resource, each in wanted.items():
                needed = sum(each) + used.get(provider, {}).get(resource, 0)
                there = has.get(resource, base.Inventory(total=0))
                if needed > there.capacity or not all(
                        map(there.admits, each)):
                    widened.setdefault(provider, dict(has))[resource] = (
                        _room_for(needed))
        return widened


def _inventories(
    store: base.ClaimStore
) -> dict[str, dict[str, base.Inventory]]:
    """Return what all providers have, those that have nothing too."""
    return {**{usage.provider: {} for usage in store.usages().usages},
            **store.inventories()}


def _room_for(amount: int) -> base.Inventory:
    """Return the inventory whose capacity is an amount, or hardly more."""
    if amount <= resources.AMOUNT_MAX:
        return base.Inventory(total=amount)
    # Where that was taken, a ratio above 1 made the room.
    return base.Inventory(
        total=resources.AMOUNT_MAX,
        allocation_ratio=float(-(-amount // resources.AMOUNT_MAX)))
