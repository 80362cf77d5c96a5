# SPDX-License-Identifier: Apache-2.0
"""Memberships are removed from memory with their claims."""

from cellsched.claims import base
from cellsched.claims import memory
from tests.unit import base as tests


class TestMembers(tests.TestCase):

    def setUp(self):
        super().setUp()
        self.store = memory.MemoryClaims()
        for provider in 'pq':
            self.store.set_inventory(
                provider, {'VCPU': base.Inventory(total=8)})

    def claim(self, consumer, provider='p', group='g'):
        self.store.claim([base.Claim(
            consumer, provider, {'VCPU': 1}, group and base.Membership(
                group, provider, base.ANTI_AFFINITY))])

    def test_repeated_release_of_a_member_succeeds(self):
        self.claim('c')

        for _ in range(2):
            self.store.release(['c'])

        self.claim('d')
        self.assertEqual({'d'}, set(self.store.claims_of('cd')))

    def test_new_claim_without_a_group_has_no_membership(self):
        self.claim('c')
        self.store.release(['c'])
        self.claim('c', group=None)

        self.store.transfer('c', 'd')
        self.claim('e')

        self.assertEqual({'d', 'e'}, set(self.store.claims_of('cde')))

    def test_empty_group_is_forgotten(self):
        for number in range(3):
            self.claim('c', group=f'g{number}')
            self.claim('d', 'q', group=f'g{number}')
            self.store.release(['c', 'd'])

        self.assertEqual(({}, {}), (self.store._groups, self.store._members))
