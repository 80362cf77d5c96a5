# SPDX-License-Identifier: Apache-2.0
import logging
import queue
import random
import threading

import fixtures
from oslo_config import cfg
import oslo_messaging
from oslo_messaging._drivers import impl_rabbit

from cellsched.conf import loading
from cellsched import context
from cellsched.rpc import client
from cellsched.rpc import server
from cellsched.rpc import transport
from cellsched.rpc import waiting
from tests.unit import base


class TestReplies(base.TestCase):

    def setUp(self):
        super().setUp()
        #: What is on its way: calls and the replies to them.
        self.coming = queue.Queue()
        #: Who has received, in order.
        self.receivers = []
        self.is_open = True
        self.replies = waiting.Replies(self.receive)

    def receive(self, seconds):
        self.receivers.append(threading.current_thread())
        try:
            self.replies.put(*self.coming.get(timeout=seconds))
        except queue.Empty:
            pass
        return self.is_open

    def call(self, name, timeout=60):
        self.replies.add(name)
        try:
            return self.replies.get(name, timeout)
        finally:
            self.replies.remove(name)

    def begin(self, *arguments):
        """Call in a thread, and return that and a list for the answer."""
        answers = []

        def run():
            try:
                answers.append(self.call(*arguments))
            except oslo_messaging.MessagingTimeout:
                answers.append('timeout')

        thread = threading.Thread(target=run)
        thread.start()
        return thread, answers

    def lead(self, *arguments):
        """Return a caller once it receives."""
        begun = self.begin(*arguments)
        self.wait(lambda: begun[0] in self.receivers)
        return begun

    def follow(self, name, *arguments):
        """Return a caller once it waits for another one."""
        begun = self.begin(name, *arguments)
        self.wait(lambda: name in self.replies._followers)
        return begun

    def wait(self, condition):
        while not condition():
            pass

    def end(self, *begun):
        for thread, _ in begun:
            thread.join()
        self.assertFalse(self.replies._is_led)
        self.assertEqual({}, self.replies._followers)
        return [answer for _, answers in begun for answer in answers]

    def test_caller_receives_its_reply_itself(self):
        self.coming.put(('a', 'reply'))
        self.assertEqual('reply', self.call('a'))
        self.assertEqual([threading.current_thread()], self.receivers)

    def test_reply_that_is_there_already_is_not_waited_for(self):
        self.replies.add('a')
        self.replies.put('a', 'reply')
        self.assertEqual('reply', self.replies.get('a', 60))
        self.assertEqual([], self.receivers)

    def test_caller_receives_for_others_too(self):
        first = self.lead('a')
        second = self.follow('b')
        self.coming.put(('b', 'for b'))
        second[0].join()
        self.coming.put(('a', 'for a'))

        self.assertEqual(['for a', 'for b'], self.end(first, second))
        self.assertEqual({first[0]}, set(self.receivers))

    def test_who_waits_receives_when_the_leader_has_its_reply(self):
        first = self.lead('a')
        second = self.follow('b')
        self.coming.put(('a', 'for a'))
        self.wait(lambda: second[0] in self.receivers)
        self.coming.put(('b', 'for b'))

        self.assertEqual(['for a', 'for b'], self.end(first, second))

    def test_leader_that_waits_no_more_hands_on_the_lead(self):
        first = self.lead('a', 0.05)
        second = self.follow('b')
        self.wait(lambda: second[0] in self.receivers)
        self.coming.put(('b', 'for b'))

        self.assertEqual(['timeout', 'for b'], self.end(first, second))

    def test_follower_that_waits_no_more_is_passed_over(self):
        first = self.lead('a')
        second = self.follow('b', 0.01)
        second[0].join()
        third = self.follow('c')
        self.coming.put(('a', 'for a'))
        self.coming.put(('c', 'for c'))

        self.assertEqual(
            ['for a', 'timeout', 'for c'], self.end(first, second, third))

    def test_follower_that_is_called_too_late_hands_on_the_lead(self):
        self.replies.add('a')
        self.replies._lead_or_follow()
        second = self.replies._queues['a']
        self.replies._lead_or_follow('a', second)
        # Its reply is there, and it has not looked yet.
        self.replies.put('a', 'for a')
        self.replies._leave()
        self.assertTrue(self.replies._is_led)
        self.assertEqual('for a', second.get())
        self.replies._leave('a')

        self.assertFalse(self.replies._is_led)

    def test_nothing_is_waited_for_where_nothing_more_is_to_come(self):
        self.is_open = False
        self.assertRaises(
            oslo_messaging.MessagingTimeout, self.call, 'a', 1e6)
        self.end()

    def test_look_receives_what_nobody_waits_for(self):
        self.coming.put(('nobody', 'late'))
        self.replies.look()
        self.assertTrue(self.coming.empty())
        self.end()

    def test_look_leaves_a_caller_alone(self):
        first = self.lead('a')
        self.replies.look()
        self.assertNotIn(threading.current_thread(), self.receivers)
        self.coming.put(('a', 'reply'))
        self.assertEqual(['reply'], self.end(first))

    def test_caller_takes_over_from_a_look(self):
        self.useFixture(fixtures.MonkeyPatch(
            'cellsched.rpc.waiting.LOOK_S', 60))
        looking = threading.Thread(target=self.replies.look)
        looking.start()
        self.wait(lambda: looking in self.receivers)
        first = self.follow('a')
        self.coming.put(('nobody', 'late'))
        self.wait(lambda: first[0] in self.receivers)
        self.coming.put(('a', 'reply'))
        looking.join()
        self.assertEqual(['reply'], self.end(first))

    def test_many_callers_get_their_own_replies(self):
        self.useFixture(fixtures.MonkeyPatch(
            'cellsched.rpc.waiting.WAIT_S', 0.001))
        asked, right = queue.Queue(), []

        def call(number):
            for each in range(200):
                name = f'{number}-{each}'
                self.replies.add(name)
                asked.put(name)
                right.append(self.replies.get(name, 60) == f'for {name}')
                self.replies.remove(name)

        def answer():
            chance, answered = random.Random(0), 0
            while answered < 8 * 200:
                names = [asked.get()]
                while not asked.empty():
                    names.append(asked.get())
                chance.shuffle(names)
                answered += len(names)
                for name in names:
                    self.coming.put((name, f'for {name}'))

        threads = [threading.Thread(target=call, args=(number,))
                   for number in range(8)]
        for thread in [threading.Thread(target=answer), *threads]:
            thread.start()
        self.end(*((thread, []) for thread in threads))
        self.assertEqual([True] * 8 * 200, right)


