# SPDX-License-Identifier: Apache-2.0
"""Texts and repairs of findings about counters."""

from cellsched.audit import checks
from cellsched.audit import findings
from cellsched.claims import base as claims_base
from cellsched.claims import memory
from tests.unit import base
from tests.unit.db import samples

RECOUNT = findings.Action.RECOUNT


class TestFigures(base.TestCase):

    def setUp(self):
        super().setUp()
        self.store = memory.MemoryClaims()
        [self.host] = samples.uuids(1)
        self.offer(VCPU=8, MEMORY_MB=512)

    def offer(self, **amounts):
        self.store.set_inventory(self.host, {
            name: claims_base.Inventory(amount)
            for name, amount in amounts.items()})

    def take(self, **resources):
        [uuid] = samples.uuids(1)
        self.store.claim([claims_base.Claim(uuid, self.host, resources)])
        return uuid

    def found(self, page=2, seen=lambda held: None):
        found = checks.check_capacity(self.store, page, seen)
        self.assertEqual({self.host} if found else set(),
                         {each.of for each in found})
        return [(each.kind, each.text, each.action) for each in found]

    def test_overcommit_names_capacity_and_claims(self):
        self.take(VCPU=6, MEMORY_MB=300)
        self.take(VCPU=2)
        self.offer(VCPU=7, MEMORY_MB=300)

        self.assertEqual([
            ('over-capacity:VCPU', 'has 7 of VCPU, and 8 is claimed', None)],
            self.found())
        [found] = checks.check_capacity(self.store, 1)
        self.assertIn('move servers away', found.advice)

    def test_claim_on_a_missing_inventory_is_overcommit(self):
        self.take(VCPU=1, MEMORY_MB=1)
        self.offer(VCPU=1)

        self.assertEqual([
            ('over-capacity:MEMORY_MB',
             'has 0 of MEMORY_MB, and 1 is claimed', None)], self.found())

    def test_wrong_counters_are_reported_with_the_claims(self):
        self.take(VCPU=2)
        self.take(VCPU=1)
        self.store._used[self.host] = {'MEMORY_MB': 5}
        self.store._consumers[self.host] = 4

        self.assertEqual([
            ('miscounted-consumers', 'has claims of 2 consumers, and the '
             'claim store counts 4', RECOUNT),
            ('miscounted:MEMORY_MB', 'has claims of 0 of MEMORY_MB, and the '
             'claim store counts 5', RECOUNT),
            ('miscounted:VCPU', 'has claims of 3 of VCPU, and the claim '
             'store counts 0', RECOUNT)], self.found())

    def test_claims_are_read_in_pages_and_once(self):
        uuids = sorted(self.take(VCPU=1) for _ in range(5))
        seen = []

        def look(held):
            # What changes has all of it added up again.
            self.store.recount(self.host)
            seen.append(sorted(held))

        self.assertEqual([], self.found(2, look))

        self.assertEqual([uuids[:2], uuids[2:4], uuids[4:]], seen)

    def change_in_walks(self, *changing):
        """Change providers in each walk; return a list of the walks.

        :param changing: providers by the walk in which they change
        """
        walks = []

        class Busy(type(self.store)):

            def consumers(this, after='', limit=1000):
                if not after:
                    walks.append(after)
                    for provider in changing[len(walks) - 1]:
                        this.set_inventory(provider, {
                            'VCPU': claims_base.Inventory(8 + len(walks))})
                return super().consumers(after, limit)

        self.store.__class__ = Busy
        return walks

    def test_provider_changed_in_each_walk_is_no_finding(self):
        self.take(VCPU=1)
        self.store._used[self.host]['VCPU'] = 5
        walks = self.change_in_walks(*[[self.host]] * 3)

        self.assertEqual([], self.found())
        self.assertEqual(3, len(walks))

    def test_claims_without_a_change_are_added_up_once(self):
        self.take(VCPU=1)
        walks = self.change_in_walks([])

        self.assertEqual([], self.found())
        self.assertEqual(1, len(walks))

    def test_reported_provider_is_not_reported_again_after_a_change(self):
        self.take(VCPU=1)
        self.store._used[self.host]['VCPU'] = 5
        [other] = samples.uuids(1)
        self.store.set_inventory(other, {})
        walks = self.change_in_walks([other], [self.host, other], [])

        self.assertEqual(
            ['miscounted:VCPU'], [kind for kind, _, _ in self.found()])
        self.assertEqual(3, len(walks))

    def test_unchanged_provider_is_reported_once(self):
        self.take(VCPU=1)
        self.store._used[self.host]['VCPU'] = 5
        [other] = samples.uuids(1)

        def change(held):
            self.store.set_inventory(
                other, {'VCPU': claims_base.Inventory(8)})

        self.store.set_inventory(other, {})
        self.assertEqual(
            ['miscounted:VCPU'],
            [kind for kind, _, _ in self.found(2, change)])
