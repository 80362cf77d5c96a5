# SPDX-License-Identifier: Apache-2.0
"""Simulated time: a queue of events, processes, and a clock.

A simulated process is a greenlet. Code of production runs in it without a
change: where it sleeps or waits, by the :class:`SimulatedClock`, the engine
switches to the process whose event is next. Only one process runs at a time,
and events at the same time happen in the order in which they were scheduled,
so that a run is a function of its scenario and its seed.
"""

import collections
from collections.abc import Callable
import datetime
import heapq
from typing import Any
from typing import cast

import greenlet

from cellsched import clock

#: The time at which every simulation begins, in seconds since the epoch.
EPOCH = 1_700_000_000.0


class ProcessExit(greenlet.GreenletExit):
    """Raised in a process that is killed; do not catch it."""


class Process(greenlet.greenlet):
    """A simulated process.

    :param name: the name in errors
    """

    def __init__(
        self, function: Callable[..., None], name: str,
        parent: greenlet.greenlet,
    ) -> None:
        super().__init__(function, parent)
        self.name = name
        self.doomed = False
        #: Changes with each wait, so that the timer of an earlier wait is
        #: ignored.
        self.ticket = 0
        self.is_woken = True


class Engine:
    """The events of a simulation, in the order of time.

    :ivar now: the simulated time, in seconds since the start
    :ivar events: the number of events that have happened
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.events = 0
        self._queue: list[
            tuple[float, int, Callable[..., Any], tuple[Any, ...]]] = []
        self._number = 0
        self._main = greenlet.getcurrent()

    def call_at(
        self, at: float, function: Callable[..., Any], *args: Any
    ) -> None:
        """Call a function at a time; it must not wait."""
        self._number += 1
        heapq.heappush(self._queue, (at, self._number, function, args))

    def spawn(
        self, function: Callable[..., None], *args: Any, name: str = ''
    ) -> Process:
        """Start a process, at the present time."""
        process = Process(function, name, self._main)
        self.call_at(self.now, self._begin, process, args)
        return process

    def _begin(self, process: Process, args: tuple[Any, ...]) -> None:
        if not process.doomed:
            process.switch(*args)

    def run(self, until: float) -> None:
        """Let everything happen up to a time.

        An error of a process ends the run, and is raised here.
        """
        queue, pop = self._queue, heapq.heappop
        while queue and queue[0][0] <= until:
            self.now, _, function, args = pop(queue)
            self.events += 1
            function(*args)
        self.now = max(self.now, until)

    def sleep(self, seconds: float) -> None:
        """Let simulated time pass in the calling process."""
        self.park(max(seconds, 0.0))

    def park(self, timeout: float | None = None) -> bool:
        """Wait in the calling process until it is woken.

        :returns: False if the time is over
        """
        process = cast(Process, greenlet.getcurrent())
        if process.doomed:
            raise ProcessExit
        process.ticket += 1
        process.is_woken = False
        if timeout is not None:
            self.call_at(
                self.now + timeout, self._expire, process, process.ticket)
        self._main.switch()
        if process.doomed:
            raise ProcessExit
        return process.is_woken

    def wake(self, process: Process) -> None:
        """Wake a process that waits, at the present time."""
        if not process.is_woken:
            process.is_woken = True
            process.ticket += 1
            self.call_at(self.now, self._resume, process)

    def kill(self, process: Process) -> None:
        """End a process where it waits."""
        if not process.doomed and not process.dead:
            process.doomed = True
            process.ticket += 1
            self.call_at(self.now, self._resume, process)

    def _expire(self, process: Process, ticket: int) -> None:
        if process.ticket == ticket:
            process.ticket += 1
            process.switch()

    def _resume(self, process: Process) -> None:
        # A process that was killed before its first event has not begun.
        if process and not process.dead:
            process.switch()

    def close(self) -> None:
        """Drop all processes and events."""
        self._queue.clear()


class Waiters:
    """Processes that wait, the first one first."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: collections.deque[Process] = (
            collections.deque())

    def wait(
        self, timeout: float | None = None,
        give_back: Callable[[], None] = lambda: None,
    ) -> bool:
        """Wait in the calling process; return False if the time is over.

        :param give_back: called if the process is killed after it was woken
        """
        process = cast(Process, greenlet.getcurrent())
        self._waiting.append(process)
        try:
            return self._engine.park(timeout)
        except ProcessExit:
            if process.is_woken and process not in self._waiting:
                give_back()
            raise
        finally:
            if process in self._waiting:
                self._waiting.remove(process)

    def wake_one(self) -> bool:
        """Wake the first process; return whether there is one."""
        while self._waiting:
            process = self._waiting.popleft()
            if not process.doomed:
                self._engine.wake(process)
                return True
        return False

    def wake_all(self) -> None:
        while self.wake_one():
            pass


