# SPDX-License-Identifier: Apache-2.0
"""Retries of requests to a server."""

from concurrent import futures
import contextlib
import random
import threading
import time

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


class TestProviderQueue(base.TestCase):

    def setUp(self):
        super().setUp()
        self.queue = remote.ProviderQueue(clock.FakeClock(), items_max=4)
        self.written = []
        self.pool = futures.ThreadPoolExecutor(8)
        self.addCleanup(self.pool.shutdown)

    def enter(self, providers, item=None, go_on=None):
        """Write in a turn of another thread; return once it is queued."""
        def write():
            with self.queue.turn(providers, item) as items:
                if go_on is not None:
                    go_on(items)
                if items:
                    self.written.append([*items])

        before = self.waiting()
        outcome = self.pool.submit(write)
        deadline = time.monotonic() + 600
        while self.waiting() == before and not outcome.done():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.001)
        return outcome

    def waiting(self):
        return len({turn for queue in self.queue._queues.values()
                    for turn in queue})

    def test_writers_of_a_provider_write_in_the_order_of_arrival(self):
        queue = self.queue = remote.ProviderQueue(clock.FakeClock())
        with queue.turn(['a'], 0) as items:
            self.assertEqual([0], items)
            waiting = [self.enter(['a'], number) for number in range(1, 5)]
            # The writer of another provider does not wait.
            self.enter(['b'], 'b').result(600)
            self.assertEqual([['b']], self.written)
        futures.wait(waiting)

        self.assertEqual([[1], [2], [3], [4]], self.written[1:])
        self.assertEqual(0, self.waiting())

    def test_writer_of_several_providers_waits_for_each_turn(self):
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.queue.turn(['b', 'a']))
            both = self.enter(['a', 'b'], 'ab')
            behind = self.enter(['b'], 'b')
            self.assertFalse(both.done() or behind.done())
        futures.wait([both, behind])

        # The first one wrote the item of the other, which had to wait for it.
        self.assertEqual([['ab', 'b']], self.written)

    def test_waiting_items_are_written_together_up_to_the_limit(self):
        with self.queue.turn(['a']):
            waiting = [self.enter(['a', f'h{number}'], number)
                       for number in range(6)]
        futures.wait(waiting)

        self.assertEqual([[0, 1, 2, 3], [4, 5]], self.written)

    def test_item_is_not_written_before_an_earlier_writer(self):
        with self.queue.turn(['b']):
            with self.queue.turn(['a']):
                first = self.enter(['a'], 1)
                both = self.enter(['a', 'b'], 2)
                last = self.enter(['a'], 3)
            first.result(600)
            self.assertEqual([[1]], self.written)
        futures.wait([both, last])

        self.assertEqual([[1], [2, 3]], self.written)

    def test_items_of_a_failed_writer_are_written_by_their_owners(self):
        def fail(items):
            raise ValueError

        with self.queue.turn(['a']):
            failing = self.enter(['a'], 0, fail)
            others = [self.enter(['a'], number) for number in (1, 2)]
        futures.wait(others)

        self.assertRaises(ValueError, failing.result)
        self.assertEqual([[1, 2]], self.written)

    def test_skipped_items_are_written_by_their_owners(self):
        with self.queue.turn(['a']):
            waiting = [self.enter(['a'], 0, lambda items: items.remove(1)),
                       *(self.enter(['a'], number) for number in (1, 2))]
        futures.wait(waiting)

        self.assertEqual([[0, 2], [1]], self.written)

    def test_slow_writer_loses_its_turn(self):
        queue = remote.ProviderQueue(WaitingClock())
        with queue.turn(['a'], 1), queue.turn(['a'], 2) as items:
            self.assertEqual([2], items)
            with queue.turn(['a'], 3) as items:
                self.assertEqual([3], items)

    def test_wait_for_an_ended_writer_succeeds(self):
        class Ended(WaitingClock):

            def monotonic(self):
                # Another thread removes the turns.
                queue._queues.clear()
                return super().monotonic()

        queue = remote.ProviderQueue(Ended())
        with queue.turn(['a'], 1), queue.turn(['a'], 2) as items:
            self.assertEqual([2], items)

    def test_writer_writes_without_a_turn_after_its_timeout(self):
        waiting = WaitingClock()
        queue = remote.ProviderQueue(waiting)
        with queue.turn(['a'], 1), queue.turn(
                ['a'], 2, timeout_s=0.5) as items:
            self.assertEqual([2], items)
            self.assertEqual(0.5, waiting.monotonic())


class WaitingClock(clock.FakeClock):
    """A clock on which a wait for an event takes all of its time."""

    def event(self):
        event = threading.Event()

        def wait(timeout):
            if not event.is_set():
                self.advance(timeout)
            return event.is_set()

        event.wait = wait
        return event


class TestRelease(base.TestCase):

    def test_first_two_numbers_of_a_version_tell_releases_apart(self):
        for version, numbers in (
                ('3.5.16', (3, 5)), ('5.0-beta1', (5, 0)), ('4-rc.2', (4,)),
                ('3.10.0+git', (3, 10)), ('not decided', ()), ('', ())):
            self.assertEqual(numbers, remote.release(version))
