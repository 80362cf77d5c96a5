# SPDX-License-Identifier: Apache-2.0
"""A request has one deadline for all its requests to Placement."""

import io
import threading
import time
import types
import unittest

import fixtures
from keystoneauth1 import exceptions as ks_exceptions
from keystoneauth1 import identity
from keystoneauth1 import session
import nova.conf
from nova import context
import requests
from requests import adapters

from cellsched.claims.placement import messages
from cellsched.claims import remote
from cellsched import exception
from cellsched_nova import placement
from cellsched_nova import report_client
from tests import configuration_fixtures

CONF = nova.conf.CONF

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


class Wire(adapters.BaseAdapter):
    """Answers each request, and keeps its URL and timeout."""

    def __init__(self):
        super().__init__()
        self.sent = []
        self.status = 200

    def send(self, request, timeout=None, **named):
        self.sent.append((request.path_url, timeout))
        answer = requests.Response()
        answer.status_code, answer.request = self.status, request
        answer.url, answer.raw = request.url, io.BytesIO(b'{}')
        return answer

    def close(self):
        self.sent.append('closed')


class TestBoundedReportClient(configuration_fixtures.TestCase):
    """An answer has no more time than the request that waits for it."""

    def setUp(self):
        super().setUp()
        self.flags(auth_type='none', timeout=25, connect_retries=3,
                   endpoint_override='http://placement')
        self.client = report_client.BoundedReportClient(CONF)
        self.wire = Wire()
        self.client.connections.mount('http://', self.wire)
        self.deadline = report_client.Deadline(30.0)

    def flags(self, **values):
        for name, value in values.items():
            CONF.set_override(name, value, 'placement')
            self.addCleanup(CONF.clear_override, name, 'placement')

    def timeouts(self):
        return [timeout for _, timeout in self.wire.sent]

    def wait(self, seconds):
        """Let time pass."""
        later = time.monotonic() + seconds
        clock = fixtures.MonkeyPatch('time.monotonic', lambda: later)
        clock.setUp()
        self.addCleanup(clock.cleanUp)

    def test_answer_has_the_remaining_time(self):
        with self.deadline.of_request(20.0):
            self.client.get('/traits')
            self.wait(15.0)
            self.client.put('/allocations', {})

        before, after = self.timeouts()
        self.assertTrue(15.0 < before <= 20.0, before)
        self.assertTrue(0.0 < after <= 5.0, after)

    def test_answer_has_the_usual_time_without_a_deadline(self):
        self.client.get('/traits')
        with self.deadline.of_request(0.0):
            self.client.get('/traits')
        with self.deadline.of_request(300.0):
            self.client.get('/traits')

        self.assertEqual([25.0] * 3, self.timeouts())

    def test_requests_after_the_deadline_are_not_sent(self):
        sender = report_client.ReportClient(self.client, self.deadline)
        with self.deadline.of_request(20.0):
            self.wait(20.0)
            with self.assertRaises(exception.DatabaseUnreachable):
                sender.send(REQUEST)
            with self.assertRaises(placement.PlacementUnavailable):
                placement.read(
                    self.client, context.get_admin_context(), '/traits')

        self.assertEqual([], self.wire.sent)

    def test_earlier_failure_is_named_at_the_deadline(self):
        sender = report_client.ReportClient(self.client, self.deadline)
        self.wire.status = 503
        with self.deadline.of_request(20.0):
            self.assertEqual(503, sender.send(REQUEST).status)
            self.wait(20.0)
            self.assertRaisesRegex(
                exception.DatabaseUnreachable, 'before, it answered 503',
                sender.send, REQUEST)

    def test_keystone_has_the_remaining_time(self):
        user = identity.Password(
            auth_url='http://keystone', username='nova', password='secret')
        keystone = session.Session(user, session=self.client.connections)
        with self.deadline.of_request(20.0), self.assertRaises(
                ks_exceptions.ClientException):
            keystone.get_token()

        self.assertTrue(self.wire.sent)
        self.assertLessEqual(max(self.timeouts()), 20.0)

    def test_connections_are_closed_after_the_check(self):
        report_client.check(self.client)

        self.assertEqual([('/', 25.0), 'closed'], self.wire.sent)

    def test_check_without_an_answer_is_logged(self):
        def fail(*args, **named):
            raise requests.exceptions.ConnectionError('it is away')

        self.wire.send = fail
        with self.assertLogs(report_client.LOG.logger, 'WARNING') as logged:
            report_client.check(self.client)

        self.assertIn('it is away', logged.output[0])
