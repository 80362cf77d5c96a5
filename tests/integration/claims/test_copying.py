# SPDX-License-Identifier: Apache-2.0
"""Copies of claims between a file and a server."""

from cellsched.claims import base as claims
from cellsched.claims import copying
from cellsched.claims import sql
from cellsched.claims.sql import schema
from cellsched import clock
from cellsched.db import session
from tests.integration import base
from tests.integration.claims import test_sql
from tests import profile
from tests.unit.claims import copies


class CopyingTests:

    def setUp(self):
        super().setUp()
        self.files = copies.Stores(self.temporary_directory())
        self.addCleanup(self.files.close)

    def copy(self, source, target):
        copier = copying.ClaimCopier(source, target, 2)
        copier.check()
        copier.copy()
        self.assertEqual([], [*copier.compare()])
        self.assertEqual(copies.facts(source), copies.facts(target))

    def test_claims_are_copied_from_a_file_and_to_another(self):
        source = self.files.store()
        copies.fill(source)
        source.claim([claims.Claim(
            f'm{number}', 'p', {'VCPU': 1},
            claims.Membership('g', 'h', claims.ANTI_AFFINITY, 2))
            for number in range(2)])
        source.set_inventory('p', {'VCPU': claims.Inventory(2)})
        source.set_inventory('r', {})

        self.copy(source, self.store)
        self.copy(source, self.store)
        self.copy(self.store, self.files.store())

    def test_same_backend_is_recognized_over_any_connection(self):
        other = session.Database(
            self.by_driver(self.part_of(self.server).url('copied')), 'claims',
            clock=clock.Clock())
        self.addCleanup(other.close)
        schema.SCHEMA.sync(other)

        self.assertTrue(self.store.same_backend(self.store))
        self.assertTrue(self.store.same_backend(self.make_peer(self.store)))
        self.assertFalse(self.store.same_backend(sql.SQLClaims(other)))
        self.assertFalse(self.store.same_backend(self.files.store()))


class TestPostgreSQL(test_sql.OnPostgreSQL, CopyingTests, base.TestCase):
    pass


@profile.full_only('MariaDB; the rules are proven on PostgreSQL')
class TestMariaDB(test_sql.OnMariaDB, CopyingTests, base.TestCase):
    pass
