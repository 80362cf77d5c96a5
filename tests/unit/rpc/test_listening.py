# SPDX-License-Identifier: Apache-2.0
import threading

import fixtures

from tests.unit.rpc import listeners


class TestListener(listeners.ListenerCase):

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
