# SPDX-License-Identifier: Apache-2.0
"""Migrations on PostgreSQL make what the models say."""

from cellsched.claims.sql import schema as claims
from cellsched.db import api
from cellsched.db import cell
from cellsched.db import session
from tests.integration import base
from tests.integration import servers
from tests.unit.db import drift

SCHEMAS = (api.SCHEMA, cell.SCHEMA, claims.SCHEMA)


class TestMigrations(base.TestCase):

    def open(self, name, schema):
        database = session.Database(self.server.url(name), schema.name)
        self.addCleanup(database.close)
        return database

    def setUp(self):
        super().setUp()
        self.server = self.part_of(servers.PostgreSQL)

    def test_models_and_migrations_agree(self):
        for schema in SCHEMAS:
            database = self.open(schema.name.lower(), schema)

            schema.sync(database)

            self.assertEqual(
                [], drift.differences(database, schema), schema.name)
            schema.check(database)

    def test_constraints_have_the_names_that_they_have_elsewhere(self):
        for schema in SCHEMAS:
            database = self.open(schema.name.lower(), schema)
            schema.sync(database)

            names = drift.constraints(database)

            for table in schema.metadata.tables.values():
                self.assertLessEqual(
                    {index.name for index in table.indexes}
                    | {constraint.name for constraint in table.constraints
                       if str(constraint.name).startswith('uniq_')},
                    names[table.name])

    def test_all_of_them_fit_into_one_database(self):
        for schema in SCHEMAS:
            schema.sync(self.open('all', schema))

        for schema in SCHEMAS:
            schema.check(self.open('all', schema))
