# SPDX-License-Identifier: Apache-2.0
"""Batching of the work of several threads."""

from concurrent import futures
import contextlib
import threading
from unittest import mock

from cellsched import batching
from cellsched import exception
from tests.unit import base


class TestTogether(base.TestCase):

    def setUp(self):
        super().setUp()
        self.batches = []
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.pool = futures.ThreadPoolExecutor(8)
        self.addCleanup(self.pool.shutdown)

    def work(self, items):
        self.batches.append(sorted(items))
        if len(self.batches) == 1:
            self.begun.set()
            self.assertTrue(self.go_on.wait(600))

    def wait_for(self, number):
        """Wait until a number of threads wait for their turn."""
        while len(self.jointly._waiting) < number:
            pass

    def race(self, work, items):
        """Do the first item, and the others while it is in progress."""
        self.jointly = batching.GroupCommit(work)
        first, *rest = items
        asked = [self.pool.submit(self.jointly.do, first)]
        self.assertTrue(self.begun.wait(600))
        asked += [self.pool.submit(self.jointly.do, item) for item in rest]
        self.wait_for(len(rest))
        self.go_on.set()
        return [each.exception(60) for each in asked]

    def test_items_added_during_a_batch_are_the_next_batch(self):
        self.assertEqual([None] * 4, self.race(self.work, [1, 2, 3, 4]))

        self.assertEqual([[1], [2, 3, 4]], self.batches)

    def test_items_added_before_the_context_is_entered_are_in_the_batch(self):
        @contextlib.contextmanager
        def enter():
            self.begun.set()
            self.assertTrue(self.go_on.wait(600))
            yield
            self.batches.append('left')

        self.jointly = batching.GroupCommit(
            lambda items: self.batches.append(sorted(items)), turn_s=0.001,
            enter=enter)
        asked = [self.pool.submit(self.jointly.do, 1)]
        self.assertTrue(self.begun.wait(600))
        asked += [self.pool.submit(self.jointly.do, item) for item in (2, 3)]
        self.wait_for(2)
        self.go_on.set()

        self.assertEqual([None] * 3, [each.exception(60) for each in asked])
        self.assertEqual([[1, 2, 3], 'left'], self.batches)

    def test_interrupted_thread_is_not_chosen_to_work(self):
        class InterruptedLock:
            """A lock whose second wait is interrupted."""

            def __init__(self):
                self.lock, self.waits = threading.Lock(), 0

            def acquire(self, timeout=-1):
                self.waits += 1
                if self.waits == 2:
                    raise KeyboardInterrupt
                return self.lock.acquire(timeout=timeout)

        self.jointly = batching.GroupCommit(self.work)
        asked = self.pool.submit(self.jointly.do, 1)
        self.assertTrue(self.begun.wait(600))
        self.jointly._make_lock = InterruptedLock
        self.assertRaises(KeyboardInterrupt, self.jointly.do, 2)
        self.jointly._make_lock = threading.Lock
        self.go_on.set()
        self.assertIsNone(asked.exception(60))
        self.jointly.do(3)

        self.assertEqual([[1], [3]], self.batches)

    def test_failed_item_fails_alone(self):
        def work(items):
            self.work(items)
            if 3 in items:
                raise ValueError('three')

        outcomes = self.race(work, [1, 2, 3, 4])

        self.assertEqual([None, None, 'three', None],
                         [each and str(each) for each in outcomes])
        self.assertEqual([[1], [2, 3, 4]], self.batches[:2])
        self.assertEqual([[2], [3], [4]], sorted(self.batches[2:]))

    def test_failed_leader_leaves_no_waiters(self):
        class Death(BaseException):
            pass

        def work(items):
            self.work(items)
            if 3 in items:
                raise Death

        outcomes = self.race(work, [1, 2, 3])

        self.assertEqual([None, Death, Death], [
            each and type(each) for each in outcomes])
        self.assertIsNot(outcomes[1], outcomes[2])
        self.jointly.do(5)
        self.assertEqual([5], self.batches[-1])

    def test_wait_for_a_batch_without_an_end_is_bounded(self):
        expired, go_on = threading.Event(), threading.Event()
        self.addCleanup(go_on.set)

        class Lock:
            """A lock whose timeouts expire when the test says so."""

            def __init__(self):
                self.lock = threading.Lock()
                self.release = self.lock.release

            def acquire(self, timeout=-1):
                while not self.lock.acquire(blocking=False):
                    if timeout >= 0 and expired.wait(0.001):
                        return False
                return True

        def work(items):
            self.work(items)
            if len(items) > 1:
                expired.set()
                go_on.wait(600)

        self.jointly = batching.GroupCommit(work, make_lock=Lock)
        first = self.pool.submit(self.jointly.do, 1)
        self.assertTrue(self.begun.wait(600))
        pair = [self.pool.submit(self.jointly.do, item) for item in (2, 3)]
        self.wait_for(2)
        self.go_on.set()

        self.assertIsNone(first.exception(600))
        done, (working,) = futures.wait(
            pair, 600, futures.FIRST_COMPLETED)
        [error] = [each.exception() for each in done]
        self.assertIsInstance(error, exception.ServiceBusy)
        self.assertTrue(error.kwargs['is_begun'])
        go_on.set()
        self.assertIsNone(working.exception(600))

    def test_batches_run_at_a_time_up_to_the_limit(self):
        both = threading.Barrier(2)
        jointly = batching.GroupCommit(
            lambda items: both.wait(600), at_once=2)

        self.assertEqual([None, None], [
            each.exception(60) for each in
            [self.pool.submit(jointly.do, item) for item in (1, 2)]])


