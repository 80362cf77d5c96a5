# SPDX-License-Identifier: Apache-2.0
"""Migrations on real servers make what the models say."""

import sqlalchemy as sa

from cellsched.claims.sql import schema as claims
from cellsched import clock
from cellsched.db import api
from cellsched.db import cell
from cellsched.db import session
from cellsched.db import tokens
from cellsched import exception
from tests.integration import base
from tests.integration import mariadb
from tests.integration import servers
from tests import profile
from tests.unit.db import drift
from tests.unit.db import released

SCHEMAS = (api.SCHEMA, cell.SCHEMA, claims.SCHEMA)


class MigrationTests:

    #: The kind of the server.
    kind = None

    def open(self, name, schema):
        database = session.Database(self.server.url(name), schema.name,
                                    clock=clock.Clock())
        self.addCleanup(database.close)
        return database

    def setUp(self):
        super().setUp()
        self.server = self.part_of(self.kind)

    def test_models_and_migrations_agree(self):
        for schema in SCHEMAS:
            database = self.open(schema.name.lower(), schema)

            schema.sync(database)

            self.assertEqual(
                [], drift.differences(database, schema), schema.name)
            schema.check(database)

    def test_release_1_0_is_upgraded_with_its_rows(self):
        for name, schema in released.SCHEMAS.items():
            database = self.open(f'released_{name}', schema)
            rows = released.create(database, name)

            schema.sync(database)

            self.assertEqual(rows, released.read(database, name))
            self.assertEqual([], drift.differences(database, schema), name)
            schema.check(database)

    def test_constraints_have_the_names_of_the_models(self):
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

    def test_claims_fit_beside_the_api(self):
        for schema in (api.SCHEMA, claims.SCHEMA):
            schema.sync(self.open('both', schema))

        for schema in (api.SCHEMA, claims.SCHEMA):
            schema.check(self.open('both', schema))
        error = self.assertRaises(
            exception.WrongDatabase, cell.SCHEMA.sync,
            self.open('both', cell.SCHEMA))
        self.assertIn('the tables of the API schema', str(error))

    def test_database_is_known_by_any_of_its_urls(self):
        for name in 'here', 'there':
            cell.SCHEMA.sync(self.open(name, cell.SCHEMA))
        here = self.open('here', cell.SCHEMA)
        other = here.url.replace('127.0.0.1', 'localhost')
        self.assertNotEqual(here.url, other)

        for url, expected in ((other, True), (
                self.server.url('there'), False)):
            another = session.Database(url, 'cell', clock=clock.Clock())
            self.addCleanup(another.close)
            self.assertEqual(
                expected, tokens.is_same_database(here, another), url)
            self.assertEqual(
                expected, tokens.is_same_database(another, here), url)

    def test_databases_without_a_schema_are_compared(self):
        here, there = (self.open(name, cell.SCHEMA)
                       for name in ('empty', 'empty_too'))
        again = self.open('empty', cell.SCHEMA)

        self.assertFalse(tokens.is_same_database(here, there))
        self.assertTrue(tokens.is_same_database(here, again))
        for database in here, there:
            cell.SCHEMA.sync(database)
            cell.SCHEMA.check(database)
        with here.reader() as connection:
            self.assertEqual(0, connection.execute(sa.text(
                'SELECT count(*) FROM database_tokens')).scalar())

    def test_databases_with_equal_names_on_two_servers_differ(self):
        one = self.open('same', cell.SCHEMA)
        cell.SCHEMA.sync(one)
        other = session.Database(
            self.own(self.kind).url('same'), 'cell', clock=clock.Clock())
        self.addCleanup(other.close)

        self.assertFalse(tokens.is_same_database(one, other))


class TestOnPostgreSQL(MigrationTests, base.TestCase):

    kind = servers.PostgreSQL


@profile.by_default(
    'test_models_and_migrations_agree', own=True,
    reason='MariaDB; the rules are proven on PostgreSQL')
class TestOnMariaDB(MigrationTests, base.TestCase):

    kind = mariadb.MariaDB

    def test_text_is_compared_by_bytes(self):
        for schema in (api.SCHEMA, claims.SCHEMA):
            schema.sync(self.open('all', schema))
        names = {table for schema in (api.SCHEMA, claims.SCHEMA)
                 for table in schema.metadata.tables}

        with self.open('all', SCHEMAS[0]).reader() as connection:
            found = {tuple(row) for row in connection.execute(sa.text(
                'SELECT table_name, collation_name '
                'FROM information_schema.columns WHERE collation_name '
                'IS NOT NULL AND table_schema = DATABASE()'))}

        self.assertEqual({'utf8mb4_nopad_bin'}, {
            collation for table, collation in found if table in names})
