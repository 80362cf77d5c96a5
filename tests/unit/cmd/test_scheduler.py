# SPDX-License-Identifier: Apache-2.0
"""The process of a scheduler."""

from tests.unit.cmd import services


class TestScheduler(services.ServiceTestCase):

    def test_it_runs_until_a_signal_stops_it(self):
        service = self.start('scheduler', api=True, scheduler={'workers': 1})
        service.until('has started as host1')

        self.assertEqual(0, service.stop(), service.output)
        self.assertNotIn('Traceback', service.output)

    def test_driver_that_is_not_there_is_one_line(self):
        code, error = self.run_to_end(
            'scheduler', api=True, scheduler={'driver': 'nobody'})

        self.assertEqual(1, code)
        self.assertEqual(
            'scheduler: No plug-in nobody in cellsched.scheduler.drivers, '
            'which [scheduler] driver names; there are: chance_scheduler, '
            'filter_scheduler, provider_scheduler.\n', error)
