# SPDX-License-Identifier: Apache-2.0
"""Tokens by which databases are compared."""

import sqlalchemy as sa

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
