# SPDX-License-Identifier: Apache-2.0
"""Selecting hosts for a request and claiming them."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import copy
import dataclasses
import math

from oslo_log import log

from cellsched.claims import base as claims_base
from cellsched.clock import Clock
from cellsched.context import RequestContext
from cellsched import exception
from cellsched.hosts.table import PendingAllocation
from cellsched.hosts.table import Verify
from cellsched import migrations
from cellsched import objects
from cellsched.scheduler.decision.pipeline import Pipeline
from cellsched.scheduler.explanation import decision_record
from cellsched.scheduler.explanation import diagnosis
from cellsched.scheduler import requirements
from cellsched.scheduler.selection.claims import ClaimBatcher
from cellsched.scheduler.selection.claims import ClaimRefusals
from cellsched.scheduler.selection.claims import SingleFlight
from cellsched.scheduler.selection import existing_claims
from cellsched.scheduler.selection import placement_hosts
from cellsched.scheduler.selection.selector import SelectionPolicy
from cellsched.scheduler.selection.selector import Selector
from cellsched.scheduler.selection.selector import with_members

LOG = log.getLogger(__name__)

Record = Callable[
    [RequestContext, objects.RequestSpec, Sequence[str],
     decision_record.Decision], None]


@dataclasses.dataclass
class _Choice:
    """Selected hosts, or the reason why there are none.

    :param places: for each instance its host and alternates, if all have one
    :param why: the reason for a failure; also given if hosts were refused
        before
    :param allocations: the allocations reserved in the table
    :param is_parted: whether providers other than the hosts have a part of the
        allocations
    """

    places: list[list[objects.Selection]]
    why: diagnosis.Diagnosis | None
    decision: decision_record.Decision
    allocations: Sequence[PendingAllocation] = ()
    is_parted: bool = False


#: The condition for a reservation, by attempt. After repeated conflicts
#: nothing is checked, and the claim store arbitrates.
_CHECKS = (*[Verify.UNCHANGED] * 3, *[Verify.CAPACITY] * 7,
           Verify.NONE)


class Placer:
    """Selects hosts from a source's table; the claim store arbitrates.

    The selection is reserved in the table at once, so that other threads see
    it, and is then claimed. If the store refuses the claim, another scheduler
    took the capacity: the table is refreshed and the selection is repeated.

    :param policy: how to select one of the best hosts
    :param attempts_max: the maximum number of selections for one request
    :param record: receives each decision; must neither block nor fail
    :param slow_plugin_s: a filter or weigher that takes longer for one request
        is named in the log
    :param ignores_demands: whether to accept requirements that no stage reads
    """

    def __init__(
        self, loader: placement_hosts.PlacementHosts,
        pipeline: Pipeline,
        claims: ClaimBatcher, clock: Clock,
        policy: SelectionPolicy, attempts_max: int, record: Record,
        slow_plugin_s: float = math.inf, ignores_demands: bool = False,
    ) -> None:
        self._loader = loader
        self._pipeline = pipeline
        self._claims = claims
        self._clock = clock
        self._policy = policy
        # A plan is reproducible, independent of the process.
        self._planned = dataclasses.replace(policy, start=0.0)
        self._attempts_max = attempts_max
        self._record = record
        self._single_flight = SingleFlight(clock.event)
        self._slow_plugin_s = slow_plugin_s
        self._requirements = requirements.RequirementCheck(
            pipeline.reads, ignores_demands)
        self._rebuilds = existing_claims.Rebuilds(loader, claims, clock)

    def on(self, source: placement_hosts.PlacementHosts) -> 'Placer':
        """Return a copy of the placer that selects from other hosts."""
        made = copy.copy(self)
        made._loader = source
        made._rebuilds = existing_claims.Rebuilds(
            source, self._claims, self._clock)
        return made

    def place(
        self, context: RequestContext, request: objects.RequestSpec,
        uuids: Sequence[str], alternates: int, claim: bool = True,
    ) -> list[list[objects.Selection]]:
        """Select and claim a host for each instance; see the drivers' base.

        :param claim: False to claim nothing; the allocations then expire
        :raises cellsched.exception.NoValidHost: not all instances fit
        :raises cellsched.exception.HostStateUncertain: another scheduler may
            have a host
        :raises cellsched.exception.PluginFailed: names the plug-in
        """
        refusal = self._requirements.refusal(request, context)
        if refusal is not None:
            self._record(context, request, uuids, self._undecided(refusal))
            raise refusal
        with (self._single_flight.alone(uuids),
              self._timed(context) as pipeline):
            try:
                if existing_claims.is_asked_for(request):
                    return self._check_rebuild(
                        pipeline, context, request, uuids, claim)
                return self._place(
                    pipeline, context, request, uuids, alternates, claim)
            except exception.PluginFailed as exc:
                self._record(context, request, uuids, self._undecided(exc))
                raise

    @contextlib.contextmanager
    def _timed(
        self, context: RequestContext
    ) -> Iterator[Pipeline]:
        """Return the decision for one request; log its slow plug-ins."""
        pipeline = self._pipeline.timed(self._clock.monotonic)
        try:
            yield pipeline
        finally:
            for kind, name, seconds in pipeline.slow(self._slow_plugin_s):
                LOG.warning(
                    '%s %s took %.1f seconds in the decision on request %s',
                    kind, name, seconds, context.request_id)

    def _undecided(
        self, error: exception.CellschedException
    ) -> decision_record.Decision:
        """Return the diagnosis if no host was evaluated."""
        return decision_record.Decision(
            len(self._loader.table), (), (),
            error.kwargs.get('reason') or error.format_message())

    def _check_rebuild(
        self, pipeline: Pipeline, context: RequestContext,
        request: objects.RequestSpec, uuids: Sequence[str], claim: bool,
    ) -> list[list[objects.Selection]]:
        """Return the host of a server that is to be rebuilt."""
        self._loader.follow(context)
        verdict = self._rebuilds.check(
            pipeline, request, uuids if claim else None)
        if verdict.why is not None:
            raise self._error(
                context, request, uuids, verdict.why, verdict.decision)
        self._record(context, request, uuids, verdict.decision)
        return verdict.places

    def _place(
        self, pipeline: Pipeline, context: RequestContext,
        request: objects.RequestSpec, uuids: Sequence[str], alternates: int,
        claim: bool,
    ) -> list[list[objects.Selection]]:
        request = with_members(request, uuids)
        asked_at = self._clock.monotonic()
        fresh = self._loader.follow(context)
        refusals = ClaimRefusals()
        chosen = 0
        # Repeated requests are rare, and the store detects them. A query
        # before each claim would cost as much as the claim.
        again = False
        while chosen < self._attempts_max:
            # 1. Select and reserve hosts from the table as it is.
            located = self._locate(pipeline, request, uuids, again)
            choice = self._choose(
                pipeline, request, uuids, alternates, located, refusals)
            # 2. With a fresh table and no further hosts to read, wait for
            # pending claims and select for the last time.
            if (not choice.places and fresh and again == claim
                    and not self._loader.extend()):
                choice = self._choose_at_last(
                    context, pipeline, request, uuids, alternates, located,
                    refusals, claim)
            places, why = choice.places, choice.why
            if not places:
                # 3. No host: refresh the table once, and select again.
                # Another thread may have refreshed the table after this
                # selection.
                if not fresh:
                    self._loader.refresh(context, since=asked_at)
                fresh, again = True, claim
                continue
            # 4. Claim the selection. On a conflict the instances have claims
            # of an earlier request: look them up, and select again.
            try:
                if not claim:
                    self._loader.confirm(choice.allocations, claimed=False)
                refusal = self._claim(
                    uuids, request, choice, located) if claim else None
            except exception.ClaimConflict:
                if again:
                    raise
                again = True
                continue
            chosen += 1
            if refusal is None:
                LOG.info(
                    'Placed %d instances on %s', len(uuids),
                    sorted({first.service_host for first, *_ in places}),
                    context=context)
                self._record(context, request, uuids, choice.decision)
                return places
            # 5. The store refused a host: exclude it and select again.
            refusals.add(*refusal)
            request = refusals.inform(request)
        assert why is not None
        why = self._refused(why, choice.decision, refusals)
        raise self._error(context, request, uuids, why, choice.decision)

    def _choose_at_last(
        self, context: RequestContext, pipeline: Pipeline,
        request: objects.RequestSpec, uuids: Sequence[str], alternates: int,
        located: existing_claims.InstanceLocations,
        refusals: ClaimRefusals, claim: bool,
    ) -> _Choice:
        """Select again after a failure, when no claim is in flight.

        Wait for in-flight claims to be confirmed or rolled back, then select
        again: a pending claim must not cause NoValidHost.
        """
        events = []

        def watcher() -> Callable[[], None]:
            events.append(self._clock.event())
            return events[-1].set

        if claim:
            self._loader.table.watch(watcher)
        for event in events:
            event.wait()
        choice = self._choose(
            pipeline, request, uuids, alternates, located, refusals,
            count_pending=not claim)
        if choice.places:
            return choice
        assert choice.why is not None
        error = self._error(
            context, request, uuids, choice.why, choice.decision)
        if isinstance(error, exception.NoValidHost):
            self._give_back(located)
        raise error

    def plan(
        self, context: RequestContext, request: objects.RequestSpec,
        uuids: Sequence[str], alternates: int,
    ) -> tuple[list[list[objects.Selection]], decision_record.Decision]:
        """Select as :meth:`place` does, and claim nothing.

        :returns: no selection and a reason, if not all instances fit
        """
        refusal = self._requirements.refusal(request, context)
        if refusal is not None:
            return [], self._undecided(refusal)
        request = with_members(request, uuids)
        self._loader.follow(context)
        with self._timed(context) as pipeline:
            while True:
                located = self._locate(pipeline, request, uuids, again=True)
                choice = self._choose(
                    pipeline, request, uuids, alternates, located,
                    ClaimRefusals(), keep=False)
                if choice.places or not self._loader.extend():
                    break
        if not choice.places:
            assert choice.why is not None
            _explain(choice.decision, choice.why)
        return choice.places, choice.decision

    def release(self, host: str, instance: str) -> None:
        """Release the claim of a deleted instance on a host."""
        held = self._claims.claims_of(migrations.consumers([instance]))
        gone = existing_claims.held_on(
            self._loader.table.view(self._clock.steady()), host, held)
        if gone:
            self._claims.release(gone)

    def _refused(
        self, why: diagnosis.Diagnosis, decision: decision_record.Decision,
        refusals: ClaimRefusals,
    ) -> diagnosis.Diagnosis:
        """Return the error after the store refused too many claims."""
        for by, nodes in ((diagnosis.CLAIMS, refusals.lost),
                          (diagnosis.GROUP, refusals.denied)):
            if nodes:
                decision.examples[by] = self._names(nodes)
        return dataclasses.replace(
            why, placed=0, lost=len(refusals.lost),
            denied=max(why.denied, len(refusals.denied)))

    def _error(
        self, context: RequestContext, request: objects.RequestSpec,
        uuids: Sequence[str], why: diagnosis.Diagnosis,
        decision: decision_record.Decision,
    ) -> exception.NoValidHost | exception.HostStateUncertain:
        error = self._loader.mass_outage_error() or why.error()
        LOG.info('%s', error, context=context)
        _explain(decision, why)
        self._record(context, request, uuids, decision)
        return error

    def _locate(
        self, pipeline: Pipeline, request: objects.RequestSpec,
        uuids: Sequence[str], again: bool,
    ) -> existing_claims.InstanceLocations:
        """Return the locations of the instances that plug-ins need.

        :param again: query the request's own instances too, even if no plug-in
            needs them
        """
        rest = pipeline.located(request).difference(uuids)
        if not rest and not again:
            return existing_claims.NO_LOCATIONS
        held = self._claims.claims_of([*rest, *migrations.consumers(uuids)])
        reported = self._loader.reported_nodes(rest - held.keys())
        own = (self._loader.reported_nodes(uuids)
               if existing_claims.has_tried(request) else {})
        hosts = self._loader.table.view(self._clock.steady())
        located = existing_claims.locate(hosts, request, uuids, held, own)
        return dataclasses.replace(
            located, nodes={**reported, **located.nodes})

    def _choose(
        self, pipeline: Pipeline, request: objects.RequestSpec,
        uuids: Sequence[str], alternates: int,
        located: existing_claims.InstanceLocations,
        refusals: ClaimRefusals, keep: bool = True,
        count_pending: bool = True,
    ) -> _Choice:
        """Select a host for each instance in turn, and reserve them.

        If any instance has no host, nothing is reserved and only the reason is
        returned. Hosts that the refusals exclude are skipped.

        :param keep: whether to reserve the selection
        :param count_pending: see :meth:`cellsched.hosts.table.HostTable.view`
        """
        table = self._loader.table
        for check in _CHECKS:
            hosts = table.view(
                self._clock.steady(), located.nodes, count_pending)
            try:
                selector = Selector(
                    pipeline, self._policy if keep else self._planned, hosts,
                    request, refusals)
                choice = self._decide(selector, uuids, alternates, located,
                                      quiet=not refusals)
                if not (choice.places and keep):
                    return choice
                allocations = table.reserve(hosts, check)
                if allocations is not None:
                    return dataclasses.replace(choice, allocations=allocations)
            finally:
                table.reuse(hosts)
        raise AssertionError('the last check refuses nothing')

    def _decide(
        self, selector: Selector, uuids: Sequence[str],
        alternates: int, located: existing_claims.InstanceLocations,
        quiet: bool,
    ) -> _Choice:
        """Select a host for each instance in turn.

        :param quiet: skip the diagnosis if all instances have a host
        """
        complete = all(
            selector.choose(uuid, located.kept.get(uuid), uuid == uuids[-1], [
                (each.provider, each.resources)
                for each in located.claims.get(uuid, ())])
            for uuid in uuids)
        quiet = quiet and complete and self._attempts_max > 1
        # The search for alternates rejects further hosts.
        why = None if quiet else selector.diagnosis(
            self._loader.silent, len(uuids), self._loader.left_out())
        choice = _Choice(
            selector.selections(alternates) if complete else [],
            why, selector.decision(), is_parted=selector.is_parted)
        if why is not None:
            choice.decision.examples = selector.examples()
        return choice

    def _names(self, providers: Iterable[str]) -> list[str]:
        """Return the host names of the nodes that are still known."""
        hosts = self._loader.table.view(self._clock.steady())
        return [hosts['host'][row] for row in map(hosts.row, providers)
                if row is not None]

    def _claim(
        self, uuids: Sequence[str], request: objects.RequestSpec,
        choice: _Choice, located: existing_claims.InstanceLocations,
    ) -> tuple[exception.ClaimRefused, str] | None:
        """Claim the selected hosts.

        :returns: the refusal and its selected node, or None
        """
        batch = self._batch(uuids, request, choice, located)
        if not batch:
            self._give_back(located)
            return None
        providers = list(dict.fromkeys(claim.provider for claim in batch))
        try:
            self._give_back(located)
            new = self._claims.claim(batch)
        except exception.ClaimRefused as exc:
            LOG.info('Claim refused; selecting hosts again: %s', exc)
            self._loader.table.rollback(choice.allocations)
            self._loader.reload(providers)
            return exc, next((
                first.compute_node_uuid
                for uuid, (first, *_) in zip(uuids, choice.places)
                if located.consumers.get(uuid, uuid) == exc.consumer),
                exc.provider)
        except Exception:
            self._loader.table.rollback(choice.allocations)
            self._loader.reload(providers)
            raise
        self._loader.confirm(choice.allocations)
        if new < len(batch):
            # The request is a retry: its claims were reserved here again.
            self._loader.reload(providers)
        return None

    def _batch(
        self, uuids: Sequence[str], request: objects.RequestSpec,
        choice: _Choice, located: existing_claims.InstanceLocations,
    ) -> list[claims_base.Claim]:
        """Return the claims for the selected hosts."""
        resources, group = request.resources(), request.get('instance_group')
        project_id = request.get('project_id') or None
        user_id = request.get('user_id') or None
        batch = []
        for uuid, (first, *_) in zip(uuids, choice.places):
            if uuid in located.kept:
                continue
            node = first.compute_node_uuid
            joins = claims_base.membership(group, first.service_host, uuid)
            batch += [claims_base.Claim(
                located.consumers.get(uuid, uuid), provider, amounts, joins,
                project_id, user_id) for provider, amounts in (
                    first.requested() if choice.is_parted
                    else {node: resources}).items()]
        return batch

    def _give_back(self, located: existing_claims.InstanceLocations) -> None:
        """Release the claims of the request's failed builds."""
        if located.stale:
            self._claims.release(located.stale)
            self._loader.reload([
                each.provider for claims in located.stale.values()
                for each in claims])


def _explain(
    decision: decision_record.Decision, why: diagnosis.Diagnosis
) -> None:
    decision.reason = why.text()
    decision.rejections = why.to_list()
