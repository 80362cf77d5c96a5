# SPDX-License-Identifier: Apache-2.0
"""Tests of batches with several providers, and of alternative batches."""

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

    def test_last_device_goes_to_a_single_consumer(self) -> None:
        store = self.make_store()
        host = self.make_host(
            store, {**dict.fromkeys(DEMANDS, RACERS), 'device': 1})

        self.check_race(store, [
            self.make_batch(host) for _ in range(RACERS)],
            host['device'], 'VGPU', 1)

    def test_last_bare_metal_node_goes_to_a_single_consumer(self) -> None:
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
            self.assertUsed(store, provider, len(taken), **{
                name: sum(claim.resources[name] for claim in taken)
                for name in (taken[0].resources if taken else ())})
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

    def test_batch_without_room_in_a_provider_claims_no_amount(self) -> None:
        store = self.make_store()
        for name in DEMANDS:
            host = self.make_host(
                store, {**dict.fromkeys(DEMANDS, 9), name: 0})
            batch = self.make_batch(host)
            short = next(claim for claim in batch
                         if claim.provider == host[name])

            self.assertRefused(store, batch, short, min(short.resources))

            self.assertNothingTaken(store, batch)

    def test_batch_beyond_a_bound_claims_no_amount(self) -> None:
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


def _claiming(batch: Sequence[base.Claim]) -> claim_cases.Call:
    return lambda store: store.claim(batch)


_THREADS = 12


