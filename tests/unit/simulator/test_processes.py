# SPDX-License-Identifier: Apache-2.0
"""Locks, events and semaphores of a simulation."""

from cellsched.simulator import processes
from tests.unit import base


class LockTestCase(base.TestCase):

    def setUp(self):
        super().setUp()
        #: What others do while somebody waits, and for how long one would.
        self.meanwhile = lambda: None
        self.patiences = []

    def wait(self, awaited, patience_s):
        self.patiences.append(patience_s)
        self.meanwhile()
        return awaited()


class TestLock(LockTestCase):

    def setUp(self):
        super().setUp()
        self.lock = processes.SimulatedLock(self.wait)

    def test_free_lock_is_taken_without_waiting(self):
        with self.lock:
            self.assertTrue(self.lock.locked())
        self.assertFalse(self.lock.locked())
        self.assertEqual([], self.patiences)

    def test_held_lock_is_waited_for_until_it_is_released(self):
        self.lock.acquire()
        self.meanwhile = self.lock.release

        self.assertTrue(self.lock.acquire())

        self.assertTrue(self.lock.locked())
        self.assertEqual([None], self.patiences)

    def test_nonblocking_acquire_does_not_wait_for_a_held_lock(self):
        self.lock.acquire()

        self.assertFalse(self.lock.acquire(blocking=False))

        self.assertEqual([], self.patiences)

    def test_lock_that_stays_held_is_not_acquired_in_time(self):
        self.lock.acquire()

        self.assertFalse(self.lock.acquire(timeout=2.0))

        self.assertEqual([2.0], self.patiences)

    def test_free_lock_cannot_be_released(self):
        self.assertRaises(ValueError, self.lock.release)


class TestSemaphore(LockTestCase):

    def test_as_many_hold_it_as_it_has_places(self):
        semaphore = processes.SimulatedSemaphore(self.wait, 2)

        self.assertEqual([True, True, False], [
            semaphore.acquire(blocking=False) for _ in range(3)])

    def test_released_place_goes_to_a_waiter(self):
        semaphore = processes.SimulatedSemaphore(self.wait, 1)
        self.meanwhile = semaphore.release
        with semaphore:
            self.assertTrue(semaphore.acquire())

    def test_it_is_not_released_more_often_than_acquired(self):
        semaphore = processes.SimulatedSemaphore(self.wait, 2)
        semaphore.acquire()
        semaphore.release()

        self.assertRaises(ValueError, semaphore.release)


class TestEvent(LockTestCase):

    def setUp(self):
        super().setUp()
        self.event = processes.SimulatedEvent(self.wait)

    def test_event_that_is_set_is_not_waited_for(self):
        self.event.set()

        self.assertTrue(self.event.wait())

        self.assertEqual([], self.patiences)

    def test_wait_ends_when_the_event_is_set(self):
        self.meanwhile = self.event.set

        self.assertTrue(self.event.wait())

    def test_wait_for_an_unset_event_returns_false(self):
        self.assertFalse(self.event.wait(3.0))

        self.assertEqual([3.0], self.patiences)

    def test_event_can_be_cleared(self):
        self.event.set()
        self.event.clear()

        self.assertFalse(self.event.is_set())
