# SPDX-License-Identifier: Apache-2.0
"""Claim, release and transfer in Placement.

Each class is one call. Its ``attempt`` returns None to be repeated. An attempt
resolves the earlier write with its guard first, so that nothing is read or
written while that may still be executed.
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
from cellsched.clock import Lock
from cellsched import exception


#: Rejections of one batch, each without a reason that a read shows, after
#: which it is not repeated. Inventories may change before they are read.
_REJECTIONS_MAX = 2

_EMPTY_CONSUMER = re.compile(r'expected 0 but got None')


class EmptyConsumers:
    """Consumers without allocations that block a claim.

    Placement creates a consumer before it checks the allocations, and leaves
    it behind if a provider does not exist or if the process stops there. A
    claim of a new consumer fails then, and a read shows no consumer. The
    generation is 0.

    The consumer may also belong to a request in progress. If that fails, it
    removes the consumer with the allocations of a faster request. So a claim
    waits before it uses the generation 0.

    :param wait_s: seconds to wait
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
        """Find the empty consumers, if the conflict is about one."""
        self.generations.clear()
        if not _EMPTY_CONSUMER.search(answer.detail):
            return
        now = self._clock.monotonic()
        if self._since is None:
            self._since = now
        if now - self._since < self._wait_s:
            return
        for consumer in dict.fromkeys(consumers):
            # No change for a consumer without allocations.
            answer = self._server.set_allocations(
                {consumer: self._owners.body({}, 0)})
            if answer.is_done:
                self.generations[consumer] = 0

    def remove(self, guard: guards.Guard, consumers: Iterable[str]) -> None:
        """Remove the empty consumers of a rejected request.

        Placement removes a consumer when its allocations are removed, so each
        gets a unit of the guard's provider first.
        """
        unit = {guard.provider: {guards.RESOURCE_CLASS: 1}}
        for consumer in dict.fromkeys(consumers):
            if self._server.holding(consumer) is not None:
                continue
            for holds, generation in ((unit, 0), ({}, 1)):
                self._server.set_allocations(
                    {consumer: self._owners.body(holds, generation)})


class BatchClaim:
    """A batch to claim, and its outcome.

    :param lock: held by the thread that claims the batch
    :param is_new: the consumers are known to hold nothing
    :ivar new: the number of new claims; None without an outcome
    :ivar error: the error of the batch, or None
    """

    def __init__(
        self, server: PlacementServer, empty: EmptyConsumers,
        owners: messages.Owners, claims: Sequence[base.Claim], lock: Lock,
        is_new: bool = False,
    ) -> None:
        self._server = server
        self._owners = owners
        self._claims = claims
        self._is_new = is_new
        self.lock = lock
        self.new: int | None = None
        self.error: exception.CellschedException | None = None
        self.providers = {claim.provider for claim in claims}
        #: Claims of consumers that hold nothing, as far as it is known.
        self.remaining = list(claims)
        self.is_known = True
        self.empty = empty
        self._rejections = 0

    @property
    def is_over(self) -> bool:
        return self.new is not None or self.error is not None

    @property
    def consumers(self) -> list[str]:
        """The consumers that hold nothing, as far as it is known."""
        return [claim.consumer for claim in self.remaining]

    def refuse(self, refusal: exception.ClaimRefused) -> None:
        """End with a refusal, unless another call has made some claims.

        The capacity may be missing for that reason.
        """
        before = self.remaining
        if not self._is_new:
            self.look()
        if not self.is_over and self.remaining == before:
            self.error = refusal

    def count_rejection(
        self, answer: messages.PlacementAnswer, is_alone: bool
    ) -> None:
        """Note that a write was rejected, though the batch seems to fit.

        :param is_alone: whether the write had no other batch
        :raises remote.Rejection: it was rejected alone before, too
        """
        self._rejections += is_alone
        if self._rejections == _REJECTIONS_MAX:
            messages.checked(answer)

    def look(self) -> None:
        """Find the claims that remain; there may be none."""
        try:
            self._look()
        except exception.ClaimConflict as exc:
            self.error = exc
        else:
            if not self.remaining:
                self.new = 0

    def _look(self) -> None:
        held = self._server.holdings(
            list(dict.fromkeys(claim.consumer for claim in self._claims)))
        found = {consumer: holds.claims(consumer, self._owners)
                 for consumer, holds in held.items()}
        self.remaining = validation.outstanding(self._claims, {
            consumer: claims for consumer, claims in found.items() if claims})
        self.empty.generations |= {
            consumer: held[consumer].generation
            for consumer, claims in found.items() if not claims}
        self.is_known = True

    def bodies(self) -> dict[str, messages.Body]:
        taken: dict[str, list[base.Claim]] = {}
        # Rows are locked in the same order as by other calls, if possible.
        for claim in sorted(self.remaining, key=lambda claim: claim.provider):
            taken.setdefault(claim.consumer, []).append(claim)
        return {consumer: self._owners.body(
            {claim.provider: claim.resources for claim in claims},
            self.empty.generations.get(consumer), claims[0].project_id,
            claims[0].user_id) for consumer, claims in taken.items()}


