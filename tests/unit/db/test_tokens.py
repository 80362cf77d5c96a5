# SPDX-License-Identifier: Apache-2.0
"""Tokens by which databases are compared."""

import sqlalchemy as sa

from cellsched import clock
from cellsched.db import session
from cellsched.db import tokens
from tests.unit import base


class TestTokens(base.TestCase):

    def setUp(self):
        super().setUp()
        engine = sa.create_engine('sqlite://')
        self.addCleanup(engine.dispose)
        self.connection = self.enterContext(engine.connect())

    def test_database_without_the_table_has_no_token(self):
        self.assertFalse(tokens.is_ready(self.connection))
        self.assertFalse(tokens.exists(self.connection, 'one'))

    def test_token_exists_until_its_removal(self):
        tokens.create(self.connection)
        tokens.write(self.connection, 'one', 100.0)

        self.assertTrue(tokens.exists(self.connection, 'one'))
        self.assertFalse(tokens.exists(self.connection, 'two'))
        tokens.delete(self.connection, 'one')
        self.assertFalse(tokens.exists(self.connection, 'one'))

    def test_next_token_deletes_expired_tokens(self):
        tokens.create(self.connection)
        tokens.write(self.connection, 'killed', 100.0)
        tokens.write(self.connection, 'recent', 3000.0)

        tokens.write(self.connection, 'new', 4000.0)

        self.assertEqual([False, True, True], [
            tokens.exists(self.connection, token)
            for token in ('killed', 'recent', 'new')])


class TestSameDatabase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.path = self.temporary_directory() / 'one.sqlite'
        self.path.touch()
        self.database = self.open(f'sqlite:///{self.path}')

    def open(self, url):
        return session.Database(url, 'cell', clock=clock.Clock())

    def test_file_has_several_names(self):
        link = self.path.with_name('link.db')
        link.hardlink_to(self.path)

        self.assertTrue(tokens.is_same_database(
            self.database, self.open(f'sqlite:///{link}')))
        self.assertFalse(tokens.is_same_database(
            self.database, self.open(f'sqlite:///{self.path}.other')))

    def test_databases_in_memory_differ(self):
        one, other = self.open('sqlite://'), self.open('sqlite://')

        self.assertTrue(tokens.is_same_database(one, one))
        self.assertFalse(tokens.is_same_database(one, other))

    def test_databases_of_two_kinds_differ_without_a_connection(self):
        self.assertFalse(tokens.is_same_database(
            self.database, self.open('postgresql+psycopg://nowhere/one')))
