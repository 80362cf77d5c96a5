# SPDX-License-Identifier: Apache-2.0
"""Listeners whose threads receive messages and work on them in turn."""

import collections
from collections.abc import Callable
import logging
import threading
from typing import Any

from oslo_messaging._drivers import base
from oslo_utils import excutils

LOG = logging.getLogger(__name__)

Messages = list[Any]


class Listener(base.Listener):
    """Receives messages as a leader and its followers do.

    One thread, the leader, waits for messages. When it has one, a follower
    takes the lead, and it works on the message itself: to hand a message to
    another thread takes longer than to hand on the lead. Where as many work
    as may, the leader keeps what comes for those that are done.

    :param source: is polled for messages, by one thread at a time
    :param workers_max: how many messages are worked on at a time
    :param name: of the threads, which have numbers too
    :param make_thread: makes one, as :class:`threading.Thread` does
    """

    def __init__(
        self, source: base.PollStyleListener, workers_max: int, name: str,
        make_thread: Callable[..., threading.Thread] = threading.Thread,
    ) -> None:
        super().__init__(1, None, source.prefetch_size)
        self._source = source
        self._workers_max = workers_max
        self._name = name
        self._make_thread = make_thread
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        #: What followers wait for; the one that came last is called first.
        self._followers: list[threading.Lock] = []
        self._waiting: collections.deque[Messages] = collections.deque()
        self._is_stopping = False
        self._has_ended = threading.Event()

    def start(self, on_incoming_callback: Callable[[Messages], None]) -> None:
        """Have messages received, and worked on by what is called.

        What that raises is logged.
        """
        super().start(on_incoming_callback)
        self._work_on = on_incoming_callback
        self._start_leader()

    def stop(self) -> None:
        """Receive no more; what was received is still worked on."""
        self._is_stopping = True
        self._source.stop()
        self._has_ended.wait()

    def cleanup(self) -> None:
        """Wait until all that was received has been worked on."""
        for thread in self._threads:
            thread.join()
        self._source.cleanup()

    def _start_leader(self) -> None:
        thread = self._make_thread(
            target=self._run, daemon=True,
            name=f'{self._name}_{len(self._threads)}')
        # It leads at once, and is counted before it starts another one.
        self._threads.append(thread)
        try:
            thread.start()
        except RuntimeError:
            self._threads.remove(thread)
            raise

    def _run(self) -> None:
        messages = self._lead()
        while messages:
            self._work(messages)
            messages = self._next()

    def _work(self, messages: Messages) -> None:
        try:
            self._work_on(messages)
        except Exception:
            LOG.exception('What was received could not be worked on')

    def _next(self) -> Messages | None:
        """Return what is to be done next; None at the end."""
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            if self._has_ended.is_set():
                return None
            called = threading.Lock()
            called.acquire()
            self._followers.append(called)
        called.acquire()
        if self._has_ended.is_set():
            return None
        return self._lead()

    def _lead(self) -> Messages | None:
        """Receive until there is something to do; None at the end."""
        while messages := self._poll():
            if self._hand_on(messages):
                return messages
        with self._lock:
            self._has_ended.set()
            while self._followers:
                self._followers.pop().release()
            return self._waiting.popleft() if self._waiting else None

    def _hand_on(self, messages: Messages) -> bool:
        """Let a follower lead; return whether one does."""
        with self._lock:
            if self._followers:
                self._followers.pop().release()
                return True
            if len(self._threads) > self._workers_max:
                self._waiting.append(messages)
                return False
        try:
            self._start_leader()
        except RuntimeError as exc:
            LOG.warning('A message is worked on before the next one is '
                        'received, as no thread can be started: %s', exc)
            self._work(messages)
            return False
        return True

    @excutils.forever_retry_uncaught_exceptions
    def _poll(self) -> Messages:
        """Return what was received; nothing where no more is to come."""
        while True:
            was_stopping = self._is_stopping
            messages: Messages = self._source.poll(batch_size=1)
            if messages or was_stopping:
                return messages
