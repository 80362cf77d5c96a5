# SPDX-License-Identifier: Apache-2.0
"""Signs of life: what callers get while a server is at work for them."""

from collections.abc import Callable
import logging
import math
import threading
from typing import Any

from cellsched import clock

LOG = logging.getLogger(__name__)

_CLOCK = clock.Clock()


class Call:
    """A call whose caller wants signs of life.

    :param interval_s: how often
    """

    def __init__(self, incoming: Any, interval_s: float) -> None:
        self.due = _CLOCK.monotonic() + interval_s
        self._incoming = incoming
        self._interval_s = interval_s
        self._lock = threading.Lock()
        self._is_over = False

    def give_sign(self) -> None:
        """Tell the caller that it is being worked for."""
        self.due = _CLOCK.monotonic() + self._interval_s
        with self._lock:
            if self._is_over:
                return
            try:
                self._incoming.heartbeat()
            except Exception as exc:
                # Who is there waits no longer than it said it would.
                LOG.warning('A caller gets no more signs of life: %s',
                            type(exc).__name__)
                self._is_over = True

    def end(self) -> None:
        """Give no more signs, from the moment that this returns."""
        with self._lock:
            self._is_over = True


class Signs:
    """Gives signs of life for all calls of a server, from one thread.

    oslo.messaging has a thread for each call, and to start one takes longer
    than most calls do. This one is started with the first call that wants
    signs, and sleeps until one is due.

    :param make_thread: makes it, as :class:`threading.Thread` does
    """

    def __init__(
        self, make_thread: Callable[..., threading.Thread] = threading.Thread
    ) -> None:
        self._make_thread = make_thread
        self._changed = threading.Condition()
        self._calls: set[Call] = set()
        self._thread: threading.Thread | None = None
        self._wakes_at = math.inf
        self._is_stopping = False

    def begin(self, incoming: Any) -> Call | None:
        """Give signs for a message, twice in the time that its caller names.

        :returns: what :meth:`end` takes; None where the caller names a time
            that is too short
        """
        interval_s = int(incoming.client_timeout) / 2
        if interval_s < 1:
            LOG.warning('A caller wants signs of life every %d s, and gets '
                        'none', incoming.client_timeout)
            return None
        call = Call(incoming, interval_s)
        with self._changed:
            self._calls.add(call)
            if call.due < self._wakes_at:
                self._wakes_at = call.due
                self._changed.notify()
            if self._thread is None:
                self._thread = self._make_thread(
                    target=self._run, name='rpc-signs', daemon=True)
                self._thread.start()
        return call

    def end(self, call: Call) -> None:
        """Give no more signs for a call."""
        call.end()
        with self._changed:
            self._calls.discard(call)

    def stop(self) -> None:
        """End the thread, if there is one. All calls must have ended."""
        with self._changed:
            thread = self._thread
            self._is_stopping = True
            self._changed.notify()
        if thread is not None:
            thread.join()
        self._thread = None
        self._wakes_at = math.inf
        self._is_stopping = False

    def _run(self) -> None:
        while due := self._wait():
            for call in due:
                call.give_sign()

    def _wait(self) -> list[Call]:
        """Return the calls that are due; none when the thread is to end."""
        with self._changed:
            while not self._is_stopping:
                now = _CLOCK.monotonic()
                due = [each for each in self._calls if each.due <= now]
                if due:
                    return due
                # Not before, or each call that is over soon would wake it.
                if self._wakes_at <= now:
                    self._wakes_at = min(
                        (each.due for each in self._calls), default=math.inf)
                self._changed.wait(
                    None if self._wakes_at == math.inf
                    else self._wakes_at - now)
            return []
