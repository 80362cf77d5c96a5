# SPDX-License-Identifier: Apache-2.0
"""Tests of transfers between consumers, and of lists of consumers."""

import uuid

from cellsched.claims import base
from cellsched import exception
from cellsched.testing.suite import claim_cases


class ClaimTransfers(claim_cases.ClaimStoreCase):
    """Tests of transfers, and of lists of consumers."""

    # Transfers.

    def test_target_holds_what_the_source_held_in_place_of_its_own(
            self) -> None:
        store = self.make_store()
        first, second, third = (
            self.make_provider(store, VCPU=8, DISK_GB=8) for _ in range(3))
        source, target, stays = (str(uuid.uuid4()) for _ in range(3))
        store.claim([
            base.Claim(target, first, {'VCPU': 3, 'DISK_GB': 2}),
            base.Claim(target, second, {'VCPU': 1}),
            base.Claim(source, second, {'VCPU': 4}),
            base.Claim(source, third, {'DISK_GB': 5}),
            base.Claim(stays, first, {'VCPU': 1})])

        self.assertTrue(store.transfer(source, target))

        held = store.claims_of([source, target, stays])
        self.assertEqual({target, stays}, set(held))
        self.assertEqual({second: {'VCPU': 4}, third: {'DISK_GB': 5}},
                         self.by_provider(held[target]))
        self.assertEqual({target},
                         {claim.consumer for claim in held[target]})
        self.assertUsed(store, first, 1, VCPU=1)
        self.assertUsed(store, second, 1, VCPU=4)
        self.assertUsed(store, third, 1, DISK_GB=5)

    def test_target_need_not_hold_anything(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=8)
        claim, target = self.make_claim(provider, VCPU=8), str(uuid.uuid4())
        store.claim([claim])

        self.assertTrue(store.transfer(claim.consumer, target))

        self.assertHolds(store, base.Claim(target, provider, {'VCPU': 8}))
        self.assertEqual({}, store.claims_of([claim.consumer]))
        self.assertUsed(store, provider, 1, VCPU=8)

    def test_transfer_from_nobody_changes_nothing(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=8)
        claim = self.make_claim(provider, VCPU=3)
        store.claim([claim])

        self.assertFalse(store.transfer(str(uuid.uuid4()), claim.consumer))

        self.assertHolds(store, claim)
        self.assertUsed(store, provider, 1, VCPU=3)

    def test_second_transfer_changes_nothing(self) -> None:
        store = self.make_store()
        first, second = (
            self.make_provider(store, VCPU=8) for _ in range(2))
        before = self.make_claim(first, VCPU=3)
        after = self.make_claim(second, VCPU=4)
        store.claim([before, after])

        self.assertEqual([True, False], [
            store.transfer(after.consumer, before.consumer)
            for _ in range(2)])

        self.assertHolds(
            store, base.Claim(before.consumer, second, {'VCPU': 4}))
        self.assertUsed(store, first, 0)
        self.assertUsed(store, second, 1, VCPU=4)

    def test_transfer_needs_no_room(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=8)
        claims = [self.make_claim(provider, VCPU=4) for _ in range(2)]
        store.claim(claims)
        store.set_inventory(provider, {'VCPU': base.Inventory(total=1)})

        self.assertTrue(
            store.transfer(claims[0].consumer, claims[1].consumer))

        self.assertUsed(store, provider, 1, VCPU=4)

    def test_what_a_transfer_gives_back_is_told_and_can_be_taken(
            self) -> None:
        store = self.make_store()
        first, second = (
            self.make_provider(store, VCPU=8) for _ in range(2))
        before = self.make_claim(first, VCPU=8)
        after = self.make_claim(second, VCPU=8)
        store.claim([before, after])
        token = store.usages().token

        store.transfer(after.consumer, before.consumer)

        reported = {usage.provider: usage
                    for usage in store.usages(token).usages}
        self.assertEqual(0, reported[first].used.get('VCPU', 0))
        self.assertEqual(0, reported[first].consumers)
        store.claim([self.make_claim(first, VCPU=8)])
        late = self.make_claim(second, VCPU=1)
        self.assertRefused(store, [late], late, 'VCPU')

    def test_what_was_transferred_is_repeated_and_released_as_any(
            self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=8)
        claim, target = self.make_claim(provider, VCPU=2), str(uuid.uuid4())
        store.claim([claim])
        store.transfer(claim.consumer, target)

        self.assertEqual(0, store.claim(
            [base.Claim(target, provider, {'VCPU': 2})]))
        self.assertEqual(1, store.claim([claim]))
        store.release([target])

        self.assertHolds(store, claim)
        self.assertUsed(store, provider, 1, VCPU=2)

    def test_transfer_that_makes_no_sense_is_invalid(self) -> None:
        store = self.make_store()
        provider = self.make_provider(store, VCPU=8)
        claim = self.make_claim(provider, VCPU=2)
        store.claim([claim])

        for target in '', 'x' * 37, '\x00', '\u00e9', claim.consumer:
            self.assertRaises(exception.InvalidField, store.transfer,
                              claim.consumer, target)

        self.assertHolds(store, claim)

    # All consumers.

    def test_consumers_are_told_in_order_and_in_pieces(self) -> None:
        store = self.make_store()
        self.need(store, base.Capability.CONSUMER_LIST)
        provider = self.make_provider(store, VCPU=100)
        other = self.make_provider(store, VCPU=100, DISK_GB=100)
        # The order is that of bytes, in any database.
        names = ['-', '00', '10', '9', 'A', 'Z-', 'Za', '_', 'a', 'b', 'z']
        self.assertEqual([], store.consumers())
        store.claim([base.Claim(name, provider, {'VCPU': 1})
                     for name in reversed(names)])
        store.claim([base.Claim('B', provider, {'VCPU': 1}),
                     base.Claim('B', other, {'VCPU': 1, 'DISK_GB': 1})])
        store.release(['B', '9', 'gone'])
        store.claim([base.Claim('B', other, {'VCPU': 1, 'DISK_GB': 1})])
        expected = sorted({'B', *names} - {'9'})

        self.assertEqual(expected, store.consumers())
        for limit in 1, 3, len(expected), 1000:
            reported: list[str] = []
            while piece := store.consumers(
                    reported[-1] if reported else '', limit):
                self.assertLessEqual(len(piece), limit)
                reported += piece
            self.assertEqual(expected, reported)
        self.assertEqual(expected[-2:], store.consumers('a0'))

    def test_limit_below_one_is_invalid(self) -> None:
        store = self.make_store()
        self.need(store, base.Capability.CONSUMER_LIST)
        for limit in 0, -1:
            self.assertRaises(
                exception.InvalidField, store.consumers, limit=limit)

    # The consumers of a provider.

    def test_providers_in_use_are_told(self) -> None:
        store = self.make_store()
        one, two, _ = (self.make_provider(store, VCPU=8) for _ in range(3))
        claims = [self.make_claim(provider, VCPU=1)
                  for provider in (one, two, two)]
        store.claim(claims)
        self.assertLessEqual({one, two}, {*store.providers_in_use()})
        store.release([claims[1].consumer])
        store.transfer(claims[0].consumer, claims[2].consumer)

        self.assertIn(one, store.providers_in_use())

    def test_each_provider_tells_its_consumers_where_there_is_no_list(
            self) -> None:
        store = self.make_store()
        if base.Capability.CONSUMER_LIST in store.capabilities:
            self.skipTest('the store has a list of its consumers')
        one, two = (self.make_provider(store, VCPU=8) for _ in range(2))
        gone, moved, *rest = (self.make_claim(one, VCPU=1)
                              for _ in range(4))
        name = str(uuid.uuid4())
        both = [base.Claim(name, provider, {'VCPU': 1})
                for provider in (one, two)]
        store.claim([gone, moved, *rest, *both])
        store.release([gone.consumer])
        target = str(uuid.uuid4())
        store.transfer(moved.consumer, target)

        self.assertEqual(
            sorted([target, name, *(claim.consumer for claim in rest)]),
            sorted(store.consumers_of(one)))
        self.assertEqual([name], store.consumers_of(two))
        self.assertEqual([], store.consumers_of(str(uuid.uuid4())))
