# SPDX-License-Identifier: Apache-2.0
import queue
import socket
import threading

import fixtures
from oslo_messaging._drivers import base as driver_base

from cellsched.rpc import listening
from tests.unit import base

_END = object()


class Source(driver_base.PollStyleListener):
    """Hands out what is put into a queue, and notes who polls."""

    def __init__(self):
        super().__init__()
        self.messages = queue.Queue()
        self.polling = []
        self.most_polling = 0
        self.is_clean = False
        self._ended = threading.Event()

    def poll(self, timeout=None, batch_size=1, batch_timeout=None):
        self.polling.append(threading.current_thread())
        self.most_polling = max(self.most_polling, len(self.polling))
        try:
            message = self.messages.get()
        finally:
            self.polling.pop()
        if isinstance(message, Exception):
            raise message
        if message is _END:
            # What comes later is not received.
            self.messages.put(_END)
            self._ended.set()
            return []
        return [message]

    def stop(self):
        self.messages.put(_END)
        self._ended.wait()

    def cleanup(self):
        self.is_clean = True


class SocketSource(Source):
    """Hands out what is sent by a socket, a byte each."""

    def __init__(self):
        super().__init__()
        self.is_stopping = False
        self.connect()

    def connect(self):
        self.ours, self.theirs = socket.socketpair()
        self.ours.settimeout(0.05)

    def send(self, message):
        self.theirs.send(message.encode())

    def poll(self, timeout=None, batch_size=1, batch_timeout=None):
        me = threading.current_thread()
        while not self.is_stopping:
            self.polling.append(me)
            self.most_polling = max(self.most_polling, len(self.polling))
            try:
                message = self.ours.recv(1).decode()
                if message:
                    return [message]
                # It connects again, as libraries do.
                self.ours.close()
                self.connect()
            except TimeoutError:
                pass
            finally:
                self.polling.remove(me)
        self._ended.set()
        return []

    def stop(self):
        self.is_stopping = True
        self._ended.wait()

    def cleanup(self):
        super().cleanup()
        self.ours.close()
        self.theirs.close()


class ListenerCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.source = Source()
        self.lock = threading.Lock()
        self.done = []
        #: Messages that are worked on until they are told to go on.
        self.held = {}
        self.begun = queue.Queue()
        self.ended = queue.Queue()

    def listen(self, workers_max=4, **arguments):
        listener = listening.Listener(
            self.source, workers_max, 'name', **arguments)
        listener.start(self.work)
        return listener

    def end(self, listener):
        for event in self.held.values():
            event.set()
        listener.stop()
        listener.cleanup()

    def hold(self, *messages):
        self.held.update((each, threading.Event()) for each in messages)

    def work(self, messages):
        [message] = messages
        self.begun.put(message)
        if message == 'bad':
            raise ValueError(message)
        if message in self.held:
            self.held[message].wait()
        self.done.append((message, threading.current_thread()))
        self.ended.put(message)

    def send(self, *messages):
        for message in messages:
            self.source.messages.put(message)


