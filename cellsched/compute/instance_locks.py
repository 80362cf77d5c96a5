# SPDX-License-Identifier: Apache-2.0
"""Locks of instances: one thread at a time works on each."""

import threading
import weakref

from cellsched.clock import Clock
from cellsched.clock import Semaphore


class Semaphores:
    """Semaphores by name, for ``oslo_concurrency.lockutils.lock``.

    Offers what ``lockutils.Semaphores`` does, with semaphores that the clock
    makes. One that nobody uses any more is forgotten.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._known: weakref.WeakValueDictionary[str, Semaphore] = (
            weakref.WeakValueDictionary())

    def get(self, name: str) -> Semaphore:
        """Return the semaphore of a name, which one thread may hold."""
        with self._lock:
            return self._known.setdefault(name, self._clock.semaphore(1))
