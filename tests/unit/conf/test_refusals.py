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


class TestContradictions(test_loader.LoadingTestCase):

    def test_contradiction_names_both_options(self):
        for text, *expected in (
                ('[scheduler]\nstale_cell_timeout = 60',
                 '[DEFAULT] service_down_time: 60 is too low for [scheduler] '
                 'stale_cell_timeout', 'more than 60'),
                ('[DEFAULT]\nrpc_response_timeout = 2000',
                 '[DEFAULT] long_rpc_timeout', 'rpc_response_timeout'),
                ('[DEFAULT]\nrpc_response_timeout = 0',
                 '[DEFAULT] rpc_response_timeout: 0 is out of range'),
                ('[DEFAULT]\nrpc_response_timeout = -1', 'at least 1'),
                ('[database]\nlock_timeout = 3', '[database] lock_timeout',
                 '[database] idle_transaction_timeout, which is 4'),
                ('[api_database]\nidle_transaction_timeout = 9',
                 '[api_database] lock_timeout: 5 is too low'),
                ('[scheduler]\nplacement_aggregate_required_for_tenants = 1',
                 'it has no effect without [scheduler] limit_tenants')):
            refusal = self.refused(f'{text}\n')
            for each in expected:
                self.assertIn(each, refusal)

    def test_disabled_limit_contradicts_no_option(self):
        conf = self.load('[database]\nlock_timeout = 0\n'
                         '[api_database]\nlock_timeout = 3\n'
                         'idle_transaction_timeout = 0\n')

        self.assertEqual((0, 3), (
            conf.database.lock_timeout, conf.api_database.lock_timeout))

    def test_default_follows_its_limiting_option(self):
        conf = self.load('[DEFAULT]\nservice_down_time = 24\n')

        self.assertEqual(12, conf.scheduler.stale_cell_timeout)
