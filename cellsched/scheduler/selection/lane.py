# SPDX-License-Identifier: Apache-2.0
"""The lane, in which requests are decided in turn, and their attempts."""

import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses
import math
import os
import threading
from typing import Any
from typing import Generic
from typing import TypeVar

from cellsched.clock import Clock
from cellsched import exception
from cellsched.hosts.table import HostTable
from cellsched.hosts.table import PendingAllocation
from cellsched.scheduler.selection.selector import Selector

#: Seconds that a request waits for decisions on other ones.
WAIT_S = 30.0

#: Seconds that a request waits for its own decision, and for the claims that
#: are made together with its own. Longer than the deadlines of claim stores.
WORK_S = 300.0

#: Seconds to wait for pending claims of other requests.
PENDING_S = 10.0

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


@dataclasses.dataclass(eq=False, kw_only=True)
class Attempt:
    """The hosts that are selected for a request, and their reservation.

    :ivar places: the host and alternates of each instance; empty if an
        instance has no host
    :ivar allocations: the reservations in the table
    :ivar doubtful: the allocations of other requests that the selection
        counted although they may be rolled back; None if it did not ask
    :ivar selector: the selection, while the claim store chooses one of its
        alternatives
    :ivar error: the error of the selection, or of the claims
    """

    places: list[list[Any]] = dataclasses.field(default_factory=list)
    allocations: Sequence[PendingAllocation] = ()
    doubtful: list[PendingAllocation] | None = None
    selector: Selector | None = None
    error: BaseException | None = None

    def choose_other(
        self, table: HostTable, selector: Selector, number: int,
        alternates: int, full: Iterable[str] = (),
    ) -> None:
        """Replace a single selected host by an alternative; reserve that one.

        :param number: the position of the alternative
        :param alternates: the maximum number of alternates
        :param full: names of other hosts that are no alternates
        """
        selector.choose_other(number, full)
        self.places = selector.selections(alternates)
        table.rollback(self.allocations)
        self.allocations = table.reserve(selector.hosts)

    def undo(self, table: HostTable) -> None:
        """Roll back the reservation; the hosts are not claimed."""
        allocations, self.allocations = self.allocations, ()
        table.rollback(allocations)
        self.end(table)

    def end(self, table: HostTable) -> None:
        """Make the columns of the view available to other requests."""
        selector, self.selector = self.selector, None
        if selector is not None:
            table.reuse(selector.hosts)

    def await_claims(
        self, table: HostTable, clock: Clock, timeout_s: float = PENDING_S
    ) -> None:
        """Wait until each doubtful allocation is confirmed or rolled back.

        :param timeout_s: seconds to wait, at most :data:`PENDING_S`
        """
        events = []

        def watcher() -> Callable[[], None]:
            events.append(clock.event())
            return events[-1].set

        table.watch(self.doubtful or (), watcher)
        deadline = clock.monotonic() + min(timeout_s, PENDING_S)
        for event in events:
            event.wait(max(deadline - clock.monotonic(), 0))
