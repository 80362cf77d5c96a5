# SPDX-License-Identifier: Apache-2.0
"""Claims of threads that wait together, in one transaction."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import threading

from cellsched import batching
from cellsched.claims import base
from cellsched import clock
from cellsched import exception

#: What one batch is refused for, and others with it may not be.
_OF_ONE = (exception.ClaimConflict, exception.ClaimRefused,
           exception.InvalidField)


class _Batch:
    """The claims that one thread makes, and what became of them."""

    def __init__(self, claims: Sequence[base.Claim]) -> None:
        self.claims = claims
        self.is_grouped = any(claim.group is not None for claim in claims)
        self.new = 0
        self.error: BaseException | None = None

    def end(self, new: int = 0, error: BaseException | None = None) -> None:
        self.new, self.error = new, error

    def result(self) -> int:
        if self.error is not None:
            raise self.error
        return self.new


class ClaimBatcher:
    """Claims as a store does, for many threads at a time.

    What waits is claimed in one transaction. Where that is refused, each batch
    is tried on its own, so that nobody is refused for what another one wants.
    Those for members of server groups are tried so from the start: they take
    longer, and are refused more often.

    :param at_once: how many transactions there may be at a time
    :param make_lock: see :meth:`cellsched.clock.Clock.lock`
    """

    def __init__(
        self, store: base.ClaimStore, at_once: int = 2,
        make_lock: Callable[[], clock.Lock] = threading.Lock,
    ) -> None:
        self._store = store
        self._group_commit = batching.GroupCommit(
            self._take, at_once, make_lock)

    def claims_of(
        self, consumers: Iterable[str]
    ) -> dict[str, list[base.Claim]]:
        """Return what each of these consumers holds, if it holds anything."""
        return self._store.claims_of(consumers)

    def release(self, consumers: Iterable[str]) -> None:
        """Give back all that these consumers hold."""
        self._store.release(consumers)

    def claim(self, claims: Sequence[base.Claim]) -> int:
        """Take a batch; see the store's own, which says what is raised.

        Where others were taken with it, less than all of it may be called new
        although it was.
        """
        mine = _Batch(claims)
        self._group_commit.do(mine)
        return mine.result()

    def _take(self, batches: Sequence[_Batch]) -> None:
        grouped = [batch for batch in batches if batch.is_grouped]
        if grouped and len(batches) > 1:
            alone = [batch for batch in batches if not batch.is_grouped]
            if alone:
                self._take(alone)
            return self._take_each(grouped)
        claims = [claim for batch in batches for claim in batch.claims]
        consumers = [{claim.consumer for claim in batch.claims}
                     for batch in batches]
        if len(frozenset().union(*consumers)) < sum(map(len, consumers)):
            # Who holds what already is told for whole batches only.
            return self._take_each(batches)
        try:
            missing = len(claims) - self._store.claim(claims)
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
