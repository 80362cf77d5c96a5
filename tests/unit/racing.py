# SPDX-License-Identifier: Apache-2.0
"""Doing things at the same time."""

from concurrent import futures
import threading
import time


def race(*functions):
    """Call functions at the same time; return what each returned or raised."""
    start = threading.Barrier(len(functions))

    def run(function):
        start.wait()
        try:
            return function()
        except Exception as exc:
            return exc

    with futures.ThreadPoolExecutor(len(functions)) as threads:
        return list(threads.map(run, functions))


class ExpiringLocks:
    """Locks whose limited waits end when the test says so."""

    def __init__(self):
        self._made = []

    def make(self):
        self._made.append(_ExpiringLock())
        return self._made[-1]

    def expire(self, number, meanwhile=lambda: None):
        """End the present wait for the lock that was made as this one.

        :param meanwhile: called after the limit, before the wait ends
        """
        lock = self._made[number]
        lock.meanwhile = meanwhile
        lock.expired.set()
        while lock.expired.is_set():
            time.sleep(0.001)


class _ExpiringLock:

    def __init__(self):
        self._lock = threading.Lock()
        self.expired = threading.Event()
        self.meanwhile = lambda: None

    def acquire(self, timeout=None):
        if timeout is None:
            return self._lock.acquire()
        while not self._lock.acquire(timeout=0.002):
            if self.expired.is_set():
                self.meanwhile()
                self.expired.clear()
                return False
        return True

    def release(self):
        self._lock.release()

    def __enter__(self):
        return self.acquire()

    def __exit__(self, *error):
        self.release()
