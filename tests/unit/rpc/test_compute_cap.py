# SPDX-License-Identifier: Apache-2.0
"""The newest version of messages that compute agents may be sent."""

import logging
import threading

import futurist

from cellsched import exception
from cellsched.rpc import compute_cap
from tests.unit import base

#: Versions of messages by those of services.
HISTORY = {1: '6.0', 3: '6.1', 4: '6.2'}


class TestComputeCap(base.TestCase):

    def setUp(self):
        super().setUp()
        self.answers = []
        self.asked = 0

    def ask(self):
        self.asked += 1
        return self.answers.pop(0)

    def cap(self, *answers, pin='auto'):
        self.answers = [
            answer if isinstance(answer, compute_cap.Lowest)
            else compute_cap.Lowest(answer) for answer in answers]
        return compute_cap.ComputeCap(pin, self.ask, HISTORY)

    def test_version_of_messages_follows_from_that_of_services(self):
        for service, message in (
                (1, '6.0'), (2, '6.0'), (3, '6.1'), (4, '6.2')):
            self.assertEqual(message, self.cap(service)())

    def test_pin_is_the_version_and_nobody_is_asked(self):
        for pin, expected in (('6.0', '6.0'), (None, None)):
            cap = self.cap(pin=pin)

            self.assertEqual(expected, cap())
            self.assertEqual([], cap.periodic(10))
            cap.ask_the_missing()
        self.assertEqual(0, self.asked)

    def test_pin_that_cannot_be_is_an_error_at_once(self):
        error = self.assertRaises(
            exception.ConfigurationInvalid, self.cap, pin='atuo')

        self.assertEqual('[upgrade_levels] compute', error.field)
        self.assertIn('auto', error.expected.split('it is')[0])

    def test_nobody_is_asked_before_it_is_needed(self):
        self.cap(3)

        self.assertEqual(0, self.asked)

    def test_cells_are_asked_once(self):
        cap = self.cap(3, 4)

        self.assertEqual(['6.1', '6.1'], [cap(), cap()])
        self.assertEqual(1, self.asked)

    def test_threads_that_need_it_at_once_ask_once(self):
        asking, go_on = threading.Event(), threading.Event()

        def ask():
            self.asked += 1
            asking.set()
            go_on.wait(600)
            return compute_cap.Lowest(3)

        cap = compute_cap.ComputeCap('auto', ask, HISTORY)
        with futurist.ThreadPoolExecutor(3) as threads:
            futures = [threads.submit(cap)]
            self.assertTrue(asking.wait(600))
            futures += [threads.submit(cap) for _ in range(2)]
            go_on.set()
            self.assertEqual(['6.1'] * 3, [each.result(30)
                                           for each in futures])
        self.assertEqual(1, self.asked)

    def test_nothing_known_is_the_newest_until_something_is(self):
        cap = self.cap(None, None, 1)

        self.assertEqual(['6.2', '6.2', '6.0', '6.0'],
                         [cap() for _ in range(4)])
        self.assertEqual(3, self.asked)

    def test_what_is_forgotten_is_found_out_anew(self):
        cap = self.cap(1, 4)
        cap()

        cap.forget()

        self.assertEqual('6.2', cap())

    def test_what_was_asked_before_it_was_forgotten_is_not_kept(self):
        def ask():
            self.asked += 1
            if self.asked == 1:
                cap.forget()
            return compute_cap.Lowest(self.asked)

        cap = compute_cap.ComputeCap('auto', ask, HISTORY)
        self.assertEqual('6.0', cap())

        cap()

        self.assertEqual(2, self.asked)

    def test_services_that_are_all_newer_are_an_error(self):
        cap = self.cap(5)

        for _ in range(2):
            error = self.assertRaises(exception.ServiceTooOld, cap)
            self.assertEqual((4, 5), (error.known, error.version))

    def test_cells_that_were_missing_are_asked_again_in_between(self):
        missing = frozenset(['cell'])
        cap = self.cap(compute_cap.Lowest(4, missing), compute_cap.Lowest(3))
        [(again, interval_s)] = cap.periodic(10)
        again()
        self.assertEqual(0, self.asked)
        self.assertEqual(('6.2', 10), (cap(), interval_s))

        for _ in range(2):
            again()

        self.assertEqual(('6.1', 2), (cap(), self.asked))

    def test_version_is_not_raised_because_others_are_missing_now(self):
        one, two = frozenset(['one']), frozenset(['two'])
        cap = self.cap(compute_cap.Lowest(3, one), compute_cap.Lowest(4, two),
                       compute_cap.Lowest(None, two))
        cap()

        for _ in range(2):
            cap.ask_the_missing()
            self.assertEqual('6.1', cap())

    def test_what_was_found_is_logged_once(self):
        logger = logging.getLogger('cellsched')
        self.addCleanup(logger.setLevel, logger.level)
        logger.setLevel(logging.INFO)
        cap = self.cap(3)

        for _ in range(2):
            cap()

        self.assertEqual(1, self.logs.output.count(
            'The oldest compute service that answers has version 3; the '
            'newest that is known here is 4'))
