# SPDX-License-Identifier: Apache-2.0
import concurrent.futures
import threading
import uuid

import fixtures
import hypothesis
from hypothesis import strategies
import oslo_messaging

from cellsched import exception
from tests import profile
from tests.unit.rpc import base


JSON = strategies.recursive(
    strategies.none() | strategies.booleans() | strategies.integers()
    | strategies.floats(allow_nan=False) | strategies.text(),
    lambda inner: strategies.lists(inner, max_size=4)
    | strategies.dictionaries(strategies.text(), inner, max_size=4),
    max_leaves=20)


class Endpoint(base.Recorder):
    """What the tests call."""

    def echo(self, context, value):
        return value

    def spoil(self, context, value):
        value['spoilt'] = True
        self.reply = {'fine': True}
        return self.reply

    def note(self, context, value):
        self.received.put(value)

    def strange(self, context):
        return object()


class TestMessages(base.LocalTestCase):

    def test_call_returns_the_result_of_the_server(self):
        self.start(Endpoint())

        self.assertEqual([1, {'a': None}], self.client().call(
            {}, 'echo', value=[1, {'a': None}]))

    def test_every_json_value_arrives_unchanged(self):
        self.start(Endpoint())
        client = self.client()

        @profile.few_examples
        @hypothesis.given(value=JSON)
        def check(value):
            self.assertEqual(value, client.call({}, 'echo', value=value))

        check()

    def test_server_and_caller_share_no_objects(self):
        endpoint = Endpoint()
        self.start(endpoint)
        value = {'spoilt': False}

        reply = self.client().call({}, 'spoil', value=value)

        self.assertEqual({'spoilt': False}, value)
        self.assertEqual({'fine': True}, reply)
        self.assertIsNot(endpoint.reply, reply)

    def test_tuple_arrives_as_a_list(self):
        self.start(Endpoint())

        self.assertEqual(
            [1, 2], self.client().call({}, 'echo', value=(1, 2)))

    def test_value_without_a_json_form_is_not_sent(self):
        endpoint = Endpoint()
        self.start(endpoint)

        self.assertRaises(
            ValueError, self.client().cast, {}, 'note', value=object())
        self.assertTrue(endpoint.received.empty())

    def test_unserializable_reply_is_an_error_of_the_caller(self):
        self.start(Endpoint())

        error = self.assertRaises(
            ValueError, self.client().call, {}, 'strange')

        self.assertIn('object', str(error))
        self.assertIn('not JSON serializable', self.logs.output)

    def test_each_of_many_callers_gets_its_own_reply(self):
        self.start(Endpoint())
        client = self.client()

        def ask(number):
            return client.call({}, 'echo', value=number)

        with concurrent.futures.ThreadPoolExecutor(8) as callers:
            self.assertEqual(
                list(range(400)), list(callers.map(ask, range(400))))

    def test_cast_without_a_server_waits_for_a_server(self):
        endpoint = Endpoint()
        for number in range(10):
            self.client().cast({}, 'note', value=number)

        self.start(endpoint, threads=1)

        self.assertEqual(
            list(range(10)), [endpoint.next() for _ in range(10)])

    def test_messages_are_received_in_the_order_of_sending(self):
        endpoint = Endpoint()
        self.start(endpoint, threads=1)

        for number in range(100):
            self.client().cast({}, 'note', value=number)

        self.assertEqual(
            list(range(100)), [endpoint.next() for _ in range(100)])

    def test_no_thread_belongs_to_a_transport(self):
        before = threading.active_count()

        other = self.transports.get(f'{self.world}/other')
        self.listen(lambda incoming: None, other)
        self.client(other).cast({}, 'note', value=1)

        self.assertEqual(before, threading.active_count())

    def test_more_messages_than_may_wait_are_refused(self):
        self.useFixture(
            fixtures.MonkeyPatch('cellsched.rpc.local.WAITING_MAX', 2))
        self.client().cast({}, 'note', value=1)
        self.client().cast({}, 'note', value=2)

        error = self.assertRaises(
            oslo_messaging.MessageDeliveryFailure,
            self.client().cast, {}, 'note', value=3)

        self.assertIn('topic topic', str(error))


