# SPDX-License-Identifier: Apache-2.0
"""Columns of resource classes."""

from cellsched.claims import base as claims
from cellsched.claims.cassandra import requests
from cellsched.claims.cassandra import slots
from cellsched import exception
from tests.unit import base as tests
from tests.unit.claims.cassandra import base


class TestSlots(tests.TestCase):

    def setUp(self):
        super().setUp()
        self.store = base.make_store(base.make_model())

    def set(self, **totals):
        self.store.set_inventory('p', {
            name: claims.Inventory(total) for name, total in totals.items()})

    def used(self):
        [usage] = self.store.usages(providers=['p']).usages
        return usage.used

    def test_column_of_a_removed_class_is_free_after_its_last_claim(
            self):
        self.set(A=5, B=5)
        self.store.claim([claims.Claim('a', 'p', {'A': 2})])
        self.set(B=5)
        self.assertEqual({'A': 2, 'B': 0}, self.used())
        self.store.release(['a'])

        self.set(C=5)
        self.store.claim([claims.Claim('c', 'p', {'C': 3})])

        self.assertEqual({'C': 3}, self.used())

    def test_columns_are_reused(self):
        for number in range(3 * requests.SLOTS):
            self.set(**{f'CUSTOM_{number}': 1})
            self.store.claim([claims.Claim(
                'c', 'p', {f'CUSTOM_{number}': 1})])
            self.assertEqual({f'CUSTOM_{number}': 1}, self.used())
            self.store.release(['c'])

    def test_more_classes_than_columns_are_invalid(self):
        self.set(**{f'CUSTOM_{number}': 1 for number in range(32)})

        found = self.assertRaises(
            exception.InvalidField, self.set, **{
                f'CUSTOM_{number}': 1 for number in range(33)})

        self.assertEqual('resource classes', found.field)
        self.assertIn('at most 32', found.detail)

    def test_same_inventory_in_another_order_is_no_change(self):
        self.set(A=5, B=6)
        token = self.store.usages().token

        self.set(B=6, A=5)

        self.assertEqual([], self.store.usages(token).usages)

    def test_repeated_inventory_has_another_version(self):
        """A slow client cannot restore an earlier inventory."""
        self.set(A=5)
        [first] = self.store._session.ask(requests.Scan(figures=True))
        self.set(A=6)
        self.set(A=5)
        [second] = self.store._session.ask(requests.Scan(figures=True))

        self.assertNotEqual(first.inventory, second.inventory)
        self.assertEqual(
            slots.parse(first.inventory).classes,
            slots.parse(second.inventory).classes)
