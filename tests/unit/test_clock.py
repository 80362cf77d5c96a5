# SPDX-License-Identifier: Apache-2.0
"""Time, read in one place."""

import datetime

from cellsched import clock
from tests.unit import base


class TestClock(base.TestCase):

    def setUp(self):
        super().setUp()
        self.clock = clock.Clock()

    def test_now_is_utc_without_a_zone(self):
        before = self.clock.timestamp()
        now = self.clock.now()
        after = self.clock.timestamp()

        self.assertIsNone(now.tzinfo)
        seconds = now.replace(tzinfo=datetime.UTC).timestamp()
        # Microseconds are all that a datetime has.
        self.assertLessEqual(before - 1e-6, seconds)
        self.assertLessEqual(seconds, after)

    def test_monotonic_time_does_not_run_backwards(self):
        times = [self.clock.monotonic() for _ in range(100)]

        self.assertEqual(sorted(times), times)

    def test_sleep_blocks_for_as_long_at_least(self):
        before = self.clock.monotonic()

        self.clock.sleep(0.001)

        self.assertGreaterEqual(self.clock.monotonic() - before, 0.001)
