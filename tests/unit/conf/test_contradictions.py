# SPDX-License-Identifier: Apache-2.0
from tests.unit.conf import test_loader


class TestContradictions(test_loader.LoadingTestCase):

    def test_contradiction_names_both_options(self):
        for text, *expected in (
                ('[scheduler]\nstale_cell_timeout = 60',
                 '[DEFAULT] service_down_time: 60 is too low for [scheduler] '
                 'stale_cell_timeout', 'more than 60'),
                ('[DEFAULT]\nrpc_response_timeout = 2000',
                 '[DEFAULT] long_rpc_timeout', 'rpc_response_timeout'),
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
