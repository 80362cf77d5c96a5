# SPDX-License-Identifier: Apache-2.0
"""Claims of several requests in one transaction.

A request names one or several batches, and claims the first that fits. One
thread at a time plans requests on the same providers: its own, and those that
wait behind them. Requests without a common provider are parts of one etcd
transaction that succeed or fail alone. Each part is made on the condition that
its providers are as in the plan, and has other plans as alternatives, for the
case that other processes claim first.
"""

from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses
import itertools
import math
from typing import Any

from cellsched.claims import base
from cellsched.claims.coordination import ProviderLocks
from cellsched.claims.etcd import batches
from cellsched.claims.etcd import calls
from cellsched.claims.etcd.providers import ProviderFigures
from cellsched.claims.etcd import records
from cellsched.claims.etcd import transactions
from cellsched.claims import validation
from cellsched import exception

#: Number of alternatives of a plan. The server needs for each of them a
#: quarter of the time of another transaction.
_GUESSES_MAX = 4

#: The result of a request, or the error that it raises.
Outcome = base.AnyOf | exception.CellschedException


@dataclasses.dataclass(eq=False)
class Request:
    """A request, and its outcome.

    :param batches: alternatives for the same consumers
    :param outcome: None while it is not known
    :param is_left: whether the outcome is not needed any more
    """

    batches: Sequence[Sequence[base.Claim]]
    outcome: Outcome | None = None
    is_left: bool = False

    def __post_init__(self) -> None:
        self.scope = transactions.Scope.of(
            itertools.chain.from_iterable(self.batches))

    @property
    def is_open(self) -> bool:
        return self.outcome is None and not self.is_left


class Plan:
    """The outcomes of requests in one state of the store.

    :param view: the state; it has the scopes of all requests
    """

    def __init__(
        self, view: transactions.View, requests: Iterable[Request]
    ) -> None:
        self.view = view
        self.draft = transactions.Draft(view)
        self.outcomes: dict[Request, Outcome] = {}
        #: The batches that may give capacity back, or hold consumers.
        self.marks: set[str] = set()
        #: The first new claim on each provider.
        self.first: dict[str, base.Claim] = {}
        #: By request, the records on which its outcome depends.
        self.scopes: dict[Request, transactions.Scope] = {}
        self._held = view.held()
        # The state after the requests that are planned.
        self._after = view.copy()
        for request in requests:
            self._add(request)

    @property
    def scope(self) -> transactions.Scope:
        """The records that must be as in the view."""
        return transactions.Scope.union(self.scopes.values())

    @property
    def is_complete(self) -> bool:
        """True if each request claims a batch."""
        return not self.marks and all(
            isinstance(each, base.AnyOf) and each.chosen is not None
            for each in self.outcomes.values())

    def _add(self, request: Request) -> None:
        """Plan a request, unless it must wait for an unfinished batch."""
        scope = request.scope
        if not self.draft.consumers.keys().isdisjoint(scope.consumers):
            return
        outcome: Outcome | None
        marks = self.view.marks(scope)
        try:
            self.view.check(scope)
            outcome = None if marks else self._outcome(request)
        except (exception.ClaimConflict, exception.ClaimStoreFailed) as exc:
            outcome = exc
        if isinstance(outcome, base.AnyOf) and outcome.chosen is None:
            marks = self.view.all_marks(scope)
        if outcome is None or marks:
            self.marks |= marks
        else:
            self.outcomes[request] = outcome

    def _outcome(self, request: Request) -> base.AnyOf:
        held = {each: self._held[each] for each in request.scope.consumers
                if each in self._held}
        if held:
            for position, batch in enumerate(request.batches):
                if base.is_held(batch, held):
                    return base.AnyOf(position)
        refusals: dict[
            int, exception.ClaimRefused | exception.ClaimBusy] = {}
        for position, batch in enumerate(request.batches):
            new = validation.outstanding(batch, held)
            refusal = batches.refusal(new, self._after)
            self.scopes[request] = transactions.Scope.of(
                itertools.chain.from_iterable(request.batches[:position + 1]))
            if refusal is None:
                for claim in new:
                    self.first.setdefault(claim.provider, claim)
                for name, it in transactions.by_consumer(new).items():
                    self.draft.take(name, it)
                self._after.providers.update(self.draft.providers)
                return base.AnyOf(position, len(new), refusals)
            refusals[position] = refusal
        return base.AnyOf(None, 0, refusals)

    def parts(self) -> list[list[Request]]:
        """Return the requests in parts that do not depend on each other."""
        parts: list[tuple[list[Request], set[str], set[str]]] = []
        for request in self.outcomes:
            reads = set(self.scopes.get(request, request.scope).providers)
            writes = reads & self._written(request)
            part = [request], reads, writes
            for other in [other for other in parts if not (
                    other[1].isdisjoint(writes)
                    and other[2].isdisjoint(reads))]:
                parts.remove(other)
                part = (other[0] + part[0], other[1] | part[1],
                        other[2] | part[2])
            parts.append(part)
        return [requests for requests, _, _ in parts]

    def _written(self, request: Request) -> set[str]:
        outcome = self.outcomes[request]
        if not isinstance(outcome, base.AnyOf) or outcome.chosen is None:
            return set()
        return {claim.provider for claim in request.batches[outcome.chosen]}


