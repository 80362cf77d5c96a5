# SPDX-License-Identifier: Apache-2.0
"""Claims of threads that wait together, in one transaction."""

from collections.abc import Iterable
from collections.abc import Sequence
import threading

from cellsched.claims import base
from cellsched import exception

#: What one batch is refused for, and others with it may not be.
_OF_ONE = (exception.ClaimConflict, exception.ClaimRefused,
           exception.InvalidField)


class _Batch:
    """What one thread wants to claim, and what became of it."""

    def __init__(self, claims: Sequence[base.Claim]) -> None:
        self.claims = claims
        self.is_grouped = any(claim.group is not None for claim in claims)
        self.new = 0
        self.error: BaseException | None = None
        #: Set when it is done, or when it is this thread's turn to claim.
        self.woken = threading.Event()
        #: All that it claims then, itself among them.
        self.turn: list[_Batch] = []

    def end(self, new: int = 0, error: BaseException | None = None) -> None:
        self.new, self.error = new, error
        self.woken.set()

    def result(self) -> int:
        if self.error is not None:
            raise self.error
        return self.new


class Together:
    """Claims as a store does, for many threads at a time.

    A thread that comes while others claim waits, and whoever has the next turn
    claims for all that wait. A transaction of several batches costs little
    more than one of one; where it is refused, each of them is tried on its
    own, so that nobody is refused for what another one wants. Those for
    members of server groups are tried so from the start: they take longer, and
    are refused more often.

    :param at_once: how many transactions there may be at a time
    """

    def __init__(self, store: base.ClaimStore, at_once: int = 2) -> None:
        self._store = store
        self._at_once = at_once
        self._lock = threading.Lock()
        self._claiming = 0
        self._waiting: list[_Batch] = []

    def held(self, consumers: Iterable[str]) -> dict[str, list[base.Claim]]:
        """Return what each of these consumers holds, if it holds anything."""
        return self._store.held(consumers)

    def release(self, consumers: Iterable[str]) -> None:
        """Give back all that these consumers hold."""
        self._store.release(consumers)

    def claim(self, claims: Sequence[base.Claim]) -> int:
        """Take a batch; see the store's own, which says what is raised.

        Where others were taken with it, less than all of it may be called new
        although it was.
        """
        mine = _Batch(claims)
        with self._lock:
            if self._claiming < self._at_once:
                # Nobody waits then.
                self._claiming += 1
                mine.turn = [mine]
                mine.woken.set()
            else:
                self._waiting.append(mine)
        mine.woken.wait()
        if mine.turn:
            try:
                self._take(mine.turn)
            finally:
                self._hand_on()
        return mine.result()

    def _hand_on(self) -> None:
        """Let one of those who wait claim for all of them."""
        with self._lock:
            if self._waiting:
                first = self._waiting[0]
                first.turn, self._waiting = self._waiting, []
                first.woken.set()
            else:
                self._claiming -= 1

    def _take(self, batches: Sequence[_Batch]) -> None:
        grouped = [batch for batch in batches if batch.is_grouped]
        if grouped and len(batches) > 1:
            alone = [batch for batch in batches if not batch.is_grouped]
            if alone:
                self._take(alone)
            return self._take_each(grouped)
        together = [claim for batch in batches for claim in batch.claims]
        consumers = [{claim.consumer for claim in batch.claims}
                     for batch in batches]
        if len(frozenset().union(*consumers)) < sum(map(len, consumers)):
            # Who holds what already is told for whole batches only.
            return self._take_each(batches)
        try:
            missing = len(together) - self._store.claim(together)
        except _OF_ONE as exc:
            if len(batches) == 1:
                return batches[0].end(error=exc)
            return self._take_each(batches)
        except BaseException as exc:
            return _end_all(batches, exc)
        for batch in batches:
            batch.end(max(len(batch.claims) - missing, 0))

    def _take_each(self, batches: Sequence[_Batch]) -> None:
        for place, batch in enumerate(batches):
            try:
                batch.end(self._store.claim(batch.claims))
            except _OF_ONE as exc:
                batch.end(error=exc)
            except BaseException as exc:
                return _end_all(batches[place:], exc)


def _end_all(batches: Sequence[_Batch], error: BaseException) -> None:
    for batch in batches:
        batch.end(error=error)