def claim_together(
    server: PlacementServer, guards: Guards, guard: Guard,
    batches: list[BatchClaim],
    inventories: resource_providers.Inventories | None = None,
) -> bool | None:
    """Claim batches with one request.

    Each batch that fits is claimed, or none of them, and the others are
    refused.

    :param batches: batches without an outcome; all but the first are removed
        if the server finds a conflict with a consumer
    :param inventories: earlier inventories of providers that other processes
        write, too, so that their usage is read before a write; None of others
    :returns: None to be repeated
    """
    # 1. Find out what earlier attempts without an answer have done, perhaps
    #    those of other threads with other guards.
    guards.settle(guard)
    unknown = [batch for batch in batches if not batch.is_known]
    if unknown:
        guards.settle_all(claim.consumer for batch in unknown
                          for claim in batch.remaining)
    for batch in unknown:
        batch.look()
    due = [batch for batch in batches if not batch.is_over]
    if inventories is not None:
        _refuse(server, due, inventories)
        due = [batch for batch in due if not batch.is_over]
    if not due:
        return True
    # 2. Write all of them.
    bodies: dict[str, messages.Body] = {}
    for batch in due:
        bodies |= batch.bodies()
        batch.is_known = False
    answer = guards.write(guard, bodies)
    if answer.is_done:
        for batch in due:
            batch.new = len(batch.remaining)
        return True
    if guards.is_of_provider(answer):
        _keep_known(due)
        return None
    if answer.is_conflict:
        batches[0].empty.learn(answer, batches[0].consumers)
        # The conflict may be one with a consumer of another batch.
        del batches[1:]
        return None
    # 3. Refuse those that do not fit. Of a single batch the answer says why.
    if len(due) == 1:
        due[0].error = resource_providers.named_refusal(
            answer, due[0].remaining)
        if due[0].error is not None:
            return True
    if answer.status == 400:
        for batch in due:
            batch.empty.remove(guard, batch.consumers)
    else:
        _keep_known(due)
    _refuse(server, due)
    if all(batch.is_over for batch in batches):
        return True
    # 4. Repeat a write that was rejected without a known reason, alone.
    if answer.status == 400:
        due[0].count_rejection(answer, len(due) == 1)
        del batches[1:]
    return None


def _refuse(
    server: PlacementServer, batches: Sequence[BatchClaim],
    known: resource_providers.Inventories | None = None,
) -> None:
    """Refuse the batches that do not fit beside those before them.

    :param known: see :func:`resource_providers.refusals`
    """
    refusals = resource_providers.refusals(
        server, [batch.remaining for batch in batches], known)
    for batch, refusal in zip(batches, refusals):
        if refusal is not None:
            batch.refuse(refusal)


def _keep_known(batches: Iterable[BatchClaim]) -> None:
    """Note that a write of batches was not executed.

    Placement compares the generations of the consumers before it looks at the
    providers, so they still hold what they held before.
    """
    for batch in batches:
        batch.is_known = True


class Release:
    """Releases consumers."""

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
        """Read the allocations; return whether there are any."""
        self.held = self._server.holdings(self.consumers)
        missing = [each for each in self.consumers if each not in self.held]
        if missing and len(self.consumers) > 1:
            # A concurrent transfer may hide both of its consumers.
            self.held |= self._server.holdings(missing)
        self._is_known = True
        return bool(self.held)

    def attempt(self, guard: Guard) -> bool | None:
        """Release; return True once the consumers hold nothing."""
        self._guards.settle(guard)
        if not (self._is_known or self.look()):
            return True
        self._is_known = False
        # The same order of rows as in claims.
        answer = messages.checked(self._guards.write(guard, {
            consumer: holds.released(self._owners)
            for consumer, holds in sorted(
                self.held.items(),
                key=lambda item: sorted(item[1].allocations))}), 409)
        return True if answer.is_done else None


class Transfer:
    """Transfers the claims of one consumer to another."""

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
        #: Units of inventories before they were widened, by provider.
        self._wide: dict[str, dict[str, Any]] = {}
        #: Providers of which the target held claims and holds none now.
        self._remaining: list[str] = []
        self.held: dict[str, messages.Holding] = {}

    def look(self) -> bool:
        """Read the allocations; return whether the source has any."""
        self.held = self._server.holdings([self._target, self._source])
        self._is_known = True
        return self._source in self.held

    def attempt(self, guard: Guard) -> bool | None:
        """Transfer; return whether the source held claims."""
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
        self._remaining = [] if target is None else [
            provider for provider in target.allocations
            if provider not in source.allocations]
        answer = messages.checked(self._guards.write(guard, {
            self._source: source.released(self._owners),
            self._target: source.body(
                self._owners, target.generation if target is not None
                else self._empty.generations.get(self._target))}), 409)
        if answer.is_done:
            self._is_sent = True
            return self._end()
        # An equal target found later is the result of another call.
        self._sent = None
        if answer.is_conflict:
            self._empty.learn(answer, [self._target])
        else:
            self._widen(source)
        return None

    def _end(self) -> bool | None:
        """Restore inventories and mark providers; return True when done."""
        self._wide = {
            provider: before for provider, before in self._wide.items()
            if not resource_providers.narrow(self._server, provider, before)}
        self._remaining = [
            provider for provider in self._remaining
            if not resource_providers.mark(self._server, provider)]
        return None if self._wide or self._remaining else True

    def _was_done(self) -> bool:
        """Return whether a write without an answer was executed."""
        target = self.held.get(self._target)
        return (self._sent is not None and target is not None
                and self._source not in self.held
                and target.allocations == self._sent.allocations)

    def _widen(self, source: messages.Holding) -> None:
        """Widen the units of inventories so that they admit the claims.

        Placement checks units again in a transfer, and they may have become
        narrower since the claim.
        """
        for provider, resources in source.allocations.items():
            before = resource_providers.widen(
                self._server, provider, resources)
            if before:
                self._wide[provider] = before
