# SPDX-License-Identifier: Apache-2.0
import contextlib

from amqp import exceptions as amqp_exc
import fixtures
from oslo_config import cfg
import oslo_messaging
from oslo_messaging._drivers import amqp
from oslo_messaging._drivers import impl_rabbit

from cellsched.conf import loading
from cellsched import context
from cellsched.rpc import brokers
from cellsched.rpc import client
from cellsched.rpc import server
from cellsched.rpc import transport
from tests.unit import base


class Endpoint:

    def echo(self, context, text):
        return text


class TestTune(base.TestCase):

    def setUp(self):
        super().setUp()
        self.conf = cfg.ConfigOpts()
        self.conf([], default_config_files=[], default_config_dirs=[])
        loading.register_messaging(self.conf)
        self.transports = transport.Transports(self.conf)
        self.addCleanup(self.transports.close)
        #: How long connections waited for messages, at most.
        self.waits = []
        consume = impl_rabbit.Connection.consume

        def counted(connection, timeout=None):
            self.waits.append(timeout)
            return consume(connection, timeout)

        self.useFixture(fixtures.MonkeyPatch(
            'oslo_messaging._drivers.impl_rabbit.Connection.consume',
            counted))

        #: How often a connection prepared for failures.
        self.prepared = []
        ensure = impl_rabbit.Connection.ensure

        def noted(connection, *args, **kwargs):
            self.prepared.append(args)
            return ensure(connection, *args, **kwargs)

        self.useFixture(fixtures.MonkeyPatch(
            'oslo_messaging._drivers.impl_rabbit.Connection.ensure', noted))
        self.tuned = self.transports.get('kombu+memory://')
        self.others = oslo_messaging.get_rpc_transport(
            self.conf, 'kombu+memory://')
        self.addCleanup(self.others.cleanup)
        self.conf.set_override(
            'kombu_reconnect_delay', 0, 'oslo_messaging_rabbit')

    @contextlib.contextmanager
    def serve(self, transport_):
        """Yield what calls a server."""
        served = server.server(transport_, 'topic', 'host', [Endpoint()])
        served.start()
        try:
            yield lambda: client.Client(transport_, 'topic', '1.0').call(
                context.admin(), 'echo', text='said')
        finally:
            served.stop()
            served.wait()

    def call(self, transport_):
        with self.serve(transport_) as call:
            return call()

    def try_(self, transport_, failures, retry=None):
        """Return how often something was tried, and what came of it."""
        tries = []

        def method():
            tries.append(1)
            if failures:
                raise failures.pop()

        with transport_._driver._get_connection() as connection:
            try:
                connection.connection.ensure(method, retry=retry)
            except Exception as exc:
                return len(tries), type(exc)
        return len(tries), None

    def test_nobody_looks_for_work_between_messages(self):
        self.assertEqual('said', self.call(self.tuned))

        self.assertLessEqual(2, len(self.waits))
        self.assertLessEqual(brokers.LEAST_S, min(self.waits))

    def test_no_message_prepares_for_failures(self):
        with self.serve(self.tuned) as call:
            call()
            del self.prepared[:]
            self.assertEqual('said', call())
        self.assertEqual([], self.prepared)

    def test_what_failed_is_tried_as_often_as_without(self):
        for number, retry in ((1, None), (3, None), (1, 0), (2, 1), (2, 2)):
            tries = [self.try_(
                transport_,
                [amqp_exc.RecoverableConnectionError()] * number, retry)
                for transport_ in (self.others, self.tuned)]
            self.assertEqual(*tries)
            self.assertLess(0, tries[0][0])

    def test_message_is_sent_again_when_its_connection_was_lost(self):
        with self.serve(self.tuned) as call:
            call()
            lost = [amqp_exc.RecoverableConnectionError('lost')]
            publish = impl_rabbit.Connection._publish

            def lose(*args, **kwargs):
                if lost:
                    raise lost.pop()
                return publish(*args, **kwargs)

            self.useFixture(fixtures.MonkeyPatch(
                'oslo_messaging._drivers.impl_rabbit.Connection._publish',
                lose))
            del self.prepared[:]
            self.assertEqual('said', call())
        self.assertEqual([], lost)
        self.assertNotEqual([], self.prepared)

    def test_message_that_nobody_takes_is_not_tried_again(self):
        for failure in (amqp.AMQPDestinationNotFound,
                        oslo_messaging.MessageUndeliverable):
            del self.prepared[:]
            self.assertEqual(
                (1, failure), self.try_(self.tuned, [failure(*[''] * 4)]))
            self.assertEqual([], self.prepared)

    def timeouts(self, transport_, beats=True):
        """Return what sockets are told for messages of some timeouts."""
        rabbit = 'oslo_messaging._drivers.impl_rabbit.Connection.'
        self.useFixture(fixtures.MonkeyPatch(
            f'{rabbit}_heartbeat_supported_and_enabled', lambda self: beats))
        self.useFixture(fixtures.MonkeyPatch(
            f'{rabbit}_heartbeat_check', lambda self: None))
        told = []
        with self.serve(transport_) as call:
            call()
            self.useFixture(fixtures.MonkeyPatch(
                f'{rabbit}set_transport_socket_timeout',
                lambda self, timeout=None: told.append(timeout)))
            with transport_._driver._get_connection() as connection:
                for timeout in (None, 60, 59.5, 61):
                    with connection.connection._transport_socket_timeout(
                            timeout):
                        told.append('sent')
        return told

    def test_socket_is_told_of_messages_that_have_less_time_than_it(self):
        self.assertEqual(
            ['sent', 'sent', 59.5, 'sent', None, 'sent'],
            self.timeouts(self.tuned))

    def test_socket_is_told_of_each_message_where_nothing_bounds_it(self):
        expected = [each for timeout in (None, 60, 59.5, 61)
                    for each in (timeout, 'sent', None)]
        self.assertEqual(expected, self.timeouts(self.tuned, beats=False))
        self.assertEqual(expected, self.timeouts(self.others))

    def test_transports_of_others_stay_as_they_are(self):
        self.call(self.others)

        self.assertGreater(brokers.LEAST_S, min(self.waits))
        self.assertNotEqual([], self.prepared)
