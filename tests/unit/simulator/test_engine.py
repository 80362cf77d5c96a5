# SPDX-License-Identifier: Apache-2.0
"""Simulated time, processes and locks."""

from cellsched.simulator import engine
from tests.unit import base


class EngineTestCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.engine = engine.Engine()
        self.clock = engine.SimulatedClock(self.engine)
        self.seen = []

    def note(self, what):
        self.seen.append((what, self.engine.now))

    def spawn(self, *functions):
        return [self.engine.spawn(each) for each in functions]


class TestEngine(EngineTestCase):

    def test_events_happen_in_the_order_of_time_and_of_scheduling(self):
        for at, name in ((2, 'c'), (1, 'a'), (1, 'b'), (4, 'd')):
            self.engine.call_at(at, self.note, name)

        self.engine.run(3)

        self.assertEqual([('a', 1), ('b', 1), ('c', 2)], self.seen)
        self.assertEqual(3, self.engine.now)

    def test_sleeping_processes_take_turns(self):
        def sleeper(name, seconds):
            for _ in range(2):
                self.clock.sleep(seconds)
                self.note(name)

        self.engine.spawn(sleeper, 'a', 2)
        self.engine.spawn(sleeper, 'b', 3)
        self.engine.run(10)

        self.assertEqual(
            [('a', 2), ('b', 3), ('a', 4), ('b', 6)], self.seen)

    def test_error_of_a_process_ends_the_run(self):
        def fail():
            self.clock.sleep(1)
            raise ValueError('broken')

        self.engine.spawn(fail)

        self.assertRaises(ValueError, self.engine.run, 10)

    def test_killed_process_ends_at_its_wait(self):
        def sleeper():
            try:
                self.clock.sleep(5)
                self.note('awake')
            finally:
                self.note('end')

        began, never_began = self.spawn(sleeper, sleeper)
        self.engine.kill(never_began)
        self.engine.call_at(2, self.engine.kill, began)
        self.engine.run(10)

        self.assertEqual([('end', 2)], self.seen)


class TestClock(EngineTestCase):

    def test_clock_shows_simulated_time(self):
        self.engine.run(60)

        self.assertEqual(60, self.clock.monotonic())
        self.assertEqual(engine.EPOCH + 60, self.clock.timestamp())
        self.assertEqual(
            engine.EPOCH + 60, self.clock.now().replace(
                tzinfo=engine.datetime.UTC).timestamp())

    def test_lock_is_handed_over_in_turn(self):
        lock = self.clock.lock()

        def user(name):
            with lock:
                self.clock.sleep(1)
                self.note(name)

        for name in 'abc':
            self.engine.spawn(user, name)
        self.engine.run(10)

        self.assertEqual([('a', 1), ('b', 2), ('c', 3)], self.seen)
        self.assertFalse(lock.locked())

    def test_wait_for_a_lock_ends_in_time(self):
        lock = self.clock.lock()
        lock.acquire()

        def user():
            self.note(lock.acquire(timeout=2))
            self.note(lock.acquire(blocking=False))
            self.note(lock.acquire())

        self.spawn(user)
        self.engine.call_at(5, lock.release)
        self.engine.run(10)

        self.assertEqual([(False, 2), (False, 2), (True, 5)], self.seen)

    def test_lock_is_not_lost_with_a_killed_process(self):
        lock = self.clock.lock()
        lock.acquire()

        def user():
            with lock:
                self.note('held')

        first, _ = self.spawn(user, user)

        def release():
            lock.release()
            self.engine.kill(first)

        self.engine.call_at(1, release)
        self.engine.run(10)

        self.assertEqual([('held', 1)], self.seen)
        self.assertFalse(lock.locked())

    def test_event_wakes_all_waiting_processes(self):
        event = self.clock.event()

        def waiter():
            self.note(event.wait(2))
            self.note(event.wait())

        self.spawn(waiter, waiter)
        self.engine.call_at(3, event.set)
        self.engine.run(10)

        self.assertEqual(
            [(False, 2)] * 2 + [(True, 3)] * 2, self.seen)
        event.clear()
        self.assertFalse(event.is_set())

    def test_semaphore_admits_a_number(self):
        semaphore = self.clock.semaphore(2)

        def user():
            with semaphore:
                self.clock.sleep(1)
                self.note('done')

        self.spawn(user, user, user)
        self.engine.run(10)

        self.assertEqual([('done', 1), ('done', 1), ('done', 2)], self.seen)


