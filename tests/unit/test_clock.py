# SPDX-License-Identifier: Apache-2.0
"""Time and waiting, in one place."""

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

    def test_held_lock_is_not_acquired(self):
        lock = self.clock.lock()
        with lock:
            self.assertTrue(lock.locked())
            self.assertFalse(lock.acquire(blocking=False))
        self.assertFalse(lock.locked())

    def test_event_is_not_set_at_first(self):
        event = self.clock.event()

        self.assertFalse(event.is_set())
        event.set()
        self.assertTrue(event.wait())

    def test_semaphore_is_acquired_up_to_its_value(self):
        semaphore = self.clock.semaphore(2)

        self.assertEqual([True, True, False], [
            semaphore.acquire(blocking=False) for _ in range(3)])

    def test_semaphore_is_not_released_more_often_than_acquired(self):
        self.assertRaises(ValueError, self.clock.semaphore(1).release)


class Ticks:
    """A clock that a test moves."""

    now = 100.0

    def monotonic(self):
        return self.now


class TestDeadline(base.TestCase):

    def test_waits_share_the_remaining_time(self):
        ticks = Ticks()
        deadline = clock.Deadline(ticks, 5.0)
        ticks.now += 3.0

        self.assertEqual(2.0, deadline.remaining_s())
        self.assertEqual(1.0, deadline.remaining_s(1.0))
        self.assertEqual(-2.0, deadline.late_s)

    def test_no_time_remains_after_the_deadline(self):
        ticks = Ticks()
        deadline = clock.Deadline(ticks, 5.0)
        ticks.now += 6.0

        self.assertEqual(0.0, deadline.remaining_s(1.0))
        self.assertEqual(1.0, deadline.late_s)

    def test_request_without_a_deadline_has_the_limit_of_each_wait(self):
        self.assertEqual(7.0, clock.Deadline(Ticks()).remaining_s(7.0))
