# SPDX-License-Identifier: Apache-2.0
"""Listeners, and sources of what they receive."""

import queue
import threading

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
