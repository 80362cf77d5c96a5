# SPDX-License-Identifier: Apache-2.0
"""Locks, events and semaphores for threads of which one runs at a time.

They are plain variables: nobody else runs while one is looked at. Whoever has
to wait hands over to the others until it need not, by a function ``wait`` that
is given what is awaited and how many seconds for at most, None for ever.
"""

from collections.abc import Callable
from typing import Any

#: Lets others go on until something is so; returns whether it is.
Wait = Callable[[Callable[[], bool], float | None], bool]


class SimulatedSemaphore:
    """Has so many places.

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
    """Has one place."""

    def __init__(self, wait: Wait) -> None:
        super().__init__(wait)

    def locked(self) -> bool:
        return not self._free


class SimulatedEvent:
    """Is set, or not yet."""

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
