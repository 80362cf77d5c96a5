# SPDX-License-Identifier: Apache-2.0
"""Notifiers and their listeners."""

import json

import oslo_messaging

from cellsched import context
from cellsched.notify import notifiers
from tests.unit.notify import wire
from tests.unit.rpc import base
from tests.unit import tidy

SAMPLES = tidy.ROOT / 'doc' / 'source' / '_static' / 'notifications'

LEGACY, VERSIONED = 'notifications', 'versioned_notifications'

#: The servers that a scheduler is asked for.
ASKED = [wire.INSTANCE, wire.OTHER]

GROUP = 'oslo_messaging_notifications'


class Listener(base.Recorder):
    """An endpoint for notifications."""

    def info(self, context_, publisher_id, event_type, payload, metadata):
        self.hear('INFO', context_, publisher_id, event_type, payload)

    def error(self, context_, publisher_id, event_type, payload, metadata):
        self.hear('ERROR', context_, publisher_id, event_type, payload)

    def hear(self, priority, context_, publisher_id, event_type, payload):
        self.received.put((context_, {
            'priority': priority, 'event_type': event_type,
            'publisher_id': publisher_id, 'payload': payload}))


class Unread:
    """A request or a server of which no field may be read."""

    def __getattribute__(self, name):
        raise AssertionError(f'{name} was read')


class NotifierTestCase(base.RPCTestCase):

    def setUp(self):
        super().setUp()
        self.conf.set_override('transport_url', f'{self.world}/notifications')
        self.conf.set_override('driver', ['messagingv2'], GROUP)
        self.context = context.RequestContext(
            user_id='alice', project_id='shop', auth_token='t0ken',
            request_id='req-7f3c0f5e-3f0e-4b11-9f62-2a1f6c0f8f55')

    def listen(self, *topics):
        """Return a listener for the notifications of some topics."""
        listener = Listener()
        server = oslo_messaging.get_notification_listener(
            self.transports.notifications(),
            [oslo_messaging.Target(topic=topic) for topic in topics],
            [listener], executor='threading')
        server.start()
        self.addCleanup(self.end_soon, server)
        return listener

    def warnings(self):
        return [line for line in self.logs.output.splitlines()
                if ' cannot be sent: ' in line]

    def assertSample(self, name, sent):
        """The notification equals its sample."""
        self.assertEqual(json.loads((SAMPLES / name).read_text()), sent, name)


class SchedulerTestCase(NotifierTestCase):

    def notifier(self, form='both', topics=(VERSIONED,)):
        return notifiers.SchedulerNotifier(
            self.transports.notifications(), 'host0', form, topics)