class ClaimAlternatives(claim_cases.ClaimStoreCase):
    """Tests of ``claim_any``, one call at a time and concurrent."""

    def alternatives(
        self, providers: Sequence[str], consumer: str = '', **resources: int
    ) -> list[list[base.Claim]]:
        """Return one batch for each provider, for the same consumer."""
        consumer = consumer or str(uuid.uuid4())
        return [[base.Claim(consumer, provider, resources)]
                for provider in providers]

    def test_first_fitting_batch_is_claimed(self) -> None:
        store = self.make_store()
        full, small, good, spare = [
            self.make_provider(store, VCPU=total) for total in (4, 1, 4, 4)]
        store.claim([self.make_claim(full, VCPU=4)])
        batches = self.alternatives([full, small, good, spare], VCPU=2)

        outcome = store.claim_any(batches)

        self.assertEqual((2, 1), (outcome.chosen, outcome.new))
        self.assertHolds(store, batches[2][0])
        self.assertUsed(store, small, 0)
        self.assertUsed(store, spare, 0)
        for place, refusal in outcome.refusals.items():
            self.assertEqual(
                batches[place][0].provider, refusal.kwargs['provider'])

    def test_each_refused_batch_is_named_if_none_fits(self) -> None:
        store = self.make_store()
        providers = [self.make_provider(store, VCPU=1) for _ in range(3)]
        batches = self.alternatives(
            [*providers, str(uuid.uuid4())], VCPU=2)

        outcome = store.claim_any(batches)

        self.assertIsNone(outcome.chosen)
        self.assertEqual([0, 1, 2, 3], sorted(outcome.refusals))
        for place, [claim] in enumerate(batches):
            refusal = outcome.refusals[place]
            assert isinstance(refusal, exception.ClaimRefused)
            self.assertEqual(
                (claim.consumer, claim.provider, 'VCPU', 2),
                (refusal.consumer, refusal.provider, refusal.resource,
                 refusal.amount))
        self.assertEqual({}, store.claims_of([batches[0][0].consumer]))

    def test_a_batch_of_several_providers_is_claimed_as_a_whole(self) -> None:
        store = self.make_store()
        first, second = (
            self.make_provider(store, VCPU=4) for _ in range(2))
        full = self.make_provider(store, DISK_GB=10)
        roomy = self.make_provider(store, DISK_GB=100)
        consumer = str(uuid.uuid4())
        batches = [[base.Claim(consumer, node, {'VCPU': 2}),
                    base.Claim(consumer, disk, {'DISK_GB': 50})]
                   for node, disk in ((first, full), (second, roomy))]

        outcome = store.claim_any(batches)

        self.assertEqual((1, 2), (outcome.chosen, outcome.new))
        self.assertUsed(store, first, 0)
        self.assertUsed(store, second, 1, VCPU=2)
        self.assertUsed(store, roomy, 1, DISK_GB=50)

    def test_a_batch_of_several_consumers_is_claimed_as_a_whole(self) -> None:
        store = self.make_store()
        small, big = (self.make_provider(store, VCPU=n) for n in (3, 4))
        consumers = [str(uuid.uuid4()) for _ in range(2)]
        batches = [[base.Claim(each, node, {'VCPU': 2}) for each in consumers]
                   for node in (small, big)]

        outcome = store.claim_any(batches)

        self.assertEqual((1, 2), (outcome.chosen, outcome.new))
        self.assertUsed(store, small, 0)
        self.assertUsed(store, big, 2, VCPU=4)

    def test_repetition_keeps_the_held_batch(self) -> None:
        store = self.make_store()
        first, second = (
            self.make_provider(store, VCPU=total) for total in (2, 4))
        taken = self.make_claim(first, VCPU=2)
        store.claim([taken])
        batches = self.alternatives([first, second], VCPU=2)
        self.assertEqual(1, store.claim_any(batches).chosen)
        store.release([taken.consumer])

        outcome = store.claim_any(batches)

        self.assertEqual((1, 0), (outcome.chosen, outcome.new))
        self.assertHolds(store, batches[1][0])
        self.assertUsed(store, first, 0)

    def test_a_consumer_with_other_claims_is_a_conflict(self) -> None:
        store = self.make_store()
        nodes = [self.make_provider(store, VCPU=4) for _ in range(3)]
        held = self.make_claim(nodes[2], VCPU=1)
        store.claim([held])

        with self.assertRaises(exception.ClaimConflict) as caught:
            store.claim_any(self.alternatives(
                nodes[:2], held.consumer, VCPU=1))

        self.assertEqual(held.consumer, caught.exception.consumer)
        self.assertHolds(store, held)

    def test_an_alternative_without_a_uuid_is_invalid(self) -> None:
        store = self.make_store()
        full = self.make_provider(store, VCPU=1)
        consumer = str(uuid.uuid4())

        with self.assertRaises(exception.InvalidField) as caught:
            store.claim_any(self.alternatives(
                [full, 'x' * 37], consumer, VCPU=2))

        self.assertEqual('provider', caught.exception.field)
        self.assertEqual({}, store.claims_of([consumer]))

    def test_a_batch_against_the_group_policy_is_passed_over(self) -> None:
        store = self.make_store()
        self.need(store, base.Capability.GROUPS)
        nodes = {host: self.make_provider(store, VCPU=4)
                 for host in ('h0', 'h1')}
        group, other, new = (str(uuid.uuid4()) for _ in range(3))

        def member(consumer: str, host: str) -> base.Claim:
            return base.Claim(
                consumer, nodes[host], {'VCPU': 1},
                base.Membership(group, host, base.ANTI_AFFINITY))

        store.claim([member(other, 'h0')])

        outcome = store.claim_any([[member(new, host)] for host in nodes])

        self.assertEqual(1, outcome.chosen)
        self.assertEqual(
            {other: 'h0', new: 'h1'},
            {consumer: joined.host for consumer, joined
             in store.memberships([other, new]).items()})

        outcome = store.claim_any(
            [[member(str(uuid.uuid4()), 'h1')]])
        self.assertIsNone(outcome.chosen)
        refusal = outcome.refusals[0]
        assert isinstance(refusal, exception.GroupPolicyViolated)
        self.assertEqual(['h0', 'h1'], refusal.hosts)
        self.assertEqual(sorted([other, new]), refusal.members)

    def test_each_of_several_requests_has_its_own_outcome(self) -> None:
        store = self.make_store()
        first, second = (self.make_provider(store, VCPU=1) for _ in range(2))
        held = self.make_claim(second, VCPU=1)
        [full] = self.alternatives([first], VCPU=9)
        requests = [
            self.alternatives([first, second], VCPU=1),
            self.alternatives([first, second], VCPU=1),
            self.alternatives([first, second], VCPU=1),
            self.alternatives([first], held.consumer, VCPU=1),
            self.alternatives([first], ' ', VCPU=1),
            [full, self.alternatives([first], full[0].consumer, VCPU=-1)[0]]]
        store.claim([held])

        outcomes = store.claim_each(requests)

        granted = [each.chosen for each in outcomes
                   if isinstance(each, base.AnyOf)]
        self.assertEqual([0, None, None], sorted(
            granted, key=lambda place: place is None))
        conflict, *invalid = [each for each in outcomes
                              if not isinstance(each, base.AnyOf)]
        assert isinstance(conflict, exception.ClaimConflict)
        self.assertEqual(held.consumer, conflict.consumer)
        self.assertEqual([exception.InvalidField] * 2, [*map(type, invalid)])
        self.assertUsed(store, first, 1, VCPU=1)
        self.assertUsed(store, second, 1, VCPU=1)

    def test_repetition_among_several_requests_is_refused_nowhere(
        self,
    ) -> None:
        store = self.make_store()
        full, second = (self.make_provider(store, VCPU=n) for n in (1, 2))
        taken = self.make_claim(full, VCPU=1)
        store.claim([taken])
        held = self.alternatives([full, second], VCPU=2)
        store.claim_any(held)

        _, outcome = store.claim_each(
            [self.alternatives([full], VCPU=1), held])

        self.assertEqual(base.AnyOf(1, 0), outcome)

    def test_several_requests_fill_the_free_capacity(self) -> None:
        store = self.make_store()
        nodes = [self.make_provider(store, VCPU=2) for _ in range(3)]
        requests = [self.alternatives(nodes, VCPU=1) for _ in range(8)]

        outcomes = store.claim_each(requests)

        for request, outcome in zip(requests, outcomes):
            assert isinstance(outcome, base.AnyOf)
            if outcome.chosen is not None:
                self.assertHolds(store, request[outcome.chosen][0])
            else:
                self.assertEqual([0, 1, 2], sorted(outcome.refusals))
        for node in nodes:
            self.assertUsed(store, node, 2, VCPU=2)

    def test_the_alternatives_of_concurrent_calls_fill_all(self) -> None:
        store = self.make_store()
        # There is room for each call, and for no other.
        nodes = [self.make_provider(store, VCPU=4) for _ in range(3)]
        requests = [self.alternatives(nodes, VCPU=1) for _ in range(_THREADS)]
        chosen: list[int | None] = []

        def call(batches: list[list[base.Claim]]) -> claim_cases.Call:
            return lambda each: chosen.append(each.claim_any(batches).chosen)

        self.assertEqual([None] * _THREADS, self.race(
            store, [call(batches) for batches in requests]))

        self.assertEqual([4] * 3, [chosen.count(place) for place in range(3)])
        for node in nodes:
            self.assertUsed(store, node, 4, VCPU=4)
