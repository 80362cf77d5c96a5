# SPDX-License-Identifier: Apache-2.0
"""Clocks for tests: one that stands still, and one that is wrong."""

import datetime

from cellsched.clock import Clock
from cellsched.testing import clock
from tests.unit import base


class TestFakeClock(base.TestCase):

    def setUp(self):
        super().setUp()
        self.clock = clock.FakeClock(86400.0)

    def test_clock_does_not_advance(self):
        self.assertEqual(self.clock.now(), self.clock.now())
        self.assertEqual(86400.0, self.clock.timestamp())
        self.assertEqual(self.clock.monotonic(), self.clock.monotonic())

    def test_all_times_of_the_clock_advance_equally(self):
        before = self.clock.monotonic()

        self.clock.advance(1.5)

        self.assertEqual(86401.5, self.clock.timestamp())
        self.assertEqual(1.5, self.clock.monotonic() - before)
        self.assertEqual(datetime.datetime(1970, 1, 2, 0, 0, 1, 500000),
                         self.clock.now())

    def test_sleep_returns_at_once_and_advances_the_clock(self):
        self.clock.sleep(3600)

        self.assertEqual(90000.0, self.clock.timestamp())


class TestWrongClock(base.TestCase):

    def test_wall_clock_alone_is_wrong(self):
        right, wrong = Clock(), clock.WrongClock(-600.0)

        self.assertLess(wrong.timestamp(), right.timestamp() - 500)
        self.assertLess(wrong.steady(), right.steady() - 500)
        self.assertLess(wrong.now(), right.now() - datetime.timedelta(
            seconds=500))
        self.assertLess(abs(wrong.monotonic() - right.monotonic()), 500)
