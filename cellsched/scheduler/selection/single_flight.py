# SPDX-License-Identifier: Apache-2.0
"""Requests that come again while they are answered."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
import contextlib
import threading

from cellsched import clock


class SingleFlight:
    """Has requests for the same instance answered one after the other.

    Each would take room in the table until the store says that the instance
    has its place already, and the last of them find none left.

    :param make_event: see :meth:`cellsched.clock.Clock.event`
    """

    def __init__(
        self, make_event: Callable[[], clock.Event] = threading.Event
    ) -> None:
        self._make_event = make_event
        self._lock = threading.Lock()
        #: What is set when an instance's request is answered.
        self._answered: dict[str, clock.Event] = {}

    @contextlib.contextmanager
    def alone(self, uuids: Iterable[str]) -> Iterator[None]:
        """Wait for others with any of these instances; keep them out."""
        answered = self._make_event()
        mine = dict.fromkeys(uuids, answered)
        while (other := self._enter(mine)) is not None:
            other.wait()
        try:
            yield
        finally:
            with self._lock:
                for uuid in mine:
                    del self._answered[uuid]
            answered.set()

    def _enter(
        self, mine: dict[str, clock.Event]
    ) -> clock.Event | None:
        """Go in, or return what to wait for before it is tried again."""
        with self._lock:
            for uuid in mine:
                if uuid in self._answered:
                    return self._answered[uuid]
            self._answered |= mine
        return None
