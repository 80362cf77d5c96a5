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
import itertools
import math

import os_resource_classes
from oslo_log import log

from cellsched.claims import base as claims_base
from cellsched.clock import Clock
from cellsched.clock import Deadline
from cellsched.context import RequestContext
from cellsched import exception
from cellsched.host_manager.source import HostSource
from cellsched import migrations
from cellsched import objects
from cellsched.observability import metrics
from cellsched.observability.metrics import Metrics
from cellsched.observability import tracing
from cellsched.scheduler.decision.pipeline import Pipeline
from cellsched.scheduler.explanation import decision_record
from cellsched.scheduler.explanation import diagnosis
from cellsched.scheduler import recording
from cellsched.scheduler import request_validation
from cellsched.scheduler import requirements
from cellsched.scheduler.selection.claims import amounts_of
from cellsched.scheduler.selection.claims import ClaimQueue
from cellsched.scheduler.selection.claims import ClaimRefusals
from cellsched.scheduler.selection.claims import ClaimRequest
from cellsched.scheduler.selection.claims import WAIT_S
from cellsched.scheduler.selection import existing_claims
from cellsched.scheduler.selection.lane import Attempt
from cellsched.scheduler.selection.lane import Lane
from cellsched.scheduler.selection.selector import ChosenHost
from cellsched.scheduler.selection.selector import SelectionPolicy
from cellsched.scheduler.selection.selector import Selector
from cellsched.scheduler.selection.selector import with_members

LOG = log.getLogger(__name__)

Record = Callable[
    [RequestContext, objects.RequestSpec, Sequence[str],
     decision_record.Decision], None]


#: The hosts of a request, in the order of its instances.
Choice = Sequence[ChosenHost]

#: Claimed amounts by consumer, provider and resource class.
Holdings = Mapping[str, Mapping[str, Mapping[str, int]]]

#: The results of requests that fail, in the metrics.
_RESULTS = (
    (exception.NoValidHost, metrics.NO_VALID_HOST),
    (exception.HostStateUncertain, metrics.UNCERTAIN),
    (exception.ClaimBusy, metrics.BUSY), (exception.ServiceBusy, metrics.BUSY))