class Threads:
    """An executor whose functions the test runs."""

    def __init__(self):
        self.submitted = []

    def submit(self, function, *args):
        self.submitted.append((function, args))

    def shutdown(self, wait=True):
        pass

    def run(self):
        """Run what was submitted, in order."""
        while self.submitted:
            function, args = self.submitted.pop(0)
            function(*args)


class TestTaskQueue(base.TestCase):

    def setUp(self):
        super().setUp()
        self.threads = Threads()
        self.ran = []

    def queue(self, places=2, **options):
        self.tasks = batching.TaskQueue(self.threads, places, **options)

    def add(self, name, lane='', key=None, most=1, weight=1):
        return self.tasks.submit(
            batching.Place(lane, {} if key is None else {key: most}, weight),
            self.ran.append, name)

    def started(self):
        """Return the tasks that have a thread."""
        return [args[0].function.args[0] for function, args
                in self.threads.submitted if function == self.tasks._work]

    def finish(self, name):
        for each in self.threads.submitted:
            function, args = each
            if function == self.tasks._work and (
                    args[0].function.args == (name,)):
                self.threads.submitted.remove(each)
                return function(*args)
        self.fail(f'{name} has not started')

    def test_task_has_the_outcome_of_its_function(self):
        self.queue()
        good = self.add('a')
        bad = self.tasks.submit(batching.Place(), [].pop)
        self.threads.run()

        self.assertIsNone(good.result(0))
        self.assertIsInstance(bad.exception(0), IndexError)

    def test_task_starts_when_a_thread_is_free(self):
        self.queue(places=1)
        for name in 'abc':
            self.add(name, 'one')
            self.add(name + name, 'two')
        self.assertEqual(['a', 'aa', 'b', 'bb'], self.started())

        self.finish('b')

        self.assertEqual(['a', 'aa', 'bb', 'c'], self.started())

    def test_lane_leaves_threads_to_other_lanes(self):
        self.queue(places=2)
        for number in range(9):
            self.add(str(number), 'flood')
        self.add('x', 'other')
        self.add('y', 'other')

        self.assertEqual([*'012345', 'x', 'y'], self.started())

    def test_lane_with_the_fewest_tasks_is_next(self):
        self.queue(places=2)
        for lane in 'ab':
            for number in range(9):
                self.add(f'{lane}{number}', lane)
        self.add('x', 'other')

        self.finish('a0')

        self.assertEqual('x', self.started()[-1])

    def test_equal_lanes_take_turns(self):
        self.queue(places=1)
        for name in 'abcd':
            self.add(name, name)
        for name in 'abc':
            self.add(f'{name}1', 'one')
        for name in 'abc':
            self.add(f'{name}2', 'two')
        self.threads.run()

        self.assertEqual([*'abcd', 'a1', 'a2', 'b1', 'b2', 'c1', 'c2'],
                         self.ran)

    def test_lane_runs_a_single_heavy_task(self):
        self.queue(places=4)
        self.add('a', 'flood', weight=1000)
        self.add('b', 'flood', weight=1000)
        self.add('x', 'other')
        self.add('y', 'other')

        self.assertEqual(['a', 'x', 'y'], self.started())

        self.finish('a')
        self.assertEqual(['x', 'y', 'b'], self.started())

    def test_weights_of_a_lane_add_up_to_its_share(self):
        self.queue(places=1)
        for name in 'abc':
            self.add(name, 'flood', weight=2)
        self.add('x', 'other', weight=2)

        self.assertEqual(['a', 'x'], self.started())

    def test_tasks_with_a_key_run_in_sequence(self):
        self.queue(places=8)
        for name in 'abc':
            self.add(name, key='instance')
        self.add('x', key='another')
        self.assertEqual(['a', 'x'], self.started())

        self.finish('a')
        self.assertEqual(['x', 'b'], self.started())
        self.finish('b')
        self.assertEqual(['x', 'c'], self.started())

    def test_tasks_of_a_key_are_limited(self):
        self.queue(places=8)
        for name in 'abc':
            self.add(name, key='build', most=2)

        self.assertEqual(['a', 'b'], self.started())

    def test_task_with_two_keys_blocks_no_other_task(self):
        self.queue(places=8)
        self.add('a', key='one')
        self.add('b', key='two')
        self.tasks.submit(batching.Place('', {'one': 1, 'two': 1}),
                          self.ran.append, 'both')
        self.add('c', key='one')
        self.finish('a')
        self.finish('b')
        self.threads.run()

        self.assertEqual(['a', 'b', 'both', 'c'], sorted(self.ran))

    def test_cancelled_task_does_not_run(self):
        self.queue(places=1)
        self.add('a', key='key')
        self.add('b', key='key').cancel()
        self.add('c', key='key')
        self.threads.run()

        self.assertEqual(['a', 'c'], self.ran)

    def test_full_queue_refuses_the_last_of_the_longest_lane(self):
        self.queue(places=1, waiting_max=3)
        flood = [self.add(name, 'flood') for name in 'abcdefg']
        self.add('x', 'other')
        last = self.add('y', 'other')
        self.threads.run()

        self.assertEqual(
            [False, False, False, False, False, True, True],
            [isinstance(each.exception(0), exception.ServiceBusy)
             for each in flood])
        self.assertIsNone(last.result(0))

    def test_error_of_the_executor_is_the_outcome(self):
        def submit(function, *args):
            raise RuntimeError('shut down')

        self.queue()
        self.threads.submit = submit

        self.assertIsInstance(self.add('a').exception(0), RuntimeError)


