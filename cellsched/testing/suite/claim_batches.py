# SPDX-License-Identifier: Apache-2.0
"""Tests of batches whose consumers claim from several providers."""

from collections.abc import Mapping
from collections.abc import Sequence
from concurrent import futures
import threading
import uuid

from cellsched.claims import base
from cellsched import exception
from cellsched.testing.suite import claim_cases

#: Number of concurrent batches.
RACERS = 16

#: The claim of a consumer on each provider of a host.
DEMANDS: Mapping[str, Mapping[str, int]] = {
    'root': {'MEMORY_MB': 512, 'VCPU': 2},
    'device': {'VGPU': 1},
    'network': {'NET_BW_EGR_KILOBIT_PER_SEC': 1000},
    'pool': {'DISK_GB': 20}}

Host = Mapping[str, str]


class BatchCase(claim_cases.ClaimStoreCase):
    """Makes hosts of several providers, and claims on all of them."""

    def make_host(
        self, store: base.ClaimStore, room: Mapping[str, int],
        pool: str | None = None, root: Mapping[str, int] = DEMANDS['root'],
    ) -> dict[str, str]:
        """Return the new providers of a host, by their role.

        :param room: number of consumers that fit in each provider
        :param pool: a provider that the host shares with other hosts
        :param root: the claim of a consumer on the root
        """
        made = {name: self.make_provider(store, **{
            resource: amount * room[name]
            for resource, amount in {**DEMANDS, 'root': root}[name].items()})
            for name in DEMANDS if name != 'pool' or pool is None}
        return {**made, 'pool': pool or made['pool']}

    def make_batch(
        self, host: Host, root: Mapping[str, int] = DEMANDS['root'],
    ) -> list[base.Claim]:
        """Return the claims of a new consumer on all providers of a host."""
        consumer = str(uuid.uuid4())
        return [base.Claim(consumer, host[name], resources)
                for name, resources in {**DEMANDS, 'root': root}.items()]

    def assertNothingTaken(
        self, store: base.ClaimStore, batch: Sequence[base.Claim]
    ) -> None:
        """Check that no claim of a batch was made."""
        self.assertEqual({}, store.claims_of([batch[0].consumer]))
        for claim in batch:
            self.assertUsed(store, claim.provider, 0)


class ClaimBatchRaces(BatchCase):
    """Tests of concurrent batches for four providers, one of them scarce."""

    def test_last_device_goes_to_one(self) -> None:
        store = self.make_store()
        host = self.make_host(
            store, {**dict.fromkeys(DEMANDS, RACERS), 'device': 1})

        self.check_race(store, [
            self.make_batch(host) for _ in range(RACERS)],
            host['device'], 'VGPU', 1)

    def test_last_bare_metal_node_goes_to_one(self) -> None:
        store = self.make_store()
        node = {'CUSTOM_BAREMETAL_GOLD': 1}
        host = self.make_host(
            store, {**dict.fromkeys(DEMANDS, RACERS), 'root': 1}, root=node)

        self.check_race(store, [
            self.make_batch(host, node) for _ in range(RACERS)],
            host['root'], 'CUSTOM_BAREMETAL_GOLD', 1)

    def test_shared_pool_goes_to_as_many_as_fit(self) -> None:
        store = self.make_store()
        room = {**dict.fromkeys(DEMANDS, 1), 'pool': 5}
        first = self.make_host(store, room)
        hosts = [first, *(self.make_host(store, room, first['pool'])
                          for _ in range(RACERS - 1))]

        self.check_race(store, [self.make_batch(host) for host in hosts],
                        first['pool'], 'DISK_GB', 5)

    def check_race(
        self, store: base.ClaimStore, batches: Sequence[Sequence[base.Claim]],
        scarce: str, resource: str, room: int,
    ) -> None:
        """Claim batches concurrently; check that as many succeed as fit.

        :param scarce: the provider that does not fit all of them
        :param room: number of batches that fit
        """
        outcomes = self.watched(store, batches)

        winners = [batch for batch, outcome in zip(batches, outcomes)
                   if outcome is None]
        self.assertEqual(room, len(winners), outcomes)
        for refusal in outcomes:
            if refusal is not None:
                self.assertIsInstance(refusal, exception.ClaimRefused)
                assert isinstance(refusal, exception.ClaimRefused)
                self.assertEqual(
                    (scarce, resource),
                    (refusal.provider, refusal.resource))
        held = store.claims_of(batch[0].consumer for batch in batches)
        self.assertEqual(
            {batch[0].consumer: self.by_provider(batch) for batch in winners},
            {consumer: self.by_provider(claims)
             for consumer, claims in held.items()})
        for provider in _providers(batches):
            taken = [claim for batch in winners for claim in batch
                     if claim.provider == provider]
            self.assertUsed(store, provider, len(taken), **_added(taken))
            self.assertFalse(store.recount(provider))

    def watched(
        self, store: base.ClaimStore, batches: Sequence[Sequence[base.Claim]]
    ) -> list[Exception | None]:
        """Return the outcomes of concurrent batches, and check usages."""
        providers = _providers(batches)
        ended = threading.Event()

        def watch() -> None:
            while True:
                last = ended.is_set()
                usages = store.usages(providers=providers).usages
                self.assertEqual(len(providers), len(usages))
                self.check_usages(usages, batches)
                if last:
                    return

        with futures.ThreadPoolExecutor(1) as pool:
            watching = pool.submit(watch)
            try:
                outcomes = self.race_batches(store, batches)
            finally:
                ended.set()
            watching.result()
        return outcomes

    def check_usages(
        self, usages: Sequence[base.Usage],
        batches: Sequence[Sequence[base.Claim]],
    ) -> None:
        """Check the usages that are visible during concurrent claims."""
        for usage in usages:
            for resource, amount in usage.used.items():
                self.assertLessEqual(amount, usage.capacity[resource])

    def race_batches(
        self, store: base.ClaimStore, batches: Sequence[Sequence[base.Claim]]
    ) -> list[Exception | None]:
        """Return the outcomes of concurrent batches, in their order."""
        return self.race(store, [_claiming(batch) for batch in batches])


