# SPDX-License-Identifier: Apache-2.0
"""Simulated time: processes, their order, a clock and its locks.

A simulated process is a greenlet. Code of production runs in it without a
change: where it sleeps or waits, by the :class:`SimulatedClock`, another
process runs. Only one process runs at a time.

A timeline has one of two orders. :class:`Engine` runs what is due first;
events at the same time happen in the order in which they were scheduled. In an
:class:`Interleaver`, a function selects the next process at each step. Both
are functions of the scenario and the seed.
"""

import abc
import collections
from collections.abc import Callable
import datetime
import heapq
import math
from typing import Any
from typing import cast

import greenlet

from cellsched import clock
from cellsched import exception

#: The time at which every simulation begins, in seconds since the epoch.
EPOCH = 1_700_000_000.0


class Killed(exception.ThreadStopped):
    """Raised in a process that is killed; do not catch it."""


class Process(greenlet.greenlet):
    """A simulated process.

    :param name: the name in the trace of an interleaving
    :param owner: the simulated service that it is a part of
    """

    def __init__(
        self, function: Callable[..., None], name: str = '', owner: Any = None
    ) -> None:
        super().__init__()
        self.function = function
        self.name = name
        self.owner = owner
        self.doomed = False
        #: Changes with each wait, so that the timer of an earlier wait is
        #: ignored.
        self.ticket = 0
        self.is_woken = True
        #: The time limit of its wait in an interleaving.
        self.until = math.inf

    def run(self, *args: Any) -> None:
        try:
            self.function(*args)
        except Killed:
            pass

    @property
    def is_over(self) -> bool:
        """True if it ended, or was killed before it began."""
        return self.dead or self.doomed and not self

    @property
    def ready_at(self) -> float:
        """The time from which on it can run in an interleaving."""
        return 0.0 if self.doomed or self.is_woken else self.until


class Timeline(abc.ABC):
    """Simulated time, and the waiting of processes.

    :ivar now: the simulated time, in seconds since the start
    """

    now = 0.0

    @abc.abstractmethod
    def park(self, timeout: float | None = None) -> bool:
        """Wait in the calling process until it is woken.

        :returns: False if the time is over
        :raises Killed: the process was killed
        """

    @abc.abstractmethod
    def wake(self, process: Process) -> None:
        """Wake a process that waits, at the present time."""

    def sleep(self, seconds: float) -> None:
        """Let simulated time pass in the calling process."""
        self.park(max(seconds, 0.0))


class Engine(Timeline):
    """The events of a simulation, in the order of time."""

    def __init__(self) -> None:
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

    def spawn(self, function: Callable[..., None], *args: Any) -> Process:
        """Start a process, at the present time."""
        process = Process(function)
        process.parent = self._main
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
            function(*args)
        self.now = max(self.now, until)

    def park(self, timeout: float | None = None) -> bool:
        process = cast(Process, greenlet.getcurrent())
        if process.doomed:
            raise Killed
        process.ticket += 1
        process.is_woken = False
        if timeout is not None:
            self.call_at(
                self.now + timeout, self._expire, process, process.ticket)
        self._main.switch()
        if process.doomed:
            raise Killed
        return process.is_woken

    def wake(self, process: Process) -> None:
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
    """Processes that wait, the first one first.

    ``promised`` of them were woken and have not run since.
    """

    promised = 0

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._waiting: collections.deque[Process] = (
            collections.deque())

    def wait(self, timeout: float | None = None) -> bool:
        """Wait in the calling process; return False if the time is over."""
        process = cast(Process, greenlet.getcurrent())
        self._waiting.append(process)
        try:
            return self._timeline.park(timeout)
        except Killed:
            if process not in self._waiting:
                # The next process gets what this one was woken for.
                self.wake_one()
            raise
        finally:
            if process in self._waiting:
                self._waiting.remove(process)
            else:
                self.promised -= 1

    def wake_one(self) -> bool:
        """Wake a process; return whether there is one."""
        while self._waiting:
            process = self._waiting.popleft()
            if not process.doomed:
                self.promised += 1
                self._timeline.wake(process)
                return True
        return False

    def wake_all(self) -> None:
        """Wake all processes."""
        while self.wake_one():
            pass