class TestAddresses(base.LocalTestCase):

    def test_message_is_sent_to_a_single_server_of_a_topic(self):
        endpoints = [Endpoint(), Endpoint(), Endpoint()]
        for number, endpoint in enumerate(endpoints):
            self.start(endpoint, host=f'host{number}')

        for number in range(9):
            self.client().cast({}, 'note', value=number)

        shares = [[endpoint.next() for _ in range(3)]
                  for endpoint in endpoints]
        self.assertEqual(list(range(9)), sorted(sum(shares, [])))

    def test_message_to_a_server_is_received_only_by_the_server(self):
        there, elsewhere = Endpoint(), Endpoint()
        self.start(there, host='there')
        self.start(elsewhere, host='elsewhere')

        for number in range(4):
            self.client().prepare(server='there').cast(
                {}, 'note', value=number)

        self.assertEqual(
            {0, 1, 2, 3}, {there.next() for _ in range(4)})
        self.assertTrue(elsewhere.received.empty())

    def test_message_to_a_server_waits_for_the_server(self):
        there, elsewhere = Endpoint(), Endpoint()
        self.start(elsewhere, host='elsewhere')
        self.client().prepare(server='there').cast({}, 'note', value=1)

        self.start(there, host='there')

        self.assertEqual(1, there.next())
        self.assertTrue(elsewhere.received.empty())

    def test_fanout_reaches_every_server_once(self):
        endpoints = [Endpoint(), Endpoint()]
        for number, endpoint in enumerate(endpoints):
            self.start(endpoint, host=f'host{number}', threads=1)

        for value in ('first', 'second'):
            self.client().prepare(fanout=True).cast({}, 'note', value=value)

        for endpoint in endpoints:
            self.assertEqual('first', endpoint.next())
            self.assertEqual('second', endpoint.next())
            self.assertTrue(endpoint.received.empty())

    def test_fanout_is_not_kept_for_a_later_server(self):
        endpoint = Endpoint()
        self.client().prepare(fanout=True).cast({}, 'note', value='early')

        self.start(endpoint)

        self.client().cast({}, 'note', value='late')
        self.assertEqual('late', endpoint.next())

    def test_receivers_of_a_fanout_share_no_objects(self):
        taken = []
        self.listen(taken.append, host='one')
        self.listen(taken.append, host='two')

        self.client().prepare(fanout=True).cast({}, 'note', value=[])

        taken[0].message['args']['value'].append('spoilt')
        self.assertEqual([], taken[1].message['args']['value'])

    def test_fanout_with_a_server_is_sent_to_all_servers(self):
        endpoint = Endpoint()
        self.start(endpoint)

        self.client().prepare(fanout=True, server='another').cast(
            {}, 'note', value=1)

        self.assertEqual(1, endpoint.next())

    def test_exchanges_do_not_mix(self):
        ours, theirs = Endpoint(), Endpoint()
        self.start(ours)
        self.start(theirs, target=base.TOPIC(exchange='theirs'))

        self.client(target=base.TOPIC(exchange='theirs')).cast(
            {}, 'note', value=1)

        self.assertEqual(1, theirs.next())
        self.assertTrue(ours.received.empty())


class TestWorlds(base.LocalTestCase):

    def assertApart(self, url):
        here, there = Endpoint(), Endpoint()
        other = self.transports.get(url)
        self.start(here)
        self.start(there, transport=other)

        self.client(other).cast({}, 'note', value='there')
        self.client().cast({}, 'note', value='here')

        self.assertEqual('here', here.next())
        self.assertEqual('there', there.next())

    def test_virtual_hosts_do_not_mix(self):
        self.assertApart(f'{self.world}/other')

    def test_hosts_do_not_mix(self):
        self.assertApart(f'local://{uuid.uuid4().hex}/cell')

    def test_ports_do_not_mix(self):
        self.assertApart(f'{self.world}:1/cell')

    def test_transports_of_the_same_url_are_connected(self):
        endpoint = Endpoint()
        self.start(endpoint)
        other = oslo_messaging.get_rpc_transport(
            self.conf, f'{self.world}/cell')
        self.addCleanup(other.cleanup)

        self.client(other).cast({}, 'note', value=1)

        self.assertEqual(1, endpoint.next())

    def test_messages_are_dropped_with_the_last_transport(self):
        self.client().cast({}, 'note', value='before')
        self.transports.close()
        endpoint = Endpoint()
        again = self.transports.get(f'{self.world}/cell')

        self.start(endpoint, transport=again)

        self.client(again).cast({}, 'note', value='after')
        self.assertEqual('after', endpoint.next())

    def test_queued_message_stays_while_a_transport_is_open(self):
        url = f'{self.world}/cell'
        first = oslo_messaging.get_rpc_transport(self.conf, url)
        self.client(first).cast({}, 'note', value='before')
        first.cleanup()
        endpoint = Endpoint()

        self.start(endpoint)

        self.assertEqual('before', endpoint.next())

    def test_second_close_of_a_transport_closes_no_other_transport(self):
        url = f'{self.world}/cell'
        other = oslo_messaging.get_rpc_transport(self.conf, url)
        self.client().cast({}, 'note', value='kept')
        other.cleanup()
        other.cleanup()
        endpoint = Endpoint()

        self.start(endpoint)

        self.assertEqual('kept', endpoint.next())

    def test_closed_transport_refuses_to_send(self):
        client = self.client()
        self.transports.close()

        self.assertRaises(oslo_messaging.MessageDeliveryFailure,
                          client.cast, {}, 'note', value=1)


