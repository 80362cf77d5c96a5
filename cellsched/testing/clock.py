# SPDX-License-Identifier: Apache-2.0
"""A clock that stands still until it is told to go on."""

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
        """Let time pass."""
        with self._lock:
            self._passed_s += seconds
