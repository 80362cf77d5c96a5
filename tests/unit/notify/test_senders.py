# SPDX-License-Identifier: Apache-2.0
"""What becomes of notifications that cannot be sent."""

from oslo_messaging.notify import _impl_test as recorded

from cellsched.notify import senders
from cellsched.testing import clock
from tests.unit.notify import base
from tests.unit.notify import wire


class TestFailure(base.SchedulerTestCase):

    def test_request_goes_on_when_nothing_can_be_sent(self):
        sender = self.notifier()
        self.transports.close()

        sender.select_destinations(
            self.context, 'start', wire.request(), base.ASKED)

        self.assertEqual(2, self.logs.output.count(
            'MessageDeliveryFailure: The transport was'), self.logs.output)

    def test_request_goes_on_when_it_cannot_be_told(self):
        self.notifier('versioned').select_destinations(
            self.context, 'end', wire.request(security_groups=7), base.ASKED)

        [line] = self.warnings()
        self.assertIn('select_destinations.end: TypeError', line)

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

    def test_other_topics_are_told_when_one_cannot_be(self):
        listener = self.listen('good')

        self.notifier('versioned', ['', 'good']).select_destinations(
            self.context, 'start', wire.request(), base.ASKED)

        self.assertEqual('nova-scheduler:host0',
                         listener.next()[1]['publisher_id'])

    def test_no_request_waits_for_ever(self):
        # How often to try again is not seen but by a driver.
        self.conf.set_override('driver', ['test'], base.GROUP)
        self.addCleanup(recorded.reset)

        for configured, tried in ((-1, 0), (0, 0), (3, 3)):
            self.conf.set_override('retry', configured, base.GROUP)
            self.notifier('unversioned').select_destinations(
                self.context, 'start', wire.request(), base.ASKED)

            self.assertEqual(tried, recorded.NOTIFICATIONS[-1][-1])

    def test_broker_that_is_away_shows_no_password(self):
        self.conf.set_override(
            'transport_url', 'rabbit://u:s3cret@127.0.0.1:1/')

        self.notifier('unversioned').select_destinations(
            self.context, 'start', wire.request(), base.ASKED)

        self.assertIn('Connection refused', self.logs.output)
        self.assertNotIn('s3cret', self.logs.output)


class TestBrokerThatDoesNotAnswer(base.NotifierTestCase):

    def setUp(self):
        super().setUp()
        self.clock = clock.FakeClock()
        self.takes_s = 5.0
        self.asked = 0
        transport = self.transports.notifications()
        self.patch(transport._driver, 'send_notification', self.hang)
        self.sender = senders.Senders(
            transport, 'both', [base.VERSIONED], self.clock)

    def hang(self, *args, **kwargs):
        self.asked += 1
        self.clock.advance(self.takes_s)
        raise OSError('timed out')

    def tell(self):
        note = senders.Note('me', 'it.happened', dict)
        self.sender.send(self.context, 'info', note, note)

    def test_it_is_waited_for_once(self):
        for _ in range(5):
            self.tell()

        self.assertEqual(1, self.asked)
        self.assertEqual(10, len(self.warnings()))

    def test_it_is_asked_again_later(self):
        self.tell()
        self.clock.advance(senders.PAUSE_S)

        self.tell()

        self.assertEqual(2, self.asked)

    def test_notification_that_is_not_sent_is_named(self):
        self.tell()

        self.assertIn(
            'Notification it.happened is not sent: the broker was too slow '
            'a moment ago', self.warnings())

    def test_one_that_refuses_at_once_is_asked_each_time(self):
        self.takes_s = 0.0

        for _ in range(5):
            self.tell()

        self.assertEqual(10, self.asked)
