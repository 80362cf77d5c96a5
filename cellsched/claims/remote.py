# SPDX-License-Identifier: Apache-2.0
"""Outcomes, retries and turns, for claim stores with a server of their own.

These stores send requests through one method of a client object::

    def send(self, request: Request) -> Answer

A request is a value, so that a simulation can keep it, send it twice or delay
it. Each answer of the server is returned, a refusal too; only
:class:`NotSent` and :class:`OutcomeUnknown` are raised.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
import contextlib
import dataclasses
import itertools
from random import Random
import re
import threading
from typing import Any
from typing import TypeVar

from cellsched.clock import Clock
from cellsched.clock import Event

_Outcome = TypeVar('_Outcome')

#: Bounds, in seconds, on the wait before the second attempt and before later
#: ones. The wait is a random part of the bound.
FIRST_S = 0.005
MOST_S = 0.5

#: Seconds after which a turn ends although its writer has no answer, and
#: seconds after which a writer does not wait longer for its turn.
TURN_S = 1.0
QUEUE_S = 5.0


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


@dataclasses.dataclass(eq=False)
class _Turn:
    """A writer in the queues of its providers.

    :param number: grows with each writer
    :param woken: is set when the turn begins, or the item is written
    :param since: when the turn began; None before
    """

    number: int
    providers: list[str]
    item: Any
    woken: Event
    since: float | None = None
    is_written: bool = False


class ProviderQueue:
    """Turns of the writers of a provider: first come, first served.

    Concurrent writers of one provider lose to each other in the server and
    write again. In this queue, the writers of a process wait for each other
    before they write. The queue only saves requests, and no store relies on
    it: other processes do not see it, and a writer that has waited for too
    long writes without a turn.

    :param items_max: number of items that one writer may write together
    :param turn_s: seconds after which a turn ends without an answer
    """

    def __init__(
        self, clock: Clock, items_max: int = 1, turn_s: float = TURN_S,
    ) -> None:
        self._clock = clock
        self._items_max = items_max
        self._turn_s = turn_s
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        #: The turns of each provider in the order of their arrival. The
        #: writer whose turn is first everywhere is the one that writes.
        self._queues: dict[str, dict[_Turn, None]] = {}

    @contextlib.contextmanager
    def turn(
        self, providers: Iterable[str], item: Any = None,
        timeout_s: float = QUEUE_S,
    ) -> Iterator[list[Any]]:
        """Wait for all earlier writers of any of these providers; may block.

        With an item, another writer may write it. The block removes the
        items that it has not written from the list; after an error, it has
        written none. Their writers write them then. An item may be written
        twice.

        :param item: the subject of the write; None if it cannot be combined
            with others
        :param timeout_s: seconds to wait for the turn
        :returns: the items to write, the own first; empty if another writer
            has written the own
        """
        own = self._enter(sorted(set(providers)), item)
        taken: list[_Turn] = []
        try:
            self._wait(own, self._clock.monotonic() + timeout_s)
            if not own.is_written:
                taken = self._take(own)
            items = [each.item for each in taken]
            yield items
            for each in taken:
                each.is_written = each.item in items
        finally:
            self._leave([own, *(each for each in taken if each.is_written)])

    def _enter(self, providers: list[str], item: Any) -> _Turn:
        with self._lock:
            own = _Turn(next(self._numbers), providers, item,
                        self._clock.event())
            for each in providers:
                self._queues.setdefault(each, {})[own] = None
            self._begin([own])
        return own

    def _wait(self, own: _Turn, until: float) -> None:
        """Wait until a turn begins, or its item is written."""
        while True:
            now = self._clock.monotonic()
            if own.woken.wait(max(min(self._turn_s, until - now), 0)) or (
                    self._clock.monotonic() >= until):
                return
            # End the turns that take too long.
            with self._lock:
                late = self._clock.monotonic() - self._turn_s
                first = dict.fromkeys(map(self._first, own.providers))
                self._remove([
                    each for each in first if each is not None
                    and each.since is not None and each.since <= late])

    def _take(self, own: _Turn) -> list[_Turn]:
        """Return the turns whose items this writer writes, the own first."""
        taken = {own: None}
        with self._lock:
            if own.item is None or own.since is None:
                return [own]
            behind = {each for provider in own.providers
                      for each in self._queues.get(provider, ())}
            for each in sorted(behind, key=lambda turn: turn.number):
                if len(taken) == self._items_max:
                    break
                if each.item is not None and each.since is None and all(
                        self._first(provider, taken) is each
                        for provider in each.providers):
                    taken[each] = None
        return [*taken]

    def _leave(self, turns: Iterable[_Turn]) -> None:
        with self._lock:
            self._remove(turns)
            for each in turns:
                each.woken.set()

    def _remove(self, turns: Iterable[_Turn]) -> None:
        """Remove turns from the queues; begin those behind them."""
        # In their order, so that a simulation can be repeated.
        providers = dict.fromkeys(
            each for turn in turns for each in turn.providers)
        for turn in turns:
            for each in turn.providers:
                queue = self._queues.get(each, {})
                queue.pop(turn, None)
                if not queue:
                    self._queues.pop(each, None)
        self._begin([self._first(each) for each in providers
                     if each in self._queues])

    def _begin(self, turns: Iterable[_Turn]) -> None:
        """Begin those of the turns that are first everywhere."""
        for turn in turns:
            if turn.since is None and all(
                    self._first(each) is turn for each in turn.providers):
                turn.since = self._clock.monotonic()
                turn.woken.set()

    def _first(self, provider: str, taken: Iterable[_Turn] = ()) -> Any:
        """Return the first turn of a provider behind those that are taken."""
        return next((each for each in self._queues.get(provider, ())
                     if each not in taken), None)


def release(version: str) -> tuple[int, ...]:
    """Return the major and the minor number of a server's version."""
    return tuple(map(int, re.findall(
        r'\d+', version.partition('-')[0], re.ASCII)[:2]))
