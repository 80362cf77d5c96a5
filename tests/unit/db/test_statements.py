# SPDX-License-Identifier: Apache-2.0
"""Statements that several queries need, in each dialect's words."""

import datetime
import json
import types

from oslo_db import exception as db_exc
import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.dialects.postgresql import psycopg

from cellsched.db.api import models
from cellsched.db.cell.models import instances
from cellsched.db import statements
from cellsched import exception
from tests.unit.db.api import base
from tests.unit.db import recording
from tests.unit.db import samples
from tests.unit import racing

HOSTS = models.host_mappings
KEY = HOSTS.c.host


def row(host, cell_id=1):
    return {'host': host, 'cell_id': cell_id, 'created_at': samples.NOW}


class TestChunks(base.TestCase):

    def test_values_are_unique_and_in_order(self):
        self.assertEqual([['b', 'a']], list(statements.chunks('baab')))

    def test_chunks_are_of_a_size_for_a_list(self):
        chunks = list(statements.chunks(range(2 * statements.CHUNK + 1)))

        self.assertEqual([statements.CHUNK, statements.CHUNK, 1],
                         [len(chunk) for chunk in chunks])
        self.assertEqual([], list(statements.chunks([])))


class TestInList(base.TestCase):

    #: What means something to one dialect or another, and nothing in values.
    NAMES = ('', 'a', 'A', 'a"b', "a'b", 'a\\b', 'a\\"', '{a}', 'a,b', '[a]',
             'NULL', 'null', 'a b', ' a', '%', '%s', '%(these)s', ':these',
             'a\nb', 'ä', '\U0001f600', 'a' * 255)

    def setUp(self):
        super().setUp()
        self.cell = samples.map_cell(self.database, samples.cell())
        with self.database.writer() as connection:
            connection.execute(
                sa.insert(HOSTS), [row(name) for name in self.NAMES])

    def found(self, *values, column=KEY):
        with self.database.reader() as connection:
            return set(connection.execute(
                sa.select(column).where(statements.in_list(column)),
                {'these': values}).scalars())

    def test_values_with_special_characters_are_found(self):
        for name in self.NAMES:
            self.assertEqual({name}, self.found(name))
        self.assertEqual(set(self.NAMES), self.found(*self.NAMES, 'none'))

    def test_missing_values_are_not_found(self):
        self.assertEqual(set(), self.found())
        self.assertEqual(set(), self.found(None))
        self.assertEqual(set(), self.found('b', 'a\\', 'None', 'a' * 256))

    def test_numbers_are_found(self):
        ids = self.found(*range(5), column=HOSTS.c.id)

        self.assertEqual({1, 2, 3, 4}, ids)

    def test_condition_may_combine_columns_and_be_negated(self):
        with self.database.reader() as connection:
            found = connection.execute(
                sa.select(KEY).where(
                    ~statements.in_list(KEY),
                    sa.or_(statements.in_list(HOSTS.c.id, 'ids'),
                           statements.in_list(KEY, 'names'))),
                {'these': ['', 'A'], 'ids': [1, 2], 'names': ['A', 'ä']},
            ).scalars().all()

        self.assertEqual(['a', 'ä'], sorted(found))

    def test_lists_of_any_length_use_the_same_statement(self):
        with recording.recorded(self.database) as said:
            for count in range(4):
                self.found(*self.NAMES[:count])

        self.assertEqual(1, len({text for text, _ in said}))


class StatementCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.cell = samples.map_cell(self.database, samples.cell())

    def insert(self, *rows):
        with self.database.writer() as connection:
            return statements.insert_missing(connection, KEY, rows)

    def hosts(self):
        with self.database.reader() as connection:
            return {host: number for host, number in connection.execute(
                sa.select(KEY, HOSTS.c.cell_id))}


