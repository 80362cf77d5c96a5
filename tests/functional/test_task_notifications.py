# SPDX-License-Identifier: Apache-2.0
"""Notifications of conductors about builds."""

import oslo_messaging
from oslo_messaging.notify import _impl_test as recorded

from cellsched.rpc import transport
from cellsched.standalone import deployment
from tests.functional import base
from tests.unit.notify import base as notify_base

#: Keeps what it is told, in both forms.
TOLD = {
    'oslo_messaging_notifications': {'driver': 'test'},
    'notifications': {'notification_format': 'both'},
}

#: The largest host comes first.
LARGE = 65536

TOPICS = (notify_base.LEGACY, notify_base.VERSIONED)

LEGACY = 'compute_task.build_instances'
VERSIONED = f'{LEGACY}.error'


def host(name, memory_mb=16384, **behaviour):
    return deployment.DeployedHost(
        name, memory_mb=memory_mb, behaviour=behaviour)


class TestTaskNotifications(base.TestCase):

    def setUp(self):
        super().setUp()
        recorded.reset()
        self.addCleanup(recorded.reset)

    def sent(self, *events):
        """Return what was told of these events, as it was sent."""
        return [message for _, message, _, _ in recorded.NOTIFICATIONS
                if message['event_type'] in events]

    def assertNotifiedOnce(self, uuid, publisher, reason):
        """Each form says once that the build was given up, and why."""
        def check():
            self.assertEqual(
                [(LEGACY, 'ERROR', f'compute_task.{publisher}'),
                 (VERSIONED, 'ERROR', f'nova-conductor:{publisher}')],
                [(each['event_type'], each['priority'], each['publisher_id'])
                 for each in self.sent(LEGACY, VERSIONED)])

        # Users may see the end before it is told.
        self.soon(check)
        legacy, versioned = (
            each['payload'] for each in self.sent(LEGACY, VERSIONED))
        self.assertEqual((uuid, 'error', 'build_instances'), (
            legacy['instance_id'], legacy['state'], legacy['method']))
        self.assertIn(reason, legacy['reason'])
        self.assertEqual(
            uuid, legacy['request_spec']['instance_properties']['uuid'])
        data = versioned['nova_object.data']
        self.assertEqual((uuid, 'error'), (
            data['instance_uuid'], data['state']))
        self.assertEqual(
            uuid, data['request_spec']['nova_object.data']['instance_uuid'])
        failure = data['reason']['nova_object.data']
        self.assertIn(reason, failure['exception_message'])
        return failure

    def test_failed_build_sends_a_notification_with_its_reason(self):
        self.deploy({'cell1': ['a1'], 'cell2': ['b1']}, **TOLD)

        [found] = self.built(flavor='huge')

        self.assertIsIn('cell0', found.uuid)
        failure = self.assertNotifiedOnce(
            found.uuid, 'api', 'No valid host was found.')
        self.assertEqual('NoValidHost', failure['exception'])
        self.assertIn('Traceback', failure['traceback'])

    def test_cell_notifies_of_a_build_without_alternates(self):
        self.deploy({'cell1': [host('a1', LARGE, fail_builds=9),
                               host('a2', fail_builds=9)]}, **TOLD)

        [found] = self.built()

        self.assertIsIn('cell1', found.uuid)
        failure = self.assertNotifiedOnce(
            found.uuid, 'conductor-cell1', 'Exhausted all hosts')
        self.assertEqual('MaxRetriesExceeded', failure['exception'])

    def test_successful_build_sends_no_notification(self):
        self.deploy({'cell1': ['a1']}, **TOLD)

        self.built()

        self.assertEqual(
            {'scheduler.select_destinations.start',
             'scheduler.select_destinations.end'},
            {message['event_type']
             for _, message, _, _ in recorded.NOTIFICATIONS})

    def test_no_notification_is_sent_without_a_driver(self):
        self.deploy({'cell1': [host('a1', fail_builds=9)]}, notifications={
            'notification_format': 'both',
            'notify_on_state_change': 'vm_and_task_state'})
        heard = {name: self.hear(name) for name in ('api', 'cell1')}

        self.built()
        self.built(flavor='huge')

        for name, (listener, say) in heard.items():
            for topic in TOPICS:
                say(topic)
            # What was said before would be heard before.
            self.assertEqual(
                ['mark', 'mark'],
                [listener.next()[1]['event_type'] for _ in TOPICS], name)

    def hear(self, name):
        """Return what hears a service's notifications, and says a mark."""
        transports = transport.Transports(self.world.conf(name))
        self.addCleanup(transports.close)
        way = transports.notifications()
        listener = notify_base.Listener()
        server = oslo_messaging.get_notification_listener(
            way, [oslo_messaging.Target(topic=topic) for topic in TOPICS],
            [listener], executor='threading')
        server.start()
        self.addCleanup(server.wait)
        self.addCleanup(server.stop)
        return listener, lambda topic: oslo_messaging.Notifier(
            way, 'test', driver='messagingv2', topics=[topic],
            retry=0).info({}, 'mark', {})
