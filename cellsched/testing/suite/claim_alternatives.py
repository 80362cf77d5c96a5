# SPDX-License-Identifier: Apache-2.0
"""Tests of claims of the first of several batches that fits."""

from collections.abc import Sequence
import uuid

from cellsched.claims import base
from cellsched import exception
from cellsched.testing.suite import claim_cases

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

    def test_the_first_batch_that_fits_is_claimed(self) -> None:
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

    def test_a_repetition_keeps_the_batch_that_is_held(self) -> None:
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
        requests = [
            self.alternatives([first, second], VCPU=1),
            self.alternatives([first, second], VCPU=1),
            self.alternatives([first, second], VCPU=1),
            self.alternatives([first], held.consumer, VCPU=1)]
        store.claim([held])

        outcomes = store.claim_each(requests)

        granted = [each.chosen for each in outcomes
                   if isinstance(each, base.AnyOf)]
        self.assertEqual([0, None, None], sorted(
            granted, key=lambda place: place is None))
        [conflict] = [each for each in outcomes
                      if not isinstance(each, base.AnyOf)]
        assert isinstance(conflict, exception.ClaimConflict)
        self.assertEqual(held.consumer, conflict.consumer)
        self.assertUsed(store, first, 1, VCPU=1)
        self.assertUsed(store, second, 1, VCPU=1)

    def test_several_requests_fill_what_there_is(self) -> None:
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
