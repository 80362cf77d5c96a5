# SPDX-License-Identifier: Apache-2.0
import itertools
import json
import logging

import fixtures
from oslo_messaging.notify import _impl_test as recorded

from cellsched import context
from cellsched import exception
from cellsched.notify import notifiers
from cellsched.testing import clock
from tests.unit.notify import base
from tests.unit.notify import wire


#: No state, the first one, and one later.
NONE, NEW, SPAWNING = (
    (None, None), ('building', 'scheduling'), ('building', 'spawning'))

METHODS = ('build_instances', 'migrate_server', 'rebuild_server')


class TestCase(base.NotifierTestCase):

    def notifier(self, form='both', on_change=None):
        return notifiers.TaskNotifier(
            self.transports.notifications(), 'host0', form,
            [base.VERSIONED], on_change)


class TestSamples(TestCase):

    def setUp(self):
        super().setUp()
        self.sender = self.notifier(on_change='vm_state')
        self.listeners = {'legacy': self.listen(base.LEGACY),
                          'versioned': self.listen(base.VERSIONED)}

    def assertSampleSent(self, name):
        """The last notifications equal the samples with this name."""
        for form, listener in self.listeners.items():
            self.assertSample(f'{name}.{form}.json', listener.next()[1])

    def test_failed_task_equals_its_sample(self):
        for method in METHODS:
            self.sender.failed(self.context, method, wire.instance(),
                               wire.request(), wire.reason())

            self.assertSampleSent(f'compute_task.{method}')

    def test_change_of_state(self):
        self.sender.updated(self.context, wire.instance(), NONE, NEW)

        self.assertSampleSent('instance.update')

    def test_deletion_during_a_build_equals_its_sample(self):
        for phase in ('start', 'end'):
            self.sender.deleted(self.context, phase, wire.instance())

            self.assertSampleSent(f'instance.delete.{phase}')

    def test_scheduled_rebuild_equals_its_sample(self):
        self.sender.rebuild_scheduled(self.context, wire.instance(
            vm_state='active', task_state='rebuilding', power_state=1,
            host='host1', node='node1', launched_at='2026-01-02T03:05:00Z'))

        self.assertSampleSent('instance.rebuild_scheduled')


class TestTaskNotifier(TestCase):

    def test_configured_changes_are_notified(self):
        listener = self.listen(base.VERSIONED)
        for configured, expected in (
                (None, []), ('vm_state', [NEW]),
                ('vm_and_task_state', [NEW, SPAWNING])):
            sender = self.notifier('versioned', configured)
            for old, new in ((NONE, NEW), (NEW, SPAWNING), (NEW, NEW)):
                sender.updated(self.context, wire.instance(), old, new)
            # The deletion is received last, so no further change precedes it.
            sender.deleted(self.context, 'end', wire.instance())

            sent = [listener.next()[1] for _ in [*expected, 'deleted']]
            self.assertEqual('instance.delete.end', sent[-1]['event_type'])
            states = [each['payload']['nova_object.data']['state_update'][
                'nova_object.data'] for each in sent[:-1]]
            self.assertEqual(expected, [
                (each['state'], each['new_task_state']) for each in states])

    def test_task_without_a_user_has_no_request_id(self):
        listener = self.listen(base.VERSIONED)

        self.notifier().deleted(
            context.RequestContext(), 'start', wire.instance())

        sent = listener.next()[1]['payload']['nova_object.data']
        self.assertEqual((None, None), (
            sent['request_id'], sent['action_initiator_user']))


class TestUnsent(TestCase):

    def send_all(self, sender, server):
        """Send each notification of a conductor."""
        for method in METHODS:
            sender.failed(self.context, method, server, server, server)
        sender.updated(self.context, server, NONE, NEW)
        sender.deleted(self.context, 'start', server)
        sender.rebuild_scheduled(self.context, server)

    def test_without_a_driver_no_argument_is_read(self):
        for drivers in ([], ['noop']):
            self.conf.set_override('driver', drivers, base.GROUP)

            self.send_all(self.notifier(on_change='vm_state'), base.Unread())

        self.send_all(notifiers.TaskNotifier(), base.Unread())
        self.assertEqual([], self.warnings())

    def test_error_of_a_driver_does_not_fail_the_caller(self):
        self.send_all(self.notifier('versioned', 'vm_state'), base.Unread())

        self.assertEqual(len(METHODS) + 3, len(self.warnings()))
        self.assertNotIn('Traceback', self.logs.output)

    def test_error_for_an_unknown_driver_lists_drivers(self):
        self.conf.set_override('driver', ['mesaging'], base.GROUP)

        error = self.assertRaises(exception.PluginNotFound, self.notifier)

        self.assertIn('messagingv2', str(error))