class TestMachine(EngineTestCase):

    def test_cpus_serve_in_turn(self):
        cpus = engine.Processors(self.engine, 2)

        def worker():
            cpus.use(1)
            self.note('done')

        self.spawn(worker, worker, worker)
        self.engine.run(10)

        self.assertEqual([('done', 1), ('done', 1), ('done', 2)], self.seen)
        self.assertEqual(3, cpus.busy_s)

    def test_interpreter_uses_a_single_cpu_at_a_time(self):
        cpus = engine.Processors(self.engine, 2)
        interpreter = engine.Processors(self.engine, 1)

        def worker():
            cpus.use(1, interpreter)
            self.note('done')

        self.spawn(worker, worker)
        self.engine.run(10)

        self.assertEqual([('done', 1), ('done', 2)], self.seen)

    def test_flush_serves_the_writers_waiting_at_its_start(self):
        disk = engine.Disk(self.engine, 1.0)

        def writer(at):
            self.clock.sleep(at)
            disk.flush()
            self.note(at)

        for at in (0, 0.5, 0.7, 4):
            self.engine.spawn(writer, at)
        self.engine.run(10)

        self.assertEqual([(0, 1), (0.5, 2), (0.7, 2), (4, 5)], self.seen)


class PollingTestCase(engine.PolledTimeline, base.TestCase):

    def setUp(self):
        super().setUp()
        #: Runs while a process waits, whose timeouts are recorded.
        self.meanwhile = lambda: None
        self.timeouts = []

    def wait(self, awaited, timeout=None):
        self.timeouts.append(timeout)
        self.meanwhile()
        return awaited()


class TestPollingLock(PollingTestCase):

    def setUp(self):
        super().setUp()
        self.lock = engine.SimulatedSemaphore(self)

    def test_free_lock_is_taken_without_waiting(self):
        with self.lock:
            self.assertTrue(self.lock.locked())
        self.assertFalse(self.lock.locked())
        self.assertEqual([], self.timeouts)

    def test_held_lock_is_awaited_until_its_release(self):
        self.lock.acquire()
        self.meanwhile = self.lock.release

        self.assertTrue(self.lock.acquire())

        self.assertTrue(self.lock.locked())
        self.assertEqual([None], self.timeouts)

    def test_nonblocking_acquire_does_not_wait_for_a_held_lock(self):
        self.lock.acquire()

        self.assertFalse(self.lock.acquire(blocking=False))

        self.assertEqual([], self.timeouts)

    def test_lock_held_beyond_the_timeout_is_not_acquired(self):
        self.lock.acquire()

        self.assertFalse(self.lock.acquire(timeout=2.0))

        self.assertEqual([2.0], self.timeouts)

    def test_free_lock_cannot_be_released(self):
        self.assertRaises(ValueError, self.lock.release)


class TestPollingSemaphore(PollingTestCase):

    def test_semaphore_has_a_number_of_places(self):
        semaphore = engine.SimulatedSemaphore(self, 2)

        self.assertEqual([True, True, False], [
            semaphore.acquire(blocking=False) for _ in range(3)])

    def test_released_place_goes_to_a_waiter(self):
        semaphore = engine.SimulatedSemaphore(self, 1)
        self.meanwhile = semaphore.release
        with semaphore:
            self.assertTrue(semaphore.acquire())

    def test_release_without_an_acquire_is_an_error(self):
        semaphore = engine.SimulatedSemaphore(self, 2)
        semaphore.acquire()
        semaphore.release()

        self.assertRaises(ValueError, semaphore.release)


class TestPollingEvent(PollingTestCase):

    def setUp(self):
        super().setUp()
        self.event = engine.SimulatedEvent(self)

    def test_set_event_needs_no_wait(self):
        self.event.set()

        self.assertTrue(self.event.wait())

        self.assertEqual([], self.timeouts)

    def test_wait_ends_when_the_event_is_set(self):
        self.meanwhile = self.event.set

        self.assertTrue(self.event.wait())

    def test_wait_for_an_unset_event_returns_false(self):
        self.assertFalse(self.event.wait(3.0))

        self.assertEqual([3.0], self.timeouts)

    def test_event_can_be_cleared(self):
        self.event.set()
        self.event.clear()

        self.assertFalse(self.event.is_set())
