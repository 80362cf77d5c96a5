# SPDX-License-Identifier: Apache-2.0
"""The time for which a request waits for Placement, whatever it asks it."""

from collections.abc import Iterator
import contextlib
import threading
import time


class Deadline(threading.local):
    """The patience with Placement, which a request has once.

    Each thread has its own.

    :param timeout_s: seconds, for who decides on no request
    """

    def __init__(self, timeout_s: float) -> None:
        super().__init__()
        self._timeout_s = timeout_s
        # Monotonic time.
        self._until: float | None = None

    @contextlib.contextmanager
    def of_request(self, timeout_s: float) -> Iterator[None]:
        """Have a request of this thread wait for so many seconds in all."""
        before, self._until = self._until, time.monotonic() + timeout_s
        try:
            yield
        finally:
            self._until = before

    def left_s(self) -> float:
        """Return for how many seconds Placement is asked again."""
        if self._until is None:
            return self._timeout_s
        return max(0.0, self._until - time.monotonic())

    @property
    def is_over(self) -> bool:
        """True if a request of this thread has none left."""
        return self._until is not None and time.monotonic() >= self._until