class SimulatedLock:
    """A lock that simulated processes wait for in turn."""

    def __init__(self, engine: Engine) -> None:
        self._held = False
        self._waiters = Waiters(engine)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if not self._held:
            self._held = True
            return True
        # The lock is handed over, so that it is held after the wait.
        return blocking and self._waiters.wait(
            None if timeout < 0 else timeout, self.release)

    def release(self) -> None:
        if not self._waiters.wake_one():
            self._held = False

    def locked(self) -> bool:
        return self._held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exc: Any) -> None:
        self.release()


class SimulatedEvent:
    """An event that simulated processes wait for."""

    def __init__(self, engine: Engine) -> None:
        self._set = False
        self._waiters = Waiters(engine)

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        self._waiters.wake_all()

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        return self._set or self._waiters.wait(timeout)


class SimulatedSemaphore:
    """A semaphore that simulated processes wait for in turn."""

    def __init__(self, engine: Engine, value: int) -> None:
        self._free = value
        self._waiters = Waiters(engine)

    def acquire(
        self, blocking: bool = True, timeout: float | None = None
    ) -> bool:
        if self._free:
            self._free -= 1
            return True
        return blocking and self._waiters.wait(timeout, self.release)

    def release(self) -> None:
        if not self._waiters.wake_one():
            self._free += 1

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exc: Any) -> None:
        self.release()


class SimulatedClock(clock.Clock):
    """The clock of production classes in a simulation.

    :param ahead_s: seconds by which the clock of a machine is ahead
    """

    def __init__(self, engine: Engine, ahead_s: float = 0.0) -> None:
        self._engine = engine
        self._start = EPOCH + ahead_s

    def now(self) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(
            self.steady(), datetime.UTC).replace(tzinfo=None)

    def steady(self) -> float:
        return self._start + self._engine.now

    # The base class has functions of Python itself in these places.
    timestamp = steady  # type: ignore[assignment]

    def monotonic(self) -> float:  # type: ignore[override]
        return self._engine.now

    cpu = monotonic  # type: ignore[assignment]

    def sleep(self, seconds: float) -> None:
        self._engine.sleep(seconds)

    def lock(self) -> clock.Lock:  # type: ignore[override]
        return SimulatedLock(self._engine)

    def event(self) -> clock.Event:
        return SimulatedEvent(self._engine)

    def semaphore(self, value: int) -> clock.Semaphore:
        return SimulatedSemaphore(self._engine, value)


class Processors:
    """CPUs that serve one piece of work after the other.

    :param count: the number of CPUs
    :ivar busy_s: the seconds of work that were served
    """

    def __init__(self, engine: Engine, count: int) -> None:
        self._engine = engine
        self._free_at = [0.0] * count
        self.busy_s = 0.0

    def use(self, seconds: float, interpreter: 'Processors | None' = None,
            ) -> None:
        """Wait for a CPU and use it, in the calling process.

        :param interpreter: the lock of an interpreter that is held meanwhile,
            as a :class:`Processors` with the count 1
        """
        if not seconds:
            return
        engine = self._engine
        start = max(engine.now, self._free_at[0])
        if interpreter is not None:
            start = max(start, interpreter._free_at[0])
            interpreter._free_at[0] = start + seconds
            interpreter.busy_s += seconds
        heapq.heapreplace(self._free_at, start + seconds)
        self.busy_s += seconds
        engine.sleep(start + seconds - engine.now)


class Disk:
    """A log on a disk, in which one flush serves all that wait for it.

    :param flush_s: the seconds of a flush
    """

    def __init__(self, engine: Engine, flush_s: float) -> None:
        self._engine = engine
        self.flush_s = flush_s
        self._start = -flush_s

    def flush(self) -> None:
        """Wait until what the calling process wrote is on the disk."""
        now = self._engine.now
        if now >= self._start:
            # One that runs began before the write; the next one serves it.
            self._start = max(now, self._start + self.flush_s)
        self._engine.sleep(self._start + self.flush_s - now)
