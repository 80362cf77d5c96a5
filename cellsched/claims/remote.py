# SPDX-License-Identifier: Apache-2.0
"""Outcomes and attempts, for claim stores on servers of their own.

A store of this kind asks its server through one method of one object, its
client::

    def send(self, request: Request) -> Answer

A request is a value that a simulation can keep, send twice or answer late, and
whatever the server says, refusals too, is an answer. Only :class:`NotSent` and
:class:`OutcomeUnknown` are raised. What the store makes of answers is its own.
"""

from collections.abc import Callable
from collections.abc import Iterator
from random import Random
import re
from typing import TypeVar

from cellsched.clock import Clock

_Outcome = TypeVar('_Outcome')

#: Seconds that are waited after the first attempt, and at most after a later
#: one; each time a random part of them.
FIRST_S = 0.005
MOST_S = 0.5


class NotSent(Exception):
    """The server did not get the request, which is not done, nor will be."""


class OutcomeUnknown(Exception):
    """The server may have done what it was asked, or may do it later."""


class GivenUp(Exception):
    """No attempt had an outcome in time; says why the last had none."""


def attempts(
    clock: Clock, random: Random, patience_s: float,
    most_s: float = MOST_S,
) -> Iterator[int]:
    """Yield the numbers of attempts, from 0, and wait between them.

    Who loses waits for a random time, longer after each attempt, so that those
    who lost together do not meet again. The last attempt is made when the
    patience is over.

    :param most_s: how long one waits at most between two of them
    """
    until = clock.monotonic() + patience_s
    number, longest_s = 0, FIRST_S
    while True:
        yield number
        left_s = until - clock.monotonic()
        if left_s <= 0:
            return
        clock.sleep(min(random.uniform(0, longest_s), left_s))
        number += 1
        longest_s = min(2 * longest_s, most_s)


def first_outcome(
    attempt: Callable[[], _Outcome | None], clock: Clock,
    random: Random, patience_s: float,
) -> _Outcome:
    """Return the first outcome of an attempt that is not None.

    :param attempt: must find out what an earlier one has done; returns None
        where others changed the same meanwhile
    :raises GivenUp: there is none in time
    """
    reason = 'others change the same all the time'
    for _ in attempts(clock, random, patience_s):
        try:
            outcome = attempt()
        except (NotSent, OutcomeUnknown) as exc:
            reason = str(exc)
        else:
            if outcome is not None:
                return outcome
    raise GivenUp(reason)


def release(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a server's version, as far as it has."""
    return tuple(map(int, re.findall(
        r'\d+', version.partition('-')[0], re.ASCII)[:2]))