class Endpoint:

    def __init__(self):
        self.go_on = threading.Event()

    def echo(self, context, text):
        return text

    def wait(self, context):
        self.go_on.wait()


class TestWaiter(base.TestCase):

    def setUp(self):
        super().setUp()
        conf = cfg.ConfigOpts()
        conf([], default_config_files=[], default_config_dirs=[])
        loading.register_messaging(conf)
        transports = transport.Transports(conf)
        self.addCleanup(transports.close)
        self.transport = transports.get('kombu+memory://')
        others = transport.Transports(conf)
        self.addCleanup(others.close)
        self.endpoint = Endpoint()
        served = server.server(others.get('kombu+memory://'), 'topic', 'host',
                               [self.endpoint])
        served.start()
        self.addCleanup(served.wait)
        self.addCleanup(served.stop)
        self.addCleanup(self.endpoint.go_on.set)
        self.client = client.Client(self.transport, 'topic', '1.0')

    def call(self, method, **arguments):
        return self.client.call(context.admin(), method, **arguments)

    def test_many_call_at_a_time(self):
        said = []
        threads = [
            threading.Thread(target=lambda number=number: said.append(
                (number, self.call('echo', text=number))))
            for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(
            [(number, number) for number in range(20)], sorted(said))

    def test_connection_is_looked_at_while_nobody_waits(self):
        self.useFixture(fixtures.MonkeyPatch(
            'cellsched.rpc.waiting.LOOKS_S', 0.001))
        self.call('echo', text='said')
        looked = threading.Event()
        consume = self.transport._driver._waiter.conn.consume

        def look(timeout):
            looked.set()
            return consume(timeout=timeout)

        self.transport._driver._waiter.conn.connection.consume = look
        self.assertTrue(looked.wait(60))

    def note_acknowledgements(self):
        """Return a list that gets what is acknowledged of replies."""
        noted = []
        acknowledge = impl_rabbit.RabbitMessage.acknowledge

        def note(message):
            if 'result' in message:
                noted.append(message['result'])
            acknowledge(message)

        self.useFixture(fixtures.MonkeyPatch(
            'oslo_messaging._drivers.impl_rabbit.RabbitMessage.acknowledge',
            note))
        return noted

    def test_reply_is_acknowledged_before_the_next_is_waited_for(self):
        noted = self.note_acknowledgements()
        self.call('echo', text='first')
        self.assertEqual([], noted)
        self.call('echo', text='second')
        self.assertEqual(['first'], noted)

    def test_reply_is_acknowledged_at_a_look(self):
        noted = self.note_acknowledgements()
        self.call('echo', text='said')
        self.transport._driver._waiter.waiters.look()
        self.assertEqual(['said'], noted)

    def test_reply_that_cannot_be_acknowledged_is_no_failure(self):
        self.call('echo', text='said')
        [reply] = self.transport._driver._waiter._received
        reply._raw_message.ack = self.fail_to_acknowledge
        logs = self.useFixture(fixtures.FakeLogger(level=logging.INFO))
        self.assertEqual('again', self.call('echo', text='again'))
        self.assertIn('could not be acknowledged: OSError', logs.output)

    @staticmethod
    def fail_to_acknowledge():
        raise OSError('lost')

    def test_failure_to_receive_is_logged_and_tried_again(self):
        self.call('echo', text='said')
        connection = self.transport._driver._waiter.conn.connection
        consume, failures = connection.consume, [OSError('odd')]

        def fail(timeout):
            if failures:
                raise failures.pop()
            return consume(timeout=timeout)

        connection.consume = fail
        self.assertEqual('again', self.call('echo', text='again'))
        self.assertIn('OSError: odd', self.logs.output)

    def test_who_waits_is_told_when_the_transport_is_closed(self):
        caught = []

        def call():
            try:
                self.call('wait')
            except oslo_messaging.MessagingTimeout as exc:
                caught.append(exc)

        caller = threading.Thread(target=call)
        caller.start()
        while self.transport._driver._waiter is None:
            pass
        replies = self.transport._driver._waiter.waiters
        while not getattr(replies, '_is_led', False):
            pass
        self.transport._driver.cleanup()
        caller.join()
        self.assertEqual(1, len(caught))
