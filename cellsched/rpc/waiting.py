# SPDX-License-Identifier: Apache-2.0
"""Callers that receive the replies to their calls themselves."""

from collections.abc import Callable
from collections.abc import Iterable
import logging
import queue
import threading
from typing import Any

import oslo_messaging
from oslo_messaging._drivers import amqpdriver
from oslo_messaging._drivers import common

from cellsched import clock

LOG = logging.getLogger(__name__)

#: Seconds between looks at a connection on which nobody waits for a reply.
LOOKS_S = 1.0

#: Seconds that such a look takes. One that finds the connection lost takes as
#: long as it takes to connect.
LOOK_S = 0.05

#: Seconds for which a caller waits at most without looking up.
WAIT_S = 1.0

#: Stands in a queue of replies for the word that it is its caller's turn.
_LEAD = object()

_CLOCK = clock.Clock()


class Replies(amqpdriver.ReplyWaiters):
    """Replies, by the calls that wait for them.

    One of the callers that wait, the leader, receives for all of them until
    it has its own reply. To have a thread for that is to wake two threads for
    each call.

    :param receive: hands over what comes, by :meth:`put`, and returns when
        something came or the seconds that it is given have passed: whether
        there may be more
    """

    def __init__(self, receive: Callable[[float], bool]) -> None:
        super().__init__()
        self._receive = receive
        self._changed = threading.Condition(threading.Lock())
        self._is_led = False
        #: Calls whose callers wait while another one leads, oldest first.
        self._followers: dict[str, queue.Queue[Any]] = {}

    def get(self, msg_id: str, timeout: float) -> Any:
        """Return the next reply to a call.

        :raises oslo_messaging.MessagingTimeout: there is none
        """
        replies = self._queues[msg_id]
        until = _CLOCK.monotonic() + timeout
        leads = self._lead_or_follow(msg_id, replies)
        try:
            while True:
                left = until - _CLOCK.monotonic()
                if leads and left > 0 and replies.empty():
                    if self._receive(min(left, WAIT_S)):
                        continue
                    left = 0.0
                reply = replies.get(timeout=max(left, 0.0))
                if reply is not _LEAD:
                    return reply
                leads = True
        except queue.Empty:
            raise oslo_messaging.MessagingTimeout(
                f'No reply to message {msg_id} came in time') from None
        finally:
            self._leave(msg_id)

    def look(self) -> None:
        """Receive for a moment, if nobody does."""
        if self._lead_or_follow():
            try:
                self._receive(LOOK_S)
            finally:
                self._leave()

    def wait_for_end(self) -> None:
        """Return when nobody receives any more."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_led)

    def _lead_or_follow(
        self, msg_id: str = '', replies: queue.Queue[Any] | None = None
    ) -> bool:
        """Take the lead, or wait for it, if there is a call; return which."""
        with self._changed:
            if not self._is_led:
                self._is_led = True
                return True
            if replies is not None:
                self._followers[msg_id] = replies
            return False

    def _leave(self, msg_id: str = '') -> None:
        """Wait no more, and have somebody else lead, if it was this one."""
        with self._changed:
            if self._followers.pop(msg_id, None) is not None:
                return
            # It leads, though it may not know yet.
            if self._followers:
                follower = next(iter(self._followers))
                self._followers.pop(follower).put(_LEAD)
            else:
                self._is_led = False
                self._changed.notify_all()


class Waiter(amqpdriver.ReplyWaiter):
    """Receives what a driver for brokers is replied, on one connection."""

    def __init__(
        self, reply_q: str, connection: Any,
        allowed_remote_exmods: Iterable[str],
    ) -> None:
        self._replies = Replies(self._receive)
        #: Messages that the broker is still to be told of.
        self._received: list[Any] = []
        super().__init__(reply_q, connection, allowed_remote_exmods)
        self.waiters = self._replies

    def __call__(self, message: Any) -> None:
        """Hand over a message, and acknowledge it when there is time.

        That is before the next one is waited for. If it never happens, the
        message comes again, and nobody waits for it.
        """
        self._received.append(message)
        self.waiters.put(message.pop('_msg_id', None), message)

    def poll(self) -> None:
        """Keep the connection alive while nobody waits."""
        while not self._thread_exit_event.wait(LOOKS_S):
            self._replies.look()

    def stop(self) -> None:
        """Receive no more; who waits for a reply is told that it timed out."""
        super().stop()
        self._replies.wait_for_end()

    def _receive(self, seconds: float) -> bool:
        if self._thread_exit_event.is_set():
            return False
        self._acknowledge()
        try:
            self.conn.consume(timeout=seconds)
        except common.Timeout:
            pass
        except Exception:
            LOG.exception('Replies could not be received; trying again')
        return True

    def _acknowledge(self) -> None:
        while self._received:
            try:
                self._received.pop().acknowledge()
            except Exception as exc:
                # Its connection is lost; on the next one it comes again.
                LOG.info('A reply could not be acknowledged: %s',
                         type(exc).__name__)