class Claimer:
    """Claims batches that fit in one transaction."""

    def __init__(
        self, calls_: calls.Calls, batches_: batches.Batches,
        figures: ProviderFigures, locks: ProviderLocks,
    ) -> None:
        self._calls = calls_
        self._batches = batches_
        self._figures = figures
        self._locks = locks

    def claim(self, requests: Sequence[Request]) -> list[Outcome]:
        """Return the outcomes of requests; may block.

        The scopes of all of them fit in one transaction.
        """
        while True:
            requests = self._claim_in_turn(requests)
            if not any(isinstance(each.outcome, base.AnyOf)
                       and each.outcome.chosen is None for each in requests
                       ) or self._figures.is_counted() or (
                           not self._figures.mend_sometimes()):
                return [each.outcome for each in requests
                        if each.outcome is not None]
            # The counters were wrong. Claims that were made are found.

    def _claim_in_turn(self, requests: Sequence[Request]) -> list[Request]:
        """Return requests with outcomes, by this thread or another one."""
        own = [Request(each.batches) for each in requests]
        first = [*itertools.chain.from_iterable(map(self._first, own))]
        # The members of a group are read first, so a member is alone.
        item = None if any(each.scope.groups for each in own) else own
        with self._calls.queue.turn(first, item) as items:
            if items:
                # Another thread may still work on the former ones.
                for each in own:
                    each.is_left = True
                own = [Request(each.batches) for each in requests]
                # A few conflicts take less time than the lock.
                with self._locks.held(first if self._calls.is_busy else ()):
                    self._write(own, items)
        return own

    def _first(self, request: Request) -> Sequence[str]:
        """Return the providers of the first batch that seems to fit."""
        fitting = request.batches[0]
        if len(request.batches) > 1:
            view = self._cached_view(request.scope)
            fitting = next((
                batch for batch in request.batches if view is not None
                and batches.refusal(batch, view) is None), fitting)
        return transactions.Scope.of(fitting).providers

    def _write(self, own: Sequence[Request], items: list[Any]) -> None:
        """Find the outcomes of requests, and of those that wait behind them.

        :param items: the own item and those of other calls; the ones without
            all outcomes are removed
        """
        requests = self._fitting(own, items[1:])
        view: transactions.View | None = None
        is_first, is_busy = True, self._calls.is_busy

        def attempt() -> None:
            nonlocal view, is_first
            open_ = [each for each in requests if each.is_open]
            scope = transactions.Scope.union(each.scope for each in open_)
            # 1. Use the cached providers in the first attempt, and after a
            #    conflict the values that the failed transaction returned.
            #    Read all if the outcome of the last attempt is not known.
            current = (self._cached_view(scope, view) if is_first or view
                       else None) or self._calls.read(scope)
            is_cached = is_first and not current.is_fresh
            if is_cached and is_busy:
                current.providers = self._calls.reread(current.providers)
            view, is_first = None, False
            whole = Plan(current, open_)
            # 2. A refusal by cached values alone is not final.
            if not current.is_fresh and (whole.marks or not all(
                    Plan(current, part).draft.consumers
                    for part in whole.parts())):
                current = self._calls.read(scope)
                whole = Plan(current, open_)
            # 3. Write the parts, and keep the outcomes of those that succeed.
            parts = [self._plans(current, part) for part in whole.parts()]
            _separate(parts)
            view, is_old = self._write_parts(parts)
            # 4. Learn how often the cache is outdated.
            if is_cached and not (is_busy or current.is_fresh):
                self._calls.learn_age(is_old)
            if any(each.is_open for each in own):
                if not whole.marks:
                    raise calls.Conflict
                view = None
                self._batches.settle(whole.marks)
                raise calls.PendingBatch

        self._calls.repeat(attempt)
        items[1:] = [item for item in items[1:]
                     if all(each.outcome for each in item)]

    def _write_parts(
        self, parts: Sequence[Sequence[Plan]]
    ) -> tuple[transactions.View | None, bool]:
        """Write parts, and keep the outcomes of those that succeed.

        :param parts: for each part the plan and its alternatives
        :returns: the current records after conflicts, and whether other
            processes have changed any
        """
        writing = []
        for plans in parts:
            if plans[0].draft.consumers:
                writing.append(plans)
            else:
                _keep(plans[0])
        if not writing:
            return None, False
        view: transactions.View | None = None
        is_old = False
        outcomes = self._calls.change_all([
            [(each.draft, each.scope) for each in plans] for plans in writing])
        for plans, (alternative, other) in zip(writing, outcomes):
            if other is not None or alternative > 0:
                is_old = True
                self._locks.note_conflict(plans[0].first)
            if other is None:
                _keep(plans[alternative])
                self._calls.learn(plans[0].first, alternative)
            else:
                view = other if view is None else view.joined(other)
        return view, is_old

    def _fitting(
        self, own: Sequence[Request], items: Iterable[Sequence[Request]]
    ) -> list[Request]:
        """Return the requests that one transaction may have."""
        found = [*own]
        for item in items:
            scope = transactions.Scope.union(
                each.scope for each in [*found, *item])
            if len(scope) > transactions.keys_max(self._calls.ops_max):
                break
            found += item
        return found

    def _cached_view(
        self, scope: transactions.Scope,
        current: transactions.View | None = None,
    ) -> transactions.View | None:
        """Return the scope by cached providers; None if one is not cached.

        The consumers are assumed to hold nothing. The transaction checks all
        of it.

        :param current: records that were just read
        """
        if current is not None and current.covers(scope):
            return current
        seen = None if scope.groups else self._calls.seen(scope.providers)
        if seen is None:
            return None
        view = transactions.View(is_fresh=False)
        view.providers = seen
        view.consumers = dict.fromkeys(
            scope.consumers, records.StoredConsumer())
        if current is not None:
            view.consumers.update(current.consumers)
            view.batches = current.batches
        return view

    def _plans(
        self, view: transactions.View, requests: Sequence[Request]
    ) -> list[Plan]:
        """Return the plan of a part, and alternatives.

        They are guesses that one provider, which other processes change often,
        gets some claims of the same amounts before.
        """
        plan = Plan(view, requests)
        plans = [plan]
        if plan.scope.groups or not plan.first:
            return plans
        depth, name = max((self._calls.contended.get(each, 0.0), each)
                          for each in plan.first)
        # The operations of all plans count, and those of the other parts.
        room = self._calls.ops_max // 4 - len(plan.scope) - 3
        for _ in range(min(math.ceil(3 * depth), _GUESSES_MAX)):
            if batches.refusal([plan.first[name]], view) is not None:
                break
            view = view.after(plan.first[name])
            other = Plan(view, requests)
            room -= len(other.scope) + 3
            if room < 0 or not other.is_complete:
                break
            plans.append(other)
        return plans


def _separate(parts: Sequence[list[Plan]]) -> None:
    """Remove the alternatives that write what another part may write.

    The server refuses a transaction in which two parts can write one key, even
    if their conditions exclude each other.

    :param parts: for each part the plan, and its alternatives
    """
    writers = {name: number for number, plans in enumerate(parts)
               for name in plans[0].draft.providers}
    for number, plans in enumerate(parts):
        for position, plan in enumerate(plans):
            if any(writers.setdefault(name, number) != number
                   for name in plan.draft.providers):
                del plans[position:]
                break


def _keep(plan: Plan) -> None:
    """Set the outcomes of a plan."""
    for request, outcome in plan.outcomes.items():
        request.outcome = outcome
