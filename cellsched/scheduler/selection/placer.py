# SPDX-License-Identifier: Apache-2.0
"""Choosing hosts for a request and claiming them."""

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
    """The choice of hosts, and how it was made.

    :param places: for each instance its host and alternates, if all have one
    :param why: why not; also told where hosts were refused before
    :param allocations: what was noted of it in the table
    :param is_parted: whether other providers than the hosts give a part
    """

    places: list[list[objects.Selection]]
    why: diagnosis.Diagnosis | None
    decision: decision_record.Decision
    allocations: Sequence[PendingAllocation] = ()
    is_parted: bool = False


#: What is to hold when a choice is noted. Where others are always faster, the
#: claim store has to tell.
_CHECKS = (*[Verify.UNCHANGED] * 3, *[Verify.CAPACITY] * 7,
           Verify.NONE)


class Placer:
    """Chooses on the table of a source; the claim store arbitrates.

    What is chosen is noted in the table at once, so that other threads see it,
    and then claimed. When the store refuses, somebody else was faster: the
    table is set right and the choice made again.

    :param policy: which of the best hosts is chosen
    :param attempts_max: times to choose for one request
    :param record: is told each decision; must neither block nor fail
    :param slow_plugin_s: a filter or weigher that takes longer in the
        decision on one request is named in the log
    :param ignores_demands: whether what no stage reads is passed over
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
        # A plan is the same each time, whichever process makes it.
        self._planned = dataclasses.replace(policy, start=0.0)
        self._attempts_max = attempts_max
        self._record = record
        self._single_flight = SingleFlight(clock.event)
        self._slow_plugin_s = slow_plugin_s
        self._requirements = requirements.RequirementCheck(
            pipeline.reads, ignores_demands)
        self._rebuilds = existing_claims.Rebuilds(loader, claims, clock)

    def on(self, source: placement_hosts.PlacementHosts) -> 'Placer':
        """Return one that is the same, and chooses among other hosts."""
        made = copy.copy(self)
        made._loader = source
        made._rebuilds = existing_claims.Rebuilds(
            source, self._claims, self._clock)
        return made

    def place(
        self, context: RequestContext, request: objects.RequestSpec,
        uuids: Sequence[str], alternates: int, claim: bool = True,
    ) -> list[list[objects.Selection]]:
        """Choose and claim a host for each instance; see the drivers' base.

        :param claim: False to have what is chosen count for a while only
        :raises cellsched.exception.NoValidHost: not all of them fit
        :raises cellsched.exception.HostStateUncertain: they may fit for others
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
        """Return what decides on one request; log what was slow in it."""
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
        """Return what is told where no host was asked."""
        return decision_record.Decision(
            len(self._loader.table), (), (),
            error.kwargs.get('reason') or error.format_message())

    def _check_rebuild(
        self, pipeline: Pipeline, context: RequestContext,
        request: objects.RequestSpec, uuids: Sequence[str], claim: bool,
    ) -> list[list[objects.Selection]]:
        """Return the host of a server that is to get another image."""
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
        # Hardly any request comes twice, and the store finds those that do:
        # to ask it before costs as much as to claim.
        again = False
        while chosen < self._attempts_max:
            located = self._locate(pipeline, request, uuids, again)
            choice = self._choose(
                pipeline, request, uuids, alternates, located, refusals)
            if (not choice.places and fresh and again == claim
                    and not self._loader.extend()):
                choice = self._choose_at_last(
                    context, pipeline, request, uuids, alternates, located,
                    refusals, claim)
            places, why = choice.places, choice.why
            if not places:
                # Somebody else may have read it since, after this choice.
                if not fresh:
                    self._loader.refresh(context, since=asked_at)
                fresh, again = True, claim
                continue
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
        """Choose once more where there was no place; see :meth:`place`.

        What others chose and may not get is no reason to refuse a request, so
        this waits until all of that is claimed, or is not.
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
        """Choose as :meth:`place` does, and take nothing.

        :returns: nothing chosen and a reason, where not all of them fit
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
        """Release what an instance that has gone holds on a host."""
        held = self._claims.claims_of(migrations.consumers([instance]))
        gone = existing_claims.held_on(
            self._loader.table.view(self._clock.steady()), host, held)
        if gone:
            self._claims.release(gone)

    def _refused(
        self, why: diagnosis.Diagnosis, decision: decision_record.Decision,
        refusals: ClaimRefusals,
    ) -> diagnosis.Diagnosis:
        """Return why there is none where the store refused too often."""
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
        """Return where instances are that the plug-ins ask for.

        :param again: ask about the request's own instances too, even if that
            takes a query that is needed for nothing else
        """
        others = pipeline.located(request).difference(uuids)
        if not others and not again:
            return existing_claims.NO_LOCATIONS
        held = self._claims.claims_of([*others, *migrations.consumers(uuids)])
        reported = self._loader.reported_nodes(others - held.keys())
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
        """Choose for each instance in turn, and note what is chosen.

        When there is no host for one of them, nothing is noted, and no
        place is returned but why; so it is told too when hosts were refused.
        A host that was refused although the table, set right, had room for
        it, is passed over, and so is one that the server group is kept from.

        :param keep: whether what is chosen is noted
        :param count_pending: whether to count what may be counted already
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
        """Choose for each instance in turn.

        :param quiet: whether nothing needs to be said of why, if all have one
        """
        complete = all(
            selector.choose(uuid, located.kept.get(uuid), uuid == uuids[-1], [
                (each.provider, each.resources)
                for each in located.claims.get(uuid, ())])
            for uuid in uuids)
        quiet = quiet and complete and self._attempts_max > 1
        # Where alternates are looked for, more are rejected.
        why = None if quiet else selector.diagnosis(
            self._loader.silent, len(uuids), self._loader.left_out())
        choice = _Choice(
            selector.selections(alternates) if complete else [],
            why, selector.decision(), is_parted=selector.is_parted)
        if why is not None:
            choice.decision.examples = selector.examples()
        return choice

    def _names(self, providers: Iterable[str]) -> list[str]:
        """Return the hosts of nodes, as far as they are still known."""
        hosts = self._loader.table.view(self._clock.steady())
        return [hosts['host'][row] for row in map(hosts.row, providers)
                if row is not None]

    def _claim(
        self, uuids: Sequence[str], request: objects.RequestSpec,
        choice: _Choice, located: existing_claims.InstanceLocations,
    ) -> tuple[exception.ClaimRefused, str] | None:
        """Claim what was chosen; return what was refused, if anything.

        :returns: the refusal, and the node that was chosen
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
            # The request came twice; what it held was taken twice here.
            self._loader.reload(providers)
        return None

    def _batch(
        self, uuids: Sequence[str], request: objects.RequestSpec,
        choice: _Choice, located: existing_claims.InstanceLocations,
    ) -> list[claims_base.Claim]:
        """Return the claims of what was chosen."""
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
        """Release what builds of the request hold that failed."""
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