@dataclasses.dataclass(eq=False)
class PlacementAttempt(Attempt):
    """The state of one request while the placer selects and claims hosts.

    The first fields are the input. Each round replaces the result fields.

    :param request: the request; after a refusal by the group policy it
        includes the members and hosts that the claim store reported
    :param claim: True to claim the selected hosts in the claim store; False
        to count them in the table for a limited time
    :param reserve: False to select hosts without a reservation in the table
    :param refusals: the refusals of the claim store in earlier rounds
    :param located: the locations of the instances, and the claims they hold
    :param held: the amounts of these claims by consumer and provider
    :param lost_hosts: hosts that are down, whose members do not bind the
        affinity group of the request
    :param is_known: whether no newer facts can be read if the selection finds
        no hosts
    :param is_last: whether the request fails then
    :param why: the diagnosis of the hosts; None if no error can need it
    :param decision: the record of the decision
    :param counts_doubtful: see :meth:`cellsched.hosts.table.HostTable.view`
    :param choices: the hosts to claim, best first
    :param asked: their claims, once they are known
    :param is_claimed: whether the claim store has the claims
    :param reload: providers to read again
    :param trace: the span in which the request waits for its decision
    :param asked_at: the time from which on it waits
    :param decided_at: the time of its last decision
    :param deadline: the time until which its caller waits
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
    lost_hosts: frozenset[str] = frozenset()
    held: Holdings = dataclasses.field(default_factory=dict)
    is_known: bool = False
    is_last: bool = False
    why: diagnosis.Diagnosis | None = None
    decision: decision_record.Decision = dataclasses.field(
        init=False, repr=False)
    counts_doubtful: bool = True
    choices: Sequence[Choice] = ()
    asked: ClaimRequest | None = None
    is_claimed: bool = False
    reload: Sequence[str] = ()
    trace: str = ''
    asked_at: float = 0.0
    decided_at: float = 0.0
    deadline: Deadline = dataclasses.field(kw_only=True)
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    basis: recording.Basis | None = None
    passed: Sequence[str] = ()
    full: Sequence[str] = ()

    def note(self, phase: str, seconds: float) -> None:
        """Add to the duration of a phase: read, select or claim."""
        self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds


@dataclasses.dataclass(eq=False)
class Placer:
    """Selects hosts in the table of a source and claims them.

    Requests are decided in one lane: one after the other, in the order of
    their arrival, by one thread for all that wait. It reserves the selected
    hosts in the table, so that later decisions count them, lets the lane go
    on, and claims the hosts of its requests together. If the claim store
    refuses a claim, the reservation is rolled back, the hosts are reloaded
    from the store, and the request is decided again.

    Each wait of a request ends with the deadline of its context. Afterwards,
    nothing is decided or claimed for it.

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
    :param now: returns seconds since the epoch, by the clock of deadlines; the
        wall clock by default
    """

    loader: HostSource
    pipeline: Pipeline
    claims: ClaimQueue
    clock: Clock
    policy: SelectionPolicy
    attempts_max: int
    record: Record
    slow_plugin_s: float = math.inf
    ignores_demands: bool = False
    down_s: float = math.inf
    metrics: Metrics = dataclasses.field(default_factory=Metrics)
    recorder: recording.Recorder | None = None
    now: Callable[[], float] | None = None

    def __post_init__(self) -> None:
        self.follow(self.pipeline, self.policy)
        #: Copies of the placer share it.
        self.lane = Lane[_Turn](_advance, _claim, _undo, self.clock.lock)

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
        :raises cellsched.exception.DeadlineExceeded: the caller waits no
            longer, and nothing is claimed
        """
        attempt = PlacementAttempt(
            context, self.pipeline, request, uuids, alternates, claim,
            deadline=self._deadline(context))
        began, result = self.clock.monotonic(), metrics.FAILED
        try:
            places = (self._answer(attempt) if self.recorder is None
                      else self._answer_and_record(attempt, self.recorder))
            result = metrics.SELECTED
            return places
        except exception.CellschedException as exc:
            result = next((name for kind, name in _RESULTS
                           if isinstance(exc, kind)), result)
            raise
        finally:
            self.metrics.add_all([
                (metrics.REQUESTS, (result,), 1),
                (metrics.REQUEST_SECONDS, (),
                 self.clock.monotonic() - began)])

    def _deadline(self, context: RequestContext) -> Deadline:
        if context.answer_by is None:
            return Deadline(self.clock)
        now = self.now or self.clock.timestamp
        return Deadline(self.clock, context.answer_by - now())

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
        attempt.pipeline = self.pipeline.timed(self.clock.monotonic)
        try:
            if request.hint(request_validation.REBUILD):
                return self._check_rebuild(attempt)
            return self._place(attempt)
        except exception.PluginFailed as exc:
            self.record(context, request, uuids, self._no_decision(exc))
            raise
        finally:
            self._note_plugins(attempt)

    def _check_rebuild(
        self, attempt: PlacementAttempt
    ) -> list[list[objects.Selection]]:
        """Return the host of a server that is rebuilt with another image.

        Nothing is claimed.

        :raises cellsched.exception.InvalidField: the request is not for one
            instance, or the instance is not known to be on the host
        """
        with self._reading(attempt):
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
        with self._reading(attempt):
            fresh = self.loader.follow(context)
        rounds = 0
        # Repeated requests are rare, and the claim store detects them. The
        # first round omits the query, which costs as much as a claim.
        query_own = claim and bool(attempt.request.get('migration_uuid'))
        while rounds < self.attempts_max:
            is_claimed = False
            attempt.is_known = fresh
            # 1. Select a host for each instance, reserve it and claim it.
            self._find_places(attempt, query_own)
            # 2. Confirm or roll back the reservation.
            try:
                if attempt.places and claim:
                    is_claimed = self._settle(attempt)
                elif attempt.places:
                    self.loader.confirm(attempt.allocations, claimed=False)
            except exception.ClaimConflict:
                # Query the claims that the instances hold, and retry. A
                # repetition of the request may have claimed since a query.
                rounds += query_own
                if rounds == self.attempts_max:
                    raise
                query_own = True
                continue
            # 3. If no host is found, refresh the table and retry. The refresh
            # is skipped if another thread read it since the request started.
            # A fresh table is larger now, or the instances hold claims.
            if not attempt.places:
                if fresh:
                    query_own = claim
                else:
                    with self._reading(attempt):
                        self.loader.refresh(context, since=asked_at)
                fresh = True
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
        self, attempt: PlacementAttempt, query_own: bool
    ) -> None:
        """Select hosts, reserve them in the table, and ask for their claims.

        If no host is found and neither a newer nor a larger table is
        available, wait for pending claims and select a last time.
        """
        attempt.asked_at = self.clock.monotonic()
        self._locate(attempt, query_own)
        self._decide(attempt)
        if not attempt.places and attempt.is_known:
            self._select_after_pending(attempt)

    def _decide(self, attempt: PlacementAttempt) -> None:
        """Have the lane decide on a request, and perhaps claim its hosts.

        :raises cellsched.exception.ServiceBusy: the decisions before it take
            too long
        """
        attempt.places, attempt.allocations = [], ()
        attempt.asked = attempt.error = None
        attempt.is_claimed, attempt.reload = False, ()
        attempt.trace = tracing.current() if tracing.is_on() else ''
        self.lane.take((self, attempt), attempt.deadline.remaining_s())
        if attempt.error is not None and attempt.asked is None:
            raise attempt.error

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
            attempt.located, attempt.held = existing_claims.NO_LOCATIONS, {}
            return
        own_consumers = _consumers(attempt)
        held = self.claims.claims_of([*related, *own_consumers])
        attempt.held = _holdings({
            name: held[name] for name in own_consumers if name in held})
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

    def advance(self, attempt: PlacementAttempt) -> bool:
        """Decide on a request; only the lane calls this.

        Sets the places of the attempt or its error, and raises nothing.

        :returns: whether the lane claims. The thread of the request claims if
            stale claims are to be released first
        """
        try:
            with tracing.span('decide', attempt.context, attempt.uuids,
                              attempt.trace) as span:
                _check_deadline(attempt.deadline)
                self._select_and_reserve(attempt)
                _describe(attempt, span)
            if attempt.places and attempt.claim:
                attempt.asked = _claim_request(attempt)
        except BaseException as exc:
            # The thread of the request raises it.
            attempt.error = exc
            attempt.undo(self.loader.table)
        attempt.decided_at = self.clock.monotonic()
        attempt.note('select', attempt.decided_at - attempt.asked_at)
        return bool(attempt.asked and not attempt.located.stale)

    def _select_and_reserve(self, attempt: PlacementAttempt) -> None:
        """Select a host for each instance and reserve the hosts in the table.

        If an instance has no host, nothing is reserved.
        """
        table = self.loader.table
        attempt.doubtful = [] if attempt.is_known else None
        hosts = table.view(self.clock.steady(), attempt.located.nodes,
                           attempt.counts_doubtful, attempt.doubtful)
        try:
            selector = Selector(
                attempt.pipeline,
                self.policy if attempt.reserve else self._planned, hosts,
                attempt.request, attempt.refusals)
            self._select(attempt, selector)
            if self.recorder is not None:
                self._note_basis(attempt, selector)
            if attempt.places and attempt.reserve:
                attempt.allocations = table.reserve(hosts)
                # The claim store may choose another host of the view.
                if attempt.claim and selector.following:
                    attempt.selector = selector
                    table.detach(hosts)
        finally:
            if attempt.selector is None:
                table.reuse(hosts)

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
            is_last = attempt.is_last or attempt.doubtful == []
        attempt.why = selector.diagnosis(
            self.loader.silent, len(uuids)) if is_last else None
        # 3. Add the alternates and the record of the decision.
        attempt.places = (
            selector.selections(attempt.alternates) if complete else [])
        attempt.decision = selector.decision()
        if attempt.claim and attempt.reserve and complete:
            attempt.choices = [selector.chosen(), *(
                [each] for each in selector.alternatives())]
        if attempt.why is not None:
            attempt.decision.examples = selector.examples()

    def _select_after_pending(self, attempt: PlacementAttempt) -> None:
        """Wait for the pending claims of the last selection; select again.

        A pending claim must not cause NoValidHost. If the last selection
        counted none, the request fails at once. If the table can be larger,
        the caller selects in that.

        :raises cellsched.exception.NoValidHost: see :meth:`place`
        :raises cellsched.exception.HostStateUncertain: see :meth:`place`
        """
        if self.loader.extend():
            return
        if attempt.why is not None:
            return self._refuse(attempt)
        # 1. Wait until each pending claim is confirmed or rolled back.
        if attempt.claim:
            attempt.await_claims(self.loader.table, self.clock,
                                 attempt.deadline.remaining_s())
        # 2. Select again, and count no claim that became pending meanwhile.
        # The claim store arbitrates, if it is asked.
        attempt.asked_at = self.clock.monotonic()
        attempt.is_last, attempt.counts_doubtful = True, not attempt.claim
        self._decide(attempt)
        attempt.is_last, attempt.counts_doubtful = False, True
        if not attempt.places:
            self._refuse(attempt)

    def _refuse(self, attempt: PlacementAttempt) -> None:
        """Fail a request, and release the claims of its failed builds.

        If the instances hold other claims than the decision knew, nothing is
        done, and the request is decided again: another scheduler, or another
        thread, may have answered the same request. The claims are read after
        the decision, so that each claim that took room is seen.

        :raises cellsched.exception.NoValidHost: see :meth:`place`
        :raises cellsched.exception.HostStateUncertain: see :meth:`place`
        """
        if attempt.claim and attempt.held != _holdings(
                self.claims.claims_of(_consumers(attempt))):
            return
        error = self._error(attempt)
        if isinstance(error, exception.NoValidHost):
            self._release_stale(attempt)
        raise error

    def _settle(self, attempt: PlacementAttempt) -> bool:
        """Release the stale claims of a request, and claim its hosts.

        The lane has claimed them, unless the request has stale claims.

        :returns: False if the store refuses the claims, or the hosts are busy;
            the hosts are excluded then
        """
        if attempt.asked is None or attempt.asked.outcome is None:
            try:
                self._release_stale(attempt)
            except Exception:
                attempt.undo(self.loader.table)
                raise
            if attempt.asked is None:
                return True
            _claim([(self, attempt)])
        if attempt.reload:
            self._reload(attempt)
        if attempt.error is not None:
            raise attempt.error
        return attempt.is_claimed

    def _reload(self, attempt: PlacementAttempt) -> None:
        """Read the hosts that refused claims, or whose claims are uncertain.

        :raises Exception: raised by the read, if the hosts are needed to
            select other ones
        """
        try:
            self.loader.reload(attempt.reload)
        except Exception as exc:
            # Claims that were made, or their error, are the answer.
            if not attempt.is_claimed and attempt.error is None:
                raise
            LOG.warning('The usage of %d providers was not read after a '
                        'claim: %s', len(attempt.reload), exc)

    def conclude(self, attempt: PlacementAttempt) -> None:
        """Confirm the reservation of a request, or roll it back.

        Sets the error of the attempt, and raises nothing.
        """
        attempt.note('claim', self.clock.monotonic() - attempt.decided_at)
        try:
            self._conclude(attempt)
        except BaseException as exc:
            attempt.error = exc
            attempt.undo(self.loader.table)
            assert attempt.asked is not None
            attempt.reload = _providers(attempt.asked.batches)

    def _conclude(self, attempt: PlacementAttempt) -> None:
        request = attempt.asked
        assert request is not None
        try:
            outcome = request.result()
        except BaseException as exc:
            self.metrics.add(metrics.CLAIMS, (
                'conflict' if isinstance(exc, exception.ClaimConflict)
                else 'failed',))
            raise
        self._count_claims(outcome)
        if outcome.chosen != 0 and self.recorder is not None:
            attempt.passed = _passed(attempt.choices, outcome)
        if outcome.chosen is None:
            return self._add_refusals(attempt, request.batches, outcome)
        # If the store has chosen an alternative, reserve that host.
        if outcome.chosen:
            self._choose_other(attempt, outcome)
        attempt.end(self.loader.table)
        # If the request is a repetition, the table now counts its earlier
        # claims twice: reload the hosts. Reload those without capacity, too.
        self.loader.confirm(attempt.allocations)
        again = [request.batches[place] for place in outcome.refusals]
        if outcome.new < len(request.batches[outcome.chosen]):
            again.append(request.batches[outcome.chosen])
        attempt.reload = _providers(again)
        attempt.is_claimed = True

    def _count_claims(self, outcome: claims_base.AnyOf) -> None:
        busy = sum(isinstance(error, exception.ClaimBusy)
                   for error in outcome.refusals.values())
        for result, number in (
                ('won', outcome.chosen is not None), ('busy', busy),
                ('lost', len(outcome.refusals) - busy)):
            if number:
                self.metrics.add(metrics.CLAIMS, (result,), number)

    def _choose_other(
        self, attempt: PlacementAttempt, outcome: claims_base.AnyOf
    ) -> None:
        """Replace the selected host by an alternative that is claimed."""
        assert outcome.chosen
        selector = attempt.selector
        assert selector is not None
        # The errors of an affinity group name the hosts to select.
        attempt.full = [
            host for error in outcome.refusals.values()
            if isinstance(error, exception.GroupPolicyViolated)
            and error.policy == claims_base.ANTI_AFFINITY
            for host in error.hosts]
        attempt.choose_other(
            self.loader.table, selector, outcome.chosen - 1,
            attempt.alternates, attempt.full)
        attempt.decision = selector.decision()

    def _add_refusals(
        self, attempt: PlacementAttempt,
        batches: Sequence[Sequence[claims_base.Claim]],
        outcome: claims_base.AnyOf,
    ) -> None:
        """Exclude the hosts that the store refused; undo the reservation."""
        attempt.undo(self.loader.table)
        self.metrics.add(metrics.CLAIM_RETRIES)
        consumers = attempt.located.consumers
        attempt.refusals.times += 1
        full: list[Sequence[claims_base.Claim]] = []
        for place, error in sorted(outcome.refusals.items()):
            choice = attempt.choices[place]
            if isinstance(error, exception.ClaimBusy):
                LOG.info('Hosts are busy; selecting hosts again: %s', error)
                attempt.refusals.pass_over(error, [
                    each.node for each in choice
                    if not set(error.providers).isdisjoint(each.amounts)])
            else:
                LOG.info('Claim refused; selecting hosts again: %s', error)
                attempt.refusals.add(error, next((
                    each.node for uuid, each in zip(attempt.uuids, choice)
                    if consumers.get(uuid, uuid) == error.consumer), None),
                    is_first=not full)
                full.append(batches[place])
        attempt.reload = _providers(full)

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
        why = attempt.why.with_left_out(self.loader.left_out())
        error = (self.loader.mass_outage_error() or attempt.refusals.busy
                 or why.error())
        for uuid in attempt.uuids:
            LOG.info('%s', error, instance_uuid=uuid, context=attempt.context)
        _explain(attempt.decision, why)
        self._record_decision(attempt)
        return error

    @contextlib.contextmanager
    def _reading(self, attempt: PlacementAttempt) -> Iterator[None]:
        """Measure the time in which a request reads hosts."""
        began = self.clock.monotonic()
        try:
            with tracing.span('read hosts', attempt.context, attempt.uuids):
                yield
        finally:
            attempt.note('read', self.clock.monotonic() - began)

    def _record_decision(self, attempt: PlacementAttempt) -> None:
        self.metrics.add_all(itertools.chain(
            ((metrics.PHASE_SECONDS, (phase,), seconds)
             for phase, seconds in attempt.seconds.items()),
            stage_readings(attempt.decision.stages)))
        self.record(attempt.context, attempt.request, attempt.uuids,
                    attempt.decision)

    def _no_decision(
        self, error: exception.CellschedException
    ) -> decision_record.Decision:
        """Return the record of a request that fails before a decision."""
        return decision_record.Decision(
            len(self.loader.table), (), (),
            error.kwargs.get('reason') or error.format_message())

    def _note_plugins(self, attempt: PlacementAttempt) -> None:
        """Measure the plug-ins of a request, and log the slow ones."""
        pipeline = attempt.pipeline
        if self.metrics.is_on:
            self.metrics.add_all(
                (metrics.PLUGIN_SECONDS, _label(name, kind), seconds)
                for kind, name, seconds in pipeline.slow(0.0))
        for kind, name, seconds in pipeline.slow(self.slow_plugin_s):
            LOG.warning(
                '%s %s took %.1f seconds in the decision on request %s',
                kind, name, seconds, attempt.context.request_id)

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
        attempt = PlacementAttempt(
            context, self.pipeline.timed(self.clock.monotonic), request,
            uuids, alternates, reserve=False, is_last=True,
            deadline=Deadline(self.clock))
        try:
            while True:
                self._locate(attempt, query_own=True)
                self._select_and_reserve(attempt)
                if attempt.places or not self.loader.extend():
                    break
        finally:
            self._note_plugins(attempt)
        if not attempt.places:
            assert attempt.why is not None
            _explain(attempt.decision,
                     attempt.why.with_left_out(self.loader.left_out()))
        attempt.decision.slow = attempt.pipeline.slow(self.slow_plugin_s)
        return attempt.places, attempt.decision

    def release(self, host: str, instance: str) -> None:
        """Release the claims of a deleted instance on a host."""
        held = self.claims.claims_of(migrations.consumers([instance]))
        with self.loader.table.viewed(self.clock.steady()) as hosts:
            gone = existing_claims.held_on(hosts, host, held)
        if gone:
            self.claims.release(gone)