class TestListener(ListenerCase):

    def test_all_messages_are_worked_on_once(self):
        listener = self.listen()
        self.send(*range(1000))
        self.end(listener)

        self.assertEqual(
            list(range(1000)), sorted(message for message, _ in self.done))
        self.assertTrue(self.source.is_clean)

    def test_one_thread_polls_at_a_time(self):
        listener = self.listen()
        for number in range(100):
            self.send(number)
            self.ended.get()
        self.send(*range(100))
        self.end(listener)

        self.assertEqual(1, self.source.most_polling)

    def test_who_receives_a_message_works_on_it(self):
        self.hold('first')
        listener = self.listen()
        while not self.source.polling:
            pass
        [leader] = self.source.polling
        self.send('first')
        self.begun.get()
        self.end(listener)

        self.assertEqual([('first', leader)], self.done)

    def test_messages_are_worked_on_beside_each_other(self):
        self.hold('a', 'b', 'c')
        listener = self.listen(workers_max=3)
        self.send('a', 'b', 'c')
        self.assertEqual(
            {'a', 'b', 'c'}, {self.begun.get() for _ in range(3)})
        self.end(listener)

    def test_no_more_are_worked_on_than_may_be(self):
        self.hold('a', 'b')
        listener = self.listen(workers_max=2)
        self.send('a', 'b', 'c', 'd')
        self.assertEqual({'a', 'b'}, {self.begun.get() for _ in range(2)})
        # They are received all the same, for what has come is to stay alive.
        while not self.source.messages.empty():
            pass
        self.assertTrue(self.begun.empty())
        self.held['a'].set()
        self.assertEqual(['c', 'd'], [self.begun.get() for _ in range(2)])
        self.end(listener)

        self.assertEqual(['a', 'c', 'd', 'b'], [
            message for message, _ in self.done])

    def test_two_threads_do_for_messages_that_come_one_by_one(self):
        listener = self.listen(workers_max=50)
        for number in range(50):
            self.send(number)
            self.ended.get()
            # It comes back before the next one is sent.
            while not (self.source.polling and listener._has_standby):
                pass
        self.end(listener)

        self.assertLessEqual(len({thread for _, thread in self.done}), 2)

    def test_failure_of_one_message_is_logged_and_others_go_on(self):
        listener = self.listen()
        self.send('bad', 'good')
        self.assertEqual('good', self.ended.get())
        self.end(listener)

        self.assertIn('could not be worked on', self.logs.output)
        self.assertIn('ValueError: bad', self.logs.output)

    def test_failure_of_the_source_is_logged_and_tried_again(self):
        self.useFixture(fixtures.MonkeyPatch(
            'time.sleep', lambda seconds: None))
        listener = self.listen()
        self.send(OSError('gone'), 'good')
        self.assertEqual('good', self.ended.get())
        self.end(listener)

        self.assertIn('OSError: gone', self.logs.output)

    def test_message_is_worked_on_where_no_thread_can_be_started(self):
        made = []

        def make(**arguments):
            thread = threading.Thread(**arguments)
            if made:
                thread.start = self.refuse
            made.append(thread)
            return thread

        listener = self.listen(make_thread=make)
        self.send('a', 'b')
        self.assertEqual(['a', 'b'], [self.ended.get() for _ in range(2)])
        self.end(listener)

        self.assertEqual({made[0]}, {thread for _, thread in self.done})
        self.assertIn('no thread can be started', self.logs.output)

    @staticmethod
    def refuse():
        raise RuntimeError("can't start new thread")

    def test_stop_returns_while_messages_are_worked_on(self):
        self.hold('long')
        listener = self.listen()
        self.send('long')
        self.begun.get()
        listener.stop()
        self.send('late')
        self.assertEqual([], self.done)
        self.end(listener)

        self.assertEqual(['long'], [message for message, _ in self.done])

    def test_what_waits_at_the_stop_is_worked_on(self):
        self.hold('a')
        listener = self.listen(workers_max=1)
        self.send('a', 'b', 'c')
        self.begun.get()
        self.end(listener)

        self.assertEqual(
            {'a', 'b', 'c'}, {message for message, _ in self.done})

    def test_no_thread_is_left_at_the_end(self):
        before = set(threading.enumerate())
        listener = self.listen()
        self.send(*range(20))
        self.end(listener)

        self.assertEqual(before, set(threading.enumerate()))


