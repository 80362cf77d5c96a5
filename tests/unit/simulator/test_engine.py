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

    def test_free_lock_cannot_be_released(self):
        self.assertRaises(ValueError, self.clock.lock().release)

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


class TestInterleaver(base.TestCase):

    def setUp(self):
        super().setUp()
        self.order = engine.Interleaver(self.decide)
        self.clock = engine.SimulatedClock(self.order)
        self.processes = []
        self.seen = []

    def decide(self, current):
        """Run the process that was started last of those that can run."""
        remaining = [each for each in reversed(self.processes)
                     if not each.is_over]
        if not remaining:
            return None
        found = min(remaining, key=lambda each: each.ready_at)
        self.order.now = max(self.order.now, found.ready_at)
        return found

    def note(self, what):
        self.seen.append((what, self.order.now))

    def run_all(self, *functions):
        self.processes = [engine.Process(each, f'p{number}')
                          for number, each in enumerate(functions)]
        self.order.interleave()

    def test_process_of_the_decision_runs(self):
        def user(name):
            self.note(name)
            self.order.pause()
            self.note(name)

        self.run_all(lambda: user('a'), lambda: user('b'))

        self.assertEqual(['b', 'b', 'a', 'a'], [each for each, _ in self.seen])

    def test_released_lock_goes_to_a_waiter(self):
        lock = self.clock.lock()

        def user(name):
            with lock:
                self.note(name)
                self.clock.sleep(2)

        self.run_all(lambda: user('a'), lambda: user('b'))

        self.assertEqual([('b', 0), ('a', 2)], self.seen)
        self.assertFalse(lock.locked())

    def test_wait_ends_in_time(self):
        event = self.clock.event()

        def waiter():
            self.note(event.wait(3.0))
            self.order.pause()
            self.note(event.wait())

        def setter():
            self.clock.sleep(5)
            event.set()

        self.run_all(waiter, setter)

        self.assertEqual([(False, 3), (True, 5)], self.seen)

    def test_killed_process_ends_at_its_wait(self):
        event = self.clock.event()

        def waiter():
            try:
                event.wait()
            finally:
                self.note('end')

        def killer():
            self.clock.sleep(1)
            self.processes[0].doomed = True

        self.run_all(waiter, killer)

        self.assertEqual([('end', 1)], self.seen)

    def test_time_passes_for_a_caller_without_processes(self):
        self.clock.sleep(3)

        self.assertEqual(3, self.clock.monotonic())
        self.assertFalse(self.clock.event().wait(1))
        self.assertRaises(AssertionError, self.clock.event().wait)
