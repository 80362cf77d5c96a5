# SPDX-License-Identifier: Apache-2.0
import itertools
import json
import logging

import fixtures

from cellsched import exception
from tests.unit.notify import base
from tests.unit.notify import wire


class TestNotifier(base.SchedulerTestCase):

    def test_notifications_are_those_of_the_samples(self):
        sender = self.notifier()

        for form, topic in (('legacy', base.LEGACY),
                            ('versioned', base.VERSIONED)):
            listener = self.listen(topic)
            for phase in ('start', 'end'):
                sender.select_destinations(
                    self.context, phase, wire.request(), base.ASKED)
                name = f'select_destinations.{phase}.{form}.json'
                told = listener.next()[1]
                self.assertSample(name, told)

    def test_format_says_which_are_sent(self):
        listener = self.listen(base.LEGACY, base.VERSIONED)

        for form, *expected in (('unversioned', 'scheduler.host0'),
                                ('versioned', 'nova-scheduler:host0'),
                                ('both', 'scheduler.host0',
                                 'nova-scheduler:host0')):
            for phase in ('start', 'end'):
                self.notifier(form).select_destinations(
                    self.context, phase, wire.request(), base.ASKED)

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
            self.context, 'start', wire.request(), base.ASKED)

        first, second = (each.next()[1] for each in listeners)
        self.assertEqual(first, second)

    def test_context_goes_without_its_token(self):
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
                self.context, 'start', base.Untold(), base.ASKED)

        self.assertEqual([], self.warnings())

    def test_unknown_driver_is_answered_with_those_there_are(self):
        self.conf.set_override('driver', ['mesaging'], base.GROUP)

        error = self.assertRaises(exception.PluginNotFound, self.notifier)

        self.assertIn('messagingv2', str(error))

    def test_log_is_a_way_to_notify_too(self):
        self.conf.set_override('driver', ['log'], base.GROUP)
        log = self.useFixture(fixtures.FakeLogger(
            'oslo.messaging.notification', logging.INFO))

        self.notifier('versioned').select_destinations(
            self.context, 'start', wire.request(), base.ASKED)

        self.assertIn('RequestSpecPayload', log.output)