#: A request in the lane, with its placer.
_Turn = tuple[Placer, PlacementAttempt]


def _advance(turn: _Turn) -> bool:
    placer, attempt = turn
    return placer.advance(attempt)


def _undo(turn: _Turn) -> None:
    placer, attempt = turn
    attempt.undo(placer.loader.table)


def _claim(turns: Sequence[_Turn]) -> None:
    """Ask for the claims of requests; raises nothing.

    Each reservation is confirmed or rolled back.
    """
    [queue] = {placer.claims for placer, _ in turns}
    requests = [each.asked for _, each in turns if each.asked]
    with contextlib.ExitStack() as stack:
        spans = [stack.enter_context(tracing.span(
            'claim', each.context, each.uuids, each.trace))
            for _, each in turns]
        queue.claim_all(requests, max(
            each.deadline.remaining_s(WAIT_S) for _, each in turns))
        for span, request in zip(spans, requests):
            if isinstance(request.outcome, claims_base.AnyOf):
                for error in request.outcome.refusals.values():
                    span.fail(error)
    for placer, attempt in turns:
        placer.conclude(attempt)


def _check_deadline(deadline: Deadline) -> None:
    """Raise an error if the caller waits no longer.

    Nothing would be built with the claim.
    """
    if deadline.late_s > 0:
        raise exception.DeadlineExceeded(late_s=round(deadline.late_s))


