# SPDX-License-Identifier: Apache-2.0
"""What psycopg2 and psycopg 3 are told."""

import sqlalchemy as sa

from cellsched import clock
from cellsched.db import postgresql
from cellsched.db import session
from cellsched import exception
from tests.unit import base

PASSWORD = 's%40cret'


class TestConnectArguments(base.TestCase):

    def arguments(self, query, driver='+psycopg'):
        """Return the rest of a URL's query, and the arguments."""
        url, arguments = postgresql.connect_arguments(sa.make_url(
            f'postgresql{driver}://me:{PASSWORD}@there/api?{query}'))
        self.assertEqual('s@cret', url.password)
        return dict(url.query), arguments

    def test_threshold_is_a_number_or_null_for_psycopg(self):
        for text, threshold in (
                ('0', 0), ('7', 7), ('none', None), ('None', None)):
            self.assertEqual(
                ({'sslmode': 'require'}, {'prepare_threshold': threshold}),
                self.arguments(f'prepare_threshold={text}&sslmode=require'))

    def test_last_threshold_wins(self):
        self.assertEqual(({}, {'prepare_threshold': None}), self.arguments(
            'prepare_threshold=3&prepare_threshold=none'))

    def test_urls_without_a_threshold_are_unchanged(self):
        self.assertEqual(
            ({'sslmode': 'require'}, {'prepare_threshold': 5}),
            self.arguments('sslmode=require'))
        self.assertEqual(
            ({'prepare_threshold': '3'}, {}),
            self.arguments('prepare_threshold=3', driver='+psycopg2'))

    def test_other_thresholds_are_an_error_without_the_password(self):
        for text in ('-1', '1.5', 'never', '\u0663', '9' * 1000):
            error = self.assertRaises(
                exception.ConfigurationInvalid, self.arguments,
                f'prepare_threshold={text}&x=y')

            self.assertEqual('prepare_threshold', error.field)
            self.assertNotIn('cret', str(error))
            self.assertLess(len(str(error)), 200)

    def test_threshold_may_be_a_connection_parameter(self):
        for text in 'none', 'never':
            database = session.Database(
                'postgresql+psycopg://me@127.0.0.1:1/api', 'API', {
                    'max_retries': 0,
                    'connection_parameters': f'prepare_threshold={text}'},
                clock=clock.Clock())
            self.addCleanup(database.close)

            if text == 'none':
                # What reaches the server are parameters that it knows.
                self.assertNotIn(
                    'prepare_threshold', database.engine.url.query)
            else:
                self.assertRaises(exception.ConfigurationInvalid,
                                  lambda: database.engine)
