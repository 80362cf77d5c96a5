# SPDX-License-Identifier: Apache-2.0
"""Engines for MariaDB and MySQL, and the collation of tables."""

import sqlalchemy as sa

from cellsched.db import mysql
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

    def test_other_databases_are_left_alone(self):
        for url in 'sqlite:///file', 'postgresql+psycopg://host/database':
            self.assertEqual({}, self.arguments(url))


class TestSetCollation(base.TestCase):

    def test_other_databases_are_left_alone(self):
        engine = sa.create_engine('sqlite://')
        self.addCleanup(engine.dispose)
        METADATA.create_all(engine)
        said = []
        sa.event.listen(engine, 'before_cursor_execute',
                        lambda *args: said.append(args))

        with engine.connect() as connection:
            mysql.set_collation(connection, ['things'])

        self.assertEqual([], said)
