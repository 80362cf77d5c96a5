# SPDX-License-Identifier: Apache-2.0
"""Claims in the memory of one process."""

import collections
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from random import Random
import threading
from typing import Any
from typing import Self

from oslo_config import cfg

from cellsched.claims import base
from cellsched.claims import validation
from cellsched import exception


class MemoryClaims(base.ClaimStore):
    """Keep claims in a dictionary under a lock.

    The reference implementation of the contract. The claims exist in one
    process only, so it serves tests and simulations.

    :param random: selects among matching providers if there are more than
        the limit; without it the first ones are returned
    """

    capabilities = frozenset({
        base.Capability.ATOMIC, base.Capability.GROUPS, base.Capability.FEED,
        base.Capability.CONSUMER_LIST, base.Capability.QUERY,
        base.Capability.ANY_OF})

    def __init__(self, random: Random | None = None) -> None:
        self._lock = threading.Lock()
        self._random = random
        self._held: dict[str, list[base.Claim]] = {}
        #: The group of each consumer; the members and hosts of each group.
        self._groups: dict[str, str] = {}
        self._members: dict[str, dict[str, tuple[str, str]]] = {}
        self._inventories: dict[str, dict[str, base.Inventory]] = {}
        #: The root and the traits of each provider.
        self._roots: dict[str, str] = {}
        self._traits: dict[str, frozenset[str]] = {}
        self._used: dict[str, dict[str, int]] = {}
        self._consumers: dict[str, int] = {}
        #: Number of the latest change of each provider, in ascending order.
        self._changed: dict[str, int] = {}
        self._changes = 0

    @classmethod
    def from_conf(
        cls, conf: cfg.ConfigOpts, parts: base.ClaimStoreParts
    ) -> Self:
        return cls(parts.random)

    def claim(self, claims: Sequence[base.Claim]) -> int:
        outcome = self._claim([claims])
        if outcome.chosen is None:
            raise outcome.refusals[0]
        return outcome.new

    def claim_any(
        self, batches: Sequence[Sequence[base.Claim]]
    ) -> base.AnyOf:
        return self._claim(batches)

    def _claim(self, batches: Sequence[Sequence[base.Claim]]) -> base.AnyOf:
        validation.check_claims(batches[0])
        with self._lock:
            outcome, new = validation.choose(
                batches, self._holdings(
                    {claim.consumer for claim in batches[0]}), self._find)
            self._hold(new)
        return outcome

    def _hold(self, new: Sequence[base.Claim]) -> None:
        for claim in new:
            self._held.setdefault(claim.consumer, []).append(
                dataclasses.replace(
                    claim, resources=dict(claim.resources), group=None))
            self._count(claim, 1)
            self._join(claim)
        self._note(claim.provider for claim in new)

    def _find(
        self, claims: Sequence[base.Claim]
    ) -> exception.ClaimRefused | None:
        """Return why new claims are refused; None if they fit."""
        return (
            validation.find_violation(claims, self._members_of(claims))
            or validation.find_refusal(claims, self._inventories, self._used))

    def release(self, consumers: Iterable[str]) -> None:
        # The iterable may call this store, so it is read before the lock.
        consumers = list(consumers)
        with self._lock:
            released: list[base.Claim] = []
            for consumer in consumers:
                released += self._held.pop(consumer, ())
                self._leave(consumer)
            for claim in released:
                self._count(claim, -1)
            self._note(claim.provider for claim in released)

    def transfer(self, source: str, target: str) -> bool:
        validation.check_transfer(source, target)
        with self._lock:
            if source not in self._held:
                return False
            given_back = self._held.pop(target, [])
            self._held[target] = [
                dataclasses.replace(claim, consumer=target)
                for claim in self._held.pop(source)]
            self._leave(target)
            if source in self._groups:
                group = self._groups[target] = self._groups.pop(source)
                members = self._members[group]
                members[target] = members.pop(source)
            for claim in given_back:
                self._count(claim, -1)
            self._note(claim.provider for claim in given_back)
            return True

    def consumers(self, after: str = '', limit: int = 1000) -> list[str]:
        validation.check_limit(limit)
        with self._lock:
            return sorted(
                consumer for consumer in self._held if consumer > after
            )[:limit]

    def claims_of(
        self, consumers: Iterable[str]
    ) -> dict[str, list[base.Claim]]:
        consumers = list(consumers)
        with self._lock:
            return self._holdings(consumers)

    def memberships(
        self, consumers: Iterable[str]
    ) -> dict[str, base.Membership]:
        consumers = list(consumers)
        with self._lock:
            return {consumer: self._joined(consumer) for consumer in consumers
                    if consumer in self._groups}

    def rename_host(self, former: str, name: str) -> None:
        with self._lock:
            for members in self._members.values():
                for consumer, (member, host) in members.items():
                    if host == former:
                        members[consumer] = member, name

    def set_inventory(
        self, provider: str, inventory: Mapping[str, base.Inventory]
    ) -> None:
        validation.check_inventory(provider, inventory)
        with self._lock:
            if self._inventories.get(provider) != inventory:
                self._inventories[provider] = dict(inventory)
                self._note([provider])

    def set_traits(
        self, provider: str, traits: Iterable[str], root: str
    ) -> None:
        traits = frozenset(traits)
        validation.check_traits(provider, traits, root)
        with self._lock:
            self._roots[provider] = root
            self._traits[provider] = traits

    def roots(self, providers: Iterable[str]) -> dict[str, str]:
        with self._lock:
            return {provider: self._roots[provider] for provider in providers
                    if provider in self._roots}

    def find_providers(
        self, query: base.ProviderQuery, limit: int | None = None
    ) -> list[str]:
        validation.check_query(query, limit)
        with self._lock:
            trees: dict[str, list[str]] = {}
            for provider in self._inventories:
                trees.setdefault(
                    self._roots.get(provider, provider), []).append(provider)
            found = [root for root, tree in trees.items()
                     if self._has(root, tree, query)]
        if limit is None or len(found) <= limit:
            return found
        if self._random is None:
            return found[:limit]
        return self._random.sample(found, limit)

    def _has(
        self, root: str, tree: Iterable[str], query: base.ProviderQuery
    ) -> bool:
        """Return whether a tree matches a query."""
        if not all(any(self._gives(provider, resource, amount)
                       for provider in tree for amount in amounts)
                   for resource, amounts in query.resources.items()):
            return False
        if root not in self._traits:
            return True
        has = frozenset[str]().union(*(
            traits for provider, traits in self._traits.items()
            if self._roots[provider] == root))
        return query.required <= has and query.forbidden.isdisjoint(
            self._traits[root])

    def _gives(self, provider: str, resource: str, amount: int) -> bool:
        has = self._inventories[provider].get(resource)
        if has is None:
            return False
        used = self._used.get(provider, {}).get(resource, 0)
        return (used + amount <= has.capacity
                and has.min_unit <= amount <= has.max_unit
                and amount % has.step_size == 0)

    def inventories(
        self, providers: Iterable[str] | None = None
    ) -> dict[str, dict[str, base.Inventory]]:
        with self._lock:
            known = self._inventories if providers is None else providers
            return {provider: dict(self._inventories[provider])
                    for provider in known if provider in self._inventories}

    def recount(self, provider: str) -> bool:
        with self._lock:
            claims = [claim for held in self._held.values() for claim in held
                      if claim.provider == provider]
            used: collections.Counter[str] = collections.Counter()
            for claim in claims:
                used.update(claim.resources)
            # A class with the amount zero equals a missing one.
            known = collections.Counter(self._used.get(provider, {}))
            if len(claims) == self._consumers.get(provider, 0) and (
                    used == known):
                return False
            self._used[provider] = dict(used)
            self._consumers[provider] = len(claims)
            self._note([provider])
            return True

    def usages(
        self, since: Any = None, providers: Iterable[str] | None = None
    ) -> base.UsageChanges:
        with self._lock:
            if providers is not None:
                known = dict.fromkeys(providers)
                return base.UsageChanges(since, [
                    self._usage(provider) for provider in known
                    if provider in self._inventories])
            return base.UsageChanges(self._changes, [
                self._usage(provider) for provider in self._after(since or 0)])

    def _holdings(
        self, consumers: Iterable[str]
    ) -> dict[str, list[base.Claim]]:
        return {consumer: list(self._held[consumer]) for consumer in consumers
                if consumer in self._held}

    def _count(self, claim: base.Claim, sign: int) -> None:
        used = self._used.setdefault(claim.provider, {})
        for resource, amount in claim.resources.items():
            used[resource] = used.get(resource, 0) + sign * amount
        self._consumers[claim.provider] = (
            self._consumers.get(claim.provider, 0) + sign)

    def _join(self, claim: base.Claim) -> None:
        joins = claim.group
        if joins is not None:
            self._groups[claim.consumer] = joins.group
            self._members.setdefault(joins.group, {})[claim.consumer] = (
                joins.member or claim.consumer, joins.host)

    def _joined(self, consumer: str) -> base.Membership:
        group = self._groups[consumer]
        member, host = self._members[group][consumer]
        return base.joined(group, host, member)

    def _leave(self, consumer: str) -> None:
        group = self._groups.pop(consumer, None)
        if group is not None:
            del self._members[group][consumer]
            if not self._members[group]:
                del self._members[group]

    def _members_of(
        self, claims: Iterable[base.Claim]
    ) -> Iterator[tuple[str, str, str, str]]:
        """Yield the members of all groups in a batch."""
        for group in {claim.group.group for claim in claims if claim.group}:
            for consumer, joined in self._members.get(group, {}).items():
                yield group, consumer, *joined

    def _note(self, providers: Iterable[str]) -> None:
        self._changes += 1
        for provider in providers:
            self._changed.pop(provider, None)
            self._changed[provider] = self._changes

    def _after(self, change: int) -> Iterator[str]:
        for provider in reversed(self._changed):
            if self._changed[provider] <= change:
                return
            yield provider

    def _usage(self, provider: str) -> base.Usage:
        inventory = self._inventories[provider]
        return base.Usage(
            provider=provider,
            capacity={name: has.capacity for name, has in inventory.items()},
            used=dict(self._used.get(provider, {})),
            consumers=self._consumers.get(provider, 0),
            units={name: has.units for name, has in inventory.items()
                   if has.units != base.Units()})
