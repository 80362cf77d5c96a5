# SPDX-License-Identifier: Apache-2.0
"""Locks that know the baton.

An activity that waits for what another one holds has to hand the baton on, or
everything stands still. While :func:`cooperative` is entered, locks and events
that are made do so; threads that are no activities wait as they always do.
"""

import _thread
from collections.abc import Iterator
import contextlib
import threading
from typing import Any
from unittest import mock

from cellsched.simulator import baton as baton_


@contextlib.contextmanager
def cooperative(baton: baton_.Baton) -> Iterator[None]:
    """Have locks, semaphores and events be made that hand the baton on."""
    class Lock:
        """A lock as ``threading.Lock`` makes it."""

        def __init__(self) -> None:
            self._lock = _thread.allocate_lock()
            self.locked = self._lock.locked
            self.release = self._lock.release

        def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
            if self._lock.acquire(False):
                return True
            if blocking and baton.mine() is not None:
                while not self._lock.acquire(False):
                    baton.wait(lambda: not self._lock.locked())
                return True
            return blocking and self._lock.acquire(True, timeout)

        def __enter__(self) -> bool:
            return self.acquire()

        def __exit__(self, *exc: Any) -> None:
            self._lock.release()

    class Event(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            if baton.mine() is not None:
                while not self.is_set():
                    baton.wait(self.is_set)
            return super().wait(timeout)

    class Semaphore(threading.Semaphore):
        def acquire(
            self, blocking: bool = True, timeout: float | None = None
        ) -> bool:
            if blocking and baton.mine() is not None:
                while not super().acquire(False):
                    baton.wait(lambda: self._value > 0)  # type: ignore
                return True
            return super().acquire(blocking, timeout)

        __enter__ = acquire

    class BoundedSemaphore(Semaphore, threading.BoundedSemaphore):
        pass

    with mock.patch.multiple(
            threading, Lock=Lock, Event=Event, Semaphore=Semaphore,
            BoundedSemaphore=BoundedSemaphore):
        yield
