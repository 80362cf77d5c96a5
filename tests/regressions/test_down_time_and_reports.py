# SPDX-License-Identifier: Apache-2.0
"""Services that run do not count as down between two of their reports.

A host that counts as down can be evacuated: its servers would run twice, and
the host would delete their disks.
"""

from tests.unit.conf import test_loader


class TestDownTime(test_loader.LoadingTestCase):

    def test_down_time_below_two_reports_is_refused(self):
        for report_s, down_s in (
                (40, 15), (60, 60), (40, 79), (12, 4), (31, None)):
            down = f'service_down_time = {down_s}\n' if down_s else ''
            self.assertIn(
                f'expected at least {2 * report_s}', self.refused(
                    f'[DEFAULT]\nreport_interval = {report_s}\n{down}'))

    def test_down_time_of_two_reports_is_accepted(self):
        conf = self.load(
            '[DEFAULT]\nreport_interval = 40\nservice_down_time = 80\n')

        self.assertEqual(80, conf.service_down_time)
