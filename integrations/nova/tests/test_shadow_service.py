# SPDX-License-Identifier: Apache-2.0
"""Notifications are heard, beside others who hear them."""

import datetime
import queue

from nova import rpc
import oslo_messaging
from oslo_utils import timeutils

from cellsched_nova.shadow import requests
from cellsched_nova.shadow import service
from tests import specs

BEGUN, ENDED = (f'scheduler.select_destinations.{phase}'
                for phase in ('start', 'end'))

#: Seconds after which a test that waits has failed.
PATIENCE_S = 300


class Heard:
    """Keeps what it is told, in the place of a shadow."""

    def __init__(self):
        self.told = queue.SimpleQueue()

    def begin(self, context, payload, age_s):
        self.told.put(('begin', context.request_id, payload))

    def end(self, context, payload):
        self.told.put(('end', context.request_id, payload))

    def next(self):
        return self.told.get(timeout=PATIENCE_S)


class Others:
    """Somebody else who listens."""

    def __init__(self):
        self.told = queue.SimpleQueue()

    def info(self, context, publisher_id, event_type, payload, metadata):
        self.told.put(event_type)


class TestCase(specs.TestCase):

    def setUp(self):
        super().setUp()
        self.transport = oslo_messaging.get_notification_transport(specs.CONF)
        self.shadow = Heard()
        self.endpoint = service.Endpoint(self.shadow)

    def start(self, server):
        server.start(override_pool_size=1)
        self.addCleanup(server.wait)
        self.addCleanup(server.stop)

    def tell(self, topic, event_type, payload):
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
        self.start(service.listener(specs.CONF, self.endpoint))
        self.assertEqual([topic], service.topics(specs.CONF))

    def test_either_form_is_heard_in_order(self):
        for form, topic in (('both', 'versioned_notifications'),
                            ('unversioned', 'notifications')):
            with self.subTest(form):
                self.shadow.told = queue.SimpleQueue()
                self.listen(form, topic)
                for event_type in BEGUN, 'scheduler.other', ENDED:
                    self.tell(topic, event_type, {'number': 1})

                self.assertEqual(
                    [('begin', 'req-1', {'number': 1}),
                     ('end', 'req-1', {'number': 1})],
                    [self.shadow.next() for _ in range(2)])

    def test_others_hear_the_same(self):
        other = Others()
        self.listen('both', 'versioned_notifications')
        self.start(oslo_messaging.get_notification_listener(
            self.transport,
            [oslo_messaging.Target(topic='versioned_notifications')],
            [other], executor='threading'))

        self.tell('versioned_notifications', BEGUN, {})

        self.assertEqual('begin', self.shadow.next()[0])
        self.assertEqual(BEGUN, other.told.get(timeout=PATIENCE_S))


class TestEndpoint(TestCase):

    def test_one_that_cannot_be_understood_keeps_no_other_from_being_heard(
            self):
        for error, level in ((requests.RequestUnknown(reason=''), 'WARNING'),
                             (RuntimeError('no'), 'ERROR')):
            def fail(*said, error=error):
                raise error

            self.shadow.begin = self.shadow.end = fail
            for event_type in BEGUN, ENDED:
                with self.assertLogs('cellsched_nova.shadow.service') as said:
                    # Anything else would have it told once more.
                    self.assertIsNone(self.endpoint.info(
                        self.context, 'scheduler.host1', event_type, {}, {}))
                self.assertEqual([level], [
                    each.levelname for each in said.records])

    def test_one_that_cannot_be_compared_keeps_no_other_from_it(self):
        def fail():
            raise RuntimeError('no')

        self.shadow.expire = fail
        with self.assertLogs('cellsched_nova.shadow.service', 'ERROR'):
            self.endpoint.expire()

    def test_age_is_the_time_since_it_was_sent(self):
        ages = []
        self.shadow.begin = lambda context, payload, age_s: ages.append(age_s)
        sent_at = timeutils.utcnow() - datetime.timedelta(seconds=100)
        for metadata in ({'timestamp': str(sent_at)}, {'timestamp': 'late'},
                         {}):
            self.endpoint.info(self.context, '', BEGUN, {}, metadata)

        self.assertGreaterEqual(ages[0], 100.0)
        self.assertEqual([0.0, 0.0], ages[1:])


class TestProblems(TestCase):

    def test_notifications_that_nobody_hears_are_named(self):
        for drivers, names in ((['noop'], ['driver']), ([], ['driver']),
                               (['log', 'messagingv2'], [])):
            specs.CONF.set_override(
                'driver', drivers, 'oslo_messaging_notifications')
            self.addCleanup(specs.CONF.clear_override, 'driver',
                            'oslo_messaging_notifications')

            found = service.problems(specs.CONF)

            self.assertEqual(len(names), len(found))
            for name, problem in zip(names, found):
                self.assertIn(name, problem)
