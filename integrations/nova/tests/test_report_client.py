# SPDX-License-Identifier: Apache-2.0
"""A request has one deadline for all its requests to Placement."""

import threading
import types
import unittest

from keystoneauth1 import exceptions as ks_exceptions
from nova import context
from nova.scheduler.client import report

from cellsched.claims.placement import messages
from cellsched.claims import remote
from cellsched import exception
from cellsched_nova import placement
from cellsched_nova import report_client

REQUEST = messages.PlacementRequest('GET', '/')


class TestDeadline(unittest.TestCase):

    def setUp(self):
        self.deadline = report_client.Deadline(30.0)

    def test_remaining_time_of_a_request_decreases(self):
        with self.deadline.of_request(10.0):
            before = self.deadline.remaining_s()
            after = self.deadline.remaining_s()

            self.assertLessEqual(after, before)
            self.assertLessEqual(before, 10.0)
            self.assertFalse(self.deadline.is_over)

    def test_deadline_of_zero_seconds_is_over_at_once(self):
        with self.deadline.of_request(0.0):
            self.assertEqual(0.0, self.deadline.remaining_s())
            self.assertTrue(self.deadline.is_over)

    def test_whole_timeout_applies_outside_of_a_request(self):
        with self.deadline.of_request(0.0):
            pass

        self.assertEqual(30.0, self.deadline.remaining_s())
        self.assertFalse(self.deadline.is_over)

    def test_each_thread_has_its_own_deadline(self):
        found = []
        with self.deadline.of_request(0.0):
            thread = threading.Thread(
                target=lambda: found.append(self.deadline.remaining_s()))
            thread.start()
            thread.join()

        self.assertEqual([30.0], found)


class TestReportClient(unittest.TestCase):
    """Requests without an answer can be retried until the deadline."""

    def setUp(self):
        self.deadline = report_client.Deadline(30.0)
        self.client = report_client.ReportClient(self, self.deadline)
        self.answer = lambda: types.SimpleNamespace(
            status_code=200, json=lambda: {'versions': []})

    def get(self, path, version):
        return self.answer()

    def fail(self):
        raise ks_exceptions.ConnectTimeout('it is slow')

    def refuse(self, status):
        return lambda: types.SimpleNamespace(
            status_code=status, json=lambda: {'errors': [
                {'status': status, 'detail': 'No.'}]})

    def test_late_answer_is_returned(self):
        for status in 200, 404, 409:
            self.answer = self.refuse(status)
            with self.deadline.of_request(0.0):
                self.assertEqual(
                    status, self.client.send(REQUEST).status)

    def test_missing_answer_within_the_deadline_can_be_retried(self):
        self.answer = self.fail

        self.assertRaises(
            remote.OutcomeUnknown, self.client.send, REQUEST)
        with self.deadline.of_request(30.0):
            self.assertRaises(
                remote.OutcomeUnknown, self.client.send, REQUEST)

    def test_request_after_the_deadline_fails_with_the_reason(self):
        for answer, text in (
                (self.fail, 'it is slow'), (self.refuse(503), '503')):
            self.answer = answer
            with self.deadline.of_request(0.0), self.assertRaisesRegex(
                    exception.DatabaseUnreachable, text):
                self.client.send(REQUEST)

    def test_server_error_within_the_deadline_can_be_retried(self):
        self.answer = self.refuse(503)

        self.assertEqual(503, self.client.send(REQUEST).status)


class TestLateReportClient(unittest.TestCase):
    """Nova's client cannot be created while Keystone is down."""

    def setUp(self):
        self.client = report_client.LateReportClient()
        made = report.report_client_singleton
        self.addCleanup(setattr, report, 'report_client_singleton', made)
        report.report_client_singleton = self.make

    def make(self):
        raise ks_exceptions.DiscoveryFailure('Keystone is down')

    def test_claim_is_not_sent_until_the_client_exists(self):
        sender = report_client.ReportClient(
            self.client, report_client.Deadline(30.0))

        self.assertRaisesRegex(
            remote.NotSent, 'Keystone is down', sender.send, REQUEST)

        report.report_client_singleton = lambda: self
        self.assertEqual(200, sender.send(REQUEST).status)

    def test_read_without_a_client_is_unavailable(self):
        with self.assertRaisesRegex(
                placement.PlacementUnavailable, 'Keystone is down'):
            placement.read(
                self.client, context.get_admin_context(), '/traits')

    def get(self, path, version):
        return types.SimpleNamespace(status_code=200, json=dict)
