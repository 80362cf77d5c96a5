# SPDX-License-Identifier: Apache-2.0
"""A conductor's notifier whose notifications are recorded."""

import fixtures
from oslo_messaging.notify import _impl_test as recorded

from cellsched.conf import loader
from cellsched.notify import notifiers
from cellsched.rpc import transport


class NotificationRecorder(fixtures.Fixture):
    """A ``notifier`` and its notifications in the versioned form.

    :param hear: is called with the type of each event as it is sent; may be
        set later
    """

    def __init__(self, on_change=None, hear=lambda event: None):
        super().__init__()
        self._on_change = on_change
        self.hear = hear

    def _setUp(self):
        recorded.reset()
        self.addCleanup(recorded.reset)
        conf = loader.load(files=[], dirs=[])
        conf.set_override('transport_url', 'local://recorded/recorded')
        conf.set_override('driver', ['test'], 'oslo_messaging_notifications')
        transports = transport.Transports(conf)
        self.addCleanup(transports.close)
        self.useFixture(fixtures.MonkeyPatch(
            'oslo_messaging.notify._impl_test.NOTIFICATIONS', _Heard(
                lambda event: self.hear(event))))
        self.notifier = notifiers.TaskNotifier(
            transports.notifications(), 'conductor', 'versioned', ['topic'],
            self._on_change)

    def all(self):
        """Return pairs of the type of an event and of its payload."""
        return [(message['event_type'],
                 message['payload']['nova_object.data'])
                for _, message, _, _ in recorded.NOTIFICATIONS]

    def events(self):
        return [event for event, _ in self.all()]


class _Heard(list):

    def __init__(self, hear):
        super().__init__()
        self.hear = hear

    def append(self, notification):
        super().append(notification)
        self.hear(notification[1]['event_type'])
