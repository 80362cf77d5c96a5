# SPDX-License-Identifier: Apache-2.0
"""Statements that undo themselves, and connections that commit each one."""

import fixtures
import sqlalchemy as sa

from cellsched import clock
from cellsched.db import guarded_statements
from cellsched.db import session
from cellsched import exception
from tests.integration.db import base

THINGS = sa.Table('things_to_refuse', sa.MetaData(),
                  sa.Column('number', sa.Integer))


class TestRefusing(base.APITestCase):

    def setUp(self):
        super().setUp()
        self.database = self.make_database()
        with self.database.writer() as connection:
            THINGS.metadata.drop_all(connection)
            THINGS.metadata.create_all(connection)

    def insert(self, number, count):
        guard = guarded_statements.guard(
            '(SELECT count(*) FROM inserted) = %(count)s')
        return guarded_statements.execute(
            self.database,
            'WITH inserted AS (INSERT INTO things_to_refuse (number) '
            f'VALUES (%(number)s) RETURNING 1) SELECT 1 WHERE {guard} = 1',
            {'number': number, 'count': count})

    def numbers(self):
        with self.database.reader() as connection:
            return connection.execute(sa.select(THINGS)).scalars().all()

    def test_statement_is_applied_only_if_its_condition_holds(self):
        log = self.useFixture(fixtures.FakeLogger())

        self.assertEqual([(1,)], self.insert(7, count=1))
        self.assertRaises(
            guarded_statements.StatementRefused, self.insert, 8, count=2)

        self.assertEqual([7], self.numbers())
        self.assertEqual('', log.output)

    def test_text_without_a_number_is_an_error(self):
        def mistake():
            with self.database.each_alone() as connection:
                connection.execute(sa.text("SELECT CAST('seven' AS integer)"))

        self.assertRaises(exception.DatabaseError, mistake)


class TestEachAlone(base.APITestCase):

    def setUp(self):
        super().setUp()
        self.one = session.Database(
            self.database.url, 'API', {'max_pool_size': 1},
            clock=clock.Clock())
        self.addCleanup(self.one.close)

    def read(self):
        """Use the connection and return its process on the server."""
        with self.one.reader() as connection:
            return connection.execute(
                sa.text('SELECT pg_backend_pid()')).scalar_one()

    def test_single_statement_is_the_last_on_its_connection(self):
        for _ in range(3):
            process = self.read()

            with self.database.reader() as connection:
                self.assertEqual(
                    'SELECT pg_backend_pid()', connection.execute(
                        sa.text('SELECT query FROM pg_stat_activity '
                                'WHERE pid = :pid'),
                        {'pid': process}).scalar_one())

    def test_transactions_are_restored_after_a_single_statement(self):
        process = self.read()

        with self.one.writer() as connection:
            self.assertEqual(process, connection.execute(
                sa.text('SELECT pg_backend_pid()')).scalar_one())
            self.assertFalse(connection.connection.autocommit)
        with self.one.reader() as connection:
            self.assertTrue(connection.connection.autocommit)
