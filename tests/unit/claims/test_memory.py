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

    def test_feed_has_changed_providers_only(self):
        providers = [self.make_provider(self.store, VCPU=8)
                     for _ in range(10)]
        token = self.store.usages().token

        self.store.claim([self.make_claim(providers[4], VCPU=1)])
        self.store.claim([self.make_claim(providers[2], VCPU=1)])
        self.store.set_inventory(
            providers[7], {'VCPU': claims.Inventory(total=8)})

        self.assertEqual({providers[2], providers[4]},
                         self.names_of(self.store.usages(token).usages))

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
