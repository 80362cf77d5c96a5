# SPDX-License-Identifier: Apache-2.0
"""A request waits for Placement once, whatever it asks it."""

import threading
import types
import unittest

from keystoneauth1 import exceptions as ks_exceptions
from nova import context
from nova import exception as nova_exception
from nova.scheduler.client import report

from cellsched.claims.placement import messages
from cellsched.claims import remote
from cellsched import exception
from cellsched_nova import deadline
from cellsched_nova import decision
from cellsched_nova import placement
from cellsched_nova import report_client
from tests import test_decision

REQUEST = messages.PlacementRequest('GET', '/')


class TestPatience(unittest.TestCase):

    def setUp(self):
        self.patience = deadline.Deadline(30.0)

    def test_request_has_less_and_less_time(self):
        with self.patience.of_request(10.0):
            before, after = self.patience.left_s(), self.patience.left_s()

            self.assertLessEqual(after, before)
            self.assertLessEqual(before, 10.0)
            self.assertFalse(self.patience.is_over)

    def test_request_that_may_not_wait_has_no_time(self):
        with self.patience.of_request(0.0):
            self.assertEqual(0.0, self.patience.left_s())
            self.assertTrue(self.patience.is_over)

    def test_who_decides_on_nothing_has_all_of_it_again_and_again(self):
        with self.patience.of_request(0.0):
            pass

        self.assertEqual(30.0, self.patience.left_s())
        self.assertFalse(self.patience.is_over)

    def test_each_thread_has_its_own(self):
        others = []
        with self.patience.of_request(0.0):
            thread = threading.Thread(
                target=lambda: others.append(self.patience.left_s()))
            thread.start()
            thread.join()

        self.assertEqual([30.0], others)


class TestReportClient(unittest.TestCase):
    """An answer that is none is asked for again as long as there is time."""

    def setUp(self):
        self.patience = deadline.Deadline(30.0)
        self.client = report_client.ReportClient(self, self.patience)
        self.answer = lambda: types.SimpleNamespace(
            status_code=200, json=lambda: {'versions': []})

    def get(self, path, version):
        return self.answer()

    def fail(self):
        raise ks_exceptions.ConnectTimeout('it is slow')

    def refuse(self, status):
        return lambda: types.SimpleNamespace(
            status_code=status, json=lambda: {})

    def test_answer_is_an_answer_however_late(self):
        for status in 200, 404, 409:
            self.answer = self.refuse(status)
            with self.patience.of_request(0.0):
                self.assertEqual(
                    status, self.client.send(REQUEST).status)

    def test_silence_is_for_the_store_to_repeat(self):
        self.answer = self.fail

        self.assertRaises(
            remote.OutcomeUnknown, self.client.send, REQUEST)
        with self.patience.of_request(30.0):
            self.assertRaises(
                remote.OutcomeUnknown, self.client.send, REQUEST)

    def test_request_without_time_fails_with_what_was_said(self):
        for answer, said in (
                (self.fail, 'it is slow'), (self.refuse(503), '503')):
            self.answer = answer
            with self.patience.of_request(0.0), self.assertRaisesRegex(
                    exception.DatabaseUnreachable, said):
                self.client.send(REQUEST)

    def test_server_that_fails_is_for_the_store_to_repeat(self):
        self.answer = self.refuse(503)

        self.assertEqual(503, self.client.send(REQUEST).status)


class TestLateReportClient(unittest.TestCase):
    """Nova's client cannot be made while Keystone is down."""

    def setUp(self):
        self.client = report_client.LateReportClient()
        made = report.report_client_singleton
        self.addCleanup(setattr, report, 'report_client_singleton', made)
        report.report_client_singleton = self.make

    def make(self):
        raise ks_exceptions.DiscoveryFailure('Keystone is down')

    def test_claim_is_not_sent_until_it_can_be_made(self):
        sender = report_client.ReportClient(
            self.client, deadline.Deadline(30.0))

        self.assertRaisesRegex(
            remote.NotSent, 'Keystone is down', sender.send, REQUEST)

        report.report_client_singleton = lambda: self
        self.assertEqual(200, sender.send(REQUEST).status)

    def test_reading_is_told_to_be_impossible(self):
        with self.assertRaisesRegex(
                placement.PlacementUnavailable, 'Keystone is down'):
            placement.read(
                self.client, context.get_admin_context(), '/traits')

    def get(self, path, version):
        return types.SimpleNamespace(status_code=200, json=dict)


class TestRequests(test_decision.TestCase):

    def test_request_that_may_claim_waits_for_as_long_as_is_set(self):
        waited = []
        self.parts.hosts.unread = 'it is away'
        self.parts.hosts.await_placement = (
            lambda context, left_s: waited.append(left_s))
        test_decision.CONF.set_override('claim_timeout', 50.0, 'cellsched')
        self.addCleanup(test_decision.CONF.clear_override, 'claim_timeout',
                        'cellsched')

        for claim in True, False:
            self.assertRaises(
                nova_exception.NoValidHost, decision.RequestDecision(
                    self.parts, self.context, self.spec(4096),
                    [test_decision.SERVER], 0, claim).select)

        mine, planned = waited
        self.assertEqual((True, 0.0), (0.0 < mine <= 50.0, planned))