def _consumers(attempt: PlacementAttempt) -> list[str]:
    """Return the consumers of the claims that the instances may hold."""
    return [*attempt.uuids, *(
        existing_claims.consumer_of_move(attempt.request, uuid)
        for uuid in attempt.uuids)]


def _holdings(held: existing_claims.Held) -> Holdings:
    return {name: amounts_of(claims) for name, claims in held.items()}


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


def _claim_request(attempt: PlacementAttempt) -> ClaimRequest | None:
    """Return the claims of the selected hosts, and of the alternatives.

    Instances that keep their claims need no new ones.
    """
    request, located = attempt.request, attempt.located
    group = request.get('instance_group')
    project_id = request.get('project_id') or None
    user_id = request.get('user_id') or None
    batches = [[
        claims_base.Claim(
            located.consumers.get(uuid, uuid), provider, amounts,
            None if group is None else claims_base.membership(
                group, each.host, uuid, attempt.lost_hosts),
            project_id, user_id)
        for uuid, each in zip(attempt.uuids, choice)
        if uuid not in located.kept
        for provider, amounts in each.amounts.items()]
        for choice in attempt.choices]
    return ClaimRequest(batches) if batches[0] else None


def _passed(
    choices: Sequence[Choice], outcome: claims_base.AnyOf
) -> list[str]:
    """Return the nodes that the claim store passed over."""
    if outcome.chosen is not None or len(choices[0]) == 1:
        return [each.node for choice in choices[:outcome.chosen]
                for each in choice]
    refused = {provider for error in outcome.refusals.values()
               for provider in getattr(error, 'providers', None)
               or [getattr(error, 'provider', '')]}
    return [each.node for each in choices[0]
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
