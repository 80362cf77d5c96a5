# SPDX-License-Identifier: Apache-2.0
"""Batches that wait until they are tried again, and what they fail of."""

from collections.abc import Sequence
import dataclasses
import heapq
import itertools
import threading

import oslo_messaging

from cellsched.clock import Clock
from cellsched.context import RequestContext
from cellsched import exception
from cellsched.rpc import delivery

#: What passes: somebody did not answer, or could not tell, and may do so the
#: next time; or somebody else may.
_PASSING: tuple[type[Exception], ...] = (
    exception.BrokerRefused, exception.CellUnreachable,
    exception.DatabaseUnreachable, exception.DeadlineExceeded,
    exception.HostsInDoubt, exception.TransactionLost,
    oslo_messaging.MessageDeliveryFailure, oslo_messaging.MessagingTimeout,
    *delivery.BROKER_ERRORS)

_PASSING_NAMES = frozenset(each.__name__ for each in _PASSING)

#: Batches that may wait; what does not is found when its lease has run out.
WAITING_MAX = 10_000


@dataclasses.dataclass(frozen=True)
class Attempt:
    """Builds of one batch that are to be tried.

    :param owner: who has leased them for that, if anybody has
    :param number: how often this conductor has tried them before
    """

    context: RequestContext
    uuids: Sequence[str]
    owner: str | None = None
    number: int = 0


class Retries:
    """Builds that failed of something that passes, kept by who tried them.

    Each try waits twice as long as the one before. After some of them the
    builds are anybody's, as somebody else may get through.

    :param delay_s: seconds until the first of them
    :param attempts_max: how many there are
    """

    def __init__(
        self, clock: Clock, delay_s: float, attempts_max: int
    ) -> None:
        self._clock = clock
        self._delay_s = delay_s
        self._attempts_max = attempts_max
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._waiting: list[tuple[float, int, Attempt]] = []

    def put_off(self, attempt: Attempt) -> bool:
        """Have a batch tried again later; return whether it will be."""
        if attempt.number >= self._attempts_max:
            return False
        due = (self._clock.monotonic()
               + self._delay_s * 2 ** attempt.number)
        again = dataclasses.replace(attempt, number=attempt.number + 1)
        with self._lock:
            if len(self._waiting) >= WAITING_MAX:
                return False
            heapq.heappush(
                self._waiting, (due, next(self._numbers), again))
        return True

    def take_due(self) -> list[Attempt]:
        """Return what is to be tried now; it waits no longer."""
        now, due = self._clock.monotonic(), []
        with self._lock:
            while self._waiting and self._waiting[0][0] <= now:
                due.append(heapq.heappop(self._waiting)[2])
        return due


def passes(exc: BaseException) -> bool:
    """Return whether what failed of an error may be tried again.

    What another service failed of counts too, in whatever form it is told.
    """
    return isinstance(exc, _PASSING) or (
        isinstance(exc, oslo_messaging.RemoteError)
        and exception.kind_of(exc) in _PASSING_NAMES)
