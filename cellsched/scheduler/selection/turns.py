# SPDX-License-Identifier: Apache-2.0
"""Turns of requests in one process."""

from collections.abc import Iterator
import contextlib

from cellsched import clock

#: How many times a request waits while other ones take their turns.
_WAITS_MAX = 10


class Turns:
    """Turns of requests that would disturb each other, one after the other.

    Nothing depends on a turn: a request that waits while no other one gets a
    turn, or that has waited several times, goes on without one.

    :param wait_s: seconds to wait while no other request gets a turn
    :ivar number: the number of turns so far
    """

    def __init__(self, now: clock.Clock, wait_s: float = 0.1) -> None:
        self.wait_s = wait_s
        self._turn = now.lock()
        self.number = 0

    @property
    def is_taken(self) -> bool:
        """True while a request has its turn."""
        return self._turn.locked()

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Have a turn, if one is free in time."""
        has_turn = self._take()
        try:
            yield
        finally:
            if has_turn:
                self._turn.release()

    def _take(self) -> bool:
        for _ in range(_WAITS_MAX):
            before = self.number
            if self._turn.acquire(timeout=self.wait_s):
                self.number += 1
                return True
            if self.number == before:
                break
        return False
