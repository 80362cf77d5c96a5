# SPDX-License-Identifier: Apache-2.0
"""Tests for every claim store.

::

    class TestMyClaims(claims.ClaimStoreSuite, unittest.TestCase):

        def make_store(self):
            return my_claims.MyClaims(…)

A store with the capability ``SHARED`` or ``DURABLE`` also needs ``make_peer``.
"""

import uuid

from cellsched.claims import base
from cellsched import exception
from cellsched.testing.suite import claim_batches
from cellsched.testing.suite import claim_groups
from cellsched.testing.suite import claim_owners
from cellsched.testing.suite import claim_providers
from cellsched.testing.suite import claim_queries
from cellsched.testing.suite import claim_races
from cellsched.testing.suite import claim_transfers


class ClaimStoreSuite(
        claim_providers.ClaimProviders, claim_transfers.ClaimTransfers,
        claim_groups.ClaimGroups, claim_owners.ClaimOwners,
        claim_races.ClaimRaces, claim_batches.ClaimBatches,
        claim_queries.ClaimQueries):
    """Tests of the claim store that ``make_store`` returns."""

    # Claims.

    def test_what_was_claimed_is_held(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=8, MEMORY_MB=1024)
        claim = self.make_claim(provider, VCPU=2, MEMORY_MB=512)

        store.claim([claim])

        self.assertHolds(store, claim)
        self.assertUsed(store, provider, 1, VCPU=2, MEMORY_MB=512)

    def test_batch_is_taken_whole(self) -> None:
        store = self.make_store()
        providers = [self.make_provider(store, VCPU=8) for _ in range(3)]
        claims = [self.make_claim(providers[number % 3], VCPU=1 + number // 3)
                  for number in range(6)]

        store.claim(claims)

        for claim in claims:
            self.assertHolds(store, claim)
        for provider in providers:
            self.assertUsed(store, provider, 2, VCPU=3)

    def test_batch_may_be_large(self) -> None:
        store = self.make_store()
        providers = [self.make_provider(store, VCPU=9) for _ in range(7)]
        claims = [self.make_claim(providers[number % 7], VCPU=1)
                  for number in range(60)]

        store.claim(claims)

        self.assertEqual(60, len(store.claims_of(c.consumer for c in claims)))
        store.release(claim.consumer for claim in claims)
        for provider in providers:
            self.assertUsed(store, provider, 0, VCPU=0)

    def test_empty_batch_is_taken(self) -> None:
        self.make_store().claim([])

    def test_provider_can_be_filled(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=3)

        store.claim([self.make_claim(provider, VCPU=2)])
        store.claim([self.make_claim(provider, VCPU=1)])

        self.assertUsed(store, provider, 2, VCPU=3)

    def test_consumer_may_hold_of_several_providers(self) -> None:
        store = self.make_store()
        compute = self.make_provider(store, VCPU=8)
        storage = self.make_provider(store, DISK_GB=100)
        consumer = _uuid()
        claims = [base.Claim(consumer, storage, {'DISK_GB': 50}),
                  base.Claim(consumer, compute, {'VCPU': 2})]

        store.claim(claims)
        store.claim(list(reversed(claims)))

        held = store.claims_of([consumer])[consumer]
        self.assertEqual(self.by_provider(claims), self.by_provider(held))
        self.assertUsed(store, compute, 1, VCPU=2)
        self.assertUsed(store, storage, 1, DISK_GB=50)

    def test_only_those_asked_for_and_that_hold_something_are_held(
            self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=8)
        claim, other = (self.make_claim(provider, VCPU=1) for _ in range(2))
        store.claim([claim, other])

        self.assertEqual(
            {claim.consumer}, set(store.claims_of([claim.consumer, _uuid()])))
        self.assertEqual({}, store.claims_of([]))

    # Refusals.

    def test_refusal_says_who_lacks_what(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=8, MEMORY_MB=1024)
        claim = self.make_claim(provider, VCPU=2, MEMORY_MB=1025)

        self.assertRefused(store, [claim], claim, 'MEMORY_MB')

    def test_refused_batch_takes_nothing(self) -> None:
        store = self.make_store()
        roomy = self.make_provider(store, VCPU=8, MEMORY_MB=1024)
        full = self.make_provider(store, VCPU=2, MEMORY_MB=1024)
        claims = [self.make_claim(roomy, VCPU=2, MEMORY_MB=512),
                  self.make_claim(full, VCPU=3, MEMORY_MB=512),
                  self.make_claim(roomy, VCPU=2, MEMORY_MB=512)]

        self.assertRefused(store, claims, claims[1], 'VCPU')

        self.assertUsed(store, roomy, 0)
        self.assertUsed(store, full, 0)
        store.claim([claims[0], claims[2]])

    def test_claims_of_a_batch_add_up(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=3)
        claims = [self.make_claim(provider, VCPU=2) for _ in range(2)]

        self.assertRefused(store, claims, claims[1], 'VCPU')

        store.claim(claims[1:])

    def test_unknown_provider_has_no_room(self) -> None:
        claim = self.make_claim(_uuid(), VCPU=1)

        self.assertRefused(self.make_store(), [claim], claim, 'VCPU')

    def test_unknown_resource_class_has_no_room(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=8)
        claim = self.make_claim(provider, VCPU=1, CUSTOM_GPU=1)

        self.assertRefused(store, [claim], claim, 'CUSTOM_GPU')

    def test_reserve_and_ratio_bound_what_is_taken(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=base.Inventory(
            total=10, reserved=1, allocation_ratio=1.5))
        store.claim([self.make_claim(provider, VCPU=13)])
        claim = self.make_claim(provider, VCPU=1)

        self.assertRefused(store, [claim], claim, 'VCPU')

    def test_each_claim_keeps_to_the_units(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=base.Inventory(
            total=100, min_unit=4, max_unit=8, step_size=2))
        for amount in 2, 5, 10:
            claims = [self.make_claim(provider, VCPU=given)
                      for given in (4, amount, 6)]

            self.assertRefused(store, claims, claims[1], 'VCPU')

        store.claim([self.make_claim(provider, VCPU=given)
                     for given in (4, 6, 8)])
        self.assertUsed(store, provider, 3, VCPU=18)

    def test_units_bound_claims_and_not_their_sum(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=base.Inventory(
            total=100, min_unit=2, max_unit=3))
        claims = [self.make_claim(provider, VCPU=given) for given in (1, 2)]

        self.assertRefused(store, claims, claims[0], 'VCPU')

        store.claim([self.make_claim(provider, VCPU=3) for _ in range(2)])

    # Repeats and conflicts.

    def test_repeat_changes_nothing(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=2)
        claim = self.make_claim(provider, VCPU=2)

        self.assertEqual([1, 0, 0], [
            store.claim([claim]) for _ in range(3)])

        self.assertHolds(store, claim)
        self.assertUsed(store, provider, 1, VCPU=2)

    def test_part_of_a_batch_may_be_a_repeat(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=4)
        claims = [self.make_claim(provider, VCPU=1) for _ in range(4)]

        self.assertEqual([2, 2], [
            store.claim(batch) for batch in (claims[1:3], claims)])

        self.assertUsed(store, provider, 4, VCPU=4)

    def test_consumer_that_holds_something_else_is_a_conflict(self) -> None:
        store = self.make_store()
        first, second = (
            self.make_provider(store, VCPU=8, DISK_GB=8) for _ in range(2))
        held = self.make_claim(first, VCPU=2)
        store.claim([held])
        consumer = held.consumer

        for rest in (
            [base.Claim(consumer, first, {'VCPU': 3})],
            [base.Claim(consumer, first, {'DISK_GB': 2})],
            [base.Claim(consumer, first, {'VCPU': 2, 'DISK_GB': 1})],
            [base.Claim(consumer, second, {'VCPU': 2})],
            [held, base.Claim(consumer, second, {'VCPU': 2})],
        ):
            with self.assertRaises(exception.ClaimConflict) as caught:
                store.claim([self.make_claim(second, VCPU=1), *rest])
            self.assertEqual(consumer, caught.exception.consumer)
            self.assertHolds(store, held)
            self.assertUsed(store, first, 1, VCPU=2)
            self.assertUsed(store, second, 0)

    def test_part_of_what_is_held_is_a_conflict(self) -> None:
        store = self.make_store()
        consumer = _uuid()
        claims = [base.Claim(consumer, self.make_provider(store, VCPU=8),
                             {'VCPU': 1}) for _ in range(2)]
        store.claim(claims)

        self.assertRaises(exception.ClaimConflict, store.claim, claims[:1])

    def test_claim_that_makes_no_sense_is_invalid(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=8)
        good, consumer = self.make_claim(provider, VCPU=1), _uuid()

        for bad in (
            base.Claim('', provider, {'VCPU': 1}),
            base.Claim('x' * 37, provider, {'VCPU': 1}),
            base.Claim('\x00', provider, {'VCPU': 1}),
            base.Claim(consumer, '\u00e9', {'VCPU': 1}),
            base.Claim(consumer, provider, {}),
            base.Claim(consumer, provider, {'VCPU': 0}),
            base.Claim(consumer, provider, {'VCPU': -1}),
            base.Claim(consumer, provider, {'VCPU': 2 ** 31}),
            base.Claim(consumer, provider, {'VCPU': True}),
            base.Claim(consumer, provider, {'VCPU': 1.5}),  # type: ignore
            base.Claim(consumer, provider, {"'": 1}),
            base.Claim(good.consumer, provider, {'VCPU': 1}),
        ):
            self.assertRaises(
                exception.InvalidField, store.claim, [good, bad])

        self.assertUsed(store, provider, 0)

    # Releases.

    def test_release_gives_back_all_that_is_held(self) -> None:
        store = self.make_store()
        first, second = (
            self.make_provider(store, VCPU=8) for _ in range(2))
        consumer = _uuid()
        stays = self.make_claim(first, VCPU=1)
        store.claim([base.Claim(consumer, first, {'VCPU': 2}), stays,
                     base.Claim(consumer, second, {'VCPU': 3})])

        store.release([consumer])

        self.assertEqual({}, store.claims_of([consumer]))
        self.assertHolds(store, stays)
        self.assertUsed(store, first, 1, VCPU=1)
        self.assertUsed(store, second, 0)

    def test_release_of_nothing_changes_nothing(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=8)
        claim = self.make_claim(provider, VCPU=2)
        store.claim([claim, self.make_claim(provider, VCPU=3)])

        for consumers in ([], [_uuid()], [claim.consumer, _uuid()],
                          [claim.consumer, claim.consumer]):
            store.release(consumers)

        self.assertUsed(store, provider, 1, VCPU=3)

    def test_released_room_can_be_taken(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=2)
        claim = self.make_claim(provider, VCPU=2)
        store.claim([claim])
        store.release([claim.consumer])

        store.claim([self.make_claim(provider, VCPU=1)])
        store.claim([base.Claim(claim.consumer, provider, {'VCPU': 1})])

        self.assertUsed(store, provider, 2, VCPU=2)


def _uuid() -> str:
    return str(uuid.uuid4())
