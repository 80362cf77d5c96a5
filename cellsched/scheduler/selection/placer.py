# SPDX-License-Identifier: Apache-2.0
"""The selection and claim of hosts for a request."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import copy
import dataclasses
import functools
import math
from typing import Any
from typing import NoReturn
from typing import TypeVar

import os_resource_classes
from oslo_log import log

from cellsched.claims import base as claims_base
from cellsched.clock import Clock
from cellsched.context import RequestContext
from cellsched import exception
from cellsched.host_manager.source import HostSource
from cellsched.hosts.table import HostTable
from cellsched.hosts.table import PendingAllocation
from cellsched.hosts.table import Verify
from cellsched import metrics
from cellsched.metrics import Metrics
from cellsched import migrations
from cellsched import objects
from cellsched.scheduler.decision.pipeline import Pipeline
from cellsched.scheduler.explanation import decision_record
from cellsched.scheduler.explanation import diagnosis
from cellsched.scheduler import recording
from cellsched.scheduler import request_validation
from cellsched.scheduler import requirements
from cellsched.scheduler.selection.claims import ClaimBatcher
from cellsched.scheduler.selection.claims import ClaimRefusals
from cellsched.scheduler.selection.claims import SingleFlight
from cellsched.scheduler.selection import existing_claims
from cellsched.scheduler.selection.selector import ChosenHost
from cellsched.scheduler.selection.selector import SelectionPolicy
from cellsched.scheduler.selection.selector import Selector
from cellsched.scheduler.selection.selector import with_members
from cellsched.scheduler.selection.turns import Turns
from cellsched import tracing

LOG = log.getLogger(__name__)

Record = Callable[
    [RequestContext, objects.RequestSpec, Sequence[str],
     decision_record.Decision], None]


_Item = TypeVar('_Item')


class LazySequence(Sequence[_Item]):
    """A sequence whose items are made when they are first read.

    A claim store reads few of the alternatives to the first host.

    :param make: makes the item at a position
    """

    def __init__(self, length: int, make: Callable[[int], _Item]) -> None:
        self._length = length
        self._make = make
        self._items: dict[int, _Item] = {}

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        if place not in self._items:
            if not 0 <= place < self._length:
                raise IndexError(place)
            self._items[place] = self._make(place)
        return self._items[place]


#: The hosts of a request by instance.
Choice = Mapping[str, ChosenHost]

#: The conditions on a reservation, in the order in which they are tried. If
#: concurrent decisions always come first, the last condition accepts the
#: selected hosts as they are and the claim store arbitrates.
_CHECKS = (*[Verify.UNCHANGED] * 3, *[Verify.CAPACITY] * 7,
           Verify.NONE)


#: Seconds to wait for pending claims of other requests.
PENDING_S = 10.0

#: The results of requests that fail, in the metrics.
_RESULTS = (
    (exception.NoValidHost, metrics.NO_VALID_HOST),
    (exception.HostStateUncertain, metrics.UNCERTAIN),
    (exception.ClaimBusy, metrics.BUSY), (exception.ServiceBusy, metrics.BUSY))


@dataclasses.dataclass(eq=False)
class PlacementAttempt:
    """The state of one request while the placer selects and claims hosts.

    The first fields are the input. Each round replaces the result fields.

    :param request: the request; after a refusal by the group policy it
        includes the members and hosts that the claim store reported
    :param claim: True to claim the selected hosts in the claim store; False
        to count them in the table for a limited time
    :param reserve: False to select hosts without a reservation in the table
    :param refusals: the refusals of the claim store in earlier rounds
    :param located: the locations of the instances, and the claims they hold
    :param places: the host and alternates of each instance; empty if an
        instance has no host
    :param lost_hosts: hosts that are down, whose members do not bind the
        affinity group of the request
    :param is_known: whether no newer facts can be read if the selection finds
        no hosts
    :param is_last: whether the request fails then
    :param settled: the state of the table before the selection, if the facts
        are known; see :meth:`cellsched.hosts.table.HostTable.settled`
    :param why: the diagnosis of the hosts; None if no error can need it
    :param decision: the record of the decision
    :param allocations: the reservations in the table
    :param is_parted: whether providers other than the hosts serve a part of
        the request
    :param selector: the selection, while the claim store chooses one of its
        alternatives
    :param seconds: the duration of each phase
    :param basis: the input of the last selection, if decisions are recorded
    :param passed: the nodes whose claims were refused after it
    :param full: names of hosts that are full for the group of the request
    """

    context: RequestContext
    pipeline: Pipeline
    request: objects.RequestSpec
    uuids: Sequence[str]
    alternates: int
    claim: bool = True
    reserve: bool = True
    refusals: ClaimRefusals = dataclasses.field(default_factory=ClaimRefusals)
    located: existing_claims.InstanceLocations = existing_claims.NO_LOCATIONS
    places: list[list[objects.Selection]] = dataclasses.field(
        default_factory=list)
    lost_hosts: frozenset[str] = frozenset()
    is_known: bool = False
    is_last: bool = False
    settled: int | None = None
    why: diagnosis.Diagnosis | None = None
    decision: decision_record.Decision = dataclasses.field(
        init=False, repr=False)
    allocations: Sequence[PendingAllocation] = ()
    is_parted: bool = False
    selector: Selector | None = None
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    basis: recording.Basis | None = None
    passed: Sequence[str] = ()
    full: Sequence[str] = ()


@dataclasses.dataclass(eq=False)
class Placer:
    """Selects hosts in the table of a source and claims them.

    The placer reserves the selected hosts in the table, so that concurrent
    decisions count them, and then claims them in the claim store. If the
    store refuses a claim, the placer rolls the reservation back, reloads the
    hosts from the store and selects again.

    :param policy: the selection among the best hosts
    :param attempts_max: the number of rounds for one request
    :param record: called with each decision; must neither block nor fail
    :param slow_plugin_s: a filter or weigher that takes longer than this in
        the decision on one request is named in the log
    :param ignores_demands: whether requirements that no stage reads are
        ignored instead of refused
    :param down_s: seconds without a report after which a host is down
    :param metrics: records requests, filters, claims and plug-ins
    :param recorder: records decisions to files
    """

    loader: HostSource
    pipeline: Pipeline
    claims: ClaimBatcher
    clock: Clock
    policy: SelectionPolicy
    attempts_max: int
    record: Record
    slow_plugin_s: float = math.inf
    ignores_demands: bool = False
    down_s: float = math.inf
    metrics: Metrics = dataclasses.field(default_factory=Metrics)
    recorder: recording.Recorder | None = None

    def __post_init__(self) -> None:
        self.follow(self.pipeline, self.policy)
        self._single_flight = SingleFlight(self.clock.event)
        #: Of selections for one instance. Copies of the placer share them.
        #: A selection takes about a millisecond, and as long as a plug-in
        #: that waits for something.
        self.turns = Turns(self.clock)

    def follow(self, pipeline: Pipeline, policy: SelectionPolicy) -> None:
        """Decide on later requests with a new pipeline and a new policy."""
        self.pipeline, self.policy = pipeline, policy
        # Every process makes the same plan from the same hosts.
        self._planned = dataclasses.replace(policy, start=0.0)
        self._requirements = requirements.RequirementCheck(
            pipeline.reads, self.ignores_demands)

    def on(self, source: HostSource) -> 'Placer':
        """Return a copy of this placer that selects among other hosts."""
        placer = copy.copy(self)
        placer.loader = source
        return placer

    def place(
        self, context: RequestContext, request: objects.RequestSpec,
        uuids: Sequence[str], alternates: int, claim: bool = True,
    ) -> list[list[objects.Selection]]:
        """Select and claim a host for each instance.

        Requests for the same instance are placed one after the other.

        :param alternates: the maximum number of alternates for each instance
        :param claim: False to count the selected hosts in the table for a
            limited time, without a claim in the claim store
        :returns: for each instance its host, followed by its alternates
        :raises cellsched.exception.NoValidHost: the instances do not all fit
        :raises cellsched.exception.HostStateUncertain: the instances do not
            all fit, and the state of some hosts is not known
        :raises cellsched.exception.ClaimBusy: the instances do not all fit on
            the hosts without locked rows
        :raises cellsched.exception.PluginFailed: a filter or weigher failed;
            the error names it
        """
        attempt = PlacementAttempt(
            context, self.pipeline, request, uuids, alternates, claim)
        with self._counted():
            if self.recorder is None:
                return self._answer(attempt)
            return self._answer_and_record(attempt, self.recorder)

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        """Count a request by its result, and observe its duration."""
        began, result = self.clock.monotonic(), metrics.FAILED
        try:
            yield
            result = metrics.SELECTED
        except exception.CellschedException as exc:
            result = next((name for kind, name in _RESULTS
                           if isinstance(exc, kind)), result)
            raise
        finally:
            self.metrics.add_all([
                (metrics.REQUESTS, (result,), 1),
                (metrics.REQUEST_SECONDS, (),
                 self.clock.monotonic() - began)])

    def _answer_and_record(
        self, attempt: PlacementAttempt, recorder: recording.Recorder
    ) -> list[list[objects.Selection]]:
        places: list[list[objects.Selection]] = []
        error = None
        try:
            places = self._answer(attempt)
            return places
        except exception.CellschedException as exc:
            error = exc
            raise
        finally:
            if places or error is not None:
                recorder.add(recording.MadeDecision(
                    attempt.basis or recording.Basis.now_of(
                        self.loader.table, self.clock.steady(),
                        attempt.request),
                    attempt.context.request_id, attempt.uuids,
                    attempt.alternates, attempt.claim, places, error,
                    attempt.passed, attempt.full, self.loader.silent, [
                        (each.by, each.hosts, each.reason)
                        for each in self.loader.left_out()]))

    def _answer(
        self, attempt: PlacementAttempt
    ) -> list[list[objects.Selection]]:
        context, request, uuids = (
            attempt.context, attempt.request, attempt.uuids)
        refusal = self._requirements.refusal(request, context)
        if refusal is not None:
            self.record(context, request, uuids, self._no_decision(refusal))
            raise refusal
        with (self._single_flight.alone(uuids),
              self._timed(context) as pipeline):
            attempt.pipeline = pipeline
            try:
                if request.hint(request_validation.REBUILD):
                    return self._check_rebuild(attempt)
                return self._place(attempt)
            except exception.PluginFailed as exc:
                self.record(context, request, uuids, self._no_decision(exc))
                raise

    def _check_rebuild(
        self, attempt: PlacementAttempt
    ) -> list[list[objects.Selection]]:
        """Return the host of a server that is rebuilt with another image.

        Nothing is claimed.

        :raises cellsched.exception.InvalidField: the request is not for one
            instance, or the instance is not known to be on the host
        """
        with self._phase(attempt, 'read'):
            self.loader.follow(attempt.context)
        uuid = existing_claims.rebuilt_instance(
            attempt.request, attempt.uuids if attempt.claim else None)
        held = self.claims.claims_of(migrations.consumers([uuid]))
        nodes = {each.provider for claims in held.values() for each in claims}
        nodes.update(self.loader.reported_nodes([uuid]).values())
        with self.loader.table.viewed(self.clock.steady()) as hosts:
            if self.recorder is not None:
                attempt.basis = recording.Basis.of(
                    hosts, attempt.request, asked=nodes)
            verdict = existing_claims.check(
                hosts, attempt.pipeline, attempt.request, nodes)
        attempt.why, attempt.decision = verdict.why, verdict.decision
        if attempt.why is not None:
            raise self._error(attempt)
        self._record_decision(attempt)
        return verdict.places

    def _place(
        self, attempt: PlacementAttempt
    ) -> list[list[objects.Selection]]:
        context, claim = attempt.context, attempt.claim
        attempt.request = with_members(attempt.request, attempt.uuids)
        asked_at = self.clock.monotonic()
        with self._phase(attempt, 'read'):
            fresh = self.loader.follow(context)
        rounds = 0
        # Repeated requests are rare, and the claim store detects them. The
        # first round omits the query, which costs as much as a claim.
        query_own = claim and bool(attempt.request.get('migration_uuid'))
        while rounds < self.attempts_max:
            is_claimed = False
            attempt.is_known = fresh and query_own == claim
            with contextlib.ExitStack() as turn:
                turn.enter_context(self.claims.turn())
                # 1. Select a host for each instance and reserve it.
                self._find_places(attempt, query_own, turn)
                # 2. Claim the hosts, and confirm or roll back the reservation.
                try:
                    if attempt.places and claim:
                        is_claimed = self._claim(attempt)
                    elif attempt.places:
                        self.loader.confirm(attempt.allocations, claimed=False)
                except exception.ClaimConflict:
                    # Query the claims that the instances hold, and retry.
                    if query_own:
                        raise
                    query_own = True
                    continue
            # 3. If no host is found, refresh the table and retry. The refresh
            # is skipped if another thread read it since the request started.
            if not attempt.places:
                if not fresh:
                    with self._phase(attempt, 'read'):
                        self.loader.refresh(context, since=asked_at)
                fresh, query_own = True, claim
                continue
            rounds += 1
            if is_claimed or not claim:
                _log_selected(attempt)
                self._record_decision(attempt)
                return attempt.places
            # 4. If a claim is refused, retry with the group members that the
            # store reported.
            attempt.request = attempt.refusals.inform(attempt.request)
        # 5. The claim store refused the hosts of every round.
        self._explain_refusals(attempt)
        raise self._error(attempt)

    def _find_places(
        self, attempt: PlacementAttempt, query_own: bool,
        turn: contextlib.ExitStack,
    ) -> None:
        """Select hosts and reserve them in the table.

        :param turn: ends when the request waits for other ones
        """
        with self._phase(attempt, 'select') as span:
            self._locate(attempt, query_own)
            self._select_and_reserve(attempt)
            _describe(attempt, span)
        if not attempt.places:
            turn.close()
            # If neither a newer nor a larger table is available, wait for
            # pending claims and select a last time.
            if attempt.is_known:
                self._select_after_pending(attempt)

    def _locate(self, attempt: PlacementAttempt, query_own: bool) -> None:
        """Locate the instances that the filters and weighers compare with.

        :param query_own: whether to locate the request's own instances even
            if the claim store is queried for nothing else; those of a build
            that is retried always are
        """
        request, uuids = attempt.request, attempt.uuids
        related = attempt.pipeline.located(request).difference(uuids)
        retry = request.get('retry')
        if not (related or query_own or retry and retry.get('hosts')):
            attempt.located = existing_claims.NO_LOCATIONS
            return
        held = self.claims.claims_of([*related, *uuids, *(
            existing_claims.consumer_of_move(request, uuid)
            for uuid in uuids)])
        reported = self.loader.reported_nodes(related - held.keys())
        own = (self.loader.reported_nodes(uuids)
               if existing_claims.has_tried(request) else {})
        with self.loader.table.viewed(self.clock.steady()) as hosts:
            located = existing_claims.locate(hosts, request, uuids, held, own)
        nodes = {**reported, **located.nodes}
        attempt.located = dataclasses.replace(
            located, nodes=nodes, asked=frozenset(related))
        group = request.get('instance_group')
        if group is not None and group.get('policy') == claims_base.AFFINITY:
            with self.loader.table.viewed(
                    self.clock.steady(), nodes) as hosts:
                attempt.request, lost = existing_claims.without_lost_members(
                    hosts, request, uuids, self.down_s)
            attempt.lost_hosts |= lost

    def _select_and_reserve(
        self, attempt: PlacementAttempt, count_doubtful: bool = True
    ) -> None:
        """Select a host for each instance and reserve the hosts in the table.

        If an instance has no host, nothing is reserved. Selections for single
        instances take turns: they share one interpreter, and a selection must
        be repeated if another one reserves its host meanwhile.

        :param count_doubtful: see :meth:`cellsched.hosts.table.HostTable.view`
        """
        takes_turns = len(attempt.uuids) == 1 and attempt.reserve
        with self.turns.taken() if takes_turns else contextlib.nullcontext():
            self._select_in_turn(attempt, count_doubtful)

    def _select_in_turn(
        self, attempt: PlacementAttempt, count_doubtful: bool
    ) -> None:
        table = self.loader.table
        attempt.allocations = ()
        for check in _CHECKS:
            attempt.settled = table.settled() if attempt.is_known else None
            hosts = table.view(
                self.clock.steady(), attempt.located.nodes, count_doubtful)
            try:
                # 1. Select hosts in a view of the table.
                selector = Selector(
                    attempt.pipeline,
                    self.policy if attempt.reserve else self._planned, hosts,
                    attempt.request, attempt.refusals)
                self._select(attempt, selector)
                if self.recorder is not None:
                    self._note_basis(attempt, selector)
                if not (attempt.places and attempt.reserve):
                    return
                # 2. Reserve them, unless a concurrent decision changed them
                # since the view was made.
                allocations = table.reserve(hosts, check)
                if allocations is not None:
                    attempt.allocations = allocations
                    # The claim store may choose another host of the view.
                    if attempt.claim and selector.following:
                        attempt.selector = selector
                    return
            finally:
                if attempt.selector is None:
                    table.reuse(hosts)
        raise AssertionError('Verify.NONE accepts every reservation')

    def _note_basis(
        self, attempt: PlacementAttempt, selector: Selector
    ) -> None:
        """Keep the input of the selection, for the recording."""
        located = attempt.located
        attempt.passed = attempt.full = ()
        attempt.basis = recording.Basis.of(
            selector.hosts, attempt.request, asked=located.asked,
            nodes=located.nodes, kept=located.kept, held={
                uuid: [(each.provider, each.resources) for each in claims]
                for uuid, claims in located.claims.items()},
            refusals=attempt.refusals.state, seed=selector.seed,
            start=self.policy.start)

    def _select(self, attempt: PlacementAttempt, selector: Selector) -> None:
        """Select a host and alternates for each instance, in order."""
        located, uuids = attempt.located, attempt.uuids
        # 1. Select a host for each instance; stop at the first without one.
        complete = all(
            selector.choose(uuid, located.kept.get(uuid), uuid == uuids[-1], [
                (each.provider, each.resources)
                for each in located.claims.get(uuid, ())])
            for uuid in uuids)
        # 2. Diagnose before the alternates are selected, which rejects more
        # hosts. It takes as long as the selection, so only if the request can
        # fail now.
        if complete:
            is_last = bool(attempt.refusals) or self.attempts_max == 1
        else:
            is_last = attempt.is_last or (
                attempt.settled is not None
                and attempt.settled == self.loader.table.settled())
        attempt.why = selector.diagnosis(
            self.loader.silent, len(uuids), self.loader.left_out()
        ) if is_last else None
        # 3. Add the alternates and the record of the decision.
        attempt.places = (
            selector.selections(attempt.alternates) if complete else [])
        attempt.decision = selector.decision()
        attempt.is_parted = selector.is_parted
        if attempt.why is not None:
            attempt.decision.examples = selector.examples()

    def _select_after_pending(self, attempt: PlacementAttempt) -> None:
        """Wait for pending claims, then select again.

        A pending claim must not cause NoValidHost. If the last selection
        counted none, the request fails at once. If the table can be larger,
        the caller selects in that.

        :raises cellsched.exception.NoValidHost: see :meth:`place`
        :raises cellsched.exception.HostStateUncertain: see :meth:`place`
        """
        if self.loader.extend():
            return
        if attempt.why is not None:
            self._refuse(attempt)
        # 1. Wait until each pending claim is confirmed or rolled back.
        if attempt.claim:
            await_pending(self.loader.table, self.clock, PENDING_S)
        # 2. Select again, and count no claim that became pending meanwhile.
        # The claim store arbitrates, if it is asked.
        attempt.is_last = True
        self._select_and_reserve(attempt, count_doubtful=not attempt.claim)
        attempt.is_last = False
        if not attempt.places:
            self._refuse(attempt)

    def _refuse(self, attempt: PlacementAttempt) -> NoReturn:
        """Fail a request, and release the claims of its failed builds.

        :raises cellsched.exception.NoValidHost: see :meth:`place`
        :raises cellsched.exception.HostStateUncertain: see :meth:`place`
        """
        error = self._error(attempt)
        if isinstance(error, exception.NoValidHost):
            self._release_stale(attempt)
        raise error

    def _claim(self, attempt: PlacementAttempt) -> bool:
        """Claim the selected hosts, and confirm or roll back the reservation.

        :returns: False if the store refuses the claims, or the hosts are busy;
            the hosts are excluded then
        """
        selector, attempt.selector = attempt.selector, None
        try:
            # 1. Instances that keep their claims need no new ones.
            choices = self._choices(attempt, selector)
            make = _claims_maker(attempt)
            batches = LazySequence(
                len(choices), lambda place: make(choices[place]))
            if not batches[0]:
                self._release_stale(attempt)
                return True
            # 2. Claim; on an error roll the reservation back and reload.
            try:
                self._release_stale(attempt)
                with self._phase(attempt, 'claim') as span:
                    outcome = self.claims.claim_any(batches)
                    for error in outcome.refusals.values():
                        span.fail(error)
                self._count_claims(outcome)
                if outcome.chosen != 0 and self.recorder is not None:
                    attempt.passed = _passed(choices, outcome)
            except Exception as exc:
                self.metrics.add(metrics.CLAIMS, (
                    'conflict' if isinstance(exc, exception.ClaimConflict)
                    else 'failed',))
                self.loader.table.rollback(attempt.allocations)
                self.loader.reload(_providers(batches))
                # A thread that still claims reads the view of the selector.
                selector = None
                raise
            if outcome.chosen is None:
                self._add_refusals(attempt, choices, batches, outcome)
                return False
            # 3. If the store has chosen an alternative, reserve that host.
            if outcome.chosen:
                assert selector is not None
                self._choose_other(attempt, selector, outcome)
        finally:
            if selector is not None:
                self.loader.table.reuse(selector.hosts)
        # 4. Confirm the reservation. If the request is a repetition, the table
        # now counts its earlier claims twice: reload the hosts. Reload those
        # without capacity, too.
        self.loader.confirm(attempt.allocations)
        again = [batches[place] for place in outcome.refusals]
        if outcome.new < len(batches[outcome.chosen]):
            again.append(batches[outcome.chosen])
        if again:
            self.loader.reload(_providers(again))
        return True

    def _count_claims(self, outcome: claims_base.AnyOf) -> None:
        busy = sum(isinstance(error, exception.ClaimBusy)
                   for error in outcome.refusals.values())
        for result, number in (
                ('won', outcome.chosen is not None), ('busy', busy),
                ('lost', len(outcome.refusals) - busy)):
            if number:
                self.metrics.add(metrics.CLAIMS, (result,), number)

    def _choose_other(
        self, attempt: PlacementAttempt, selector: Selector,
        outcome: claims_base.AnyOf,
    ) -> None:
        """Replace the selected host by an alternative that is claimed."""
        assert outcome.chosen
        table = self.loader.table
        # The errors of an affinity group name the hosts to select.
        attempt.full = [
            host for error in outcome.refusals.values()
            if isinstance(error, exception.GroupPolicyViolated)
            and error.policy == claims_base.ANTI_AFFINITY
            for host in error.hosts]
        selector.choose_other(outcome.chosen - 1, attempt.full)
        attempt.places = selector.selections(attempt.alternates)
        attempt.decision = selector.decision()
        table.rollback(attempt.allocations)
        attempt.allocations = table.reserve(
            selector.hosts, Verify.NONE) or ()

    def _add_refusals(
        self, attempt: PlacementAttempt, choices: Sequence[Choice],
        batches: Sequence[Sequence[claims_base.Claim]],
        outcome: claims_base.AnyOf,
    ) -> None:
        """Exclude the hosts that the store refused; undo the reservation."""
        self.loader.table.rollback(attempt.allocations)
        self.metrics.add(metrics.CLAIM_RETRIES)
        consumers = attempt.located.consumers
        attempt.refusals.times += 1
        full: list[Sequence[claims_base.Claim]] = []
        for place, error in sorted(outcome.refusals.items()):
            choice = choices[place]
            if isinstance(error, exception.ClaimBusy):
                LOG.info('Hosts are busy; selecting hosts again: %s', error)
                attempt.refusals.pass_over(error, [
                    each.node for each in choice.values()
                    if not set(error.providers).isdisjoint(each.amounts)])
            else:
                LOG.info('Claim refused; selecting hosts again: %s', error)
                attempt.refusals.add(error, next((
                    each.node for uuid, each in choice.items()
                    if consumers.get(uuid, uuid) == error.consumer), None),
                    is_first=not full)
                full.append(batches[place])
        if full:
            self.loader.reload(_providers(full))

    def _choices(
        self, attempt: PlacementAttempt, selector: Selector | None
    ) -> Sequence[Choice]:
        """Return the selected hosts, and then the alternatives to them."""
        def make(place: int) -> Choice:
            if place:
                assert selector is not None
                return {attempt.uuids[0]: selector.alternative(place - 1)}
            resources = attempt.request.resources()
            return {
                uuid: ChosenHost(
                    first.service_host, first.compute_node_uuid,
                    first.requested() if attempt.is_parted
                    else {first.compute_node_uuid: resources})
                for uuid, (first, *_) in zip(attempt.uuids, attempt.places)}

        alternatives = 0 if selector is None else len(selector.following)
        return LazySequence(1 + alternatives, make)

    def _release_stale(self, attempt: PlacementAttempt) -> None:
        """Release the claims of the request's failed builds.

        Another scheduler may have answered the same request since they were
        read, and the instance may hold a host that it needs.
        """
        stale = attempt.located.stale
        for name, claims in stale.items():
            if name in attempt.uuids:
                self.claims.withdraw(name, claims)
            else:
                # That of a failed move, or of an unfinished withdrawal.
                self.claims.release([name])
        if stale:
            self.loader.reload([
                each.provider for claims in stale.values()
                for each in claims])

    def _explain_refusals(self, attempt: PlacementAttempt) -> None:
        """Add the refusals of the claim store to the diagnosis."""
        refusals, why = attempt.refusals, attempt.why
        assert why is not None
        for by, nodes in ((diagnosis.CLAIMS, refusals.lost),
                          (diagnosis.GROUP, refusals.denied)):
            if nodes:
                attempt.decision.examples[by] = self._names(nodes)
        attempt.why = dataclasses.replace(
            why, placed=0, lost=len(refusals.lost),
            denied=max(why.denied, len(refusals.denied)))

    def _names(self, nodes: Iterable[str]) -> list[str]:
        """Return the host names of the nodes that are in the table."""
        with self.loader.table.viewed(self.clock.steady()) as hosts:
            return [hosts['host'][row] for row in map(hosts.row, nodes)
                    if row is not None]

    def _error(
        self, attempt: PlacementAttempt
    ) -> exception.CellschedException:
        """Log and record why the request fails; return the error.

        If a host was busy, nothing is known about its capacity, so the
        request is not refused.
        """
        assert attempt.why is not None
        error = (self.loader.mass_outage_error() or attempt.refusals.busy
                 or attempt.why.error())
        for uuid in attempt.uuids:
            LOG.info('%s', error, instance_uuid=uuid, context=attempt.context)
        _explain(attempt.decision, attempt.why)
        self._record_decision(attempt)
        return error

    @contextlib.contextmanager
    def _phase(
        self, attempt: PlacementAttempt, phase: str
    ) -> Iterator[tracing.Span]:
        """Measure a phase of a request."""
        began = self.clock.monotonic()
        try:
            with tracing.span(_SPANS[phase], attempt.context,
                              attempt.uuids) as span:
                yield span
        finally:
            attempt.seconds[phase] = attempt.seconds.get(phase, 0.0) + (
                self.clock.monotonic() - began)

    def _record_decision(self, attempt: PlacementAttempt) -> None:
        self.metrics.add_later(functools.partial(
            _read_decision, attempt.seconds, attempt.decision.stages))
        self.record(attempt.context, attempt.request, attempt.uuids,
                    attempt.decision)

    def _no_decision(
        self, error: exception.CellschedException
    ) -> decision_record.Decision:
        """Return the record of a request that fails before a decision."""
        return decision_record.Decision(
            len(self.loader.table), (), (),
            error.kwargs.get('reason') or error.format_message())

    @contextlib.contextmanager
    def _timed(
        self, context: RequestContext
    ) -> Iterator[Pipeline]:
        """Return the pipeline for one request; log its slow plug-ins."""
        pipeline = self.pipeline.timed(self.clock.monotonic)
        try:
            yield pipeline
        finally:
            self.metrics.add_later(lambda: [
                (metrics.PLUGIN_SECONDS, _label(name, kind), seconds)
                for kind, name, seconds in pipeline.slow(0.0)])
            for kind, name, seconds in pipeline.slow(self.slow_plugin_s):
                LOG.warning(
                    '%s %s took %.1f seconds in the decision on request %s',
                    kind, name, seconds, context.request_id)

    def plan(
        self, context: RequestContext, request: objects.RequestSpec,
        uuids: Sequence[str], alternates: int,
    ) -> tuple[list[list[objects.Selection]], decision_record.Decision]:
        """Select hosts as :meth:`place` does, without reserving or claiming.

        :returns: the hosts and the record of the decision; if the instances
            do not all fit, no hosts, and the record has the reason
        """
        refusal = self._requirements.refusal(request, context)
        if refusal is not None:
            return [], self._no_decision(refusal)
        request = with_members(request, uuids)
        self.loader.follow(context)
        with self._timed(context) as pipeline:
            attempt = PlacementAttempt(
                context, pipeline, request, uuids, alternates, reserve=False,
                is_last=True)
            while True:
                self._locate(attempt, query_own=True)
                self._select_and_reserve(attempt)
                if attempt.places or not self.loader.extend():
                    break
        if not attempt.places:
            assert attempt.why is not None
            _explain(attempt.decision, attempt.why)
        attempt.decision.slow = pipeline.slow(self.slow_plugin_s)
        return attempt.places, attempt.decision

    def release(self, host: str, instance: str) -> None:
        """Release the claims of a deleted instance on a host."""
        held = self.claims.claims_of(migrations.consumers([instance]))
        with self.loader.table.viewed(self.clock.steady()) as hosts:
            gone = existing_claims.held_on(hosts, host, held)
        if gone:
            self.claims.release(gone)


def await_pending(
    table: HostTable, clock: Clock, timeout_s: float
) -> None:
    """Wait until each pending claim is confirmed or rolled back."""
    events = []

    def watcher() -> Callable[[], None]:
        events.append(clock.event())
        return events[-1].set

    table.watch(watcher)
    deadline = clock.monotonic() + timeout_s
    for event in events:
        event.wait(max(deadline - clock.monotonic(), 0))


def _read_decision(
    phases: Mapping[str, float], stages: Iterable[decision_record.Count]
) -> Iterator[metrics.Reading]:
    """Yield the durations and the hosts of a decision for the metrics."""
    for phase, seconds in phases.items():
        yield metrics.PHASE_SECONDS, (phase,), seconds
    yield from stage_readings(stages)


def stage_readings(
    stages: Iterable[decision_record.Count]
) -> Iterator[metrics.Reading]:
    """Yield the hosts that reached and passed each stage, for the metrics."""
    for stage in stages:
        name = _label(stage.by)
        yield metrics.HOSTS_IN, name, stage.entered
        yield metrics.HOSTS_OUT, name, stage.left


@functools.lru_cache(1024)
def _label(stage: str, *kind: str) -> tuple[str, ...]:
    """Return the labels of a stage in the metrics, which have few values.

    Names of groups and of custom resource classes come from flavors.

    :param kind: the kind of the plug-in
    """
    first, _, rest = stage.partition(':')
    name = stage if rest in os_resource_classes.STANDARDS else first
    return *map(str.lower, kind), name


def _claims_maker(
    attempt: PlacementAttempt
) -> Callable[[Choice], list[claims_base.Claim]]:
    """Return the function that returns the claims of selected hosts."""
    request, located = attempt.request, attempt.located
    group = request.get('instance_group')
    project_id = request.get('project_id') or None
    user_id = request.get('user_id') or None
    return lambda choice: [
        claims_base.Claim(
            located.consumers.get(uuid, uuid), provider, amounts,
            claims_base.membership(
                group, each.host, uuid, attempt.lost_hosts),
            project_id, user_id)
        for uuid, each in choice.items() if uuid not in located.kept
        for provider, amounts in each.amounts.items()]


def _passed(
    choices: Sequence[Choice], outcome: claims_base.AnyOf
) -> list[str]:
    """Return the nodes that the claim store passed over."""
    if outcome.chosen is not None or len(choices[0]) == 1:
        return [each.node for choice in choices[:outcome.chosen]
                for each in choice.values()]
    refused = {provider for error in outcome.refusals.values()
               for provider in getattr(error, 'providers', None)
               or [getattr(error, 'provider', '')]}
    return [each.node for each in choices[0].values()
            if not refused.isdisjoint(each.amounts)]


def _providers(
    batches: Iterable[Iterable[claims_base.Claim]]
) -> list[str]:
    return list(dict.fromkeys(
        claim.provider for batch in batches for claim in batch))


def _log_selected(attempt: PlacementAttempt) -> None:
    """Log the decision, in a line for each instance."""
    stages = ', '.join(
        f'{each.by} {each.left}' for each in attempt.decision.stages)
    weights = {each.instance: each.first.weight
               for each in attempt.decision.picks}
    for uuid, (first, *_) in zip(attempt.uuids, attempt.places):
        LOG.info(
            'Selected host %s in cell %s with weight %s; of %d hosts the '
            'stages left: %s', first.service_host, first.cell_uuid,
            weights.get(uuid), attempt.decision.hosts, stages or 'all',
            instance_uuid=uuid, context=attempt.context)


#: Names of the spans of the phases.
_SPANS = {'read': 'read hosts', 'select': 'decide', 'claim': 'claim'}


def _describe(attempt: PlacementAttempt, span: tracing.Span) -> None:
    """Add the selection to a span: the hosts that each stage left, the cell.

    A host that is not claimed yet may be replaced by an alternative.
    """
    if not span.is_on:
        return
    decision = attempt.decision
    span.set(tracing.HOSTS, decision.hosts)
    if decision.stages:
        span.set(tracing.HOSTS_LEFT, decision.stages[-1].left)
        span.set(tracing.STAGES, [
            f'{each.by} {each.left}' for each in decision.stages])
    if len(attempt.places) == 1:
        first = attempt.places[0][0]
        span.set(tracing.HOST, first.service_host)
        span.set(tracing.CELL_UUID, first.cell_uuid)


def _explain(
    decision: decision_record.Decision, why: diagnosis.Diagnosis
) -> None:
    """Add the reason and the rejections to the record of a decision."""
    decision.reason = why.text()
    decision.rejections = why.to_list()