class Unlucky:

    def __init__(self, error):
        self._error = error

    def fail(self, context):
        raise self._error


class TestFailures(base.LocalTestCase):

    def error(self, error, kind):
        self.start(Unlucky(error))
        return self.assertRaises(kind, self.client().call, {}, 'fail')

    def test_error_of_an_allowed_module_arrives_as_its_class(self):
        error = self.error(exception.CellMappingNotFound(uuid='u'),
                           exception.CellMappingNotFound)

        self.assertEqual('u', error.uuid)
        self.assertEqual('There is no cell u.', error.format_message())

    def test_error_of_another_module_arrives_as_a_remote_error(self):
        error = self.error(oslo_messaging.InvalidTarget('no', base.TOPIC),
                           oslo_messaging.RemoteError)

        self.assertEqual('InvalidTarget', error.exc_type)

    def test_builtin_error_arrives_as_its_class(self):
        self.error(KeyError('k'), KeyError)

    def test_error_relayed_by_a_second_server_keeps_its_type(self):
        far = self.transports.get(f'{self.world}/far')
        self.start(Unlucky(exception.HostMappingNotFound(host='h')),
                   transport=far)
        client = self.client(far)

        class Between:
            def fail(self, context):
                client.call(context, 'fail')

        self.start(Between())

        error = self.assertRaises(exception.HostMappingNotFound,
                                  self.client().call, {}, 'fail')
        self.assertEqual({'host': 'h', 'code': 404}, error.kwargs)


class TestWaiting(base.LocalTestCase):

    def late(self):
        """Have a server that is too late for who waits a moment only."""
        endpoint = base.Late()
        self.start(endpoint)
        self.addCleanup(endpoint.go_on.set)

    def assertGivesUp(self, **options):
        return self.assertRaises(
            oslo_messaging.MessagingTimeout,
            self.client(**options).call, {}, 'ask')

    def test_call_without_a_server_times_out(self):
        error = self.assertGivesUp(timeout=0.01)

        self.assertIn('ask', str(error))
        self.assertIn('topic', str(error))

    def test_unanswered_call_times_out(self):
        self.late()

        self.assertGivesUp(timeout=0.01)

    def test_late_reply_is_dropped(self):
        taken = []
        self.listen(taken.append)
        self.assertGivesUp(timeout=0.01)

        taken[0].reply('late')

        self.assertGivesUp(timeout=0.01)

    def test_call_without_a_sign_of_life_ends_before_its_timeout(self):
        self.late()

        self.assertGivesUp(
            timeout=base.DEADLINE_S, call_monitor_timeout=0.01)

    def test_sign_of_life_is_not_taken_for_a_reply(self):
        def take(incoming):
            incoming.heartbeat()
            incoming.heartbeat()
            incoming.reply('done')

        self.listen(take)
        client = self.client(call_monitor_timeout=base.DEADLINE_S)

        self.assertEqual('done', client.call({}, 'ask'))

    def test_signs_of_life_do_not_prolong_a_call_beyond_its_timeout(self):
        taken = []
        over = threading.Event()
        self.addCleanup(over.set)

        def live():
            for _ in range(1000):
                if over.wait(0.001):
                    return
                taken[0].heartbeat()
            taken[0].reply('late')

        def take(incoming):
            taken.append(incoming)
            threading.Thread(target=live, daemon=True).start()

        self.listen(take)

        self.assertGivesUp(
            timeout=0.05, call_monitor_timeout=base.DEADLINE_S)

    def test_server_receives_the_heartbeat_interval_of_the_caller(self):
        def take(incoming):
            incoming.reply(incoming.client_timeout)

        self.listen(take)

        self.assertEqual(
            7, self.client(call_monitor_timeout=7).call({}, 'ask'))
        self.assertIsNone(self.client().call({}, 'ask'))

    def test_cast_has_no_reply(self):
        taken = []
        self.listen(taken.append)
        self.client().cast({}, 'note')

        taken[0].heartbeat()
        self.assertIsNone(taken[0].reply('unwanted'))


