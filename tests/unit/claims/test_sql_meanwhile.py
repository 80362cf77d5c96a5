# SPDX-License-Identifier: Apache-2.0
"""Usages that change during a read."""

import itertools

from cellsched.claims import base as claims
from cellsched.claims import sql
from cellsched.claims.sql import providers
from tests.unit.claims.sql import base
from tests.unit.db import meanwhile

PROVIDERS = [f'p{number}' for number in range(6)]


class TestUsages(base.StoreTestCase):

    def setUp(self):
        super().setUp()
        self.other = sql.SQLClaims(self.make_database())
        self.provide(*PROVIDERS)
        self.numbers = itertools.count()

    def claim(self):
        number = next(self.numbers)
        self.other.claim([claims.Claim(
            f'c{number}', PROVIDERS[number], {'VCPU': 1})])

    def known(self, changes):
        return {usage.provider: usage.used.get('VCPU')
                for usage in changes.usages}

    def check(self, known, since):
        with meanwhile.between_statements(self.database, self.claim):
            changes = self.store.usages(since)
        known |= self.known(changes)

        known |= self.known(self.store.usages(changes.token))

        self.assertLess(1, next(self.numbers))
        self.assertEqual(self.known(self.other.usages()), known)

    def test_first_read_misses_no_concurrent_change(self):
        self.check({}, None)

    def test_read_after_a_token_misses_no_concurrent_change(self):
        before = self.store.usages()
        self.claim()

        self.check(self.known(before), before.token)

    def test_read_after_a_foreign_token_misses_no_change(self):
        self.check({}, (2 ** 40,))


class TestRecount(base.TestCase):

    def test_recount_keeps_a_concurrent_claim(self):
        database = self.make_database()
        store, other = sql.SQLClaims(database), sql.SQLClaims(
            self.make_database())
        store.set_inventory('p0', {'VCPU': claims.Inventory(total=8)})
        with database.writer() as connection:
            connection.exec_driver_sql('UPDATE inventories SET used = 5')
        find = providers.find_correction

        def find_before_a_claim(*args):
            self.patch(providers, 'find_correction', find)
            found = find(*args)
            other.claim([claims.Claim('c', 'p0', {'VCPU': 2})])
            return found

        self.patch(providers, 'find_correction', find_before_a_claim)

        self.assertTrue(store.recount('p0'))

        [usage] = store.usages().usages
        self.assertEqual(({'VCPU': 2}, 1), (usage.used, usage.consumers))
