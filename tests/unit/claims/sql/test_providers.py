# SPDX-License-Identifier: Apache-2.0
"""Inventories and counters."""

import sqlalchemy as sa

from cellsched.claims import base as claims
from cellsched.claims.sql import schema
from tests.unit.claims.sql import base
from tests.unit.db import recording


class TestInventories(base.StoreTestCase):

    def test_unchanged_inventory_is_not_written(self):
        has = {'GB': claims.Inventory(7, allocation_ratio=1.1)}
        self.store.set_inventory('p1', has)

        with recording.recorded(self.database) as statements:
            self.store.set_inventory('p1', has)

        self.assertEqual([], [text for text, _ in statements
                              if not text.startswith('SELECT')])


class TestRecount(base.StoreTestCase):

    def setUp(self):
        super().setUp()
        self.has = {'GB': claims.Inventory(10, reserved=1,
                                           allocation_ratio=1.5),
                    'VCPU': claims.Inventory(4)}
        for provider in 'p1', 'p2':
            self.store.set_inventory(provider, self.has)
        self.store.claim([
            claims.Claim(consumer, provider, {'GB': 2, 'VCPU': 1})
            for consumer, provider in (('c', 'p1'), ('d', 'p1'), ('c', 'p2'))])

    def spoil(self, table, **values):
        column = table.c.uuid if 'uuid' in table.c else table.c.provider
        with self.database.writer() as connection:
            connection.execute(
                sa.update(table).where(column == 'p1').values(**values))

    def usage(self, provider='p1'):
        [usage] = self.store.usages(providers=[provider]).usages
        return usage

    def test_recount_corrects_counters_and_reports_the_change(self):
        right, other = self.usage(), self.usage('p2')
        for table, values in (
                (schema.inventories, {'used': 9}),
                (schema.inventories, {'capacity': 99}),
                (schema.providers, {'consumers': 7})):
            self.spoil(table, **values)
            self.assertNotEqual(right, self.usage())
            token = self.store.usages().token

            self.assertTrue(self.store.recount('p1'))

            self.assertEqual(right, self.usage())
            self.assertEqual([right], self.store.usages(token).usages)
            self.assertFalse(self.store.recount('p1'))
        self.assertEqual(other, self.usage('p2'))

    def test_class_without_an_inventory_is_counted(self):
        with self.database.writer() as connection:
            connection.execute(sa.delete(schema.inventories).where(
                schema.inventories.c.resource_class == 'GB'))

        self.assertTrue(self.store.recount('p1'))

        self.assertEqual(({'GB': 4, 'VCPU': 2}, {'GB': 0, 'VCPU': 4}),
                         (self.usage().used, self.usage().capacity))

    def test_provider_without_claims_has_none(self):
        self.store.release(['c', 'd'])
        self.spoil(schema.inventories, used=3)

        self.assertTrue(self.store.recount('p1'))

        self.assertEqual({'GB': 0, 'VCPU': 0}, self.usage().used)