class TestInsertMissing(StatementCase):

    def test_missing_rows_are_inserted(self):
        self.assertEqual({'a', 'b'}, self.insert(row('b'), row('a')))
        self.assertEqual({'a': 1, 'b': 1}, self.hosts())

    def test_existing_row_is_unchanged(self):
        other = samples.map_cell(self.database, samples.cell())
        self.insert(row('a'))

        self.assertEqual(
            {'b'}, self.insert(row('a', other.id), row('b', other.id)))

        self.assertEqual({'a': self.cell.id, 'b': other.id}, self.hosts())

    def test_repeated_row_is_inserted_once(self):
        self.assertEqual({'a'}, self.insert(row('a'), row('a')))
        self.assertEqual({'a': 1}, self.hosts())

    def test_no_rows_are_no_statement(self):
        self.assertEqual(set(), statements.insert_missing(None, KEY, []))

    def test_other_errors_are_not_hidden(self):
        for host in row('a', None), row('a', 99):
            self.assertRaises(
                exception.ConstraintViolated, self.insert, host)
        self.assertEqual({}, self.hosts())

    def test_inserted_rows_are_returned_once_in_a_race(self):
        rows = [row(f'host{number}') for number in range(20)]

        told = racing.race(*[lambda: self.insert(*rows)] * 6)

        self.assertEqual(20, sum(map(len, told)))
        self.assertEqual(set(self.hosts()), set().union(*told))


class TestDialects(StatementCase):
    """What other databases are told; SQLite stands for none of them."""

    def sent(self, url, rows, answer=lambda row: None):
        """Return the statements, and what insert_missing makes of them."""
        said = []

        def execute(statement, parameters):
            said.append(str(statement.compile(dialect=engine.dialect)))
            answer(parameters)
            return types.SimpleNamespace(scalars=lambda: ['a'])

        engine = sa.create_mock_engine(url, execute)
        # A connection asks the server's version for it.
        engine.dialect.insert_returning = url.startswith('mariadb')
        return said, statements.insert_missing(engine, KEY, rows)

    def test_postgresql_skips_and_returns_inserted_rows(self):
        said, inserted = self.sent(
            'postgresql+psycopg2://', [row('b'), row('a')])

        self.assertEqual(1, len(said))
        self.assertIn('ON CONFLICT DO NOTHING RETURNING host_mappings.host',
                      said[0])
        self.assertEqual({'a'}, inserted)

    def test_postgresql_gets_all_rows_as_a_single_parameter(self):
        said = []
        engine = sa.create_mock_engine(
            'postgresql+psycopg://',
            lambda *statement: said.append(statement))
        now = datetime.datetime(2026, 1, 2, 3, 4, 5, 6)

        for number in 2, 3:
            statements.insert_all(engine, instances, [
                {'created_at': now, 'display_name': 'é"\\', 'vcpus': None}
            ] * number)

        (text, first), (again, second) = said
        self.assertIs(text, again)
        self.assertIn('("created_at", "display_name", "vcpus", "deleted"',
                      str(text))
        self.assertEqual([
            {'created_at': '2026-01-02 03:04:05.000006',
             'display_name': 'é"\\', 'vcpus': None}] * 2,
            json.loads(first['rows']))
        self.assertEqual(3, len(json.loads(second['rows'])))

    def test_mysql_gets_each_value(self):
        said = str(sa.select(KEY).where(statements.in_list(KEY)).compile(
            dialect=mysql.dialect()))

        self.assertIn('host_mappings.host IN (__[POSTCOMPILE_these])', said)

    def test_planner_of_postgresql_gets_the_values(self):
        said = str(sa.select(KEY).where(statements.in_list(KEY)).compile(
            dialect=psycopg.dialect()))

        self.assertIn('= ANY (CAST(%(these)s AS VARCHAR[]))', said)

    def test_sqlite_looks_each_value_up(self):
        said = str(sa.select(KEY).where(statements.in_list(KEY)).compile(
            dialect=self.database.engine.dialect))

        with self.database.reader() as connection:
            plan = connection.exec_driver_sql(
                f'EXPLAIN QUERY PLAN {said}', ('[]',)).all()

        self.assertIn('SEARCH host_mappings', plan[0].detail)

    def test_mysql_inserts_rows_singly_and_skips_duplicates(self):
        def answer(row):
            if row['host'] == 'b':
                raise db_exc.DBDuplicateEntry(columns=['host'])

        said, inserted = self.sent(
            'mysql+pymysql://', [row('c'), row('b'), row('a')], answer)

        self.assertEqual(3, len(said))
        self.assertTrue(said[0].startswith('INSERT INTO host_mappings'))
        self.assertEqual({'a', 'c'}, inserted)

    def test_mariadb_inserts_many_rows_without_a_duplicate(self):
        said, inserted = self.sent(
            'mariadb+pymysql://', [row('b'), row('a')])

        self.assertEqual(1, len(said))
        self.assertIn('RETURNING host_mappings.host', said[0])
        self.assertEqual({'a'}, inserted)

    def test_mariadb_inserts_rows_singly_after_a_duplicate(self):
        def answer(rows):
            if isinstance(rows, list) or rows['host'] == 'b':
                raise db_exc.DBDuplicateEntry(columns=['host'])

        said, inserted = self.sent(
            'mariadb+pymysql://', [row('b'), row('a')], answer)

        self.assertEqual(3, len(said))
        self.assertEqual({'a'}, inserted)

    def test_mysql_does_not_hide_other_errors(self):
        def answer(row):
            raise db_exc.DBReferenceError('t', 'c', 'k', 'kt')

        self.assertRaises(db_exc.DBReferenceError, self.sent,
                          'mysql+pymysql://', [row('a')], answer)


