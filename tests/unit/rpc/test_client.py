# SPDX-License-Identifier: Apache-2.0
import concurrent.futures
from concurrent import futures
import threading

import oslo_messaging

from cellsched import clock
from cellsched import context
from cellsched import exception
from cellsched.rpc import client
from tests.unit.base import TestCase
from tests.unit.rpc import base


class Endpoint(base.Recorder):

    target = oslo_messaging.Target(namespace='space', version='1.3')

    def __init__(self, name='host'):
        super().__init__()
        self._name = name

    def who(self, context):
        return self._name

    def echo(self, context, value):
        return value, context.request_id

    def note(self, context, value):
        self.received.put(value)


class TestClient(base.RPCTestCase):

    def setUp(self):
        super().setUp()
        self.context = context.RequestContext(request_id='req-1')

    def client(self, version='1.0', namespace='space', **options):
        return client.Client(
            self.transport, 'topic', version, namespace, **options)

    def test_unreachable_broker_is_an_error_after_retries(self):
        # Nothing may listen on this port.
        lost = client.Client(
            self.transports.get('rabbit://127.0.0.1:1/'), 'topic', '1.0',
            retries_max=0)

        self.assertRaises(
            oslo_messaging.MessageDeliveryFailure,
            lost.cast, self.context, 'note', value=1)

    def test_call_returns_the_answer(self):
        self.serve(Endpoint())

        self.assertEqual(
            [{'a': 1}, 'req-1'],
            self.client().call(self.context, 'echo', value={'a': 1}))

    def test_cast_is_received(self):
        endpoint = Endpoint()
        self.serve(endpoint)

        self.client().cast(self.context, 'note', value=1)

        self.assertEqual(1, endpoint.next())

    def test_message_may_be_sent_to_a_single_server(self):
        for host in ('here', 'there'):
            self.serve(Endpoint(host), host=host)
        asked = self.client()

        for _ in range(2):
            self.assertEqual(
                'there', asked.call(self.context, 'who', None, 'there'))

    def test_message_may_require_a_version(self):
        self.serve(Endpoint())
        asked = self.client()

        self.assertEqual('host', asked.call(self.context, 'who', '1.3'))
        error = self.assertRaises(
            oslo_messaging.RemoteError,
            asked.call, self.context, 'who', '1.4')
        self.assertEqual('UnsupportedVersion', error.exc_type)

    def test_client_version_is_required_by_default(self):
        self.serve(Endpoint())

        self.assertRaises(oslo_messaging.RemoteError,
                          self.client('1.4').call, self.context, 'who')

    def test_namespace_is_the_clients(self):
        self.serve(Endpoint())

        self.assertRaises(
            oslo_messaging.RemoteError,
            self.client(namespace=None).call, self.context, 'who')

    def test_argument_may_have_the_name_of_a_parameter_of_the_client(self):
        class Named:
            def named(self, context, version, server):
                return [version, server]

        self.serve(Named())
        asked = self.client(namespace=None)

        self.assertEqual(
            ['v', 's'],
            asked.call(self.context, 'named', version='v', server='s'))

    def assertGivesUp(self, method='call', **options):
        endpoint = base.Late()
        self.serve(endpoint)
        self.addCleanup(endpoint.go_on.set)
        asked = self.client(namespace=None, **options)

        self.assertRaises(oslo_messaging.MessagingTimeout,
                          getattr(asked, method), self.context, 'ask')

    def test_call_ends_with_its_timeout(self):
        self.assertGivesUp(timeout_s=0.01)

    def test_call_ends_with_the_configured_timeout_otherwise(self):
        self.conf.set_override('rpc_response_timeout', 0)

        self.assertGivesUp()

    def test_long_call_ends_without_a_heartbeat(self):
        self.assertGivesUp(
            'call_long', timeout_s=0.01, long_timeout_s=base.DEADLINE_S)

    def test_long_call_has_heartbeats_and_a_later_deadline(self):
        received = []
        listener = self.transport._listen(
            oslo_messaging.Target(topic='topic', server='host'), 1, None)
        listener.start(lambda incoming: (
            received.append(incoming[0]), incoming[0].reply(None)))
        self.addCleanup(listener.stop)
        caller = self.client(
            timeout_s=1000, long_timeout_s=5000, now=clock.Clock().timestamp)

        caller.call(self.context, 'who')
        caller.call_long(self.context, 'who')

        self.assertEqual(
            [None, 1000], [each.client_timeout for each in received])
        short, long = (each.ctxt['deadline'] for each in received)
        self.assertAlmostEqual(4000, long - short, delta=500)

    def test_threads_may_share_a_client(self):
        self.serve(Endpoint())
        asked = self.client()

        def ask(number):
            return asked.call(self.context, 'echo', value=number)[0]

        with concurrent.futures.ThreadPoolExecutor(8) as callers:
            self.assertEqual(
                list(range(200)), list(callers.map(ask, range(200))))


