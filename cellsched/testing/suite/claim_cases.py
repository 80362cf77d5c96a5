# SPDX-License-Identifier: Apache-2.0
"""The base class of the tests of claim stores."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
from concurrent import futures
import threading
from typing import Any
import uuid

from cellsched.claims import base
from cellsched.claims import listing
from cellsched import exception
from cellsched.testing.suite.base import Case

Call = Callable[[base.ClaimStore], object]


class ClaimStoreCase(Case):
    """Makes stores, providers and claims, and checks the outcome."""

    def make_store(self) -> base.ClaimStore:
        """Return an empty store."""
        raise NotImplementedError()

    def make_peer(self, store: base.ClaimStore) -> base.ClaimStore:
        """Return another store on the same data, like that of a process."""
        raise NotImplementedError()

    def need(
        self, store: base.ClaimStore, capability: base.Capability
    ) -> None:
        """Skip the test unless the store has this capability."""
        if capability not in store.capabilities:
            self.skipTest(f'the store is not {capability.value}')

    def make_provider(self, store: base.ClaimStore, **has: Any) -> str:
        """Return a new provider with these totals of resource classes."""
        provider = str(uuid.uuid4())
        store.set_inventory(provider, {
            resource: amount if isinstance(amount, base.Inventory)
            else base.Inventory(total=amount)
            for resource, amount in has.items()})
        return provider

    def make_claim(self, provider: str, **resources: int) -> base.Claim:
        """Return a claim of a new consumer."""
        return base.Claim(str(uuid.uuid4()), provider, resources)

    def by_provider(
        self, claims: Iterable[base.Claim]
    ) -> dict[str, dict[str, int]]:
        return {claim.provider: dict(claim.resources) for claim in claims}

    def consumers(self, store: base.ClaimStore) -> list[str]:
        """Return all consumers with claims."""
        return [name for page in listing.pages(store, 1000) for name in page]

    def usage(self, store: base.ClaimStore, provider: str) -> base.Usage:
        usages = store.usages(providers=[provider]).usages
        self.assertEqual([provider], [usage.provider for usage in usages])
        return usages[0]

    def assertHolds(self, store: base.ClaimStore, claim: base.Claim) -> None:
        """Check that a consumer holds this claim and no other."""
        held = store.claims_of([claim.consumer])
        self.assertEqual({claim.consumer}, set(held))
        self.assertEqual(self.by_provider([claim]),
                         self.by_provider(held[claim.consumer]))
        self.assertEqual(1, len(held[claim.consumer]))
        self.assertEqual(claim.consumer, held[claim.consumer][0].consumer)

    def assertUsed(
        self, store: base.ClaimStore, provider: str, consumers: int,
        **used: int,
    ) -> None:
        """Check the used amounts and the number of consumers of a provider."""
        usage = self.usage(store, provider)
        taken = {resource: amount for resource, amount in usage.used.items()
                 if amount}
        self.assertEqual(
            {resource: amount for resource, amount in used.items() if amount},
            taken)
        self.assertEqual(consumers, usage.consumers)

    def assertCapacity(
        self, store: base.ClaimStore, provider: str, **capacity: int
    ) -> None:
        """Check the capacity of a provider."""
        usage = self.usage(store, provider)
        self.assertEqual(capacity, {
            resource: amount for resource, amount in usage.capacity.items()
            if amount})

    def assertRefused(
        self, store: base.ClaimStore, claims: Sequence[base.Claim],
        claim: base.Claim, resource: str,
    ) -> None:
        """Check that a batch is refused, and the fields of the error."""
        with self.assertRaises(exception.ClaimRefused) as caught:
            store.claim(claims)
        refusal = caught.exception
        self.assertEqual(
            (claim.consumer, claim.provider, resource,
             claim.resources[resource]),
            (refusal.consumer, refusal.provider, refusal.resource,
             refusal.amount))

    def race(
        self, store: base.ClaimStore, calls: Sequence[Call]
    ) -> list[Exception | None]:
        """Return the outcomes of concurrent calls, in their order.

        A shared store and a peer of it are used in turns.
        """
        stores = [store]
        if base.Capability.SHARED in store.capabilities:
            stores.append(self.make_peer(store))
        start = threading.Barrier(len(calls))

        def run(number: int) -> Exception | None:
            start.wait()
            try:
                calls[number](stores[number % len(stores)])
            except Exception as exc:
                return exc
            return None

        with futures.ThreadPoolExecutor(len(calls)) as pool:
            return list(pool.map(run, range(len(calls))))
