# SPDX-License-Identifier: Apache-2.0
"""Outcomes and retries, for claim stores with a server of their own.

These stores send requests through one method of a client object::

    def send(self, request: Request) -> Answer

A request is a value, so that a simulation can keep it, send it twice or delay
it. Each answer of the server is returned, a refusal too; only
:class:`NotSent` and :class:`OutcomeUnknown` are raised.
"""

from collections.abc import Callable
from collections.abc import Iterator
from random import Random
import re
from typing import TypeVar

from cellsched.clock import Clock

_Outcome = TypeVar('_Outcome')

#: Bounds, in seconds, on the wait before the second attempt and before later
#: ones. The wait is a random part of the bound.
FIRST_S = 0.005
MOST_S = 0.5


class NotSent(Exception):
    """The server did not receive the request, and will not execute it."""


class Rejection(NotSent):
    """The server rejects the request, and a repetition would be, too."""


class OutcomeUnknown(Exception):
    """The server may have executed the request, or may execute it later."""


class GivenUp(Exception):
    """No attempt had an outcome in time; the text is the last reason."""


def attempts(
    clock: Clock, random: Random, timeout_s: float,
    most_s: float = MOST_S,
) -> Iterator[int]:
    """Yield the numbers of attempts, from 0, and wait between them.

    The wait is random and grows with each attempt, so that clients with a
    conflict do not repeat it. The last attempt is made at the end of
    ``timeout_s``.

    :param most_s: the longest wait between two attempts
    """
    until = clock.monotonic() + timeout_s
    number, longest_s = 0, FIRST_S
    while True:
        yield number
        remaining_s = until - clock.monotonic()
        if remaining_s <= 0:
            return
        clock.sleep(min(random.uniform(0, longest_s), remaining_s))
        number += 1
        longest_s = min(2 * longest_s, most_s)


def first_outcome(
    attempt: Callable[[], _Outcome | None], clock: Clock,
    random: Random, timeout_s: float,
) -> _Outcome:
    """Return the first outcome of an attempt that is not None.

    :param attempt: finds out the outcome of the previous attempt first;
        returns None after a conflict with another client
    :raises GivenUp: there is no outcome in time, or the server rejects the
        request
    """
    reason = 'other clients change the same data'
    for _ in attempts(clock, random, timeout_s):
        try:
            outcome = attempt()
        except Rejection as exc:
            raise GivenUp(str(exc)) from None
        except (NotSent, OutcomeUnknown) as exc:
            reason = str(exc)
        else:
            if outcome is not None:
                return outcome
    raise GivenUp(reason)


def release(version: str) -> tuple[int, ...]:
    """Return the major and the minor number of a server's version."""
    return tuple(map(int, re.findall(
        r'\d+', version.partition('-')[0], re.ASCII)[:2]))
