# SPDX-License-Identifier: Apache-2.0
"""One call that writes allocations, from its first attempt to its last.

An attempt returns None where it has to be made again. Each begins by settling
its guard, so that nothing is told or written while an earlier attempt may yet
be done.
"""

from collections.abc import Iterable
from collections.abc import Sequence
import re
from typing import Any

from cellsched.claims import base
from cellsched.claims.placement import guards
from cellsched.claims.placement.guards import Guard
from cellsched.claims.placement.guards import Guards
from cellsched.claims.placement import messages
from cellsched.claims.placement import resource_providers
from cellsched.claims.placement.server import PlacementServer
from cellsched.claims import validation
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


class BatchClaim:
    """Takes a batch."""

    def __init__(
        self, server: PlacementServer, guards: Guards,
        empty: EmptyConsumers, owners: messages.Owners,
        claims: Sequence[base.Claim],
    ) -> None:
        self._server = server
        self._guards = guards
        self._owners = owners
        self._claims = claims
        #: What is not held yet, as far as it is known.
        self._left = list(claims)
        self._is_known = True
        self._empty = empty

    def attempt(self, guard: Guard) -> int | None:
        """Return how much was taken, if the batch is.

        :raises cellsched.exception.ClaimConflict: a consumer holds something
            else
        :raises cellsched.exception.ClaimRefused: there is no room
        """
        self._guards.settle(guard)
        if not self._is_known:
            self._look()
            if not self._left:
                return 0
        self._is_known = False
        answer = self._guards.write(guard, self._bodies())
        if answer.is_done:
            return len(self._left)
        consumers = [claim.consumer for claim in self._left]
        if answer.is_conflict:
            self._empty.learn(answer, consumers)
            return None
        if answer.status == 400:
            self._empty.remove(guard, consumers)
        refusal = resource_providers.refusal(self._server, self._left)
        if refusal is not None and not self._is_held_by_now():
            raise refusal
        return None

    def _is_held_by_now(self) -> bool:
        """Return whether the same was claimed meanwhile, by somebody else.

        Then that is what leaves no room.
        """
        before = self._left
        self._look()
        return self._left != before

    def _look(self) -> None:
        held = self._server.holdings(
            list(dict.fromkeys(claim.consumer for claim in self._claims)))
        found = {consumer: holds.claims(consumer, self._owners)
                 for consumer, holds in held.items()}
        self._left = validation.outstanding(self._claims, {
            consumer: claims for consumer, claims in found.items() if claims})
        self._empty.generations |= {
            consumer: held[consumer].generation
            for consumer, claims in found.items() if not claims}
        self._is_known = True

    def _bodies(self) -> dict[str, messages.Body]:
        taken: dict[str, list[base.Claim]] = {}
        # What locks rows does it in the same order as others, if it can.
        for claim in sorted(self._left, key=lambda claim: claim.provider):
            taken.setdefault(claim.consumer, []).append(claim)
        return {consumer: self._owners.body(
            {claim.provider: claim.resources for claim in claims},
            self._empty.generations.get(consumer), claims[0].project_id,
            claims[0].user_id) for consumer, claims in taken.items()}


class Release:
    """Gives back all that consumers hold."""

    def __init__(
        self, server: PlacementServer, guards: Guards,
        owners: messages.Owners, consumers: Sequence[str],
    ) -> None:
        self._server = server
        self._guards = guards
        self._owners = owners
        self.consumers = list(dict.fromkeys(consumers))
        self._is_known = False
        self.held: dict[str, messages.Holding] = {}

    def look(self) -> bool:
        """Find out what they hold; return whether that is anything."""
        self.held = self._server.holdings(self.consumers)
        missing = [each for each in self.consumers if each not in self.held]
        if missing and len(self.consumers) > 1:
            # One that was transferred between two looks was in neither.
            self.held |= self._server.holdings(missing)
        self._is_known = True
        return bool(self.held)

    def attempt(self, guard: Guard) -> bool | None:
        """Return True, if they hold nothing."""
        self._guards.settle(guard)
        if not (self._is_known or self.look()):
            return True
        self._is_known = False
        # As with claims: others lock the same rows.
        answer = self._guards.write(guard, {
            consumer: holds.released(self._owners)
            for consumer, holds in sorted(
                self.held.items(),
                key=lambda item: sorted(item[1].allocations))})
        return True if answer.is_done else None


class Transfer:
    """Lets one consumer hold what another one held."""

    def __init__(
        self, server: PlacementServer, guards: Guards,
        empty: EmptyConsumers, owners: messages.Owners, source: str,
        target: str,
    ) -> None:
        self._server = server
        self._guards = guards
        self._owners = owners
        self._source = source
        self._target = target
        self.consumers = [source, target]
        self._empty = empty
        self._sent: messages.Holding | None = None
        self._is_known = self._is_sent = False
        #: Bounds that were widened, by provider.
        self._wide: dict[str, dict[str, Any]] = {}
        #: Providers of which the target gives everything back.
        self._left: list[str] = []
        self.held: dict[str, messages.Holding] = {}

    def look(self) -> bool:
        """Find out what they hold; return whether the source holds any."""
        self.held = self._server.holdings([self._target, self._source])
        self._is_known = True
        return self._source in self.held

    def attempt(self, guard: Guard) -> bool | None:
        """Return whether there was something to transfer, if it is done."""
        self._guards.settle(guard)
        if not self._is_known and not self._is_sent:
            self.look()
            self._is_sent = self._was_done()
        if self._is_sent:
            return self._end()
        self._is_known = False
        source = self.held.get(self._source)
        if source is None:
            return self._end() and False
        target = self.held.get(self._target)
        self._sent = source
        self._left = [] if target is None else [
            provider for provider in target.allocations
            if provider not in source.allocations]
        answer = self._guards.write(guard, {
            self._source: source.released(self._owners),
            self._target: source.body(
                self._owners, target.generation if target is not None
                else self._empty.generations.get(self._target))})
        if answer.is_done:
            self._is_sent = True
            return self._end()
        # If it is found done from now on, that was somebody else.
        self._sent = None
        if answer.is_conflict:
            self._empty.learn(answer, [self._target])
        else:
            self._widen(source)
        return None

    def _end(self) -> bool | None:
        """Return True, once the rest is right, too."""
        self._wide = {
            provider: before for provider, before in self._wide.items()
            if not resource_providers.narrow(self._server, provider, before)}
        self._left = [provider for provider in self._left
                      if not resource_providers.mark(self._server, provider)]
        return None if self._wide or self._left else True

    def _was_done(self) -> bool:
        """Return whether an attempt of unknown outcome was done."""
        target = self.held.get(self._target)
        return (self._sent is not None and target is not None
                and self._source not in self.held
                and target.allocations == self._sent.allocations)

    def _widen(self, source: messages.Holding) -> None:
        """Have what is held admitted by the bounds on single claims.

        Placement checks them again, and they may be narrower than they were.
        """
        for provider, resources in source.allocations.items():
            before = resource_providers.widen(
                self._server, provider, resources)
            if before:
                self._wide[provider] = before
