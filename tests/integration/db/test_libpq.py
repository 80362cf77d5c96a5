# SPDX-License-Identifier: Apache-2.0
"""Statements without a cursor, on a real server."""

import psycopg
import sqlalchemy as sa

from cellsched.db import libpq
from cellsched.db import session
from tests.integration.db import base
from tests.integration import servers

TABLE = sa.table('things', sa.column('name', sa.String), sa.column('size'))

INSERT = libpq.statement(sa.insert(TABLE).values(
    name=sa.bindparam('name'),
    size=sa.bindparam('size', type_=sa.BigInteger)
    + sa.bindparam('more', 1, type_=sa.BigInteger)))


class TestExecute(base.APITestCase):

    by_driver = staticmethod(servers.by_psycopg)

    def setUp(self):
        super().setUp()
        with self.database.writer() as connection:
            connection.execute(sa.text('DROP TABLE IF EXISTS things'))
            connection.execute(sa.text(
                'CREATE TABLE things (name text PRIMARY KEY, size bigint)'))

    def execute(self, *things, database=None):
        with (database or self.database).driver() as connection:
            for name, size in things:
                libpq.execute(connection, INSERT, {
                    **INSERT.constants, 'name': name, 'size': size})

    def things(self):
        with self.database.reader() as connection:
            return [tuple(row) for row in connection.execute(
                sa.text('SELECT name, size FROM things ORDER BY size'))]

    def count_prepared(self, connection):
        [[count]] = connection.raw.execute(
            "SELECT count(*) FROM pg_prepared_statements"
            " WHERE name LIKE 'cellsched%'").fetchall()
        return count

    def test_each_statement_is_a_transaction(self):
        with self.database.driver() as connection:
            libpq.execute(connection, INSERT, {
                **INSERT.constants, 'name': 'a', 'size': 1})
            self.assertEqual([('a', 2)], self.things())

    def test_texts_stay_what_they_are(self):
        names = ["it's", '%(name)s %s %%', '$1', '{"a\\b"}', 'Grüße 好', '',
                 'line\nline']
        self.execute(*((name, size) for size, name in enumerate(names)))
        self.assertEqual(names, [name for name, _ in self.things()])

    def test_numbers_stay_what_they_are(self):
        sizes = [-2 ** 63, -1, 0, 2 ** 31, 2 ** 63 - 2]
        self.execute(*((str(size), size) for size in sizes))
        self.assertEqual(
            [size + 1 for size in sizes], [size for _, size in self.things()])

    def test_statement_is_prepared_once(self):
        with self.database.driver() as connection:
            before = self.count_prepared(connection)
        self.execute(*((str(size), size) for size in range(5)))
        self.execute(('again', 9))
        with self.database.driver() as connection:
            self.assertEqual(1, len(connection.prepared))
            self.assertEqual(1, self.count_prepared(connection))
        self.assertLessEqual(before, 1)

    def test_nothing_is_prepared_where_a_url_says_so(self):
        database = session.Database(
            self.database.url, 'API',
            {'connection_parameters': 'prepare_threshold=none'})
        self.addCleanup(database.close)
        self.execute(('a', 1), ('b', 2), database=database)
        with database.driver() as connection:
            self.assertEqual({}, connection.prepared)
            self.assertEqual(0, self.count_prepared(connection))
        self.assertEqual([('a', 2), ('b', 3)], self.things())

    def test_error_is_that_of_a_cursor(self):
        self.execute(('a', 1))
        error = self.assertRaises(
            psycopg.errors.UniqueViolation, self.execute, ('a', 2))
        self.assertEqual('23505', error.sqlstate)
        self.assertIn('things_pkey', str(error))
        self.execute(('b', 2))
        self.assertEqual([('a', 2), ('b', 3)], self.things())

    def test_error_of_preparing_is_raised_each_time(self):
        wrong = libpq.statement(sa.delete(sa.table('nowhere')))
        for _ in range(2):
            with self.database.driver() as connection:
                self.assertRaises(psycopg.errors.UndefinedTable, libpq.execute,
                                  connection, wrong, {})

    def test_lost_connection_is_an_error_and_the_next_one_is_new(self):
        with self.database.driver() as connection:
            [[pid]] = connection.raw.execute('SELECT pg_backend_pid()')
        with self.database.writer() as other:
            other.execute(sa.text('SELECT pg_terminate_backend(:pid)'),
                          {'pid': pid})
        self.assertRaises(psycopg.OperationalError, self.execute, ('a', 1))
        self.execute(('a', 1))
        self.assertEqual([('a', 2)], self.things())