class Interleaver(Timeline):
    """Processes in an order that is decided at each pause.

    :param decide: takes the process that paused, or None if it ended, and
        returns the next one; None ends the run
    """

    def __init__(
        self, decide: Callable[[Process | None], Process | None]
    ) -> None:
        self._decide = decide
        self._current: Process | None = None

    def interleave(self) -> None:
        """Run processes until none can run."""
        main, following = greenlet.getcurrent(), self._decide(None)
        while following is not None:
            self._current = following
            following.parent = main
            following.switch()
            self._current = None
            following = self._decide(None if following.dead else following)

    def calling(self) -> Process | None:
        """Return the calling process, or None if it is none of these."""
        return self._current if (
            greenlet.getcurrent() is self._current) else None

    def pause(self) -> None:
        """Let the next process run; return when this one runs again.

        :raises Killed: the process was killed
        """
        process = self._current
        assert process is not None and process.parent is not None
        process.parent.switch()
        if process.doomed:
            raise Killed

    def park(self, timeout: float | None = None) -> bool:
        process = self.calling()
        if process is None:
            assert timeout is not None, 'an endless wait: nothing else runs'
            self.now += timeout
            return False
        process.is_woken = False
        process.until = math.inf if timeout is None else self.now + timeout
        try:
            self.pause()
            return process.is_woken
        finally:
            process.is_woken = True

    def wake(self, process: Process) -> None:
        process.is_woken = True


class SimulatedSemaphore:
    """A semaphore with a fixed number of places; a lock if it has one.

    A place that was promised to a process is not free for another one.

    :raises ValueError: more are released than were acquired
    """

    def __init__(self, timeline: Timeline, places: int = 1) -> None:
        self._waiters = Waiters(timeline)
        self._places = places
        self._free = places

    def acquire(
        self, blocking: bool = True, timeout: float | None = None
    ) -> bool:
        if self.locked() and not (blocking and self._waiters.wait(
                None if timeout is None or timeout < 0 else timeout)):
            return False
        self._free -= 1
        return True

    def release(self) -> None:
        if self._free == self._places:
            raise ValueError('Released more often than acquired')
        self._free += 1
        self._waiters.wake_one()

    def locked(self) -> bool:
        return self._free <= self._waiters.promised

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exc: Any) -> None:
        self.release()


class SimulatedEvent:
    """An event, as of :mod:`threading`."""

    def __init__(self, timeline: Timeline) -> None:
        self._set = False
        self._waiters = Waiters(timeline)

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        self._waiters.wake_all()

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        return self._set or self._waiters.wait(timeout)


class SimulatedClock(clock.Clock):
    """The clock of a machine.

    :ivar ahead_s: the error of the clock; below 0 it is behind
    :ivar began_ahead_s: the error at the start of the process
    """

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self.ahead_s = 0.0
        self.began_ahead_s = 0.0

    def now(self) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(
            self.timestamp(), datetime.UTC).replace(tzinfo=None)

    # The base class has functions of Python itself in these places.

    def timestamp(self) -> float:  # type: ignore[override]
        return EPOCH + self.ahead_s + self._timeline.now

    def steady(self) -> float:
        return EPOCH + self.began_ahead_s + self._timeline.now

    def monotonic(self) -> float:  # type: ignore[override]
        return self._timeline.now

    cpu = monotonic  # type: ignore[assignment]

    def sleep(self, seconds: float) -> None:
        self._timeline.sleep(seconds)

    def lock(self) -> clock.Lock:  # type: ignore[override]
        return SimulatedSemaphore(self._timeline)

    def event(self) -> clock.Event:
        return SimulatedEvent(self._timeline)

    def semaphore(self, value: int) -> clock.Semaphore:
        return SimulatedSemaphore(self._timeline, value)


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