class TestSocket(ListenerCase):
    """A source whose socket can be waited for."""

    def setUp(self):
        super().setUp()
        self.source = SocketSource()
        # Whoever is not woken does not wake up.
        self.useFixture(fixtures.MonkeyPatch(
            'cellsched.rpc.listening.STANDBY_S', 1e6))

    def listen(self, workers_max=4, **arguments):
        listener = super().listen(
            workers_max, find_socket=lambda: self.source.ours, **arguments)
        self.wakes = 0
        wait = listener._poller.wait

        def counted(seconds):
            wait(seconds)
            self.wakes += 1

        listener._poller.wait = counted
        return listener

    def send(self, *messages):
        for message in messages:
            self.source.send(message)

    def one_by_one(self, listener, messages):
        for message in messages:
            while not (self.source.polling and (
                    len(listener._threads) < 2 or listener._has_standby)):
                pass
            self.send(message)
            self.assertEqual(message, self.ended.get())

    def test_who_is_done_in_time_leads_on_and_nobody_is_woken(self):
        listener = self.listen()
        self.one_by_one(listener, 'x')
        self.one_by_one(listener, 'a' * 50)
        threads = {thread for _, thread in self.done[1:]}
        self.assertEqual((1, 0), (len(threads), self.wakes))
        self.end(listener)

    def test_who_stands_by_receives_what_comes_meanwhile(self):
        listener = self.listen()
        self.one_by_one(listener, 'ab')
        self.hold('c')
        self.send('c', 'd', 'e')
        self.assertEqual(['d', 'e'], [self.ended.get() for _ in range(2)])
        self.end(listener)

        self.assertEqual(
            ['a', 'b', 'd', 'e', 'c'], [message for message, _ in self.done])
        self.assertEqual(1, self.source.most_polling)

    def test_others_follow_where_both_work(self):
        self.hold('a', 'b', 'c')
        listener = self.listen()
        self.send('a', 'b', 'c')
        self.assertEqual(
            {'a', 'b', 'c'}, {self.begun.get() for _ in range(3)})
        self.end(listener)

        self.assertEqual(3, len({thread for _, thread in self.done}))

    def test_no_more_are_worked_on_than_may_be(self):
        self.hold('a', 'b')
        listener = self.listen(workers_max=2)
        self.send('a', 'b', 'c')
        self.assertEqual({'a', 'b'}, {self.begun.get() for _ in range(2)})
        while not listener._waiting:
            pass
        self.held['a'].set()
        self.assertEqual('c', self.begun.get())
        self.end(listener)

    def test_source_is_looked_after_while_somebody_works(self):
        self.useFixture(fixtures.MonkeyPatch(
            'cellsched.rpc.listening.STANDBY_S', 0.001))
        listener = self.listen()
        self.one_by_one(listener, 'a')
        self.hold('b')
        self.send('b')
        self.begun.get(), self.begun.get()
        while not self.source.polling:
            pass
        self.end(listener)

    def test_stop_returns_while_somebody_works(self):
        listener = self.listen()
        self.one_by_one(listener, 'a')
        self.hold('b')
        self.send('b')
        self.begun.get(), self.begun.get()
        listener.stop()
        self.assertEqual(['a'], [message for message, _ in self.done])
        self.end(listener)

        self.assertEqual(['a', 'b'], [message for message, _ in self.done])

    def test_new_connection_is_waited_for_as_the_old_one_was(self):
        listener = self.listen()
        self.one_by_one(listener, 'ab')
        self.hold('c')
        self.send('c')
        for _ in range(3):
            self.begun.get()
        ended = self.source.theirs
        ended.close()
        # Who stands by is told so, and receives by the new one.
        while self.source.theirs is ended:
            pass
        self.send('d')
        self.assertEqual('d', self.ended.get())
        self.held['c'].set()
        self.assertEqual('c', self.ended.get())
        self.one_by_one(listener, 'e')
        self.hold('f')
        self.send('f', 'g')
        self.assertEqual('g', self.ended.get())
        self.end(listener)

    def test_no_thread_is_left_at_the_end(self):
        before = set(threading.enumerate())
        listener = self.listen()
        self.send(*'abcdefghijklmnopqrst')
        for _ in range(20):
            self.ended.get()
        self.end(listener)

        self.assertEqual(before, set(threading.enumerate()))
