# SPDX-License-Identifier: Apache-2.0
from concurrent import futures
import contextlib

from cellsched.scheduler.selection import single_flight
from tests.unit import base


class TestRepeats(base.TestCase):

    def setUp(self):
        super().setUp()
        self.repeats = single_flight.SingleFlight()
        self.threads = futures.ThreadPoolExecutor()
        self.addCleanup(self.threads.shutdown)

    def ask(self, *uuids):
        def answered():
            with self.repeats.alone(uuids):
                return uuids

        return self.threads.submit(answered)

    def test_others_are_not_waited_for(self):
        with self.repeats.alone(['a', 'b']):
            self.assertEqual(('c', 'd'), self.ask('c', 'd').result(10))

    def test_any_that_is_the_same_is_waited_for(self):
        with self.repeats.alone(['a', 'b']):
            waits = [self.ask('b', 'c'), self.ask('a'), self.ask('c', 'a')]

            done, _ = futures.wait(waits, 0.1)

        self.assertEqual(set(), done)
        self.assertEqual([('b', 'c'), ('a',), ('c', 'a')],
                         [each.result(10) for each in waits])

    def test_who_waits_keeps_nobody_out(self):
        with self.repeats.alone(['a']):
            waits = self.ask('a', 'b')

            self.assertEqual(('b',), self.ask('b').result(10))

        waits.result(10)

    def test_request_that_fails_is_over(self):
        with contextlib.suppress(KeyError), self.repeats.alone(['a']):
            raise KeyError

        self.assertEqual(('a',), self.ask('a').result(10))

    def test_one_instance_may_be_named_twice(self):
        self.assertEqual(('a', 'a'), self.ask('a', 'a').result(10))
