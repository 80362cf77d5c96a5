# SPDX-License-Identifier: Apache-2.0
"""Engines for MariaDB and MySQL, and the definition of tables."""

import pymysql
import sqlalchemy as sa

from cellsched.db import mysql
from cellsched import exception
from tests.unit import base

METADATA = sa.MetaData()
THINGS = sa.Table('things', METADATA, sa.Column('name', sa.String(9)))


class TestEngineArguments(base.TestCase):

    def arguments(self, url):
        return mysql.engine_arguments(sa.make_url(url))

    def test_transactions_see_concurrent_commits(self):
        for dialect in 'mysql', 'mariadb':
            arguments = self.arguments(f'{dialect}+pymysql://host/database')

            self.assertEqual('READ COMMITTED', arguments['isolation_level'])
            self.assertEqual(
                {'charset': 'utf8mb4'}, arguments['connect_args'])

    def test_character_set_of_a_url_stays(self):
        self.assertNotIn('connect_args', self.arguments(
            'mysql+pymysql://host/database?charset=utf8mb3'))

    def test_urls_of_other_databases_have_no_arguments(self):
        for url in 'sqlite:///file', 'postgresql+psycopg://host/database':
            self.assertEqual({}, self.arguments(url))


class TestCreateTables(base.TestCase):

    def statements(self, url, is_mariadb=False):
        """Return the statements that create the tables in a database."""
        made = []
        engine = sa.create_mock_engine(
            url, lambda each, *args: made.append(str(each.compile(
                dialect=engine.dialect)).strip()))
        engine.dialect.is_mariadb = is_mariadb
        mysql.create_tables(engine, METADATA.sorted_tables)
        return made

    def test_text_is_compared_by_code_points(self):
        for url, is_mariadb, collation in (
                ('mysql+pymysql://', False, 'utf8mb4_0900_bin'),
                ('mysql+pymysql://', True, 'utf8mb4_nopad_bin'),
                ('mariadb+pymysql://', True, 'utf8mb4_nopad_bin')):
            [statement] = self.statements(url, is_mariadb)

            self.assertIn('ENGINE=InnoDB', statement)
            self.assertTrue(statement.endswith(
                f'CHARSET=utf8mb4 COLLATE {collation}'), statement)

    def test_tables_of_other_databases_have_no_options(self):
        [statement] = self.statements('sqlite://')

        self.assertTrue(statement.endswith(')'), statement)


class TestVariables(base.TestCase):

    def setUp(self):
        super().setUp()
        self.engine = sa.create_engine('mysql+pymysql://server/database')

    def raise_(self, code, text):
        with mysql.known_variables(self.engine):
            raise pymysql.err.OperationalError(code, text)

    def test_error_for_an_unknown_server_variable_names_the_option(self):
        error = self.assertRaises(
            exception.ConfigurationInvalid, self.raise_, 1193,
            "Unknown system variable 'wsrep_sync_wait'")

        self.assertEqual('mysql_wsrep_sync_wait', error.field)
        self.assertIn('server has no variable wsrep_sync_wait', str(error))

    def test_other_errors_pass(self):
        for code, text in ((1193, "Unknown system variable 'other'"),
                           (1227, 'Access denied for wsrep_sync_wait')):
            self.assertRaises(
                pymysql.err.OperationalError, self.raise_, code, text)
