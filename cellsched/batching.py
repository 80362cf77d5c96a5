# SPDX-License-Identifier: Apache-2.0
"""Doing at once what waits together.

A transaction of several costs little more than one of one.
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
    """An item that one thread wants done, and what became of it."""

    def __init__(self, item: _Item, woken: Any) -> None:
        self.item = item
        self.error: BaseException | None = None
        #: Free when it is done, or when it is this thread's turn to work. An
        #: event would do it too, with four locks.
        self.woken = woken
        #: Whether it works, for itself and all that wait then.
        self.works = False


class GroupCommit(Generic[_Item]):
    """Does work for many threads at a time.

    A thread that comes while others work waits, and whoever has the next turn
    works for all that wait. Where that fails each of them is tried on its own,
    so that nobody fails for what another one wants.

    :param work: does it for a list, and must be able to do so again after it
        failed; says in the items what became of each
    :param at_once: how many threads may work at a time
    :param make_lock: makes the locks that threads wait on, as
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
        """Have it done, alone or with others; blocks until it is.

        :raises Exception: what the work raised for this one alone
        """
        mine = _Turn(item, self._make_lock())
        with self._lock:
            if self._working < self._at_once:
                self._working += 1
                mine.works = True
            else:
                mine.woken.acquire()
                self._waiting.append(mine)
        mine.woken.acquire()
        if mine.works:
            # Yield, so that runnable threads join this batch.
            os.sched_yield()
            with self._lock:
                batch, self._waiting = [mine, *self._waiting], []
            try:
                self._do_all(batch)
            finally:
                self._leave()
        if mine.error is not None:
            raise mine.error

    def _leave(self) -> None:
        """Let one of those who wait work for all of them."""
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
