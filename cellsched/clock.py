# SPDX-License-Identifier: Apache-2.0
"""Time and waiting, in one place.

Everything that needs the time is handed a :class:`Clock`, so that tests and
simulations can hand it another one. So is everything that makes a thread wait
for another one: the clock makes the locks, events and semaphores that are held
or waited for while a thread sleeps, reads a database or calls a server. A
simulation, in which one thread runs at a time, has to know of these. Locks
under which a thread does nothing but calculate come from :mod:`threading`.
"""

from collections.abc import Callable
import datetime
import functools
import math
import threading
import time
from typing import Any
from typing import Protocol


class Lock(Protocol):
    """The interface of :class:`threading.Lock`."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        ...

    def release(self) -> None:
        ...

    def locked(self) -> bool:
        ...

    def __enter__(self) -> bool:
        ...

    def __exit__(self, *exc: Any) -> None:
        ...


class Event(Protocol):
    """The interface of :class:`threading.Event`."""

    def is_set(self) -> bool:
        ...

    def set(self) -> None:
        ...

    def clear(self) -> None:
        ...

    def wait(self, timeout: float | None = None) -> bool:
        ...


class Semaphore(Protocol):
    """The interface of :class:`threading.BoundedSemaphore`."""

    def acquire(
        self, blocking: bool = True, timeout: float | None = None
    ) -> bool:
        ...

    def release(self) -> None:
        ...

    def __enter__(self) -> bool:
        ...

    def __exit__(self, *exc: Any) -> None:
        ...


class Clock:
    """The clock of the machine."""

    def now(self) -> datetime.datetime:
        """Return the wall clock's time, in UTC and without a time zone.

        That is the form in which databases of this kind keep times.
        """
        return datetime.datetime.fromtimestamp(
            time.time(), datetime.UTC).replace(tzinfo=None)

    #: Returns the wall clock's time in seconds since the epoch. It is called
    #: very often, so it is the function of Python itself.
    timestamp = staticmethod(time.time)

    def steady(self) -> float:
        """Return seconds since the epoch that no step of the clock moves.

        It is the wall clock's time at the start of the process, plus the
        seconds since then. Use it for leases and deadlines. It differs between
        processes by the difference of their clocks at their start.
        """
        return self._began + time.monotonic()

    @functools.cached_property
    def _began(self) -> float:
        return time.time() - time.monotonic()

    #: Returns seconds that never run backwards, for deadlines.
    monotonic = staticmethod(time.monotonic)

    #: Returns the seconds of CPU that the process has used.
    cpu = staticmethod(time.process_time)

    def sleep(self, seconds: float) -> None:
        """Block the calling thread."""
        time.sleep(seconds)

    #: Returns a :class:`Lock` that may be held while its holder waits.
    lock: Callable[[], Lock] = staticmethod(threading.Lock)

    def event(self) -> Event:
        """Return an event, not set."""
        return threading.Event()

    def semaphore(self, value: int) -> Semaphore:
        """Return a semaphore that so many may hold; not released too often."""
        return threading.BoundedSemaphore(value)


class Deadline:
    """The end of the time that a request may take.

    :param timeout_s: seconds from now; infinite for no deadline
    """

    def __init__(
        self, clock: Clock, timeout_s: float = math.inf
    ) -> None:
        self._clock = clock
        self._until = clock.monotonic() + timeout_s

    def remaining_s(self, most_s: float = math.inf) -> float:
        """Return the seconds that a wait may take, 0 after the deadline.

        :param most_s: the limit of the wait itself
        """
        return max(0.0, min(most_s, self._until - self._clock.monotonic()))

    @property
    def late_s(self) -> float:
        """The seconds since the deadline; negative before it."""
        return self._clock.monotonic() - self._until
