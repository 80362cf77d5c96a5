# SPDX-License-Identifier: Apache-2.0
"""Simulated clocks of processes, with their locks.

A lock is a plain variable, because only one thread runs at a time. A thread
that must wait calls ``wait`` with a condition and a time limit in seconds, or
None for no limit.
"""

from collections.abc import Callable
import datetime
from typing import Any

from cellsched import clock


#: Waits for a condition; returns whether it is true.
Wait = Callable[[Callable[[], bool], float | None], bool]


class SimulatedSemaphore:
    """A semaphore with a fixed number of places.

    :raises ValueError: more are released than were acquired
    """

    def __init__(self, wait: Wait, places: int = 1) -> None:
        self._wait = wait
        self._places = places
        self._free = places

    def acquire(
        self, blocking: bool = True, timeout: float | None = None
    ) -> bool:
        if not self._free and not (blocking and self._wait(
                lambda: self._free > 0,
                None if timeout is None or timeout < 0 else timeout)):
            return False
        self._free -= 1
        return True

    def release(self) -> None:
        if self._free == self._places:
            raise ValueError('Released more often than acquired')
        self._free += 1

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exc: Any) -> None:
        self.release()


class SimulatedLock(SimulatedSemaphore):
    """A semaphore with one place."""

    def __init__(self, wait: Wait) -> None:
        super().__init__(wait)

    def locked(self) -> bool:
        return not self._free


class SimulatedEvent:
    """An event, as of :mod:`threading`."""

    def __init__(self, wait: Wait) -> None:
        self._wait = wait
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        return self._is_set or self._wait(self.is_set, timeout)


#: The start of all runs, in seconds since the epoch.
BEGINNING = 1_700_000_000.0


class SimulatedClock(clock.Clock):
    """The clock of a process.

    :param passed: returns the seconds since the start of the run
    :param wait: lets others go on until something is so, or for so many
        seconds, and returns whether it is
    """

    def __init__(
        self, passed: Callable[[], float], wait: Wait
    ) -> None:
        self._passed = passed
        self._wait = wait
        #: The error of the clock in seconds; below 0 it is behind.
        self.ahead_s = 0.0
        #: The error at the start of the process.
        self.began_ahead_s = 0.0

    def now(self) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(
            self.timestamp(), datetime.UTC).replace(tzinfo=None)

    def timestamp(self) -> float:
        return BEGINNING + self.ahead_s + self._passed()

    def steady(self) -> float:
        return BEGINNING + self.began_ahead_s + self._passed()

    def monotonic(self) -> float:
        return self._passed()

    def sleep(self, seconds: float) -> None:
        self._wait(lambda: False, seconds)

    def lock(self) -> SimulatedLock:
        return SimulatedLock(self._wait)

    def event(self) -> SimulatedEvent:
        return SimulatedEvent(self._wait)

    def semaphore(self, value: int) -> SimulatedSemaphore:
        return SimulatedSemaphore(self._wait, value)
