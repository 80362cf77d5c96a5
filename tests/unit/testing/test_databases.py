# SPDX-License-Identifier: Apache-2.0
"""Databases for tests: SQLite files that have their schema already."""

import pathlib

from cellsched.claims.sql import schema as claims
from cellsched.db import api
from cellsched.db.api import cell_mappings
from cellsched.db import cell
from cellsched.testing import databases
from tests.unit import base
from tests.unit.db import samples


class TestDatabases(base.TestCase):

    def test_schema_is_up_to_date(self):
        for schema, kind in ((api.SCHEMA, databases.APIDatabase),
                             (cell.SCHEMA, databases.CellDatabase),
                             (claims.SCHEMA, databases.ClaimsDatabase)):
            self.assertEqual(schema.head, schema.version(
                self.useFixture(kind()).database))

    def test_each_is_a_database_of_its_own(self):
        one = self.useFixture(databases.APIDatabase())
        other = self.useFixture(databases.APIDatabase())

        samples.map_cell(one.database, samples.cell())

        self.assertNotEqual(one.url, other.url)
        with other.database.reader() as connection:
            self.assertEqual([], cell_mappings.list_all(connection))

    def test_database_is_deleted_after_the_test(self):
        fixture = databases.CellDatabase()
        with fixture:
            path = pathlib.Path(fixture.database.engine.url.database)
            self.assertTrue(path.exists())

        self.assertFalse(path.exists())
