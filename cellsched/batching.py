# SPDX-License-Identifier: Apache-2.0
"""Batches and queues of work.

:class:`GroupCommit` does the work of several threads together, because a
transaction for several items costs little more than one for a single item.
:class:`TaskQueue` decides which task gets a thread next.
"""

import collections
from collections.abc import Callable
from collections.abc import Hashable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from concurrent import futures
import dataclasses
import functools
import logging
import os
import threading
from typing import Any
from typing import Generic
from typing import TypeVar

from cellsched import exception

LOG = logging.getLogger(__name__)

#: Seconds that an item of a group waits for its turn.
TURN_S = 5.0

#: Seconds that an item waits for the end of its work in another thread. Longer
#: than the limits of the statements of a batch.
WORK_S = 300.0

_Item = TypeVar('_Item')


class _Turn(Generic[_Item]):
    """An item of one thread, and its outcome."""

    def __init__(self, item: _Item, woken: Any) -> None:
        self.item = item
        self.error: BaseException | None = None
        #: Released when the item is done, or when this thread is the next to
        #: work. An event would work too, but has four locks.
        self.woken = woken
        #: Whether this thread works, for all items that wait then.
        self.works = False


class GroupCommit(Generic[_Item]):
    """Does work for many threads at a time (group commit).

    While one thread works, the items of other threads wait. Then one of these
    threads works for all of them. If the work fails, each item is tried
    alone, so that an item fails for its own error only.

    :param work: does the work for a list of items, and can be called again
        after it failed; stores an outcome in each item
    :param at_once: number of threads that may work at the same time
    :param make_lock: makes the locks on which threads wait, as
        :class:`threading.Lock` does
    :param turn_s: seconds that an item waits for the work before it
    """

    def __init__(
        self, work: Callable[[Sequence[_Item]], None], at_once: int = 1,
        make_lock: Callable[[], Any] = threading.Lock,
        turn_s: float = TURN_S,
    ) -> None:
        self._turn_s = turn_s
        self._work = work
        self._at_once = at_once
        self._make_lock = make_lock
        self._lock = threading.Lock()
        self._working = 0
        self._waiting: list[_Turn[_Item]] = []
        #: Whether the last batch had several items.
        self._shared = False

    def do(self, item: _Item, turn_s: float | None = None) -> None:
        """Do the work for an item, perhaps with others; blocks.

        :param turn_s: replaces that of the group
        :raises Exception: raised by the work for this item alone
        :raises cellsched.exception.ServiceBusy: the work for other items did
            not end in time, and the work for this one was not begun; or it
            was begun and has not ended for ``WORK_S``, and may end later
        """
        turn = _Turn(item, self._make_lock())
        with self._lock:
            if self._working < self._at_once:
                self._working += 1
                turn.works = True
            else:
                turn.woken.acquire()
                self._waiting.append(turn)
        if not turn.woken.acquire(
                timeout=self._turn_s if turn_s is None else turn_s):
            self._withdraw(turn)
        if turn.works:
            if self._shared:
                # Yield, so that items of other runnable threads join the
                # batch. Under load this also waits for other processes.
                os.sched_yield()
            with self._lock:
                batch, self._waiting = [turn, *self._waiting], []
                self._shared = len(batch) > 1
            try:
                self._do_all(batch)
            finally:
                self._leave()
                for each in batch[1:]:
                    each.woken.release()
        if turn.error is not None:
            raise turn.error

    def _withdraw(self, turn: _Turn[_Item]) -> None:
        """Withdraw an item, or wait until the work for it has ended."""
        with self._lock:
            if turn in self._waiting:
                self._waiting.remove(turn)
                raise exception.ServiceBusy(waiting=len(self._waiting) + 1)
        if not turn.woken.acquire(timeout=WORK_S):
            raise exception.ServiceBusy(waiting=1)

    def _leave(self) -> None:
        """Let a waiting thread work for all waiting items."""
        with self._lock:
            if self._waiting:
                following = self._waiting.pop(0)
                following.works = True
                following.woken.release()
            else:
                self._working -= 1

    def _do_all(self, batch: Sequence[_Turn[_Item]]) -> None:
        try:
            try:
                self._work([turn.item for turn in batch])
            except Exception as exc:
                if len(batch) == 1:
                    batch[0].error = exc
                else:
                    self._do_each(batch)
        except BaseException as exc:
            for turn in batch:
                turn.error = turn.error or exception.copy_of(exc)

    def _do_each(self, batch: Sequence[_Turn[_Item]]) -> None:
        for turn in batch:
            try:
                self._work([turn.item])
            except Exception as exc:
                turn.error = exc


#: Seconds that a service which stops waits for its tasks.
STOP_S = 60.0

