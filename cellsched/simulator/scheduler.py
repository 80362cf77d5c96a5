# SPDX-License-Identifier: Apache-2.0
"""One thread at a time, and who is next is decided by one function."""

from __future__ import annotations

from collections.abc import Callable
import threading
from typing import Any

from cellsched import exception


class Killed(exception.ThreadStopped):
    """Raised in a thread whose process has died; nothing may catch it."""


class Activity:
    """Something that a process does, in a thread of its own.

    :param owner: the process
    :param name: what it is, for those who read a trace
    """

    def __init__(
        self, owner: Any, name: str, function: Callable[[], None]
    ) -> None:
        self.owner = owner
        self.name = name
        self.function = function
        self.doomed = False
        self.done = False
        #: What it waits for, None where it can go on.
        self.awaited: Callable[[], bool] | None = None
        #: When it goes on in any case.
        self.until: float | None = None
        self.worker: _Worker | None = None

    def is_ready(self, now: float) -> bool:
        """Return whether it can go on."""
        return (self.doomed or self.awaited is None
                or (self.until is not None and self.until <= now)
                or self.awaited())


class _Worker:
    """A thread that runs one activity after the other."""

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool
        self.turn = threading.Lock()
        self.turn.acquire()
        self.activity: Activity | None = None
        self.leave: Callable[[Activity], None] = lambda activity: None
        self.ident = 0
        threading.Thread(
            target=self._run, daemon=True, name='simulated').start()

    def _run(self) -> None:
        self.ident = threading.get_ident()
        while True:
            self.turn.acquire()
            activity = self.activity
            if activity is None:
                return
            try:
                activity.function()
            except Killed:
                pass
            finally:
                activity.done = True
                self.activity = None
                self._pool.idle.append(self)
                self.leave(activity)


class WorkerPool:
    """Threads that wait for work; runs hand them on to each other."""

    def __init__(self) -> None:
        self.idle: list[_Worker] = []

    def take(self) -> _Worker:
        return self.idle.pop() if self.idle else _Worker(self)

    def dismiss(self) -> None:
        """Let the threads end."""
        while self.idle:
            self.idle.pop().turn.release()


class Scheduler:
    """Goes from one activity to the next.

    :param decide: is given the activity that has it, or None, and says which
        is next; None ends the run. It is called in whatever thread has it
    """

    def __init__(
        self, pool: WorkerPool,
        decide: Callable[[Activity | None], Activity | None],
    ) -> None:
        self._pool = pool
        self._decide = decide
        self._over = threading.Lock()
        self.current: Activity | None = None

    def run(self) -> None:
        """Run activities until there is none left to go on."""
        self._over.acquire()
        following = self._decide(None)
        if following is not None:
            self._hand(following)
            self._over.acquire()
        self._over.release()

    def calling(self) -> Activity | None:
        """Return the activity that the calling thread is, if it is one."""
        current = self.current
        if (current is None or current.worker is None
                or current.worker.ident != threading.get_ident()):
            return None
        return current

    def pause(self) -> None:
        """Let others go on, perhaps; return when it is this one's turn.

        :raises Killed: its process died
        """
        activity = self.current
        assert activity is not None and activity.worker is not None
        following = self._decide(activity)
        if following is not activity:
            self._hand(following)
            activity.worker.turn.acquire()
        if activity.doomed:
            raise Killed

    def wait(
        self, awaited: Callable[[], bool], until: float | None = None
    ) -> bool:
        """Let others go on until something is so; return whether it is.

        :param until: the time to wait no longer
        """
        activity = self.current
        assert activity is not None
        activity.awaited, activity.until = awaited, until
        try:
            self.pause()
        finally:
            activity.awaited = activity.until = None
        return awaited()

    def _hand(self, following: Activity | None) -> None:
        self.current = following
        if following is None:
            self._over.release()
            return
        if following.worker is None:
            following.worker = self._pool.take()
            following.worker.activity = following
            following.worker.leave = self._leave
        following.worker.turn.release()

    def _leave(self, activity: Activity) -> None:
        self._hand(self._decide(None))