class ClaimBatches(ClaimBatchRaces):
    """Tests of batches for four providers, concurrent and alone."""

    def test_batch_of_four_providers_is_held_and_released(self) -> None:
        store = self.make_store()
        host = self.make_host(store, dict.fromkeys(DEMANDS, 1))
        batch = self.make_batch(host)

        self.assertEqual([4, 0], [store.claim(batch) for _ in range(2)])

        held = store.claims_of([batch[0].consumer])[batch[0].consumer]
        self.assertEqual(self.by_provider(batch), self.by_provider(held))
        for claim in batch:
            self.assertUsed(store, claim.provider, 1, **claim.resources)
        store.release([batch[0].consumer])
        self.assertNothingTaken(store, batch)

    def test_batch_without_room_in_one_provider_takes_of_none(self) -> None:
        store = self.make_store()
        for name in DEMANDS:
            host = self.make_host(
                store, {**dict.fromkeys(DEMANDS, 9), name: 0})
            batch = self.make_batch(host)
            short = next(claim for claim in batch
                         if claim.provider == host[name])

            self.assertRefused(store, batch, short, min(short.resources))

            self.assertNothingTaken(store, batch)

    def test_batch_that_breaks_one_bound_takes_of_none(self) -> None:
        store = self.make_store()
        room = dict.fromkeys(DEMANDS, 9)
        for name, bounds in (
                ('root', base.Inventory(99, max_unit=1)),
                ('device', base.Inventory(99, min_unit=2)),
                ('pool', base.Inventory(99, step_size=7))):
            host = self.make_host(store, room)
            resource = max(DEMANDS[name])
            store.set_inventory(host[name], {
                **{other: base.Inventory(9999) for other in DEMANDS[name]},
                resource: bounds})
            batch = self.make_batch(host)
            short = next(claim for claim in batch
                         if claim.provider == host[name])

            self.assertRefused(store, batch, short, resource)

            self.assertNothingTaken(store, batch)


def _providers(batches: Sequence[Sequence[base.Claim]]) -> list[str]:
    return sorted({claim.provider for batch in batches for claim in batch})


def _added(claims: Sequence[base.Claim]) -> dict[str, int]:
    return {resource: sum(claim.resources[resource] for claim in claims)
            for resource in (claims[0].resources if claims else ())}


def _claiming(batch: Sequence[base.Claim]) -> claim_cases.Call:
    return lambda store: store.claim(batch)
