# SPDX-License-Identifier: Apache-2.0
"""Tests of pauses, and of who makes them."""

from cellsched.scheduler import pauses
from cellsched.testing import clock as fake_clock
from tests.unit import base


class Clock(fake_clock.FakeClock):
    """A clock by which each look at it takes a while."""

    def __init__(self, look_s):
        super().__init__()
        self.look_s = look_s
        self.slept = []

    def monotonic(self):
        self.advance(self.look_s)
        return super().monotonic()

    def sleep(self, seconds):
        self.slept.append(seconds)
        super().sleep(seconds)


class TestPauses(base.TestCase):

    def test_no_pause_is_made_before_one_is_due(self):
        clock = Clock(0)
        made = pauses.Pauses(clock)
        for _ in range(10):
            made.pause()
        self.assertEqual([], clock.slept)

    def test_pause_is_made_when_work_took_long_enough(self):
        clock = Clock(0)
        made = pauses.Pauses(clock)
        clock.advance(pauses.WORK_S)
        made.pause()
        made.pause()
        self.assertEqual([pauses.PAUSE_S], clock.slept)

    def test_each_stretch_of_work_ends_with_one(self):
        clock = Clock(pauses.WORK_S)
        made = pauses.Pauses(clock)
        for _ in range(3):
            made.pause()
        self.assertEqual([pauses.PAUSE_S] * 3, clock.slept)