#: Seconds after which a running task counts as waiting for something outside.
WAITS_S = 0.2

#: Running tasks, including those that wait for something outside, for each
#: place.
_TASKS_PER_PLACE = 4

#: Lanes that a report names, the longest first.
_LANES = 20

#: A task of this weight or more loses its place only after this many times as
#: long.
_HEAVY_MAX = 25

#: The weight from which on a task is large.
_LARGE = 20

#: A large task pauses for this many times the time that it worked, and at most
#: for so many seconds.
_PAUSE, _PAUSE_MAX_S = 2.0, 1.0

#: Seconds in which a lane that had a small task counts as in use.
_RECENT_S = 1.0

#: The share of a CPU that a process uses at least if it is busy, and not
#: waiting.
_BUSY_SHARE = 0.7


@dataclasses.dataclass(frozen=True)
class Place:
    """The position of a task in a queue.

    :param lane: tasks of different lanes, such as projects, take turns
    :param keys: the maximum number of running tasks with a key, by key
    :param weight: the size of the task; a lane runs tasks of a total weight
        of at most the number of places, or one task
    """

    lane: Hashable = ''
    keys: Mapping[Hashable, int] = dataclasses.field(default_factory=dict)
    weight: int = 1


@dataclasses.dataclass(eq=False)
class _Task:
    place: Place
    function: Callable[[], Any]
    future: 'futures.Future[Any]'
    #: The time at which it started, on the monotonic clock.
    started_at: float = 0.0
    #: The end of its last pause, or its start.
    resumed_at: float = 0.0
    #: False if it waits for something outside.
    counted: bool = True


class _Current(threading.local):
    """The task that a thread runs, and its queue."""

    task: _Task | None = None
    queue: 'TaskQueue'


_current = _Current()


def give_way() -> None:
    """Pause if the thread runs a large task, and other lanes have small ones.

    Call it where no lock or transaction is held. A task is large from a
    weight of ``_LARGE``. While other lanes have small tasks, it works for a
    third of the time: the small tasks, and what they lead to in other
    processes, would otherwise compete with it for the CPU and the databases.
    """
    if _current.task is not None:
        _current.queue.pause(_current.task)


