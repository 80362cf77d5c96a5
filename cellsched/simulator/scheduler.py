# SPDX-License-Identifier: Apache-2.0
"""Cooperative scheduling: one thread runs at a time."""

from __future__ import annotations

from collections.abc import Callable
import threading
from typing import Any

from cellsched import exception


class Killed(exception.ThreadStopped):
    """Raised in a thread of a killed process; do not catch it."""


class Activity:
    """An activity of a process, in a thread of its own.

    :param owner: the process
    :param name: the name in traces
    """

    def __init__(
        self, owner: Any, name: str, function: Callable[[], None]
    ) -> None:
        self.owner = owner
        self.name = name
        self.function = function
        self.doomed = False
        self.done = False
        #: The condition that it waits for, or None.
        self.awaited: Callable[[], bool] | None = None
        #: The time limit of the wait.
        self.until: float | None = None
        self.worker: _Worker | None = None

    def is_ready(self, now: float) -> bool:
        """Return whether the activity can run."""
        return (self.doomed or self.awaited is None
                or (self.until is not None and self.until <= now)
                or self.awaited())


class _Worker:
    """A thread that runs activities one by one."""

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
    """Idle threads, which runs share."""

    def __init__(self) -> None:
        self.idle: list[_Worker] = []

    def take(self) -> _Worker:
        return self.idle.pop() if self.idle else _Worker(self)

    def dismiss(self) -> None:
        """End the idle threads."""
        while self.idle:
            self.idle.pop().turn.release()


class Scheduler:
    """Runs one activity at a time.

    :param decide: takes the running activity, or None, and returns the next
        one; None ends the run. It is called in the running thread
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
        """Run activities until none can run."""
        self._over.acquire()
        following = self._decide(None)
        if following is not None:
            self._hand(following)
            self._over.acquire()
        self._over.release()

    def calling(self) -> Activity | None:
        """Return the activity of the calling thread, or None."""
        current = self.current
        if (current is None or current.worker is None
                or current.worker.ident != threading.get_ident()):
            return None
        return current

    def pause(self) -> None:
        """Let the next activity run; return when this one runs again.

        :raises Killed: the process was killed
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
        """Wait for a condition; return whether it is true.

        :param until: the time limit
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
