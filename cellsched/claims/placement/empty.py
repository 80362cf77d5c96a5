# SPDX-License-Identifier: Apache-2.0
"""Consumers that are there and hold nothing.

Placement makes a consumer before it looks at what it is to hold, and leaves it
behind where that is of a provider that is not there, or where it dies between
the two. Nobody can claim for it as for a new one then, and a look at it shows
nothing. It has the generation 0.
"""

from collections.abc import Iterable
import re

from cellsched.claims.placement import guards
from cellsched.claims.placement import messages
from cellsched.claims.placement.server import PlacementServer
from cellsched.clock import Clock

_SAID = re.compile(r'expected 0 but got None')


class EmptyConsumers:
    """Those of one call, and their generations.

    Somebody may be about to claim for one: if he is beaten then he removes the
    consumer of who was faster, whatever that holds by then, and nobody sees it
    any more. That may be a request of our own, which is settled and has not
    ended. So whoever it is has time to end.

    :param wait_s: seconds that somebody has
    """

    def __init__(
        self, server: PlacementServer, owners: messages.Owners,
        clock: Clock, wait_s: float,
    ) -> None:
        self._server = server
        self._owners = owners
        self._clock = clock
        self._wait_s = wait_s
        self._since: float | None = None
        self.generations: dict[str, int] = {}

    def learn(
        self, answer: messages.PlacementAnswer, consumers: Iterable[str]
    ) -> None:
        """Find out which consumers are empty, if that is what was lost to."""
        self.generations.clear()
        if not _SAID.search(answer.detail):
            return
        now = self._clock.monotonic()
        if self._since is None:
            self._since = now
        if now - self._since < self._wait_s:
            return
        for consumer in dict.fromkeys(consumers):
            # This changes nothing of one that holds nothing.
            answer = self._server.set_allocations(
                {consumer: self._owners.body({}, 0)})
            if answer.is_done:
                self.generations[consumer] = 0

    def remove(self, guard: guards.Guard, consumers: Iterable[str]) -> None:
        """Remove what a bad request left behind.

        Placement removes a consumer only when it gives something back. What
        it is they take of the guard's.
        """
        unit = {guard.provider: {guards.RESOURCE_CLASS: 1}}
        for consumer in dict.fromkeys(consumers):
            if self._server.holding(consumer) is not None:
                continue
            for holds, generation in ((unit, 0), ({}, 1)):
                self._server.set_allocations(
                    {consumer: self._owners.body(holds, generation)})
