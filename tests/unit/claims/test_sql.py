# SPDX-License-Identifier: Apache-2.0
"""Claims in SQL, on SQLite."""

import uuid

import sqlalchemy as sa

from cellsched.claims import base as claims
from cellsched.claims import sql
from cellsched.claims.sql import schema
from cellsched import clock
from cellsched.conf import loader
from cellsched.db import session
from cellsched import exception
from cellsched.testing.suite import claims as suite
from tests.unit import base as tests
from tests.unit.claims import model
from tests.unit.claims.sql import base


class TestSQLClaims(
        suite.ClaimStoreSuite, model.ModelTests, base.TestCase):

    def setUp(self):
        super().setUp()
        self.store = self.make_store()

    def make_store(self):
        return sql.SQLClaims(self.make_database())

    def make_peer(self, store):
        return self.make_store()

    def test_more_claims_than_parameters_of_a_statement_succeed(self):
        store = self.make_store()
        providers = [str(uuid.UUID(int=number)) for number in range(1100)]
        with self.make_database().writer() as connection:
            connection.execute(sa.insert(schema.providers), [
                {'uuid': provider, 'consumers': 0, 'lane': 0, 'position': 0}
                for provider in providers])
            connection.execute(sa.insert(schema.inventories), [
                {'provider': provider, 'resource_class': 'VCPU', 'used': 0,
                 'capacity': 1, **vars(claims.Inventory(total=1))}
                for provider in providers])
        token = store.usages().token
        batch = [self.make_claim(provider, VCPU=1) for provider in providers]

        store.claim(batch)

        consumers = [claim.consumer for claim in batch]
        self.assertEqual(1100, len(store.claims_of(consumers)))
        self.assertEqual(1100, len(store.usages(providers=providers).usages))
        self.assertEqual(1100, len(store.usages(token).usages))
        batch[-1] = self.make_claim(providers[-1], VCPU=1)
        self.assertRefused(store, batch, batch[-1], 'VCPU')
        store.release(consumers)
        self.assertEqual({0}, {
            usage.used['VCPU'] for usage in store.usages().usages})

    def test_feed_after_a_new_database_has_all_providers(self):
        store = self.make_store()
        provider = self.make_provider(store, VCPU=8)
        store.claim([self.make_claim(provider, VCPU=1)])
        token = store.usages().token
        with self.make_database().writer() as connection:
            connection.execute(
                sa.update(schema.FEED.table).values(position=0))

        self.assertEqual(
            {provider}, self.names_of(store.usages(token).usages))

    def test_concurrent_claims_have_allocations_for_the_usage(self):
        store = self.make_store()
        provider = self.make_provider(store, VCPU=20)
        outcomes = self.race(store, [
            lambda it: it.claim([self.make_claim(provider, VCPU=2)])] * 16)

        self.assertEqual(10, outcomes.count(None))
        with self.make_database().reader() as connection:
            self.assertEqual(20, connection.execute(sa.select(sa.func.sum(
                schema.allocations.c.amount))).scalar())


class TestUnreadableRows(base.TestCase):

    def test_row_is_a_problem_of_its_provider_only(self):
        store = sql.SQLClaims(self.make_database())
        bad, good = (str(uuid.UUID(int=number)) for number in (1, 2))
        for provider in bad, good:
            store.set_inventory(provider, {'VCPU': claims.Inventory(4)})
        table = schema.inventories
        for values in {'capacity': 'junk'}, {'used': 1.5}, {'step_size': 0}:
            with self.subTest(values=values):
                with self.make_database().writer() as connection:
                    connection.execute(sa.text(
                        'UPDATE inventories SET '
                        + ', '.join(f'{name} = :{name}' for name in values)
                        + ' WHERE provider = :bad'), {**values, 'bad': bad})

                self.assertEqual([bad], [
                    each.provider for each in store.problems()])
                store.claim([claims.Claim(
                    str(uuid.uuid4()), good, {'VCPU': 1})])

                with self.make_database().writer() as connection:
                    connection.execute(sa.update(table).where(
                        table.c.provider == bad).values(
                            capacity=4, used=0, step_size=1))
                self.assertEqual([], store.problems())


class TestCheck(base.TestCase):

    def test_missing_schema_is_refused_with_the_command(self):
        store = sql.SQLClaims(self.make_database(synced=False))

        for call in store.check, store.usages, lambda: store.claims_of(['c']):
            error = self.assertRaises(exception.SchemaOutOfDate, call)
            self.assertIn('cellsched-manage claims_db sync', str(error))

        store.sync()
        store.check()


class TestDatabase(tests.TestCase):

    def database(self, **connections):
        path = self.temporary_directory() / 'cellsched.conf'
        path.write_text(''.join(
            f'[{section}]\n' + ''.join(
                f'{name} = {value}\n' for name, value in values.items())
            for section, values in connections.items()))
        conf = loader.load(files=[str(path)], dirs=[])
        return sql.database(conf, session.Databases(clock.Clock()))

    def test_claims_have_their_own_connection(self):
        database = self.database(
            claims={'connection': 'sqlite:////claims.db'},
            api_database={'connection': 'sqlite:////api.db'})

        self.assertEqual('sqlite:////claims.db', database.url)
        self.assertEqual('claims', database.schema)

    def test_claims_are_in_the_api_database_by_default(self):
        database = self.database(
            api_database={'connection': 'sqlite:////api.db'})

        self.assertEqual('sqlite:////api.db', database.url)
        self.assertEqual('claims', database.schema)

    def test_missing_connection_is_refused_with_the_field(self):
        error = self.assertRaises(
            exception.ConfigurationInvalid, self.database,
            database={'connection': 'sqlite:////cell.db'})

        self.assertEqual('[claims] connection', error.field)

    def test_pool_has_the_options_of_the_main_database(self):
        url = 'postgresql+psycopg2://nobody@127.0.0.1:1/claims'
        for sections, expected in (
            ({'api_database': {'connection': 'sqlite://',
                               'max_pool_size': 7}}, 7),
            ({'database': {'connection': 'sqlite://',
                           'max_pool_size': 8}}, 8),
        ):
            database = self.database(
                claims={'connection': url}, **sections)

            self.assertEqual(expected, database.options['max_pool_size'])
