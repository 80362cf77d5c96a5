# SPDX-License-Identifier: Apache-2.0
"""Reports that a process writes at a signal."""

import signal
import time

from tests.unit.cmd import processes
from tests.unit.cmd import services


class TestReports(services.ServiceTestCase):

    def written(self, directory):
        """Return the path of the report, once it is complete."""
        deadline = time.monotonic() + processes.TIMEOUT_S
        while True:
            for path in directory.iterdir():
                if 'keys_in_use' in path.read_text():
                    return path
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)

    def test_report_of_a_conductor_has_its_state_and_no_password(self):
        directory = self.temporary_directory()
        service = self.start(
            'conductor', api=True, cell=True, conductor={'workers': 1},
            DEFAULT={'host': 'host1',
                     'transport_url': 'local://user:hunter2@x/y'},
            oslo_reports={'log_dir': directory})
        service.until('has started as host1')

        service.signal(signal.SIGUSR2)
        path = self.written(directory)
        report = path.read_text()
        self.assertTrue(path.name.startswith('service_gurumeditation_'))
        self.assertIn('"topic": "conductor"', report)
        self.assertIn('max_concurrent_builds', report)
        self.assertIn('Thread #', report)
        self.assertNotIn('hunter2', report)
        self.assertEqual(0, service.stop(), service.output)
