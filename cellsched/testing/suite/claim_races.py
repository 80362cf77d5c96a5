# SPDX-License-Identifier: Apache-2.0
"""Tests of concurrent calls of claim stores."""

from collections.abc import Sequence
from concurrent import futures
import random
import threading
import uuid

from cellsched.claims import base
from cellsched import exception
from cellsched.testing.suite import claim_cases

_THREADS = 8

_Call = claim_cases.Call


class ClaimRaces(claim_cases.ClaimStoreCase):
    """Tests of a claim store with several threads."""

    def test_last_places_go_to_as_many_as_fit(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=5, MEMORY_MB=1000)
        claims = [self.make_claim(provider, VCPU=1, MEMORY_MB=1)
                  for _ in range(2 * _THREADS)]

        outcomes = self.race(store, [_claiming(claim) for claim in claims])

        refused = [outcome for outcome in outcomes if outcome is not None]
        self.assertEqual(len(claims) - 5, len(refused))
        for refusal in refused:
            self.assertIsInstance(refusal, exception.ClaimRefused)
        self.assertUsed(store, provider, 5, VCPU=5, MEMORY_MB=5)
        self.assertEqual(
            {claim.consumer for claim, outcome in zip(claims, outcomes)
             if outcome is None},
            set(store.claims_of(claim.consumer for claim in claims)))

    def test_fitting_claims_are_not_refused(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=4 * _THREADS)

        outcomes = self.race(store, [
            _claiming(self.make_claim(provider, VCPU=1))
            for _ in range(4 * _THREADS)])

        self.assertEqual([None] * 4 * _THREADS, outcomes)
        self.assertUsed(store, provider, 4 * _THREADS, VCPU=4 * _THREADS)

    def test_figures_are_right_at_every_moment(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=1000)
        found: list[bool] = []

        def take_and_give_back(store: base.ClaimStore) -> None:
            for _ in range(5):
                claim = self.make_claim(provider, VCPU=2)
                moved = str(uuid.uuid4())
                store.claim([claim])
                store.transfer(claim.consumer, moved)
                store.release([moved])

        def count(store: base.ClaimStore) -> None:
            found.extend(store.recount(provider) for _ in range(10))

        outcomes = self.race(store, [
            call for _ in range(_THREADS // 2)
            for call in (take_and_give_back, take_and_give_back, count)])

        self.assertEqual([None] * len(outcomes), outcomes)
        self.assertEqual({False}, {*found})
        self.assertUsed(store, provider, 0)

    def test_batches_in_any_order_do_not_stop_each_other(self) -> None:
        store = self.make_store()
        providers = [self.make_provider(store, VCPU=1000) for _ in range(6)]

        def claim_and_release(number: int) -> _Call:
            order = providers[number % 6:] + providers[:number % 6]
            if number % 2:
                order.reverse()
            claims = [self.make_claim(provider, VCPU=1) for provider in order]

            def call(it: base.ClaimStore) -> None:
                it.claim(claims)
                it.release([claim.consumer for claim in claims[::2]])
            return call

        outcomes = self.race(
            store, [claim_and_release(number) for number in range(24)])

        self.assertEqual([None] * 24, outcomes)
        remaining = [usage.used.get('VCPU', 0)
                     for usage in store.usages().usages]
        self.assertEqual(24 * 3, sum(remaining))

    def test_racing_repeats_are_a_single_claim(self) -> None:
        store = self.make_store()
        providers = [self.make_provider(store, VCPU=2) for _ in range(2)]
        consumer = str(uuid.uuid4())
        claims = [base.Claim(consumer, provider, {'VCPU': 2})
                  for provider in providers]

        outcomes = self.race(store, [_claiming(*claims)] * _THREADS)

        self.assertEqual([None] * _THREADS, outcomes)
        for provider in providers:
            self.assertUsed(store, provider, 1, VCPU=2)

    def test_consumer_gets_a_single_claim_of_a_race(self) -> None:
        store = self.make_store()
        providers = [self.make_provider(store, VCPU=2)
                     for _ in range(_THREADS)]
        consumer = str(uuid.uuid4())

        outcomes = self.race(store, [
            _claiming(base.Claim(consumer, provider, {'VCPU': 2}))
            for provider in providers])

        self.assertEqual(1, outcomes.count(None))
        for outcome in outcomes:
            if outcome is not None:
                self.assertIsInstance(outcome, exception.ClaimConflict)
        winner = providers[outcomes.index(None)]
        self.assertHolds(store, base.Claim(consumer, winner, {'VCPU': 2}))
        for provider in providers:
            taken = int(provider == winner)
            self.assertUsed(store, provider, taken, VCPU=2 * taken)

    def test_racing_releases_give_back_once(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=100)
        claims = [self.make_claim(provider, VCPU=3) for _ in range(10)]
        stays = self.make_claim(provider, VCPU=7)
        store.claim([*claims, stays])
        consumers = [claim.consumer for claim in claims]

        outcomes = self.race(store, [
            _releasing(consumers[number:] + consumers[:number])
            for number in range(_THREADS)])

        self.assertEqual([None] * _THREADS, outcomes)
        self.assertUsed(store, provider, 1, VCPU=7)

    def test_racing_transfers_happen_once(self) -> None:
        store = self.make_store()
        first, second = (self.make_provider(store, VCPU=4) for _ in range(2))
        before = self.make_claim(first, VCPU=3)
        after = self.make_claim(second, VCPU=4)
        store.claim([before, after])
        done: list[bool] = []

        outcomes = self.race(store, [lambda it: done.append(
            it.transfer(after.consumer, before.consumer))] * _THREADS)

        self.assertEqual([None] * _THREADS, outcomes)
        self.assertEqual(1, done.count(True))
        self.assertHolds(
            store, base.Claim(before.consumer, second, {'VCPU': 4}))
        self.assertUsed(store, first, 0)
        self.assertUsed(store, second, 1, VCPU=4)

    def test_racing_transfers_keep_used_amounts_exact(self) -> None:
        """The used amount is the sum of all claims, in any order."""
        store = self.make_store()
        providers = [self.make_provider(store, VCPU=6) for _ in range(3)]
        consumers = [str(uuid.uuid4()) for _ in range(4)]

        def churn(number: int) -> _Call:
            chance = random.Random(number)

            def call(it: base.ClaimStore) -> None:
                for _ in range(8):
                    source, target = chance.sample(consumers, 2)
                    try:
                        it.claim([base.Claim(
                            source, chance.choice(providers),
                            {'VCPU': chance.randint(1, 3)})])
                    except (exception.ClaimConflict, exception.ClaimRefused):
                        pass
                    it.transfer(source, target)
                    if chance.random() < 0.3:
                        it.release([target, source])
            return call

        outcomes = self.race(
            store, [churn(number) for number in range(_THREADS)])

        self.assertEqual([None] * _THREADS, outcomes)
        held = [claim for claims in store.claims_of(consumers).values()
                for claim in claims]
        self.assertEqual({claim.consumer for claim in held},
                         set(self.consumers(store)))
        for provider in providers:
            taken = [claim.resources['VCPU'] for claim in held
                     if claim.provider == provider]
            self.assertLessEqual(sum(taken), 6)
            self.assertUsed(store, provider, len(taken), VCPU=sum(taken))
        store.release(consumers)
        for provider in providers:
            self.assertUsed(store, provider, 0)

    def test_transfer_racing_with_release_leaves_no_claim(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=100)
        for number in range(30):
            first, second = sorted(
                (self.make_claim(provider, VCPU=1) for _ in range(2)),
                key=lambda claim: claim.consumer)
            # The target holds a claim, or sorts after or before the source.
            held, moved, target = (
                ([first, second], first, second.consumer),
                ([first], first, second.consumer),
                ([second], second, first.consumer))[number % 3]
            store.claim(held)
            source = moved.consumer

            def move(
                it: base.ClaimStore, source: str = source,
                target: str = target,
            ) -> None:
                it.transfer(source, target)

            outcomes = self.race(store, [
                move, move, _releasing([source, target])])

            self.assertEqual([None] * 3, outcomes)
            self.assertEqual([], self.consumers(store))
        self.assertUsed(store, provider, 0)

    def test_usages_have_every_earlier_claim(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=1000)
        made: list[None] = []

        def claim_and_read(it: base.ClaimStore) -> None:
            token, used = None, 0
            for _ in range(10):
                it.claim([self.make_claim(provider, VCPU=1)])
                made.append(None)
                before = len(made)
                changes = it.usages(token)
                token = changes.token
                used = next((usage.used['VCPU'] for usage in changes.usages
                             if usage.provider == provider), used)
                self.assertGreaterEqual(used, before)

        outcomes = self.race(store, [claim_and_read] * _THREADS)

        self.assertEqual([None] * _THREADS, outcomes)

    def test_reader_of_the_feed_misses_no_change(self) -> None:
        store = self.make_store()
        providers = [self.make_provider(store, VCPU=3) for _ in range(40)]
        known: dict[str, base.Usage] = {}
        ended = threading.Event()

        def follow(it: base.ClaimStore) -> None:
            token = None
            while True:
                last = ended.is_set()
                changes = it.usages(token)
                token = changes.token
                for usage in changes.usages:
                    self.assertLessEqual(usage.used.get('VCPU', 0), 3)
                    known[usage.provider] = usage
                if last:
                    return

        def change(number: int) -> _Call:
            # The last changes of the providers are spread over time.
            own = providers[number::_THREADS]

            def call(it: base.ClaimStore) -> None:
                for provider in own:
                    claims = [self.make_claim(provider, VCPU=1)
                              for _ in range(3)]
                    it.claim(claims)
                    it.release([claim.consumer for claim in claims[1:]])
            return call

        with futures.ThreadPoolExecutor(1) as pool:
            following = pool.submit(follow, store)
            outcomes = self.race(
                store, [change(number) for number in range(_THREADS)])
            ended.set()
            following.result()

        self.assertEqual([None] * _THREADS, outcomes)
        self.assertEqual(
            {usage.provider: usage for usage in store.usages().usages}, known)
        self.assertEqual({1}, {usage.consumers for usage in known.values()})


def _claiming(*claims: base.Claim) -> _Call:
    return lambda store: store.claim(claims)


def _releasing(consumers: Sequence[str]) -> _Call:
    return lambda store: store.release(consumers)