class TestLock(StatementCase):

    def test_locked_values_are_returned_in_order(self):
        self.insert(row('b'))
        self.insert(row('a'))

        with self.database.writer() as connection:
            self.assertEqual(['a', 'b'], statements.lock(
                connection, KEY, ['b', 'a', 'c']))

    def sent(self, url, function, *arguments):
        said = []

        def execute(statement, parameters):
            said.append(str(statement.compile(dialect=engine.dialect)))
            return types.SimpleNamespace(scalars=lambda: [])

        engine = sa.create_mock_engine(url, execute)
        function(engine, *arguments)
        return said

    def test_rows_are_locked_if_supported(self):
        for url in 'postgresql+psycopg2://', 'mysql+pymysql://':
            said, = self.sent(url, statements.lock, KEY, ['a'])

            self.assertTrue(said.endswith(
                'ORDER BY host_mappings.host FOR UPDATE'), said)

            said, = self.sent(url, statements.lock_free, KEY, ['a'])

            self.assertTrue(said.endswith('FOR UPDATE SKIP LOCKED'), said)

    def test_mysql_reads_by_an_index_on_the_column(self):
        members = models.instance_group_member.c
        for column, index in (
                (KEY, 'uniq_host_mappings0host'),
                (members.instance_uuid, 'instance_group_member_instance_idx'),
                (models.aggregates.c.uuid, 'aggregate_uuid_idx')):
            for url in 'mysql+pymysql://', 'mariadb+pymysql://':
                said, = self.sent(url, statements.lock, column, ['a'])

                self.assertIn(f' FORCE INDEX ({index}) ', said)


class TestDeleteCounted(StatementCase):

    def delete(self, *hosts):
        with self.database.writer() as connection:
            return statements.delete_counted(connection, KEY, hosts)

    def test_existing_rows_are_returned(self):
        self.insert(row('a'), row('b'), row('c'))

        self.assertEqual({'a', 'b'}, self.delete('a', 'x', 'b', 'a'))
        self.assertEqual({'c': 1}, self.hosts())
        self.assertEqual(set(), self.delete('a', 'b'))
        self.assertEqual(set(), self.delete())

    def test_many_are_deleted(self):
        hosts = [f'host{number}' for number in range(statements.CHUNK + 5)]
        self.insert(*map(row, hosts))

        self.assertEqual(set(hosts), self.delete(*hosts))
        self.assertEqual({}, self.hosts())

    def test_deleted_rows_are_returned_once_in_a_race(self):
        hosts = [f'host{number}' for number in range(30)]
        self.insert(*map(row, hosts))

        told = racing.race(
            *[lambda: self.delete(*hosts)] * 3,
            *[lambda: set().union(*map(self.delete, hosts))] * 3)

        self.assertEqual(30, sum(map(len, told)))
        self.assertEqual(set(hosts), set().union(*told))

    def test_mysql_locks_and_deletes_by_the_index(self):
        said = []

        def execute(statement, parameters):
            said.append((str(statement.compile(dialect=engine.dialect)),
                         parameters['these']))
            return types.SimpleNamespace(scalars=lambda: ['a', 'c'])

        for url in 'mysql+pymysql://', 'mariadb+pymysql://':
            said.clear()
            engine = sa.create_mock_engine(url, execute)

            self.assertEqual({'a', 'c'}, statements.delete_counted(
                engine, KEY, ['c', 'a', 'b']))

            locks, deletion = said
            self.assertIn(
                'FORCE INDEX (uniq_host_mappings0host)', locks[0])
            self.assertIn('ORDER BY host_mappings.host FOR UPDATE', locks[0])
            self.assertEqual(['c', 'a', 'b'], locks[1])
            self.assertIn(
                'DELETE host_mappings FROM host_mappings '
                'FORCE INDEX (uniq_host_mappings0host) WHERE', deletion[0])
            self.assertEqual(['a', 'c'], deletion[1])
