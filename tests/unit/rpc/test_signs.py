# SPDX-License-Identifier: Apache-2.0
import queue
import threading

from cellsched.rpc import signs
from tests.unit import base
from tests.unit.rpc import base as rpc_base


class Incoming:
    """A message whose caller wants a sign of life each second."""

    client_timeout = 2

    def __init__(self, error=None):
        self.signs = queue.Queue()
        self._error = error

    def heartbeat(self):
        self.signs.put(threading.current_thread())
        if self._error is not None:
            raise self._error

    def next(self):
        return self.signs.get(timeout=rpc_base.DEADLINE_S)


class TestSigns(base.TestCase):

    def setUp(self):
        super().setUp()
        self.signs = signs.Signs()
        self.addCleanup(self.signs.stop)

    def test_caller_gets_signs_until_the_call_ends(self):
        incoming = Incoming()

        call = self.signs.begin(incoming)

        self.assertIs(incoming.next(), incoming.next())
        self.signs.end(call)
        self.assertTrue(incoming.signs.empty())

    def test_all_calls_have_their_signs_from_one_thread(self):
        calls = [Incoming() for _ in range(3)]
        for each in calls:
            self.signs.begin(each)

        self.assertEqual(1, len({each.next() for each in calls}))

    def test_caller_who_is_gone_keeps_no_other_from_its_signs(self):
        gone, there = Incoming(ConnectionError()), Incoming()
        self.signs.begin(gone)
        self.signs.begin(there)

        gone.next()
        for _ in range(2):
            there.next()

        self.assertTrue(gone.signs.empty())
        self.assertIn('ConnectionError', self.logs.output)

    def test_call_that_is_over_gets_none(self):
        incoming = Incoming()
        call = signs.Call(incoming, 1)

        call.end()
        call.give_sign()

        self.assertTrue(incoming.signs.empty())

    def test_time_too_short_for_signs_is_told(self):
        incoming = Incoming()
        incoming.client_timeout = 1.5

        self.assertIsNone(self.signs.begin(incoming))

        self.assertIn('signs of life', self.logs.output)

    def test_no_thread_is_left_when_it_stops(self):
        before = set(threading.enumerate())
        self.signs.end(self.signs.begin(Incoming()))

        self.signs.stop()

        self.assertEqual(before, set(threading.enumerate()))

    def test_it_may_begin_again(self):
        self.signs.end(self.signs.begin(Incoming()))
        self.signs.stop()
        incoming = Incoming()

        call = self.signs.begin(incoming)

        incoming.next()
        self.signs.end(call)
