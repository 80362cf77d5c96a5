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
import contextlib
import dataclasses
import functools
import itertools
import logging
import os
import threading
from typing import Any
from typing import Generic
from typing import NamedTuple
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
    :param enter: makes the context of the work, and may wait for a limited
        time. Items that arrive until it is entered are in the batch
    """

    def __init__(
        self, work: Callable[[Sequence[_Item]], None], at_once: int = 1,
        make_lock: Callable[[], Any] = threading.Lock,
        turn_s: float = TURN_S,
        enter: Callable[[], contextlib.AbstractContextManager[object]] = (
            contextlib.nullcontext),
    ) -> None:
        self._turn_s = turn_s
        self._enter = enter
        self._work = work
        self._at_once = at_once
        self._make_lock = make_lock
        self._lock = threading.Lock()
        #: Threads that work, and those of them that have their batch.
        self._working = self._begun = 0
        self._waiting: list[_Turn[_Item]] = []
        #: Whether the last batch had several items.
        self._shared = False

    def do(self, item: _Item, turn_s: float | None = None) -> None:
        """Do the work for an item, perhaps with others; blocks.

        :param turn_s: replaces that of the group
        :raises Exception: raised by the work for this item alone
        :raises cellsched.exception.ServiceBusy: the work for other items did
            not end in time, and the work for this one was not begun; or it
            was begun and has not ended for ``WORK_S``, and may end later;
            ``kwargs`` has ``is_begun`` then
        """
        turn = _Turn(item, self._make_lock())
        with self._lock:
            if self._working < self._at_once:
                self._working += 1
                turn.works = True
            else:
                turn.woken.acquire()
                self._waiting.append(turn)
        try:
            while not turn.woken.acquire(
                    timeout=self._turn_s if turn_s is None else turn_s):
                # A work that waits for its context will have this item, too.
                if self._begun:
                    self._withdraw(turn)
                    break
        except BaseException:
            # The thread was interrupted, and must not be chosen to work.
            with self._lock:
                is_chosen = turn.works
                if turn in self._waiting:
                    self._waiting.remove(turn)
            if is_chosen:
                self._leave()
            raise
        if turn.works:
            if self._shared:
                # Yield, so that items of other runnable threads join the
                # batch. Under load this also waits for other processes.
                os.sched_yield()
            batch = [turn]
            try:
                with self._enter():
                    with self._lock:
                        self._begun += 1
                        batch += self._waiting
                        self._waiting = []
                        self._shared = len(batch) > 1
                    self._do_all(batch)
                    with self._lock:
                        self._begun -= 1
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
            raise exception.ServiceBusy(waiting=1, is_begun=True)

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

#: Running tasks for each place. Most of them wait for something outside.
_TASKS = 4

#: The weight of the running tasks of a lane, for each place, at most. The rest
#: is left to other lanes.
_LANE_WEIGHT = 3

#: Lanes that a report names, the longest first.
_LANES = 20


class Place(NamedTuple):
    """The position of a task in a queue.

    :param lane: tasks of different lanes, such as projects, take turns
    :param keys: the maximum number of running tasks with a key, by key
    :param weight: the size of the task. The weights of a lane's running tasks
        add up to at most three times the number of places. A heavier task runs
        alone in its lane
    """

    lane: Hashable = ''
    keys: Mapping[Hashable, int] = {}
    weight: int = 1


@dataclasses.dataclass(eq=False)
class _Task:
    place: Place
    function: Callable[[], Any]
    future: 'futures.Future[Any]'


class TaskQueue:
    """Runs tasks in threads, fairly, and with limits.

    The lane with the smallest weight of running tasks gets the next free
    thread. No lane has more than three quarters of the threads, so tasks of
    one lane that wait for something outside do not stop another one. A task
    with a key that is in use waits in the queue, without a thread.

    :param executor: runs the tasks; :meth:`threads` says how many threads it
        needs
    :param places: a quarter of the number of tasks that run at the same time
    :param waiting_max: number of tasks that wait; beyond it, the last task of
        the longest lane is refused
    """

    def __init__(
        self, executor: futures.Executor, places: int,
        waiting_max: int = 10_000,
    ) -> None:
        self._executor = executor
        self._places = places
        self._waiting_max = waiting_max
        self._lock = threading.Lock()
        self._lanes: dict[Hashable, collections.deque[_Task]] = {}
        #: Tasks that wait for a key, by key.
        self._parked: dict[Hashable, collections.deque[_Task]] = {}
        self._waiting: collections.Counter[Hashable] = collections.Counter()
        self._waiting_sum = 0
        self._running = 0
        #: The weight of the running tasks, by lane.
        self._used: collections.Counter[Hashable] = collections.Counter()
        self._keys: collections.Counter[Hashable] = collections.Counter()

    @staticmethod
    def threads(places: int) -> int:
        """Return the number of threads for a number of places."""
        # The others answer for refused tasks.
        return _TASKS * places + 4

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
                'running': self._running,
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
            return {key for task in self._queued() for key in task.place.keys}

    def close(self) -> None:
        """Cancel the tasks that have not started."""
        with self._lock:
            tasks = [*self._queued()]
            self._lanes.clear()
            self._parked.clear()
        for each in tasks:
            each.future.cancel()

    def _queued(self) -> Iterable[_Task]:
        return itertools.chain(*self._lanes.values(), *self._parked.values())

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
        while self._running < _TASKS * self._places:
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
        return found

    def _is_open(self, lane: Hashable) -> bool:
        used = self._used[lane]
        return not used or (
            used + self._lanes[lane][0].place.weight
            <= _LANE_WEIGHT * self._places)

    def _enter(self, task: _Task) -> bool:
        """Count a task as running, or park it; return whether it can run."""
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
        self._running += 1
        return True

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

    def _work(self, task: _Task) -> None:
        try:
            result = task.function()
        except BaseException as exc:
            self._leave(task)
            task.future.set_exception(exc)
        else:
            self._leave(task)
            task.future.set_result(result)

    def _leave(self, task: _Task) -> None:
        lane, keys = task.place.lane, task.place.keys
        with self._lock:
            self._running -= 1
            self._used[lane] -= task.place.weight
            if not self._used[lane]:
                del self._used[lane]
            self._keys.subtract(keys.keys())
            for key, most in keys.items():
                if not self._keys[key]:
                    del self._keys[key]
                self._unpark(key, most)
            begun = self._pop_all()
        self._begin(begun)


def _fail(task: _Task, most: int) -> None:
    if task.future.set_running_or_notify_cancel():
        task.future.set_exception(exception.ServiceBusy(waiting=most))


class QueueExecutor(futures.Executor):
    """An executor in which tasks of different lanes take turns.

    :param executor: an executor with :meth:`TaskQueue.threads` threads
    :param places: see :class:`TaskQueue`; also the number of running tasks of
        a lane
    :param lane: returns the lane of a task for its arguments
    :param weight: returns the weight of a task likewise
    """

    def __init__(
        self, executor: futures.Executor, places: int,
        lane: Callable[..., Hashable] = lambda *args: None,
        weight: Callable[..., int] = lambda *args: 1,
    ) -> None:
        self._executor = executor
        self._places = places
        self._queue = TaskQueue(executor, places)
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
