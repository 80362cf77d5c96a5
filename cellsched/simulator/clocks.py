# SPDX-License-Identifier: Apache-2.0
"""Clocks of processes, which need not agree."""

from collections.abc import Callable
import datetime

from cellsched import clock
from cellsched.simulator import locks

#: When runs begin, in seconds since the epoch.
BEGINNING = 1_700_000_000.0


class SimulatedClock(clock.Clock):
    """The clock of a process.

    :param passed: returns the seconds that passed in the run
    :param wait: lets others go on until something is so, or for so many
        seconds, and returns whether it is
    """

    def __init__(
        self, passed: Callable[[], float], wait: locks.Wait
    ) -> None:
        self._passed = passed
        self._wait = wait
        #: By how much it is ahead, or behind.
        self.ahead_s = 0.0
        #: The same when this process began.
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

    def lock(self) -> locks.SimulatedLock:
        return locks.SimulatedLock(self._wait)

    def event(self) -> locks.SimulatedEvent:
        return locks.SimulatedEvent(self._wait)

    def semaphore(self, value: int) -> locks.SimulatedSemaphore:
        return locks.SimulatedSemaphore(self._wait, value)