class TaskQueue:
    """Runs tasks in threads, fairly, and with a limit.

    Each running task has a place. The lane with the fewest places gets the
    next free one. A task with a key that is in use waits in the queue,
    without a thread.

    No task can keep its place by waiting: while other tasks wait for a place,
    a task that has run for longer than ``WAITS_S``, or for longer in
    proportion to its weight, loses its place and runs on, because it most
    likely waits for a lock, a database or another service. If the process is
    busy, the tasks are slow for that reason, and only one of them at a time
    loses its place.

    :param executor: runs the tasks; :attr:`threads` says how many threads it
        needs
    :param places: number of tasks that run at the same time
    :param clock: see :class:`cellsched.clock.Clock`
    :param waiting_max: number of tasks that wait; beyond it, the last task of
        the longest lane is refused
    """

    def __init__(
        self, executor: futures.Executor, places: int, clock: Any,
        waiting_max: int = 10_000,
    ) -> None:
        self._executor = executor
        self._places = places
        self._clock = clock
        self._waiting_max = waiting_max
        self._lock = threading.Lock()
        self._lanes: dict[Hashable, collections.deque[_Task]] = {}
        #: Tasks that wait for a key, by key.
        self._parked: dict[Hashable, collections.deque[_Task]] = {}
        self._waiting: collections.Counter[Hashable] = collections.Counter()
        self._waiting_sum = 0
        #: Tasks that have a place, by their start.
        self._running: dict[_Task, None] = {}
        self._used: collections.Counter[Hashable] = collections.Counter()
        self._keys: collections.Counter[Hashable] = collections.Counter()
        #: Number of running tasks without a place.
        self._outside = 0
        #: When each lane had its last small task; the earliest first.
        self._small_at: dict[Hashable, float] = {}
        #: When tasks lost their places the last time.
        self._released_at = 0.0
        self._is_watched = False
        self._never = clock.event()

    @staticmethod
    def threads(places: int) -> int:
        """Return the number of threads for a number of places."""
        # One thread watches, and others answer for refused tasks.
        return _TASKS_PER_PLACE * places + 4

    def submit(
        self, place: Place, function: Callable[..., Any], *args: Any
    ) -> 'futures.Future[Any]':
        """Add a task; does not block.

        :returns: the outcome; :class:`cellsched.exception.ServiceBusy` if the
            task is refused, now or later
        """
        task = _Task(place, functools.partial(function, *args),
                     futures.Future())
        with self._lock:
            refused = self._refuse(task)
            if refused is not task:
                self._lanes.setdefault(
                    place.lane, collections.deque()).append(task)
                self._count(task, 1)
            begun = self._pop_all()
        if refused is not None:
            self._executor.submit(_fail, refused, self._waiting_max)
        self._begin(begun)
        return task.future

    def state(self) -> dict[str, Any]:
        """Return the numbers of tasks, for reports on the process."""
        with self._lock:
            return {
                'running': len(self._running) + self._outside,
                'waiting': self._waiting_sum,
                'waiting_by_lane': {
                    str(lane): count
                    for lane, count in self._waiting.most_common(_LANES)},
                'keys_in_use': sorted(
                    str(key[-1] if isinstance(key, tuple) else key)
                    for key in self._keys)}

    def answers(self, timeout_s: float) -> bool:
        """Return whether a thread of the queue runs in time; blocks.

        Tasks that wait for something outside do not delay the answer.
        """
        return not futures.wait(
            [self._executor.submit(self.state)], timeout_s).not_done

    def waiting_keys(self) -> set[Hashable]:
        """Return the keys of the tasks that have not started."""
        with self._lock:
            return {key for queue in (
                *self._lanes.values(), *self._parked.values())
                for task in queue for key in task.place.keys}

    def close(self) -> None:
        """Cancel the tasks that have not started."""
        with self._lock:
            tasks = [task.future for queue in (
                *self._lanes.values(), *self._parked.values())
                for task in queue]
            self._lanes.clear()
            self._parked.clear()
        for each in tasks:
            each.cancel()

    def _count(self, task: _Task, change: int) -> None:
        lane = task.place.lane
        self._waiting_sum += change
        self._waiting[lane] += change
        if not self._waiting[lane]:
            del self._waiting[lane]

    def _refuse(self, task: _Task) -> _Task | None:
        """Return the task to refuse if the queue is full, else None."""
        if self._waiting_sum < self._waiting_max:
            return None
        longest, length = self._waiting.most_common(1)[0]
        lane = self._lanes.get(longest)
        if lane is None or self._waiting[task.place.lane] >= length:
            return task
        last = lane.pop()
        if not lane:
            del self._lanes[longest]
        self._count(last, -1)
        return last

    def _pop_all(self) -> list[_Task]:
        """Remove the tasks that can run now, and return them."""
        found: list[_Task] = []
        while len(self._running) < self._places and (
                len(self._running) + self._outside
                < _TASKS_PER_PLACE * self._places):
            lanes = list(filter(self._is_open, self._lanes))
            if not lanes:
                break
            lane = min(lanes, key=self._used.__getitem__)
            # The lane goes to the end, so that equal lanes take turns.
            tasks = self._lanes.pop(lane)
            task = tasks.popleft()
            if tasks:
                self._lanes[lane] = tasks
            if self._enter(task):
                found.append(task)
        if self._lanes and not self._is_watched:
            self._is_watched = True
            self._executor.submit(self._watch)
        return found

    def _is_open(self, lane: Hashable) -> bool:
        used = self._used[lane]
        return not used or (
            used + self._lanes[lane][0].place.weight <= self._places)

    def _enter(self, task: _Task) -> bool:
        """Give a task its place, or park it; return whether it can run."""
        keys = task.place.keys
        full = next((key for key, most in keys.items()
                     if self._keys[key] >= most), None)
        runs = full is None and task.future.set_running_or_notify_cancel()
        if full is not None:
            self._parked.setdefault(full, collections.deque()).append(task)
        else:
            self._count(task, -1)
        if not runs:
            # It may have been chosen in place of another one with its keys.
            for key in keys:
                self._unpark(key, keys[key])
            return False
        self._keys.update(keys.keys())
        self._used[task.place.lane] += task.place.weight
        self._running[task] = None
        task.started_at = task.resumed_at = self._clock.monotonic()
        if task.place.weight < _LARGE:
            self._note_small(task.place.lane, task.started_at)
        return True

    def _note_small(self, lane: Hashable, now: float) -> None:
        self._small_at.pop(lane, None)
        self._small_at[lane] = now
        while self._small_at[next(iter(self._small_at))] < now - _RECENT_S:
            del self._small_at[next(iter(self._small_at))]

    def _unpark(self, key: Hashable, most: int) -> None:
        """Put a task that waits for a key back, if the key is free."""
        if self._keys[key] < most and key in self._parked:
            parked = self._parked[key]
            task = parked.popleft()
            if not parked:
                del self._parked[key]
            lane = task.place.lane
            self._lanes.setdefault(lane, collections.deque()).appendleft(task)

    def _begin(self, tasks: Iterable[_Task]) -> None:
        for task in tasks:
            try:
                self._executor.submit(self._work, task)
            except RuntimeError as exc:
                # The executor was shut down.
                task.future.set_exception(exc)

    def pause(self, task: _Task) -> None:
        """Let a running task pause; see :func:`give_way`."""
        if task.place.weight < _LARGE:
            return
        now = self._clock.monotonic()
        with self._lock:
            gives_way = any(at > now - _RECENT_S and lane != task.place.lane
                            for lane, at in self._small_at.items())
        if gives_way:
            self._never.wait(
                min(_PAUSE * (now - task.resumed_at), _PAUSE_MAX_S))
        task.resumed_at = self._clock.monotonic()

    def _work(self, task: _Task) -> None:
        _current.task, _current.queue = task, self
        try:
            result = task.function()
        except BaseException as exc:
            self._leave(task)
            task.future.set_exception(exc)
        else:
            self._leave(task)
            task.future.set_result(result)
        finally:
            _current.task = None

    def _leave(self, task: _Task) -> None:
        keys = task.place.keys
        with self._lock:
            self._give_up(task)
            if not task.counted:
                self._outside -= 1
            self._keys.subtract(keys.keys())
            for key, most in keys.items():
                if not self._keys[key]:
                    del self._keys[key]
                self._unpark(key, most)
            begun = self._pop_all()
        self._begin(begun)

    def _give_up(self, task: _Task) -> None:
        """Take the place of a task, if it has one."""
        if task in self._running:
            del self._running[task]
            lane = task.place.lane
            self._used[lane] -= task.place.weight
            if not self._used[lane]:
                del self._used[lane]

    def _watch(self) -> None:
        """Take the places of tasks that wait, while other tasks want one."""
        cpu_s, now = self._clock.cpu(), self._clock.monotonic()
        while True:
            self._never.wait(WAITS_S / 2)
            used_s, cpu_s = self._clock.cpu() - cpu_s, self._clock.cpu()
            passed_s, now = self._clock.monotonic() - now, (
                self._clock.monotonic())
            with self._lock:
                if not self._lanes:
                    self._is_watched = False
                    return
                self._release(now, used_s > _BUSY_SHARE * passed_s)
                begun = self._pop_all()
            self._begin(begun)

    def _release(self, now: float, is_busy: bool) -> None:
        """Take the places of tasks that have run for long."""
        late = [task for task in self._running
                if now - task.started_at > WAITS_S * min(
                    task.place.weight, _HEAVY_MAX)]
        if is_busy:
            late = late[:1] if len(self._running) >= self._places else []
        elif self._outside >= 2 * self._places:
            # Lose places slowly, until the databases or services that the
            # tasks wait for are found stuck.
            free = (now - self._released_at) * self._places
            late = late[:int(free)]
        if late:
            self._released_at = now
        for task in late:
            task.counted = False
            self._outside += 1
            self._give_up(task)


