# SPDX-License-Identifier: Apache-2.0
"""Batching of the work of several threads.

A transaction for several items costs little more than one for a single item.
"""

from collections.abc import Callable
from collections.abc import Sequence
import os
import threading
from typing import Any
from typing import Generic
from typing import TypeVar

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
    """

    def __init__(
        self, work: Callable[[Sequence[_Item]], None], at_once: int = 1,
        make_lock: Callable[[], Any] = threading.Lock,
    ) -> None:
        self._work = work
        self._at_once = at_once
        self._make_lock = make_lock
        self._lock = threading.Lock()
        self._working = 0
        self._waiting: list[_Turn[_Item]] = []

    def do(self, item: _Item) -> None:
        """Do the work for an item, perhaps with others; blocks.

        :raises Exception: raised by the work for this item alone
        """
        turn = _Turn(item, self._make_lock())
        with self._lock:
            if self._working < self._at_once:
                self._working += 1
                turn.works = True
            else:
                turn.woken.acquire()
                self._waiting.append(turn)
        turn.woken.acquire()
        if turn.works:
            # Yield, so that items of other runnable threads join the batch.
            os.sched_yield()
            with self._lock:
                batch, self._waiting = [turn, *self._waiting], []
            try:
                self._do_all(batch)
            finally:
                self._leave()
        if turn.error is not None:
            raise turn.error

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
                turn.error = turn.error or exc
        finally:
            for turn in batch[1:]:
                turn.woken.release()

    def _do_each(self, batch: Sequence[_Turn[_Item]]) -> None:
        for turn in batch:
            try:
                self._work([turn.item])
            except Exception as exc:
                turn.error = exc
