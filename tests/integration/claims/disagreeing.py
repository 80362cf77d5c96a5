# SPDX-License-Identifier: Apache-2.0
"""Tests of stores in processes with different clocks."""

from cellsched.claims import base as claims
from cellsched import exception
from cellsched.testing import clock as clocks
from cellsched.testing.suite import claim_cases

#: By how much the wall clock of one is ahead, and that of the other behind.
WRONG_S = 3600.0

CLAIMS, ROOM = 16, 5


class DisagreeingClocks(claim_cases.ClaimStoreCase):
    """One store is an hour ahead, and its peer an hour behind.

    A mix-in for a class with ``make_store_with``, which makes a store with
    its own connections and a given clock.
    """

    def make_store(self):
        return self.make_store_with(clocks.WrongClock(WRONG_S))

    def make_peer(self, store):
        return self.make_store_with(clocks.WrongClock(-WRONG_S))

    def setUp(self):
        super().setUp()
        self.ahead = self.make_store()
        self.behind = self.make_peer(self.ahead)

    def test_each_store_has_claims_of_the_other_store(self):
        provider = self.make_provider(self.ahead, VCPU=2)
        for first, second in 2 * ((self.ahead, self.behind),
                                  (self.behind, self.ahead)):
            claim, late = (self.make_claim(provider, VCPU=amount)
                           for amount in (2, 1))
            first.claim([claim])
            self.assertHolds(second, claim)
            self.assertRefused(second, [late], late, 'VCPU')
            second.release([claim.consumer])
            self.assertUsed(first, provider, 0)
            second.claim([claim])
            self.assertHolds(first, claim)
            self.assertTrue(first.transfer(claim.consumer, late.consumer))
            self.assertUsed(second, provider, 1, VCPU=2)
            second.release([late.consumer])
            self.assertUsed(first, provider, 0)

    def test_last_inventory_wins(self):
        provider = self.make_provider(self.ahead, VCPU=2)
        for store, total in ((self.behind, 3), (self.ahead, 4),
                             (self.behind, 5)):
            store.set_inventory(provider, {'VCPU': claims.Inventory(total)})
            for each in self.ahead, self.behind:
                self.assertCapacity(each, provider, VCPU=total)

    def test_changes_of_each_store_are_reported_to_the_other(self):
        provider = self.make_provider(self.ahead, VCPU=8)
        for first, second in ((self.ahead, self.behind),
                              (self.behind, self.ahead)):
            token = second.usages().token
            first.claim([self.make_claim(provider, VCPU=1)])
            self.assertEqual([provider], [
                usage.provider for usage in second.usages(token).usages])

    def test_last_places_are_claimed_once(self):
        provider = self.make_provider(self.ahead, VCPU=ROOM)
        requested = [self.make_claim(provider, VCPU=1) for _ in range(CLAIMS)]

        outcomes = self.race(self.ahead, [
            lambda store, claim=claim: store.claim([claim])
            for claim in requested])

        self.assertEqual(ROOM, outcomes.count(None))
        for outcome in outcomes:
            if outcome is not None:
                self.assertIsInstance(outcome, exception.ClaimRefused)
        self.assertUsed(self.behind, provider, ROOM, VCPU=ROOM)
