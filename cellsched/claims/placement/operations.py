# SPDX-License-Identifier: Apache-2.0
"""Claim, release and transfer in Placement.

Each class is one call. Its ``attempt`` returns None to be repeated. An attempt
resolves the earlier write with its guard first, so that nothing is read or
written while that may still be executed.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import re
from typing import Any

from cellsched.claims import base
from cellsched.claims.placement import guards
from cellsched.claims.placement.guards import Guard
from cellsched.claims.placement.guards import Guards
from cellsched.claims.placement import messages
from cellsched.claims.placement.server import ANSWER_ERRORS
from cellsched.claims.placement.server import PlacementServer
from cellsched.claims import validation
from cellsched.clock import Clock
from cellsched import exception

#: Rejections of a request, each without a reason that a read shows, after
#: which it is not repeated. Inventories may change before they are read.
_REJECTIONS_MAX = 2

_EMPTY_CONSUMER = re.compile(r'expected 0 but got None')

#: The refusal of a claim that exceeds the capacity, or does not suit the units
#: of the inventory.
_REFUSED = re.compile(
    r"Unable to create allocation for '(?P<resource>\w+)' on resource "
    r"provider '(?P<provider>[0-9a-f-]+)'")

#: Number of remembered inventories.
_KNOWN_MAX = 1000

Inventories = dict[str, dict[str, base.Inventory]]


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

    def find(
        self, answer: messages.PlacementAnswer, consumers: Iterable[str]
    ) -> dict[str, int]:
        """Return the generations of the empty consumers.

        :param answer: a conflict, which may be about one of them
        """
        if not _EMPTY_CONSUMER.search(answer.detail):
            return {}
        now = self._clock.monotonic()
        if self._since is None:
            self._since = now
        if now - self._since < self._wait_s:
            return {}
        # No change for a consumer without allocations.
        return {
            consumer: 0 for consumer in dict.fromkeys(consumers)
            if self._server.set_allocations(
                {consumer: self._owners.body({}, 0)}).is_done}

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


class RequestClaim:
    """The alternative batches of one request, and their outcome.

    :param batches: the alternatives, best first
    :param is_new: the consumers are known to hold nothing
    :ivar outcome: the result or the error of the request; None before
    :ivar remaining: the claims of the current batch that are not made, as far
        as it is known
    :ivar generations: of the consumers that have a record and no claims
    :ivar is_known: whether no write of the request has an unknown outcome
    """

    def __init__(
        self, server: PlacementServer, owners: messages.Owners,
        batches: Sequence[Sequence[base.Claim]], is_new: bool = False,
    ) -> None:
        self._server = server
        self._owners = owners
        self._batches = batches
        self._is_new = is_new
        self._position = 0
        self._refusals: dict[
            int, exception.ClaimRefused | exception.ClaimBusy] = {}
        self._held: dict[str, list[base.Claim]] = {}
        self.outcome: base.AnyOf | exception.CellschedException | None = None
        self.remaining: list[base.Claim] = []
        self.generations: dict[str, int] = {}
        self.is_known = True
        self._select(0)

    @property
    def consumers(self) -> list[str]:
        """The consumers that hold nothing, as far as it is known."""
        return [claim.consumer for claim in self.remaining]

    def _select(self, position: int) -> None:
        """Continue with a batch; end if it is invalid."""
        self._position = position
        batch = self._batches[position]
        try:
            messages.check_claims(batch)
            self.remaining = validation.outstanding(batch, self._held)
        except (exception.ClaimConflict, exception.InvalidField) as exc:
            self.outcome = exc

    def look(self) -> None:
        """Read the claims of the consumers; end if they hold a batch."""
        names = dict.fromkeys(claim.consumer for claim in self._batches[0])
        holdings = self._server.holdings([*names])
        found = {consumer: holds.claims(consumer, self._owners)
                 for consumer, holds in holdings.items()}
        self.generations |= {
            consumer: holdings[consumer].generation
            for consumer, claims in found.items() if not claims}
        self.is_known = True
        self._held = {
            consumer: claims for consumer, claims in found.items() if claims}
        for position, batch in enumerate(self._batches if self._held else ()):
            if base.is_held(batch, self._held):
                # The batches before it were tried in vain.
                self._refusals.clear()
                self._end(position, 0)
                return
        self._select(self._position)

    def succeed(self) -> None:
        """End with the current batch, which is claimed."""
        self.is_known = True
        self._end(self._position, len(self.remaining))

    def refuse(
        self, refusal: exception.ClaimRefused, is_certain: bool = False
    ) -> None:
        """Continue with the next batch; end after the last one.

        Another call may have claimed for the same consumers, and the capacity
        may be missing for that reason. So the consumers are read before the
        end.

        :param is_certain: whether the consumers hold nothing
        """
        self._refusals[self._position] = refusal
        if self._position + 1 < len(self._batches):
            self._select(self._position + 1)
            return
        if not (is_certain or self._is_new):
            before = self._held
            self.look()
            if self.outcome is None and self._held != before:
                self._refusals.clear()
                self._select(0)
                return
        if self.outcome is None:
            self._end(None, 0)

    def _end(self, position: int | None, new: int) -> None:
        self.outcome = base.AnyOf(position, new, {
            before: refusal for before, refusal in self._refusals.items()
            if position is None or before < position})

    def bodies(self) -> dict[str, messages.Body]:
        # Rows are locked in the same order as by other calls, if possible.
        taken = validation.by_consumer(
            sorted(self.remaining, key=lambda claim: claim.provider))
        return {consumer: self._owners.body(
            {claim.provider: claim.resources for claim in claims},
            self.generations.get(consumer), claims[0].project_id,
            claims[0].user_id) for consumer, claims in taken.items()}


class Figures:
    """The inventories and the used amounts of providers, read when needed.

    :param known: earlier inventories. Before a refusal by one of these, it is
        read again. Inventories that are read are added
    """

    def __init__(self, server: PlacementServer, known: Inventories) -> None:
        self._server = server
        self._known = known
        self._inventories: Inventories = {}
        self._earlier: set[str] = set()
        self._used: dict[str, dict[str, int]] = {}
        #: The used amounts, and the amounts of :meth:`take`.
        self._taken: dict[str, dict[str, int]] = {}

    def refusal(
        self, claims: Sequence[base.Claim]
    ) -> exception.ClaimRefused | None:
        """Return why claims do not fit, or None if they do."""
        providers = {claim.provider for claim in claims}
        for provider in providers - self._inventories.keys():
            has = self._known.get(provider)
            if has is None:
                self._read(provider)
            else:
                self._inventories[provider] = has
                self._earlier.add(provider)
            self._used[provider] = self._server.used_of(provider)
            self._taken[provider] = dict(self._used[provider])
        refusal = self._find(claims, self._used)
        if refusal is not None and not self._earlier.isdisjoint(providers):
            for provider in self._earlier & providers:
                self._read(provider)
            refusal = self._find(claims, self._used)
        return refusal

    def take(self, claims: Sequence[base.Claim]) -> bool:
        """Count claims as used, if they fit beside those before.

        :param claims: claims that :meth:`refusal` does not refuse
        """
        if self._find(claims, self._taken) is not None:
            return False
        for claim in claims:
            amounts = self._taken[claim.provider]
            for name, amount in claim.resources.items():
                amounts[name] = amounts.get(name, 0) + amount
        return True

    def _find(
        self, claims: Sequence[base.Claim],
        used: Mapping[str, Mapping[str, int]],
    ) -> exception.ClaimRefused | None:
        return validation.find_refusal(claims, self._inventories, used)

    def _read(self, provider: str) -> None:
        """Read an inventory. One that cannot be read refuses each claim."""
        self._earlier.discard(provider)
        self._inventories[provider] = {}
        with contextlib.suppress(*ANSWER_ERRORS):
            self._inventories[provider] = self._server.inventories_of(
                provider) or {}
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        self._known[provider] = self._inventories[provider]


class BatchClaim:
    """Claims for several requests with one write, if possible.

    :param requests: requests for different consumers
    :param inventories: the inventories of providers that refused a claim a
        short time ago, or that other processes write, too. The usage of these
        providers is read before a write
    :ivar is_divided: whether the requests without an outcome must be claimed
        for one by one, because an answer does not name the request that it is
        about
    """

    def __init__(
        self, server: PlacementServer, guards: Guards, empty: EmptyConsumers,
        requests: Sequence[RequestClaim],
        inventories: Inventories,
    ) -> None:
        self._server = server
        self._guards = guards
        self._empty = empty
        self._requests = requests
        self._inventories = inventories
        #: Whether the providers are read before the next write.
        self._is_refused = False
        self._rejections = 0
        self.is_divided = False

    @property
    def open(self) -> list[RequestClaim]:
        """The requests without an outcome."""
        return [each for each in self._requests if each.outcome is None]

    @property
    def providers(self) -> list[str]:
        """The providers of the current batches."""
        return sorted({claim.provider for each in self.open
                       for claim in each.remaining})

    def attempt(self, guard: Guard, is_shared: bool) -> bool | None:
        """Claim the first batch that fits of each request.

        :param is_shared: whether other processes write the providers, too
        :returns: None to be repeated
        """
        # An earlier attempt may have no answer.
        self._guards.settle(guard)
        outcome: bool | None = True
        while outcome and not self.is_divided and self.open:
            unknown = [each for each in self.open if not each.is_known]
            if unknown:
                # Another thread may have written them with another guard.
                self._guards.settle_all(
                    name for each in unknown for name in each.consumers)
            for each in unknown:
                each.look()
            due = self.open
            if self._is_refused or is_shared or not (
                    self._inventories.keys().isdisjoint(self.providers)):
                due = self._fitting(due)
            if due:
                outcome = self._write(guard, due, is_shared)
        return outcome

    def _fitting(
        self, requests: Sequence[RequestClaim]
    ) -> list[RequestClaim]:
        """Return the requests whose current batches fit together.

        A batch that does not fit by itself is refused, and its request goes
        on to the next one. A batch that does not fit beside those before it
        waits for the next write: these may fail.
        """
        figures = Figures(self._server, self._inventories)
        fitting: list[RequestClaim] = []
        for each in requests:
            while each.outcome is None and (
                    refusal := figures.refusal(each.remaining)):
                each.refuse(refusal)
            if each.outcome is None and figures.take(each.remaining):
                fitting.append(each)
        return fitting

    def _write(
        self, guard: Guard, due: Sequence[RequestClaim], is_shared: bool
    ) -> bool | None:
        """Write the current batches of requests; return None to repeat it."""
        # 1. Write all of them.
        bodies: dict[str, messages.Body] = {}
        for each in due:
            bodies |= each.bodies()
            each.is_known = False
        answer = self._guards.write(guard, bodies)
        if answer.is_done:
            for each in due:
                for claim in () if is_shared else each.remaining:
                    self._inventories.pop(claim.provider, None)
                each.succeed()
            return True
        # 2. After a conflict at a provider, the same write is repeated.
        #    Placement compares the generations of the consumers before it
        #    looks at the providers, so they still hold what they held before.
        if self._guards.is_of_provider(answer):
            for each in due:
                each.is_known = True
            return None
        # 3. The answer does not name the consumer of a conflict, and not the
        #    reason of a rejection, unless a read shows it.
        if answer.status == 400:
            for each in due:
                self._empty.remove(guard, each.consumers)
        is_unexplained = answer.status == 400 and self._is_refused
        if answer.is_conflict or is_unexplained:
            self.is_divided = len(self._requests) > 1
            if self.is_divided:
                return True
        if answer.is_conflict:
            due[0].generations = self._empty.find(answer, due[0].consumers)
            return None
        self._rejections += is_unexplained
        if self._rejections == _REJECTIONS_MAX:
            messages.checked(answer)
        # 4. Otherwise a batch does not fit. The answer may name it, or the
        #    providers are read before the next write.
        self._is_refused = True
        if answer.status == 409:
            for each in due:
                each.is_known = True
            if len(due) == 1 and (refusal := _named_refusal(
                    answer, due[0].remaining)):
                self._inventories.setdefault(refusal.provider, {})
                due[0].refuse(refusal, is_certain=True)
        return True


def _named_refusal(
    answer: messages.PlacementAnswer, claims: Sequence[base.Claim]
) -> exception.ClaimRefused | None:
    """Return the refusal that Placement's answer to a write of claims names.

    Placement compares the consumers before the capacity, so they held nothing.
    It compares the amounts in the order of the request.

    :returns: None if it does not name the first claim, or may mean another one
    """
    match = _REFUSED.search(answer.detail)
    if match is None:
        return None
    provider, resource = match.group('provider', 'resource')
    named = [claim for claim in claims
             if claim.provider == provider and resource in claim.resources]
    if named != [claims[0]]:
        # The first claim that does not fit may be another one.
        return None
    return exception.ClaimRefused(
        provider=provider, resource=resource,
        amount=claims[0].resources[resource], consumer=claims[0].consumer)


class _Change:
    """A change of the allocations of consumers.

    :ivar held: the allocations that were read
    """

    def __init__(
        self, server: PlacementServer, guards: Guards,
        owners: messages.Owners, consumers: Iterable[str],
    ) -> None:
        self._server = server
        self._guards = guards
        self._owners = owners
        self.consumers = list(dict.fromkeys(consumers))
        #: Whether the allocations are read, and not written since.
        self._is_known = False
        self.held: dict[str, messages.Holding] = {}

    @property
    def providers(self) -> list[str]:
        """The providers of the allocations that were read."""
        return sorted({provider for holds in self.held.values()
                       for provider in holds.allocations})


class Release(_Change):
    """Releases consumers."""

    def look(self) -> bool:
        """Read the allocations; return whether there are any."""
        self.held = self._server.holdings(self.consumers)
        missing = [each for each in self.consumers if each not in self.held]
        if missing and len(self.consumers) > 1:
            # A concurrent transfer may hide both of its consumers.
            self.held |= self._server.holdings(missing)
        self._is_known = True
        return bool(self.held)

    def attempt(self, guard: Guard, is_shared: bool) -> bool | None:
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


class Transfer(_Change):
    """Transfers the claims of one consumer to another."""

    def __init__(
        self, server: PlacementServer, guards: Guards,
        empty: EmptyConsumers, owners: messages.Owners, source: str,
        target: str,
    ) -> None:
        super().__init__(server, guards, owners, [source, target])
        self._source = source
        self._target = target
        self._empty = empty
        #: The generation of the target, if it is an empty consumer.
        self._generations: dict[str, int] = {}
        #: The claims that a write without an answer transfers.
        self._sent: messages.Holding | None = None
        self._is_done = False
        #: By provider, inventories before they were widened. A provider on
        #: which only the target held claims has none.
        self._to_rewrite: dict[str, dict[str, Any]] = {}

    def look(self) -> bool:
        """Read the allocations; return whether the source has any."""
        self.held = self._server.holdings([self._target, self._source])
        self._is_known = True
        return self._source in self.held

    def attempt(self, guard: Guard, is_shared: bool) -> bool | None:
        """Transfer; return whether the source held claims."""
        self._guards.settle(guard)
        if not self._is_known and not self._is_done:
            self.look()
            self._is_done = self._was_done()
        if self._is_done:
            return self._end()
        self._is_known = False
        source = self.held.get(self._source)
        if source is None:
            return self._end() and False
        target = self.held.get(self._target)
        self._sent = source
        for provider in () if target is None else target.allocations:
            if provider not in source.allocations:
                self._to_rewrite.setdefault(provider, {})
        answer = messages.checked(self._guards.write(guard, {
            self._source: source.released(self._owners),
            self._target: source.body(
                self._owners, target.generation if target is not None
                else self._generations.get(self._target))}), 409)
        if answer.is_done:
            self._is_done = True
            return self._end()
        # An equal target found later is the result of another call.
        self._sent = None
        if answer.is_conflict:
            self._generations = self._empty.find(answer, [self._target])
            return None
        # Placement checks units again in a transfer, and they may have become
        # narrower since the claim.
        for provider, resources in source.allocations.items():
            before = self._server.widen(provider, resources)
            if before:
                self._to_rewrite[provider] = before
        return None

    def _end(self) -> bool | None:
        """Write inventories, so that readers see the change.

        :returns: None to be repeated
        """
        self._to_rewrite = {
            provider: before for provider, before in self._to_rewrite.items()
            if not self._server.rewrite(provider, before)}
        return None if self._to_rewrite else True

    def _was_done(self) -> bool:
        """Return whether a write without an answer was executed."""
        target = self.held.get(self._target)
        return (self._sent is not None and target is not None
                and self._source not in self.held
                and target.allocations == self._sent.allocations)
