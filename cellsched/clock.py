# SPDX-License-Identifier: Apache-2.0
"""Time, read in one place.

Everything that needs the time is handed a :class:`Clock`, so that tests and
simulations can hand it another one.
"""

import datetime
import functools
import time


class Clock:
    """The clock of the machine."""

    def now(self) -> datetime.datetime:
        """Return the wall clock's time, in UTC and without a time zone.

        That is the form in which databases of this kind keep times.
        """
        return datetime.datetime.fromtimestamp(
            time.time(), datetime.UTC).replace(tzinfo=None)

    def timestamp(self) -> float:
        """Return the wall clock's time in seconds since the epoch."""
        return time.time()

    def steady(self) -> float:
        """Return seconds since the epoch that no step of the clock moves.

        The wall clock was read once, and what passed since is added. It is
        for leases and deadlines, and differs between processes by as much as
        their clocks did when they began.
        """
        return self._began + time.monotonic()

    @functools.cached_property
    def _began(self) -> float:
        return time.time() - time.monotonic()

    def monotonic(self) -> float:
        """Return seconds that never run backwards, for deadlines."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Block the calling thread."""
        time.sleep(seconds)