class TestQueueExecutor(base.TestCase):

    def test_tasks_above_the_limit_of_the_lane_complete(self):
        threads = Threads()
        executor = batching.QueueExecutor(
            threads, 1, lambda value: value)
        stuck = [executor.submit(int, '1') for _ in range(5)]
        other = executor.submit(int, '2')
        threads.run()

        self.assertEqual([1] * 5 + [2],
                         [each.result(0) for each in [*stuck, other]])

    def test_shutdown_waits_for_tasks_until_its_deadline(self):
        with futures.ThreadPoolExecutor(8) as threads:
            executor = batching.QueueExecutor(
                threads, 1)
            release, done = threading.Event(), []
            stuck = executor.submit(release.wait)
            waits = executor.submit(done.append, 1)
            self.addCleanup(release.set)

            with (mock.patch.object(batching, 'STOP_S', 0.01),
                  self.assertLogs(batching.LOG, 'WARNING') as logs):
                executor.shutdown()
            self.assertFalse(stuck.done())
            release.set()

        self.assertTrue(stuck.result(0))
        self.assertIn('tasks in progress', logs.output[0])
        self.assertTrue(waits.cancelled() or done)

    def test_shutdown_waits_for_queued_tasks(self):
        executor = batching.QueueExecutor(
            futures.ThreadPoolExecutor(8), 1)
        results = [executor.submit(int, '7') for _ in range(5)]

        executor.shutdown()

        self.assertEqual([7] * 5, [each.result(0) for each in results])

    def test_shutdown_without_a_wait_cancels_queued_tasks(self):
        threads = Threads()
        executor = batching.QueueExecutor(threads, 1, lambda value: value)
        begun, waits = executor.submit(int, '1'), executor.submit(int, '1')
        executor.shutdown(wait=False)

        self.assertFalse(begun.cancelled())
        self.assertTrue(waits.cancelled())
