# SPDX-License-Identifier: Apache-2.0
import socket
import threading

from cellsched.rpc import polling
from tests.unit import base

DEADLINE_S = 30


class TestPoller(base.TestCase):

    def setUp(self):
        super().setUp()
        self.connect()
        self.poller = polling.Poller(lambda: self.ours)
        self.addCleanup(self.poller.close)

    def connect(self):
        self.ours, self.theirs = socket.socketpair()
        self.addCleanup(self.ours.close)
        self.addCleanup(self.theirs.close)

    def wakes(self):
        """Return whether who waits now is woken."""
        return self.poller.wait(0)

    def test_it_sleeps_while_there_is_nothing(self):
        self.poller.arm()
        self.assertFalse(self.wakes())

    def test_it_is_woken_by_what_came_before_and_by_what_comes(self):
        self.theirs.send(b'a')
        self.poller.arm()
        self.assertTrue(self.wakes())

        self.ours.recv(1)
        self.poller.arm()
        threading.Timer(0.001, self.theirs.send, [b'b']).start()
        self.assertTrue(self.poller.wait(DEADLINE_S))
        self.assertEqual(b'b', self.ours.recv(1))

    def test_it_is_woken_once(self):
        self.theirs.send(b'a')
        self.poller.arm()
        self.assertEqual([True, False], [self.wakes(), self.wakes()])
        self.poller.arm()
        self.assertTrue(self.wakes())

    def test_it_sleeps_while_somebody_reads(self):
        self.theirs.send(b'a')
        self.poller.disarm()
        self.assertFalse(self.wakes())
        self.poller.arm()
        self.poller.disarm()
        self.assertFalse(self.wakes())

    def test_end_of_what_somebody_reads_wakes_nobody_again_and_again(self):
        self.theirs.close()
        self.poller.disarm()
        self.wakes()
        self.assertFalse(self.wakes())
        self.poller.arm()
        self.assertTrue(self.wakes())

    def test_it_follows_a_new_connection(self):
        self.poller.arm()
        number = self.ours.fileno()
        self.ours.close()
        self.connect()
        self.assertEqual(number, self.ours.fileno())
        self.theirs.send(b'a')
        self.poller.arm()
        self.assertTrue(self.wakes())

    def test_it_is_woken_at_once_where_there_is_no_socket(self):
        self.ours.close()
        self.poller.disarm()
        self.assertFalse(self.wakes())
        self.poller.arm()
        self.assertTrue(self.wakes())
        self.ours = None
        self.poller.disarm()
        self.poller.arm()
        self.assertTrue(self.wakes())

    def test_who_comes_after_the_call_is_woken_by_it(self):
        self.poller.wake()
        self.poller.wake()
        self.assertEqual([True, False], [self.wakes(), self.wakes()])

    def test_it_waits_no_longer_than_it_is_to(self):
        self.assertFalse(self.poller.wait(0.001))
