# SPDX-License-Identifier: Apache-2.0
"""Clocks for tests: one under control of the test, and a wrong one."""

import datetime
import threading

from cellsched import clock


class FakeClock(clock.Clock):
    """A clock for tests; may be read and advanced by several threads.

    :param timestamp: wall clock time at first, in seconds since the epoch
    """

    def __init__(self, timestamp: float = 1_700_000_000.0) -> None:
        self._lock = threading.Lock()
        self._start = timestamp
        self._passed_s = 0.0

    def now(self) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(
            self.timestamp(), datetime.UTC).replace(tzinfo=None)

    def timestamp(self) -> float:
        return self._start + self._passed_s

    def steady(self) -> float:
        return self.timestamp()

    def monotonic(self) -> float:
        return self._passed_s

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Advance the clock."""
        with self._lock:
            self._passed_s += seconds


class WrongClock(clock.Clock):
    """The clock of a machine with a wrong wall clock.

    :param ahead_s: seconds that it is ahead; below 0 it is behind
    :param right: the correct clock; by default the machine's
    """

    def __init__(
        self, ahead_s: float, right: clock.Clock | None = None
    ) -> None:
        self.ahead_s = ahead_s
        self._right = right or clock.Clock()

    def now(self) -> datetime.datetime:
        return self._right.now() + datetime.timedelta(seconds=self.ahead_s)

    def timestamp(self) -> float:
        return self._right.timestamp() + self.ahead_s

    def steady(self) -> float:
        return self._right.steady() + self.ahead_s

    def monotonic(self) -> float:
        return self._right.monotonic()

    def sleep(self, seconds: float) -> None:
        self._right.sleep(seconds)
