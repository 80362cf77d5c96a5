# SPDX-License-Identifier: Apache-2.0
"""The lane: requests are decided one after the other."""

import collections
from collections.abc import Callable
from collections.abc import Sequence
import math
import os
import threading
from typing import Any
from typing import Generic
from typing import TypeVar

from cellsched import exception

#: Seconds that a request waits for decisions on other ones.
WAIT_S = 30.0

#: Seconds that a request waits for its own decision, and for the claims that
#: are made together with its own. Longer than the deadlines of claim stores.
WORK_S = 300.0

_Item = TypeVar('_Item')


class _Turn(Generic[_Item]):
    """A request of one thread in the lane."""

    def __init__(self, item: _Item, woken: Any) -> None:
        self.item = item
        #: Released when the request may go on. An event would work too, but
        #: has four locks.
        self.woken = woken
        #: Whether this thread decides on all requests that wait.
        self.decides = False
        #: Whether the decision is made, and the claim if the lane claims.
        self.is_ended = False
        #: Whether its thread claims, because it has waited for too long.
        self.is_late = False
        #: Whether its thread has given up.
        self.is_abandoned = False


class Lane(Generic[_Item]):
    """Decides on the requests of all threads in the order of their arrival.

    The thread of one request decides on all that wait then. It gives the lane
    to another thread, and claims for the requests together. A request that is
    decided does not wait for a later decision of the same batch that takes
    long: its own thread goes on, and claims.

    The functions must not raise.

    :param decide: decides on a request; returns whether the lane claims for it
    :param claim: claims for decided requests together; may block
    :param undo: undoes a decision whose thread has given up
    :param make_lock: makes the locks on which threads wait, as
        :class:`threading.Lock` does
    """

    def __init__(
        self, decide: Callable[[_Item], bool],
        claim: Callable[[Sequence[_Item]], None],
        undo: Callable[[_Item], None],
        make_lock: Callable[[], Any] = threading.Lock,
    ) -> None:
        self._decide = decide
        self._claim = claim
        self._undo = undo
        self._make_lock = make_lock
        self._lock = threading.Lock()
        self._is_taken = False
        self._waiting: collections.deque[_Turn[_Item]] = collections.deque()
        #: Requests of the present batch whose claims are not begun.
        self._decided: list[_Turn[_Item]] = []
        #: Whether the last batch had several requests.
        self._is_shared = False

    def __len__(self) -> int:
        """Return the number of requests that wait."""
        return len(self._waiting)

    def take(self, item: _Item, timeout_s: float = math.inf) -> None:
        """Decide on a request, and perhaps claim for it; blocks.

        :param timeout_s: seconds to wait for the decisions before it, at most
            ``WAIT_S``
        :raises cellsched.exception.ServiceBusy: the decisions before it take
            longer than that, and it is not decided; or its own decision
            takes longer than ``WORK_S``, and is undone when it ends; or its
            claim takes longer than that, and may be made later
        """
        turn = _Turn(item, self._make_lock())
        with self._lock:
            if self._is_taken:
                turn.woken.acquire()
                self._waiting.append(turn)
            else:
                self._is_taken = turn.decides = True
        if not turn.woken.acquire(timeout=min(timeout_s, WAIT_S)):
            self._leave(turn)
        if turn.decides:
            self._decide_all(turn)

    def _decide_all(self, own: _Turn[_Item]) -> None:
        """Decide on all requests that wait now; claim for them together."""
        if self._is_shared:
            # Yield, so that requests of other runnable threads join the
            # batch. Under load this also waits for other processes.
            os.sched_yield()
        waiting = len(self._waiting)
        self._is_shared = waiting > 0
        self._decide_one(own)
        for _ in range(waiting):
            turn = self._next()
            if turn is not None:
                self._decide_one(turn)
        batch = self._pass_on()
        try:
            if batch:
                self._claim([each.item for each in batch])
        finally:
            with self._lock:
                for each in batch:
                    _end(each)

    def _next(self) -> _Turn[_Item] | None:
        with self._lock:
            return self._waiting.popleft() if self._waiting else None

    def _decide_one(self, turn: _Turn[_Item]) -> None:
        """Decide on a request; keep it for the claim, or end its wait."""
        is_claimed = self._decide(turn.item)
        with self._lock:
            if is_claimed and not turn.is_late:
                self._decided.append(turn)
            else:
                _end(turn)
            is_abandoned = turn.is_abandoned
        if is_abandoned:
            self._undo(turn.item)

    def _pass_on(self) -> Sequence[_Turn[_Item]]:
        """Give the lane to the next thread; return the decided requests."""
        with self._lock:
            batch, self._decided = self._decided, []
            if self._waiting:
                following = self._waiting.popleft()
                following.decides = True
                following.woken.release()
            else:
                self._is_taken = False
        return batch

    def _leave(self, turn: _Turn[_Item]) -> None:
        """Go on after the wait, as far as the lane has got.

        :raises cellsched.exception.ServiceBusy: see :meth:`take`
        """
        with self._lock:
            if turn in self._waiting:
                self._waiting.remove(turn)
                raise exception.ServiceBusy(waiting=len(self._waiting) + 1)
            if turn in self._decided:
                # A later decision takes long. This thread claims.
                self._decided.remove(turn)
                return
            turn.is_late = True
        if not turn.woken.acquire(timeout=WORK_S):
            with self._lock:
                turn.is_abandoned = not turn.is_ended
            if turn.is_abandoned:
                raise exception.ServiceBusy(waiting=1)


def _end(turn: _Turn[Any]) -> None:
    """End the wait of a request; the thread that decides does not wait."""
    turn.is_ended = True
    if not turn.decides:
        turn.woken.release()
