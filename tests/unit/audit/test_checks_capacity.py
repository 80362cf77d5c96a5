# SPDX-License-Identifier: Apache-2.0

from cellsched.audit import checks
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