class TestVersionCap(base.RPCTestCase):

    def setUp(self):
        super().setUp()
        self.endpoint = Endpoint()
        self.serve(self.endpoint)
        self.context = context.RequestContext()

    def client(self, cap, least=None):
        return client.Client(
            self.transport, 'topic', '1.0', 'space', version_cap=cap,
            version_min=least)

    def test_versions_up_to_the_cap_are_sent(self):
        for version in ('1.0', '1.1', '1.2'):
            self.assertEqual('host', self.client('1.2').call(
                self.context, 'who', version))

    def test_version_above_the_cap_is_an_error_and_is_not_sent(self):
        capped = self.client('1.2')

        for send in capped.call, capped.cast:
            error = self.assertRaises(
                exception.VersionNotSendable, send, self.context, 'note',
                '1.3', value=1)

            self.assertEqual(('topic', '1.3', '1.2'),
                             (error.topic, error.version, error.cap))
            self.assertIn('[upgrade_levels] topic', str(error))
        self.assertTrue(self.endpoint.received.empty())

    def test_cap_may_change(self):
        caps = ['1.0', '1.3']
        capped = self.client(lambda: caps.pop(0))

        self.assertEqual([False, True],
                         [capped.can_send('1.3') for _ in range(2)])

    def test_cap_below_the_minimum_is_an_error_at_once(self):
        error = self.assertRaises(
            exception.ConfigurationInvalid, self.client, '1.2', '1.3')

        self.assertEqual('[upgrade_levels] topic', error.field)
        self.client('1.3', '1.3')


DEADLINE_S = 600


class TestSender(TestCase):

    def setUp(self):
        super().setUp()
        self.go_on = threading.Event()
        self.executor = futures.ThreadPoolExecutor(1)
        self.addCleanup(self.executor.shutdown)
        self.addCleanup(self.go_on.set)

    def hang(self):
        self.go_on.wait(DEADLINE_S)

    def test_message_is_sent_before_the_return(self):
        sent = []

        client.BackgroundSender(self.executor, DEADLINE_S)(
            lambda: sent.append(1))

        self.assertEqual([1], sent)

    def test_error_of_sending_is_raised(self):
        for error in (KeyError('as told'), TimeoutError('of a socket')):
            def fail(error=error):
                raise error

            self.assertIs(error, self.assertRaises(
                type(error), client.BackgroundSender(
                    self.executor, DEADLINE_S), fail))

    def test_hanging_message_blocks_its_sender_until_the_timeout(self):
        sender = client.BackgroundSender(self.executor, 0.01)

        error = self.assertRaises(
            oslo_messaging.MessageDeliveryFailure, sender, self.hang)

        self.assertIn('0.01 s', str(error))
        self.assertFalse(self.go_on.is_set())

    def test_message_refused_by_a_busy_executor_is_never_sent(self):
        sent = []
        sender = client.BackgroundSender(self.executor, 0.01)
        self.assertRaises(
            oslo_messaging.MessageDeliveryFailure, sender, self.hang)

        self.assertRaises(oslo_messaging.MessageDeliveryFailure, sender,
                          lambda: sent.append(1))
        self.go_on.set()
        self.executor.submit(lambda: None).result(DEADLINE_S)

        self.assertEqual([], sent)

    def test_directly_sends_in_the_calling_thread(self):
        threads = []

        client.directly(
            lambda: threads.append(threading.get_ident()))

        self.assertEqual([threading.get_ident()], threads)
