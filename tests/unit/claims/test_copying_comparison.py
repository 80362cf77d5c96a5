# SPDX-License-Identifier: Apache-2.0
"""Differences of two stores, before and after a copy."""

from cellsched.claims import base
from cellsched.claims import copying
from cellsched.claims import memory
from cellsched import exception
from tests.unit.claims import copies


class TestForeignTarget(copies.CopyingTestCase):

    def setUp(self):
        super().setUp()
        copies.fill(self.source)

    def assertRefused(self, *texts, source=None):
        before = copies.facts(self.target)
        with self.assertRaises(exception.ClaimsNotCopied) as caught:
            self.copy(source)
        for text in texts:
            self.assertIn(text, str(caught.exception))
        self.assertEqual(before, copies.facts(self.target))

    def test_claims_unknown_to_the_source_are_refused(self):
        for consumers, texts in (
                (['c1'], ['consumer c1: 64 MEMORY_MB and 2 VCPU of p, 64 '
                          'MEMORY_MB and 2 VCPU of q in the source, 1 VCPU of '
                          'p in the target']),
                (['other'], ['consumer other: nothing in the source']),
                ([f'other{number}' for number in range(9)],
                 ['consumer other0', 'consumer other4', '; and 4 more'])):
            with self.subTest(consumers=consumers):
                self.target = self.stores.store()
                self.target.set_inventory('p', {'VCPU': base.Inventory(20)})
                self.target.claim([base.Claim(name, 'p', {'VCPU': 1})
                                   for name in consumers])

                self.assertRefused(*texts)

    def test_consumer_in_another_group_is_refused(self):
        joins = base.Membership('g', 'h', base.AFFINITY)
        claim = base.Claim('m', 'p', {'VCPU': 1})
        self.source.claim([claim])
        self.target.set_inventory('p', {'VCPU': base.Inventory(8)})
        self.target.claim([base.Claim('m', 'p', {'VCPU': 1}, joins)])

        self.assertRefused(
            'consumer m', 'member m of server group g on host h in the target')

    def test_provider_unknown_to_the_source_is_refused(self):
        self.target.set_inventory('other', {'VCPU': base.Inventory(8)})

        self.assertRefused(
            'provider other: nothing in the source, VCPU total 8 in the '
            'target')

    def test_provider_without_inventories_is_no_difference(self):
        self.target.set_inventory('other', {'VCPU': base.Inventory(8)})
        self.target.set_inventory('other', {})

        self.copy()

        self.assertEqual([], self.differences())

    def test_copy_into_the_source_is_refused(self):
        self.target = self.source

        self.assertRefused('the same store as the source')

    def test_copy_into_the_source_by_a_link_is_refused(self):
        self.source = self.stores.store('named')
        (self.directory / 'link').symlink_to(self.directory / 'named')
        self.target = self.stores.store('link')

        self.assertRefused('the same store as the source')

    def test_concurrent_other_claim_of_a_consumer_is_a_conflict(self):
        copier = copying.ClaimCopier(self.source, self.target, 2)
        copier.check()
        self.target.set_inventory('p', {'VCPU': base.Inventory(8)})
        self.target.claim([base.Claim('c3', 'p', {'VCPU': 1})])

        with self.assertRaises(exception.ClaimConflict) as caught:
            copier.copy()

        self.assertEqual('c3', caught.exception.consumer)
        self.assertEqual(
            {'p': {'VCPU': 1}}, copies.facts(self.target)['held']['c3'])


class TestDifferences(copies.CopyingTestCase):

    def setUp(self):
        super().setUp()
        copies.fill(self.source)
        self.copy()

    def test_changed_claim_is_a_difference(self):
        for change, differences in (
                (lambda: self.target.release(['c4']),
                 [('provider', 'r'), ('consumer', 'c4')]),
                (lambda: self.target.claim([
                    base.Claim('d', 'r', {'VCPU': 4})]),
                 [('consumer', 'c4'), ('consumer', 'd')]),
                (lambda: self.target.transfer('d', 'c9'),
                 [('consumer', 'c4'), ('consumer', 'c9')])):
            change()

            self.assertEqual(differences, self.differences())

    def test_many_additional_claims_are_reported_once(self):
        names = [*(f'a{number}' for number in range(5)),
                 *(f'c1{number}' for number in range(5)), 'd']
        self.target.claim(
            [base.Claim(name, 'r', {'VCPU': 1}) for name in names[:10]])
        self.source.claim([base.Claim('d', 'r', {'VCPU': 1})])

        self.assertEqual(
            [('provider', 'r'), *(('consumer', name) for name in names)],
            self.differences())

    def test_wrong_counters_are_a_difference(self):
        self.target = memory.MemoryClaims()
        self.copy()
        self.target._consumers['p'] += 1
        self.target._used['q']['VCPU'] += 1

        self.assertEqual(
            [('provider', 'p'), ('provider', 'q')], self.differences())

    def test_missing_inventories_are_a_difference(self):
        class Forgetful(memory.MemoryClaims):

            def inventories(self, providers=None):
                return {}

        self.target = Forgetful()
        self.copy()

        self.assertEqual([('provider', name) for name in 'pqr'],
                         self.differences())

    def test_missing_membership_is_a_difference(self):
        joins = base.Membership('g', 'h', base.AFFINITY)
        for store, group in ((self.source, joins), (self.target, None)):
            store.claim([base.Claim('m', 'p', {'VCPU': 1}, group)])

        self.assertEqual([('consumer', 'm')], self.differences())

    def test_changed_inventory_is_a_difference(self):
        known = self.source.inventories()['q']
        for changed in (
                {'VCPU': base.Inventory(9, 2, 2.0, 1, 4, 1)},
                {'VCPU': base.Inventory(8, 1, 2.0, 1, 3, 1)},
                {'VCPU': base.Inventory(8, 1, 2.0)},
                {'CUSTOM': base.Inventory(1)}):
            self.target.set_inventory('q', {**known, **changed})
            self.assertEqual([('provider', 'q')], self.differences())

        self.target.set_inventory('q', known)
        self.assertEqual([], self.differences())

    def test_provider_of_a_single_store_is_a_difference(self):
        self.source.set_inventory('s', {'VCPU': base.Inventory(1)})
        self.target.set_inventory('t', {'VCPU': base.Inventory(1)})
        self.source.set_inventory('empty', {})

        self.assertEqual(
            [('provider', 's'), ('provider', 't')], self.differences())

    def test_inventory_fields_without_an_effect_are_no_difference(self):
        class Brief(memory.MemoryClaims):

            def inventories(self, providers=None):
                return base.ClaimStore.inventories(self, providers)

        self.target = Brief()

        self.copy()

        self.assertNotEqual(
            copies.facts(self.source), copies.facts(self.target))
        self.assertEqual([], self.differences())
