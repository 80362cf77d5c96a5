# SPDX-License-Identifier: Apache-2.0
import socket
import threading

import fixtures

from tests.unit.rpc import listeners


class SocketSource(listeners.Source):
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


class TestSocket(listeners.ListenerCase):
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
