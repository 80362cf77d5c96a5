# SPDX-License-Identifier: Apache-2.0
"""Pauses in work that nobody waits for.

Only one thread runs Python at a time. Whoever wants to run meets a thread that
works without a pause again after each query and each message, and waits 5 ms
for it each time: a request takes several times as long meanwhile.
"""

from cellsched import clock as clock_

#: Seconds of work after which a pause is due.
WORK_S = 0.0002

#: Seconds of a pause, in which those who wait are woken up and begin.
PAUSE_S = 0.0005


class Pauses:
    """The pauses of one thread."""

    def __init__(self, clock: clock_.Clock) -> None:
        self._clock = clock
        self._began = clock.monotonic()

    def pause(self) -> None:
        """Let others run, if a pause is due."""
        if self._clock.monotonic() - self._began >= WORK_S:
            self._clock.sleep(PAUSE_S)
            self._began = self._clock.monotonic()