class TestListeners(base.LocalTestCase):

    def test_stopped_listener_receives_no_messages(self):
        taken = []
        listener = self.listen(taken.append)
        self.client().cast({}, 'note', value='before')

        listener.stop()

        self.client().cast({}, 'note', value='after')
        self.assertEqual(
            ['before'], [each.message['args']['value'] for each in taken])

    def test_message_not_taken_by_a_stopped_listener_is_kept(self):
        self.listen(lambda incoming: None).stop()
        self.client().cast({}, 'note', value=1)
        taken = []

        self.listen(taken.append)

        self.assertEqual(1, len(taken))

    def test_other_listeners_continue_after_a_stop(self):
        taken = []
        first = self.listen(lambda incoming: None, host='one')
        self.listen(taken.append, host='two')
        first.stop()

        for number in range(3):
            self.client().cast({}, 'note', value=number)

        self.assertEqual(3, len(taken))

    def test_listener_may_be_stopped_twice(self):
        taken = []
        listener = self.listen(taken.append)

        listener.stop()
        listener.cleanup()

        self.client().cast({}, 'note')
        self.assertEqual([], taken)

    def test_requeued_message_is_received_next(self):
        taken = []
        listener = self.listen(taken.append)
        self.client().cast({}, 'note', value='first')
        listener.stop()
        self.client().cast({}, 'note', value='second')

        taken[0].message['args']['value'] = 'spoilt'
        taken[0].requeue()

        self.listen(taken.append)
        self.assertEqual(
            ['spoilt', 'first', 'second'],
            [each.message['args']['value'] for each in taken])


class Notified(base.Recorder):

    def info(self, context, publisher_id, event_type, payload, metadata):
        self.received.put((publisher_id, event_type, payload))


class TestNotifications(base.LocalTestCase):

    def setUp(self):
        super().setUp()
        self.transport = oslo_messaging.get_notification_transport(
            self.conf, f'{self.world}/cell')
        self.addCleanup(self.transport.cleanup)
        self.notifier = oslo_messaging.Notifier(
            self.transport, 'publisher', driver='messagingv2',
            topics=['notifications'])

    def hear(self, taken, priority='info', pool=None):
        target = oslo_messaging.Target(topic='notifications')
        listener = self.transport._listen_for_notifications(
            [(target, priority)], pool, 1, None)
        listener.start(lambda incoming: taken.append(incoming[0]))
        self.addCleanup(listener.stop)
        return listener

    def test_notification_is_received(self):
        endpoint = Notified()
        listener = oslo_messaging.get_notification_listener(
            self.transport, [oslo_messaging.Target(topic='notifications')],
            [endpoint], allow_requeue=True)
        listener.start()
        self.addCleanup(self.end, listener)

        self.notifier.info({}, 'it.happened', {'a': 1})

        self.assertEqual(
            ('publisher', 'it.happened', {'a': 1}), endpoint.next())

    def test_priorities_have_separate_queues(self):
        infos, errors = [], []
        self.hear(infos)
        self.hear(errors, 'error')

        self.notifier.error({}, 'it.broke', {})

        self.assertEqual('it.broke', errors[0].message['event_type'])
        self.assertEqual([], infos)

    def test_notification_waits_for_a_listener(self):
        heard = []
        self.notifier.info({}, 'it.happened', {})

        self.hear(heard)

        self.assertEqual('it.happened', heard[0].message['event_type'])

    def test_notification_is_sent_to_a_single_listener(self):
        first, second = [], []
        self.hear(first)
        self.hear(second)

        self.notifier.info({}, 'it.happened', {})
        self.notifier.info({}, 'it.happened', {})

        self.assertEqual((1, 1), (len(first), len(second)))

    def test_listener_may_put_a_notification_back(self):
        heard = []
        self.hear(heard)
        self.notifier.info({}, 'it.happened', {})

        heard[0].requeue()

        self.assertEqual(heard[0].message, heard[1].message)

    def test_pools_of_listeners_are_refused(self):
        self.assertRaises(NotImplementedError, self.hear, [], pool='pool')
