# SPDX-License-Identifier: Apache-2.0
"""Retries of requests to a server."""

import random

from cellsched.claims import remote
from cellsched.testing import clock
from tests.unit import base


class TestAttempts(base.TestCase):

    def setUp(self):
        super().setUp()
        self.clock = clock.FakeClock()

    def times(self, seed, patience_s):
        begin = self.clock.monotonic()
        return [
            (number, self.clock.monotonic() - begin)
            for number in remote.attempts(
                self.clock, random.Random(seed), patience_s)]

    def test_zero_timeout_allows_a_single_attempt(self):
        self.assertEqual([(0, 0.0)], self.times(1, 0))

    def test_last_attempt_is_at_the_timeout(self):
        times = self.times(1, 3.0)

        self.assertEqual([*range(len(times))],
                         [number for number, _ in times])
        self.assertAlmostEqual(3.0, times[-1][1])
        self.assertLess(times[-2][1], 3.0)

    def test_pauses_grow_to_a_bound(self):
        times = [at for _, at in self.times(7, 60.0)]
        pauses = [later - at for at, later in zip(times, times[1:])]

        for number, pause in enumerate(pauses):
            self.assertLessEqual(pause, min(
                remote.FIRST_S * 2 ** number, remote.MOST_S) + 1e-9)
        self.assertGreater(max(pauses), remote.MOST_S / 2)

    def test_pauses_of_callers_differ(self):
        self.assertNotEqual(self.times(1, 1.0), self.times(2, 1.0))


class TestRelease(base.TestCase):

    def test_first_two_numbers_of_a_version_tell_releases_apart(self):
        for version, numbers in (
                ('3.5.16', (3, 5)), ('5.0-beta1', (5, 0)), ('4-rc.2', (4,)),
                ('3.10.0+git', (3, 10)), ('not decided', ()), ('', ())):
            self.assertEqual(numbers, remote.release(version))