class TestNotifier(base.SchedulerTestCase):

    def test_notifications_equal_their_samples(self):
        sender = self.notifier()

        for form, topic in (('legacy', base.LEGACY),
                            ('versioned', base.VERSIONED)):
            listener = self.listen(topic)
            for phase in ('start', 'end'):
                sender.select_destinations(
                    self.context, phase, wire.request(), base.ASKED)
                name = f'select_destinations.{phase}.{form}.json'
                sent = listener.next()[1]
                self.assertSample(name, sent)

    def test_format_selects_the_notifications(self):
        listener = self.listen(base.LEGACY, base.VERSIONED)

        for form, *expected in (('unversioned', 'scheduler.host0'),
                                ('versioned', 'nova-scheduler:host0'),
                                ('both', 'scheduler.host0',
                                 'nova-scheduler:host0')):
            for phase in ('start', 'end'):
                self.notifier(form).select_destinations(
                    self.context, phase, wire.request(), base.ASKED)

            sent = [listener.next()[1] for _ in range(2 * len(expected))]
            self.assertEqual(
                {(publisher, f'scheduler.select_destinations.{phase}')
                 for publisher, phase in itertools.product(
                     expected, ('start', 'end'))},
                {(each['publisher_id'], each['event_type'])
                 for each in sent})

    def test_versioned_notifications_are_sent_to_each_topic(self):
        listeners = [self.listen('one'), self.listen('two')]

        self.notifier('versioned', ['one', 'two']).select_destinations(
            self.context, 'start', wire.request(), base.ASKED)

        first, second = (each.next()[1] for each in listeners)
        self.assertEqual(first, second)

    def test_token_of_the_context_is_not_sent(self):
        listener = self.listen(base.LEGACY)

        self.notifier().select_destinations(
            self.context, 'start', wire.request(), base.ASKED)

        sent, _ = listener.next()
        self.assertEqual(self.context.request_id, sent['request_id'])
        self.assertEqual('shop', sent['project_id'])
        self.assertNotIn('t0ken', json.dumps(sent))

    def test_without_a_driver_no_request_is_looked_at(self):
        for drivers in ([], ['noop']):
            self.conf.set_override('driver', drivers, base.GROUP)

            self.notifier().select_destinations(
                self.context, 'start', base.Unread(), base.ASKED)

        self.assertEqual([], self.warnings())

    def test_log_driver_writes_notifications(self):
        self.conf.set_override('driver', ['log'], base.GROUP)
        log = self.useFixture(fixtures.FakeLogger(
            'oslo.messaging.notification', logging.INFO))

        self.notifier('versioned').select_destinations(
            self.context, 'start', wire.request(), base.ASKED)

        self.assertIn('RequestSpecPayload', log.output)


class TestFailure(base.SchedulerTestCase):

    def test_request_continues_after_a_failed_notification(self):
        sender = self.notifier()
        self.transports.close()

        sender.select_destinations(
            self.context, 'start', wire.request(), base.ASKED)

        self.assertEqual(2, self.logs.output.count(
            'MessageDeliveryFailure: The transport was'), self.logs.output)

    def test_failed_notification_does_not_fail_the_request(self):
        self.notifier('versioned').select_destinations(
            self.context, 'end', wire.request(security_groups=7), base.ASKED)

        [line] = self.warnings()
        self.assertIn(
            'select_destinations.end cannot be sent: TypeError', line)

    def test_url_in_a_failure_is_not_logged(self):
        class Unreadable:
            def __iter__(self):
                raise ValueError('no way\nto rabbit://u:s3cret@h p4ss/')

        self.notifier('versioned').select_destinations(
            self.context, 'end',
            wire.request(security_groups=Unreadable()), base.ASKED)

        [line] = self.warnings()
        self.assertIn('ValueError: no way to rabbit://', line)
        self.assertNotIn('s3cret', self.logs.output)

    def test_failed_topic_does_not_block_other_topics(self):
        listener = self.listen('good')

        self.notifier('versioned', ['', 'good']).select_destinations(
            self.context, 'start', wire.request(), base.ASKED)

        self.assertEqual('nova-scheduler:host0',
                         listener.next()[1]['publisher_id'])

    def test_number_of_retries_is_bounded(self):
        # Only a driver gets the number of retries.
        self.conf.set_override('driver', ['test'], base.GROUP)
        self.addCleanup(recorded.reset)

        for configured, tried in ((-1, 0), (0, 0), (3, 3)):
            self.conf.set_override('retry', configured, base.GROUP)
            self.notifier('unversioned').select_destinations(
                self.context, 'start', wire.request(), base.ASKED)

            self.assertEqual(tried, recorded.NOTIFICATIONS[-1][-1])

    def test_error_of_an_unreachable_broker_hides_the_password(self):
        self.conf.set_override(
            'transport_url', 'rabbit://u:s3cret@127.0.0.1:1/')

        self.notifier('unversioned').select_destinations(
            self.context, 'start', wire.request(), base.ASKED)

        self.assertIn('Connection refused', self.logs.output)
        self.assertNotIn('s3cret', self.logs.output)


class TestUnresponsiveBroker(base.NotifierTestCase):

    def setUp(self):
        super().setUp()
        self.clock = clock.FakeClock()
        self.takes_s = 5.0
        self.asked = 0
        transport = self.transports.notifications()
        self.patch(transport._driver, 'send_notification', self.hang)
        self.sender = notifiers.Notifier(
            transport, 'host0', 'both', [base.VERSIONED], self.clock)

    def hang(self, *args, **kwargs):
        self.asked += 1
        self.clock.advance(self.takes_s)
        raise OSError('timed out')

    def send(self):
        note = notifiers.Note('publisher', 'a.event', dict)
        self.sender.send(self.context, 'info', note, note)

    def test_unresponsive_broker_is_awaited_once(self):
        for _ in range(5):
            self.send()

        self.assertEqual(1, self.asked)
        # One line for each form.
        self.assertEqual(2, len(self.warnings()))

    def test_unresponsive_broker_is_retried_after_a_pause(self):
        self.send()
        self.clock.advance(notifiers.PAUSE_S)

        self.send()

        self.assertEqual(2, self.asked)

    def test_unsent_notification_is_named(self):
        self.send()

        self.assertIn(
            'Versioned notification a.event cannot be sent: the broker '
            'was too slow a moment ago', self.warnings())

    def test_refusing_broker_is_tried_for_each_notification(self):
        self.takes_s = 0.0

        for _ in range(5):
            self.send()

        self.assertEqual(10, self.asked)
