# SPDX-License-Identifier: Apache-2.0
"""Claims in memory."""

from cellsched.claims import base as claims
from cellsched.claims import memory
from cellsched.testing.suite import claims as suite
from tests.unit import base
from tests.unit.claims import model


class TestMemoryClaims(
        suite.ClaimStoreSuite, model.ModelTests, base.TestCase):

    def setUp(self):
        super().setUp()
        self.store = self.make_store()

    def make_store(self):
        return memory.MemoryClaims()

    def test_later_change_of_an_argument_changes_no_claim(self):
        provider = self.make_provider(self.store, VCPU=8)
        resources = {'VCPU': 1}
        self.store.claim([claims.Claim('c', provider, resources)])

        resources['VCPU'] = 8

        self.assertHolds(
            self.store, claims.Claim('c', provider, {'VCPU': 1}))

    def test_wrong_figures_are_set_right(self):
        provider = self.make_provider(self.store, VCPU=8)
        self.store.claim([self.make_claim(provider, VCPU=3)])
        for figures, wrong in ((self.store._used, {'VCPU': 5}),
                               (self.store._used, {'VCPU': 3, 'OTHER': 1}),
                               (self.store._consumers, 4)):
            figures[provider] = wrong
            token = self.store.usages().token

            self.assertTrue(self.store.recount(provider))

            self.assertUsed(self.store, provider, 1, VCPU=3)
            self.assertEqual(
                {provider}, self.names_of(self.store.usages(token).usages))
            self.assertFalse(self.store.recount(provider))


class TestMembers(base.TestCase):
    """Memberships are removed with their claims."""

    def setUp(self):
        super().setUp()
        self.store = memory.MemoryClaims()
        for provider in 'pq':
            self.store.set_inventory(
                provider, {'VCPU': claims.Inventory(total=8)})

    def claim(self, consumer, provider='p', group='g'):
        self.store.claim([claims.Claim(
            consumer, provider, {'VCPU': 1}, group and claims.Membership(
                group, provider, claims.ANTI_AFFINITY))])

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
