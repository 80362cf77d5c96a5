# SPDX-License-Identifier: Apache-2.0
"""The deadline for all Placement requests of one scheduling request."""

from collections.abc import Iterator
import contextlib
import threading
import time


class Deadline(threading.local):
    """The time at which a request stops retrying Placement, per thread.

    :param timeout_s: seconds to retry outside of a request
    """

    def __init__(self, timeout_s: float) -> None:
        super().__init__()
        self._timeout_s = timeout_s
        # Monotonic time.
        self._until: float | None = None

    @contextlib.contextmanager
    def of_request(self, timeout_s: float) -> Iterator[None]:
        """Limit the retries of a request of this thread, in seconds."""
        before, self._until = self._until, time.monotonic() + timeout_s
        try:
            yield
        finally:
            self._until = before

    def remaining_s(self) -> float:
        """Return the seconds that remain for retries."""
        if self._until is None:
            return self._timeout_s
        return max(0.0, self._until - time.monotonic())

    @property
    def is_over(self) -> bool:
        """True if the deadline of a request of this thread has passed."""
        return self._until is not None and time.monotonic() >= self._until