def _fail(task: _Task, most: int) -> None:
    if task.future.set_running_or_notify_cancel():
        task.future.set_exception(exception.ServiceBusy(waiting=most))


class QueueExecutor(futures.Executor):
    """An executor in which tasks of different lanes take turns.

    :param executor: an executor with :meth:`TaskQueue.threads` threads
    :param places: see :class:`TaskQueue`; also the number of tasks of one
        lane that run, including those that wait for something outside
    :param lane: returns the lane of a task for its arguments
    :param weight: returns the weight of a task likewise
    """

    def __init__(
        self, executor: futures.Executor, places: int, clock: Any,
        lane: Callable[..., Hashable] = lambda *args: None,
        weight: Callable[..., int] = lambda *args: 1,
    ) -> None:
        self._executor = executor
        self._places = places
        self._queue = TaskQueue(executor, places, clock)
        self._lane = lane
        self._weight = weight
        self._unfinished: set[futures.Future[Any]] = set()

    def submit(
        self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> 'futures.Future[Any]':
        lane = self._lane(*args)
        keys = {} if lane is None else {lane: self._places}
        future = self._queue.submit(
            Place(lane, keys, self._weight(*args)),
            functools.partial(fn, **kwargs), *args)
        self._unfinished.add(future)
        future.add_done_callback(self._unfinished.discard)
        return future

    def state(self) -> dict[str, Any]:
        """Return the numbers of tasks, as :meth:`TaskQueue.state` does."""
        return self._queue.state()

    def shutdown(
        self, wait: bool = True, *, cancel_futures: bool = False
    ) -> None:
        """Cancel the tasks that have not started, and end the threads.

        :param wait: first wait for all tasks, for at most ``STOP_S``. The
            threads of later tasks end with the process
        """
        if wait:
            futures.wait(set(self._unfinished), STOP_S)
        self._queue.close()
        unfinished = len(self._unfinished)
        if wait and unfinished:
            LOG.warning('Stopping with %d tasks in progress after %g seconds',
                        unfinished, STOP_S)
        self._executor.shutdown(wait=wait and not unfinished)
