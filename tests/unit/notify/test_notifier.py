# SPDX-License-Identifier: Apache-2.0
import itertools
import json
import logging

import fixtures
import oslo_messaging
from oslo_messaging.notify import _impl_test as recorded

from cellsched import context
from cellsched import exception
from cellsched.notify import notifier
from tests.unit.notify import wire
from tests.unit.rpc import base
from tests.unit import tidy

SAMPLES = tidy.ROOT / 'doc' / 'source' / '_static' / 'notifications'

ASKED = [wire.INSTANCE, wire.OTHER]

LEGACY, VERSIONED = 'notifications', 'versioned_notifications'

GROUP = 'oslo_messaging_notifications'


class Listener(base.Recorder):
    """An endpoint for notifications."""

    def info(self, context_, publisher_id, event_type, payload, metadata):
        self.received.put((context_, {
            'priority': 'INFO', 'event_type': event_type,
            'publisher_id': publisher_id, 'payload': payload}))


class Untold:
    """A request that nobody may look at."""

    def __getattribute__(self, name):
        raise AssertionError(f'{name} was read')


class NotifierTestCase(base.RPCTestCase):

    def setUp(self):
        super().setUp()
        self.conf.set_override('transport_url', f'{self.world}/told')
        self.conf.set_override('driver', ['messagingv2'], GROUP)
        self.context = context.RequestContext(
            user_id='alice', project_id='shop', auth_token='t0ken')

    def notifier(self, form='both', topics=(VERSIONED,)):
        return notifier.Notifier(
            self.transports.notifications(), 'host0', form, topics)

    def listen(self, *topics):
        """Return what gets the notifications of some topics."""
        listener = Listener()
        server = oslo_messaging.get_notification_listener(
            self.transports.notifications(),
            [oslo_messaging.Target(topic=topic) for topic in topics],
            [listener], executor='threading')
        server.start()
        self.addCleanup(self.end, server)
        return listener

    def warnings(self):
        return [line for line in self.logs.output.splitlines()
                if 'notification' in line]


class TestNotifier(NotifierTestCase):

    def test_notifications_are_those_of_the_samples(self):
        sender = self.notifier()

        for form, topic in (('legacy', LEGACY), ('versioned', VERSIONED)):
            listener = self.listen(topic)
            for phase in ('start', 'end'):
                sender.select_destinations(
                    self.context, phase, wire.request(), ASKED)
                name = f'select_destinations.{phase}.{form}.json'
                told = listener.next()[1]
                self.assertEqual(
                    json.loads((SAMPLES / name).read_text()), told, name)

    def test_format_says_which_are_sent(self):
        listener = self.listen(LEGACY, VERSIONED)

        for form, *expected in (('unversioned', 'scheduler.host0'),
                                ('versioned', 'nova-scheduler:host0'),
                                ('both', 'scheduler.host0',
                                 'nova-scheduler:host0')):
            for phase in ('start', 'end'):
                self.notifier(form).select_destinations(
                    self.context, phase, wire.request(), ASKED)

            told = [listener.next()[1] for _ in range(2 * len(expected))]
            self.assertEqual(
                {(publisher, f'scheduler.select_destinations.{phase}')
                 for publisher, phase in itertools.product(
                     expected, ('start', 'end'))},
                {(each['publisher_id'], each['event_type'])
                 for each in told})

    def test_versioned_ones_go_to_each_topic(self):
        listeners = [self.listen('one'), self.listen('two')]

        self.notifier('versioned', ['one', 'two']).select_destinations(
            self.context, 'start', wire.request(), ASKED)

        first, second = (each.next()[1] for each in listeners)
        self.assertEqual(first, second)

    def test_context_goes_without_its_token(self):
        listener = self.listen(LEGACY)

        self.notifier().select_destinations(
            self.context, 'start', wire.request(), ASKED)

        sent, _ = listener.next()
        self.assertEqual(self.context.request_id, sent['request_id'])
        self.assertEqual('shop', sent['project_id'])
        self.assertNotIn('t0ken', json.dumps(sent))

    def test_without_a_driver_no_request_is_looked_at(self):
        for drivers in ([], ['noop']):
            self.conf.set_override('driver', drivers, GROUP)

            self.notifier().select_destinations(
                self.context, 'start', Untold(), ASKED)

        self.assertEqual([], self.warnings())

    def test_unknown_driver_is_answered_with_those_there_are(self):
        self.conf.set_override('driver', ['mesaging'], GROUP)

        error = self.assertRaises(exception.PluginNotFound, self.notifier)

        self.assertIn('messagingv2', str(error))

    def test_log_is_a_way_to_notify_too(self):
        self.conf.set_override('driver', ['log'], GROUP)
        log = self.useFixture(fixtures.FakeLogger(
            'oslo.messaging.notification', logging.INFO))

        self.notifier('versioned').select_destinations(
            self.context, 'start', wire.request(), ASKED)

        self.assertIn('RequestSpecPayload', log.output)


class TestFailure(NotifierTestCase):

    def test_request_goes_on_when_nothing_can_be_sent(self):
        sender = self.notifier()
        self.transports.close()

        sender.select_destinations(
            self.context, 'start', wire.request(), ASKED)

        self.assertEqual(2, len(self.warnings()), self.logs.output)
        for line in self.warnings():
            self.assertIn('scheduler.select_destinations.start', line)
            self.assertIn('MessageDeliveryFailure: The transport was', line)
        self.assertNotIn('Traceback', self.logs.output)
        self.assertNotIn(wire.INSTANCE, self.logs.output)

    def test_request_goes_on_when_it_cannot_be_told(self):
        self.notifier('versioned').select_destinations(
            self.context, 'end', wire.request(security_groups=7), ASKED)

        [line] = self.warnings()
        self.assertIn('select_destinations.end: TypeError', line)

    def test_url_in_a_failure_is_not_logged(self):
        class Unreadable:
            def __iter__(self):
                raise ValueError('no way\nto rabbit://u:s3cret@h p4ss/')

        self.notifier('versioned').select_destinations(
            self.context, 'end',
            wire.request(security_groups=Unreadable()), ASKED)

        [line] = self.warnings()
        self.assertIn('ValueError: no way to rabbit://', line)
        self.assertNotIn('s3cret', self.logs.output)

    def test_other_topics_are_told_when_one_cannot_be(self):
        listener = self.listen('good')

        self.notifier('versioned', ['', 'good']).select_destinations(
            self.context, 'start', wire.request(), ASKED)

        self.assertEqual('nova-scheduler:host0',
                         listener.next()[1]['publisher_id'])

    def test_no_request_waits_for_ever(self):
        # How often to try again is not seen but by a driver.
        self.conf.set_override('driver', ['test'], GROUP)
        self.addCleanup(recorded.reset)

        for configured, tried in ((-1, 0), (0, 0), (3, 3)):
            self.conf.set_override('retry', configured, GROUP)
            self.notifier('unversioned').select_destinations(
                self.context, 'start', wire.request(), ASKED)

            self.assertEqual(tried, recorded.NOTIFICATIONS[-1][-1])

    def test_broker_that_is_away_costs_one_line(self):
        self.conf.set_override(
            'transport_url', 'rabbit://u:s3cret@127.0.0.1:1/')

        self.notifier('unversioned').select_destinations(
            self.context, 'start', wire.request(), ASKED)

        [line] = self.logs.output.splitlines()
        self.assertIn('Connection refused', line)
        self.assertNotIn('s3cret', line)
