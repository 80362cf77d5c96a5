# SPDX-License-Identifier: Apache-2.0
"""The process of a compute agent."""

import signal

from tests.unit.cmd import processes
from tests.unit.cmd import services


class TestCompute(services.ServiceTestCase):

    def test_agent_runs_until_a_signal(self):
        service = self.start('compute', cell=True)
        service.until('has started as host1')

        self.assertEqual(0, service.stop(), service.output)
        self.assertNotIn('Traceback', service.output)

    def test_missing_driver_is_refused_in_a_single_line(self):
        code, error = self.run_to_end(
            'compute', cell=True, DEFAULT={'compute_driver': 'nobody'})

        self.assertEqual(
            (1, 'compute: No plug-in nobody in cellsched.virt, which '
                '[DEFAULT] compute_driver names; expected one of fake.\n'),
            (code, error))

    def test_second_agent_with_the_same_name_ends_in_a_single_line(self):
        options = {'cell': True, 'DEFAULT': {'report_interval': 1}}
        first = self.start('compute', **options)
        first.until('has started as host1')

        ended = processes.run(
            'compute', '--config-file', str(self.configure(**options)))

        said = ended.stdout + ended.stderr
        self.assertEqual(1, ended.returncode, said)
        [line] = [each for each in said.splitlines() if 'ERROR' in each]
        self.assertIn("The host name 'host1' is in use by another agent of "
                      'this cell already; host names are unique.', line)
        self.assertNotIn('Traceback', said)
        first.until('it has to end')
        self.assertEqual(1, first.output.count('it has to end'))

        # It starts at once when the first one is gone, however that went.
        first.signal(signal.SIGKILL)
        first.popen.wait(600)
        again = self.start('compute', **options)
        again.until('has started as host1')
        self.assertEqual(0, again.stop(), again.output)
