# SPDX-License-Identifier: Apache-2.0
from oslo_db import options

from cellsched.conf import database
from cellsched.conf import refusals
from cellsched.db import session
from tests.unit.conf import test_loader


class TestRefusals(test_loader.LoadingTestCase):

    def test_error_names_all_options_and_reasons(self):
        refusal = self.refused(
            '[api_database]\nuse_db_reconnect = true\n'
            '[database]\nslave_connection = mysql://u:s3cret@host/db\n')

        for expected in (
                'a.conf: [api_database] use_db_reconnect;',
                'a.conf: [database] slave_connection: they have no effect',
                'all reads use [database] connection'):
            self.assertIn(expected, refusal)
        self.assertNotIn('s3cret', refusal)

    def test_single_option_is_refused_by_name(self):
        for group, name in refusals.REASONS:
            self.assertIn(f'a.conf: [{group}] {name}: it has no effect',
                          self.refused(f'[{group}]\n{name} = 1\n'))

    def test_each_option_of_oslo_db_is_used_or_refused(self):
        used = {option.dest for option in database.OPTS} - {'connection'}

        # This fails for an option that no engine gets.
        self.assertEqual(used, {*session.ENGINE_OPTIONS})
        self.assertLessEqual(
            {option.dest for option in options.database_opts} - used
            - {'connection'},
            {name for group, name in refusals.REASONS
             if group == 'database'})
