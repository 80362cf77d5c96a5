# SPDX-License-Identifier: Apache-2.0
"""More of the local transport: what comes back, and who listens."""

import threading

import oslo_messaging

from cellsched import exception
from tests.unit.rpc import base


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

    def test_error_of_an_error_that_went_through_two_servers_is_itself(self):
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

    def test_call_that_nobody_receives_times_out(self):
        error = self.assertGivesUp(timeout=0.01)

        self.assertIn('ask', str(error))
        self.assertIn('topic', str(error))

    def test_call_that_is_not_answered_in_time_times_out(self):
        self.late()

        self.assertGivesUp(timeout=0.01)

    def test_reply_that_comes_too_late_disturbs_nobody(self):
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

    def test_server_knows_how_often_a_caller_wants_a_sign_of_life(self):
        def take(incoming):
            incoming.reply(incoming.client_timeout)

        self.listen(take)

        self.assertEqual(
            7, self.client(call_monitor_timeout=7).call({}, 'ask'))
        self.assertIsNone(self.client().call({}, 'ask'))

    def test_nothing_comes_back_from_a_cast(self):
        taken = []
        self.listen(taken.append)
        self.client().cast({}, 'note')

        taken[0].heartbeat()
        self.assertIsNone(taken[0].reply('unwanted'))


class TestListeners(base.LocalTestCase):

    def test_stopped_listener_is_handed_nothing(self):
        taken = []
        listener = self.listen(taken.append)
        self.client().cast({}, 'note', value='before')

        listener.stop()

        self.client().cast({}, 'note', value='after')
        self.assertEqual(
            ['before'], [each.message['args']['value'] for each in taken])

    def test_what_a_stopped_listener_did_not_take_waits_for_the_next(self):
        self.listen(lambda incoming: None).stop()
        self.client().cast({}, 'note', value=1)
        taken = []

        self.listen(taken.append)

        self.assertEqual(1, len(taken))

    def test_other_listeners_go_on_when_one_stops(self):
        taken = []
        first = self.listen(lambda incoming: None, host='one')
        self.listen(taken.append, host='two')
        first.stop()

        for number in range(3):
            self.client().cast({}, 'note', value=number)

        self.assertEqual(3, len(taken))

    def test_listener_may_be_stopped_twice(self):
        listener = self.listen(lambda incoming: None)

        listener.stop()
        listener.cleanup()

    def test_message_that_is_put_back_is_the_next(self):
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

    def test_notification_is_heard(self):
        endpoint = Notified()
        listener = oslo_messaging.get_notification_listener(
            self.transport, [oslo_messaging.Target(topic='notifications')],
            [endpoint], allow_requeue=True)
        listener.start()
        self.addCleanup(self.end, listener)

        self.notifier.info({}, 'it.happened', {'a': 1})

        self.assertEqual(
            ('publisher', 'it.happened', {'a': 1}), endpoint.next())

    def test_priorities_are_told_apart(self):
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

    def test_notification_goes_to_one_of_several_listeners(self):
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
