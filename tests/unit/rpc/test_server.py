# SPDX-License-Identifier: Apache-2.0
import logging
import threading

import fixtures
import oslo_messaging

from cellsched import context
from cellsched import exception
from cellsched.rpc import client
from cellsched.rpc import server
from tests.unit.rpc import base


class Endpoint(base.Recorder):

    target = oslo_messaging.Target(version='1.0')

    def __init__(self):
        super().__init__()
        self.begun = threading.Event()
        self.go_on = threading.Event()

    def thread(self, context):
        return threading.current_thread().name

    def slow(self, context):
        self.begun.set()
        self.go_on.wait(base.DEADLINE_S)
        self.received.put('done')

    def _private(self, context):
        self.received.put('private')

    def expected(self, context):
        raise exception.NoValidHost(reason='expected')

    def failing(self, context):
        raise exception.CellMappingNotFound(uuid='failing')

    def unexpected(self, context):
        raise KeyError('unexpected')


class TestServer(base.RPCTestCase):

    def setUp(self):
        super().setUp()
        self.endpoint = Endpoint()
        self.context = context.RequestContext()
        self.client = client.Client(self.transport, 'topic', '1.0')

    def test_private_method_cannot_be_called(self):
        self.serve(self.endpoint)

        error = self.assertRaises(
            oslo_messaging.RemoteError,
            self.client.call, self.context, '_private')

        self.assertEqual('NoSuchMethod', error.exc_type)
        self.assertTrue(self.endpoint.received.empty())

    def test_unknown_method_is_answered_with_an_error(self):
        self.serve(self.endpoint)

        error = self.assertRaises(
            oslo_messaging.RemoteError,
            self.client.call, self.context, 'nonsense')

        self.assertEqual('NoSuchMethod', error.exc_type)

    def test_expected_error_is_not_logged_as_one(self):
        self.serve(self.endpoint)

        self.assertRaises(exception.NoValidHost,
                          self.client.call, self.context, 'expected')

        self.assertNotIn('Traceback', self.logs.output)

    def test_error_of_ours_is_logged_in_a_line_and_travels(self):
        self.serve(self.endpoint)

        self.assertRaises(exception.CellMappingNotFound,
                          self.client.call, self.context, 'failing')

        self.assertIn('failing failed: There is no cell failing.\n',
                      self.logs.output)
        self.assertNotIn('Traceback', self.logs.output)

    def test_unexpected_error_is_logged_and_travels(self):
        self.serve(self.endpoint)

        self.assertRaises(KeyError,
                          self.client.call, self.context, 'unexpected')

        self.assertIn('Traceback', self.logs.output)

    def test_no_log_shows_a_name_as_strangers_write_it(self):
        logs = self.useFixture(fixtures.FakeLogger(
            'oslo_messaging', level=logging.INFO))
        self.serve(self.endpoint)
        for name in ('x\r\nroot logged in', 'x\ud800', 'x' * 1_000_000):
            self.assertRaises(oslo_messaging.RemoteError,
                              self.client.call, self.context, name)
        for name in (None, [[]], 5):
            error = self.assertRaises(exception.InvalidField,
                                      self.client.call, self.context, name)
            self.assertEqual('method', error.field)

        self.assertEqual('', logs.output)
        for line in self.logs.output.splitlines():
            self.assertFalse(line.startswith('root'), line)
            self.assertLess(len(line), 400)

    def test_server_ends_when_what_it_received_is_done(self):
        made = self.serve(self.endpoint)
        self.client.cast(self.context, 'slow')
        self.endpoint.begun.wait(base.DEADLINE_S)
        made.stop()
        self.client.cast(self.context, 'slow')
        self.endpoint.go_on.set()

        made.wait()

        self.assertEqual('done', self.endpoint.received.get_nowait())
        self.assertTrue(self.endpoint.received.empty())

    def test_server_leaves_no_thread_behind(self):
        before = set(threading.enumerate())
        made = self.serve(self.endpoint)
        name = self.client.call(self.context, 'thread')
        working = set(threading.enumerate()) - before

        self.end(made)

        self.assertIn(name, {thread.name for thread in working})
        self.assertEqual(set(), set(threading.enumerate()) - before)

    def test_servers_of_one_topic_have_names_of_their_own(self):
        self.serve(self.endpoint, host='one')
        asked = client.Client(self.transport, 'topic', '1.0', 'baseapi',
                              timeout_s=0.01)

        self.assertRaises(
            oslo_messaging.MessagingTimeout,
            asked.call, self.context, 'ping', None, 'another', arg=1)


class TestPing(base.RPCTestCase):

    def setUp(self):
        super().setUp()
        self.context = context.RequestContext()

    def test_every_server_says_that_it_is_there(self):
        self.serve(Endpoint())
        asked = client.Client(self.transport, 'topic', '1.1', 'baseapi')

        self.assertEqual(
            {'service': 'topic', 'arg': ['any', 'thing']},
            asked.call(self.context, 'ping', arg=['any', 'thing']))

    def test_ping_of_oslo_messaging_is_answered_where_it_is_enabled(self):
        self.conf.set_override('rpc_ping_enabled', True)
        self.serve(Endpoint())
        asked = client.Client(self.transport, 'topic', '1.0')

        self.assertEqual(
            'pong', asked.call(self.context, 'oslo_rpc_server_ping'))

    def test_ping_of_oslo_messaging_is_unknown_otherwise(self):
        self.serve(Endpoint())
        asked = client.Client(self.transport, 'topic', '1.0')

        self.assertRaises(
            oslo_messaging.RemoteError,
            asked.call, self.context, 'oslo_rpc_server_ping')


class TestEndpoints(base.RPCTestCase):

    def test_the_callers_list_of_endpoints_is_left_alone(self):
        endpoints = [Endpoint()]

        server.server(
            self.transport, 'topic', 'host', endpoints)

        self.assertEqual(1, len(endpoints))
