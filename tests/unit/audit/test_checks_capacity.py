# SPDX-License-Identifier: Apache-2.0
"""Findings about counters: their texts and repairs."""

from cellsched.audit import checks
from cellsched.audit import findings
from cellsched.claims import base as claims_base
from cellsched.claims import memory
from tests.unit import base
from tests.unit.db import samples


class TestCapacity(base.TestCase):

    def setUp(self):
        super().setUp()
        self.store = memory.MemoryClaims()
        self.one, self.other = samples.uuids(2)
        for provider in self.one, self.other:
            self.offer(provider, 8)

    def offer(self, provider, vcpus):
        self.store.set_inventory(
            provider, {'VCPU': claims_base.Inventory(vcpus)})

    def take(self, provider, amount=1):
        [uuid] = samples.uuids(1)
        self.store.claim([claims_base.Claim(uuid, provider,
                                            {'VCPU': amount})])

    def found(self, seen=lambda held: None):
        return [(each.invariant, each.kind, each.of) for each
                in checks.check_capacity(self.store, 2, seen)]

    def test_claims_within_the_capacity_are_right(self):
        for _ in range(4):
            self.take(self.one, 2)
        self.take(self.other)

        self.assertEqual([], self.found())

    def test_reserved_and_ratio_are_a_part_of_the_capacity(self):
        self.store.set_inventory(self.one, {'VCPU': claims_base.Inventory(
            4, reserved=1, allocation_ratio=2.0)})
        self.take(self.one, 6)
        self.assertEqual([], self.found())

        self.store.set_inventory(self.one, {'VCPU': claims_base.Inventory(
            4, reserved=2, allocation_ratio=2.0)})
        self.assertEqual([('S1', 'over-capacity:VCPU', self.one)],
                         self.found())

    def test_provider_changed_during_a_walk_is_read_again(self):
        self.take(self.one)
        self.take(self.other)
        once = [lambda: self.take(self.one)]

        self.assertEqual([], self.found(
            lambda held: once and once.pop()()))

    def test_claims_transferred_between_pages_are_no_finding(self):
        """They are read under both consumers then, or under none."""
        for first_sees_both in (True, False):
            names = sorted(samples.uuids(6))
            source, target = ((names[0], names[5]) if first_sees_both
                              else (names[5], names[0]))
            for name in names:
                provider = self.one if name == source else self.other
                self.store.claim([claims_base.Claim(
                    name, provider, {'VCPU': 1})])
            once = [lambda: self.store.transfer(source, target)]

            self.assertEqual([], self.found(
                lambda held: once and once.pop()()))

            self.assertEqual([], once)
            self.store.release(names)

    def test_claims_transferred_in_two_walks_are_no_finding(self):
        """Both walks read three claims, but of different consumers."""
        names = sorted(samples.uuids(8))
        for place, name in enumerate(names):
            self.store.claim([claims_base.Claim(
                name, self.one if place < 2 else self.other, {'VCPU': 1})])
        # Each when a page has ended, which has seen it.
        going = [(names[2], names[1], names[6]),
                 (names[1], names[0], names[7])]

        class Moving(memory.MemoryClaims):

            def consumers(this, after='', limit=1000):
                if going and after == going[-1][0]:
                    this.transfer(*going.pop()[1:])
                return super().consumers(after, limit)

        self.store.__class__ = Moving

        self.assertEqual([], self.found())

        self.assertEqual([], going)

    def test_wrong_counter_is_found_beside_transferred_claims(self):
        names = sorted(samples.uuids(6))
        for name in names:
            provider = self.one if name == names[5] else self.other
            self.store.claim([claims_base.Claim(name, provider, {'VCPU': 1})])
        self.store._used[self.other]['VCPU'] = 2
        once = [lambda: self.store.transfer(names[5], names[0])]

        self.assertEqual([('S1', 'miscounted:VCPU', self.other)], self.found(
            lambda held: once and once.pop()()))

    def test_wrong_count_of_a_changing_provider_is_found_later(self):
        self.take(self.one, 2)
        self.store._used[self.one]['VCPU'] = 1
        once = [lambda: self.take(self.one)]

        self.assertEqual([('S1', 'miscounted:VCPU', self.one)], self.found(
            lambda held: once and once.pop()()))


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
