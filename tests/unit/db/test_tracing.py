# SPDX-License-Identifier: Apache-2.0
import sqlalchemy as sa

from cellsched.db import tracing
from tests.unit import base


class TestListen(base.TestCase):

    def setUp(self):
        super().setUp()
        self.engine = sa.create_engine('sqlite://')
        self.addCleanup(self.engine.dispose)
        tracing.listen(self.engine)
        self.statements = []
        sa.event.listen(
            self.engine, 'before_cursor_execute',
            lambda connection, cursor, text, *others:
            self.statements.append(text))

    def test_comment_names_the_innermost_calls_outside_of_the_library(self):
        with self.engine.connect() as connection:
            self.assertEqual(7, connection.execute(
                sa.text('SELECT :value'), {'value': 7}).scalar())

        statement, = self.statements
        statement, _, comment = statement.partition('  -- ')
        self.assertEqual('SELECT ?', statement)
        calls = comment.split('; ')
        self.assertEqual(3, len(calls))
        self.assertIn(
            f'{__name__}.test_comment_names_the_innermost_calls', calls[0])
        self.assertNotIn('sqlalchemy', comment)
