# SPDX-License-Identifier: Apache-2.0
"""Notifications are received, also by other listeners."""

import datetime
import queue

from nova import rpc
import oslo_messaging
from oslo_utils import timeutils

from cellsched_nova.shadow import requests
from cellsched_nova.shadow import scheduler
from tests import specs

BEGUN, ENDED = (f'scheduler.select_destinations.{phase}'
                for phase in ('start', 'end'))

#: Seconds to wait before a test fails.
TIMEOUT_S = 300


class ShadowRecorder:
    """A shadow scheduler that records its calls."""

    def __init__(self):
        self.received = queue.SimpleQueue()

    def begin(self, context, payload, age_s):
        self.received.put(('begin', context.request_id, payload))

    def end(self, context, payload):
        self.received.put(('end', context.request_id, payload))

    def next(self):
        return self.received.get(timeout=TIMEOUT_S)


class OtherListener:
    """Another listener."""

    def __init__(self):
        self.received = queue.SimpleQueue()

    def info(self, context, publisher_id, event_type, payload, metadata):
        self.received.put(event_type)


class TestCase(specs.TestCase):

    def setUp(self):
        super().setUp()
        self.transport = oslo_messaging.get_notification_transport(specs.CONF)
        self.shadow = ShadowRecorder()
        self.endpoint = scheduler.Endpoint(self.shadow)

    def start(self, server):
        server.start(override_pool_size=1)
        self.addCleanup(server.wait)
        self.addCleanup(server.stop)

    def notify(self, topic, event_type, payload):
        oslo_messaging.Notifier(
            self.transport, publisher_id='scheduler.host1',
            serializer=rpc.RequestContextSerializer(
                rpc.JsonPayloadSerializer()),
            driver='messaging', topics=[topic]).info(
                self.context, event_type, payload)


class TestListener(TestCase):

    def listen(self, form, topic):
        specs.CONF.set_override(
            'notification_format', form, 'notifications')
        self.addCleanup(specs.CONF.clear_override, 'notification_format',
                        'notifications')
        self.start(scheduler.listener(specs.CONF, self.endpoint))
        self.assertEqual([topic], scheduler.topics(specs.CONF))

    def test_both_formats_are_received_in_order(self):
        for form, topic in (('both', 'versioned_notifications'),
                            ('unversioned', 'notifications')):
            with self.subTest(form):
                self.shadow.received = queue.SimpleQueue()
                self.listen(form, topic)
                for event_type in BEGUN, 'scheduler.other', ENDED:
                    self.notify(topic, event_type, {'number': 1})

                self.assertEqual(
                    [('begin', 'req-1', {'number': 1}),
                     ('end', 'req-1', {'number': 1})],
                    [self.shadow.next() for _ in range(2)])

    def test_other_listeners_receive_the_same(self):
        other = OtherListener()
        self.listen('both', 'versioned_notifications')
        self.start(oslo_messaging.get_notification_listener(
            self.transport,
            [oslo_messaging.Target(topic='versioned_notifications')],
            [other], executor='threading'))

        self.notify('versioned_notifications', BEGUN, {})

        self.assertEqual('begin', self.shadow.next()[0])
        self.assertEqual(BEGUN, other.received.get(timeout=TIMEOUT_S))


class TestEndpoint(TestCase):

    def test_failed_notification_does_not_stop_the_listener(self):
        for error, level in ((requests.RequestUnknown(reason=''), 'WARNING'),
                             (RuntimeError('no'), 'ERROR')):
            def fail(*arguments, error=error):
                raise error

            self.shadow.begin = self.shadow.end = fail
            for event_type in BEGUN, ENDED:
                with self.assertLogs(
                        'cellsched_nova.shadow.scheduler') as logged:
                    # Any other result would deliver the notification again.
                    self.assertIsNone(self.endpoint.info(
                        self.context, 'scheduler.host1', event_type, {}, {}))
                self.assertEqual([level], [
                    each.levelname for each in logged.records])

    def test_failed_comparison_does_not_stop_the_listener(self):
        def fail():
            raise RuntimeError('no')

        self.shadow.expire = fail
        with self.assertLogs('cellsched_nova.shadow.scheduler', 'ERROR'):
            self.endpoint.expire()

    def test_age_is_the_time_since_the_notification_was_sent(self):
        ages = []
        self.shadow.begin = lambda context, payload, age_s: ages.append(age_s)
        sent_at = timeutils.utcnow() - datetime.timedelta(seconds=100)
        for metadata in ({'timestamp': str(sent_at)}, {'timestamp': 'late'},
                         {}):
            self.endpoint.info(self.context, '', BEGUN, {}, metadata)

        self.assertGreaterEqual(ages[0], 100.0)
        self.assertEqual([0.0, 0.0], ages[1:])


class TestProblems(TestCase):

    def test_driver_without_listeners_is_named(self):
        for drivers, names in ((['noop'], ['driver']), ([], ['driver']),
                               (['log', 'messagingv2'], [])):
            specs.CONF.set_override(
                'driver', drivers, 'oslo_messaging_notifications')
            self.addCleanup(specs.CONF.clear_override, 'driver',
                            'oslo_messaging_notifications')

            found = scheduler.problems(specs.CONF)

            self.assertEqual(len(names), len(found))
            for name, problem in zip(names, found):
                self.assertIn(name, problem)
