# SPDX-License-Identifier: Apache-2.0
"""Sending messages without waiting for a broker for long."""

from concurrent import futures
import threading

import oslo_messaging

from cellsched.rpc import background_sender
from tests.unit import base

DEADLINE_S = 600


class TestSender(base.TestCase):

    def setUp(self):
        super().setUp()
        self.go_on = threading.Event()
        self.executor = futures.ThreadPoolExecutor(1)
        self.addCleanup(self.executor.shutdown)
        self.addCleanup(self.go_on.set)

    def hang(self):
        self.go_on.wait(DEADLINE_S)

    def test_message_is_sent_when_it_returns(self):
        sent = []

        background_sender.BackgroundSender(self.executor, DEADLINE_S)(
            lambda: sent.append(1))

        self.assertEqual([1], sent)

    def test_error_of_sending_is_raised(self):
        for error in (KeyError('as told'), TimeoutError('of a socket')):
            def fail(error=error):
                raise error

            self.assertIs(error, self.assertRaises(
                type(error), background_sender.BackgroundSender(
                    self.executor, DEADLINE_S), fail))

    def test_message_that_hangs_keeps_its_sender_no_longer_than_said(self):
        sender = background_sender.BackgroundSender(self.executor, 0.01)

        error = self.assertRaises(
            oslo_messaging.MessageDeliveryFailure, sender, self.hang)

        self.assertIn('0.01 s', str(error))
        self.assertFalse(self.go_on.is_set())

    def test_message_that_had_no_turn_in_time_is_never_sent(self):
        sent = []
        sender = background_sender.BackgroundSender(self.executor, 0.01)
        self.assertRaises(
            oslo_messaging.MessageDeliveryFailure, sender, self.hang)

        self.assertRaises(oslo_messaging.MessageDeliveryFailure, sender,
                          lambda: sent.append(1))
        self.go_on.set()
        self.executor.submit(lambda: None).result(DEADLINE_S)

        self.assertEqual([], sent)

    def test_directly_is_in_the_thread_that_sends(self):
        threads = []

        background_sender.directly(
            lambda: threads.append(threading.get_ident()))

        self.assertEqual([threading.get_ident()], threads)
