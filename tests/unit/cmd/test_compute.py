# SPDX-License-Identifier: Apache-2.0
"""The process of a compute agent."""

from tests.unit.cmd import services


class TestCompute(services.ServiceTestCase):

    def test_it_runs_until_it_is_told_to_stop(self):
        service = self.start('compute', cell=True)
        service.until('has started as host1')

        self.assertEqual(0, service.stop(), service.output)
        self.assertNotIn('Traceback', service.output)

    def test_driver_that_is_not_there_is_one_line(self):
        code, error = self.run_to_end(
            'compute', cell=True, DEFAULT={'compute_driver': 'nobody'})

        self.assertEqual(
            (1, 'compute: No plug-in nobody in cellsched.virt, which '
                '[DEFAULT] compute_driver names; there are: fake.\n'),
            (code, error))
