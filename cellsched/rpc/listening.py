# SPDX-License-Identifier: Apache-2.0
"""Listeners whose threads receive messages and work on them in turn."""

import collections
from collections.abc import Callable
import logging
import socket
import threading
from typing import Any

from oslo_messaging._drivers import base
from oslo_utils import excutils

from cellsched.rpc import polling

LOG = logging.getLogger(__name__)

Messages = list[Any]

#: Seconds after which who stands by leads although nothing came: connections
#: are to be kept alive while the leader works.
STANDBY_S = 5.0


class Listener(base.Listener):
    """Receives messages as a leader and its followers do.

    One thread, the leader, waits for messages. When it has one, it works on
    the message itself: to hand a message to another thread takes longer than
    to hand on the lead. Another thread stands by, and leads when the next
    message comes; if that is after the first one is done, the first one leads
    on. To wake it before would have it ask for the interpreter again and
    again, of who works. Where as many work as may, the leader keeps what
    comes for those that are done.

    :param source: is polled for messages, by one thread at a time
    :param workers_max: how many messages are worked on at a time
    :param name: of the threads, which have numbers too
    :param find_socket: returns the one from which the source reads, or None
        where it cannot be waited for; who stands by leads at once then
    :param make_thread: makes one, as :class:`threading.Thread` does
    """

    def __init__(
        self, source: base.PollStyleListener, workers_max: int, name: str,
        find_socket: Callable[[], socket.socket | None] = lambda: None,
        make_thread: Callable[..., threading.Thread] = threading.Thread,
    ) -> None:
        super().__init__(1, None, source.prefetch_size)
        self._source = source
        self._workers_max = workers_max
        self._name = name
        self._make_thread = make_thread
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._poller = polling.Poller(find_socket)
        self._is_led = self._has_standby = False
        #: What others wait for; the one that came last is called first.
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
        self._start_thread()

    def stop(self) -> None:
        """Receive no more; what was received is still worked on."""
        self._is_stopping = True
        # Nobody may lead now, and the source wants to be polled once more.
        self._poller.wake()
        self._source.stop()
        self._has_ended.wait()

    def cleanup(self) -> None:
        """Wait until all that was received has been worked on."""
        for thread in self._threads:
            thread.join()
        self._poller.close()
        self._source.cleanup()

    def _start_thread(self) -> None:
        thread = self._make_thread(
            target=self._run, daemon=True,
            name=f'{self._name}_{len(self._threads)}')
        # It may lead at once, and is counted before it starts another one.
        self._threads.append(thread)
        try:
            thread.start()
        except RuntimeError:
            self._threads.remove(thread)
            raise

    def _run(self) -> None:
        while messages := self._next():
            self._work(messages)

    def _work(self, messages: Messages) -> None:
        try:
            self._work_on(messages)
        except Exception:
            LOG.exception('What was received could not be worked on')

    def _next(self) -> Messages | None:
        """Return what is to be done next; None at the end."""
        while True:
            with self._lock:
                if self._waiting:
                    return self._waiting.popleft()
                if self._has_ended.is_set():
                    return None
                wait = self._role()
            if wait is None:
                return self._lead()
            wait()

    def _role(self) -> Callable[[], Any] | None:
        """Take the lead, or return what is to be waited for before."""
        if not self._is_led:
            self._is_led = True
            return None
        if not self._has_standby:
            self._has_standby = True
            return self._stand_by
        called = threading.Lock()
        called.acquire()
        self._followers.append(called)
        return called.acquire

    def _stand_by(self) -> None:
        self._poller.wait(STANDBY_S)
        with self._lock:
            self._has_standby = False

    def _lead(self) -> Messages | None:
        """Receive until there is something to do; None at the end."""
        self._poller.disarm()
        while messages := self._poll():
            if self._hand_on(messages):
                return messages
        with self._lock:
            self._has_ended.set()
            self._poller.wake()
            while self._followers:
                self._followers.pop().release()
            return self._waiting.popleft() if self._waiting else None

    def _hand_on(self, messages: Messages) -> bool:
        """Let another thread lead; return whether one does, or will."""
        with self._lock:
            if self._has_standby or self._followers:
                self._leave()
                return True
            if len(self._threads) > self._workers_max:
                self._waiting.append(messages)
                return False
        try:
            self._start_thread()
        except RuntimeError as exc:
            LOG.warning('A message is worked on before the next one is '
                        'received, as no thread can be started: %s', exc)
            self._work(messages)
            return False
        with self._lock:
            self._leave()
        return True

    def _leave(self) -> None:
        """Lead no more; the lock is held."""
        self._is_led = False
        if self._has_standby:
            self._poller.arm()
        elif self._followers:
            self._followers.pop().release()

    @excutils.forever_retry_uncaught_exceptions
    def _poll(self) -> Messages:
        """Return what was received; nothing where no more is to come."""
        while True:
            was_stopping = self._is_stopping
            messages: Messages = self._source.poll(batch_size=1)
            if messages or was_stopping:
                return messages
