# SPDX-License-Identifier: Apache-2.0
"""The decision on one request of Nova.

A plain request is decided on columns, and its resources are claimed from the
host. If a request has requirements without columns, Placement returns the
allocation candidates, as in Nova, and filters run on these hosts.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import copy
import dataclasses
import functools
import random
import time
from typing import Any
from typing import Protocol

from nova import exception as nova_exception
from nova.scheduler import utils
import numpy as np
from oslo_log import log
from oslo_utils import timeutils
from oslo_utils import uuidutils

from cellsched import clock
from cellsched import exception
from cellsched.hosts import table
from cellsched.hosts import view
from cellsched.observability import metrics
from cellsched.observability.metrics import Metrics
from cellsched.scheduler.decision.pipeline import Candidates
from cellsched.scheduler.decision.pipeline import Pipeline
from cellsched.scheduler.decision.ranking import Ranking
from cellsched.scheduler.drivers import filter_scheduler
from cellsched.scheduler.explanation import decision_record
from cellsched.scheduler import recording
from cellsched.scheduler import requirements
from cellsched.scheduler.selection.claims import ClaimRefusals
from cellsched.scheduler.selection.lane import Attempt
from cellsched.scheduler.selection.lane import Lane
from cellsched.scheduler.selection import placer
from cellsched.scheduler.selection import selector
from cellsched.scheduler.selection.selector import Selector
from cellsched_nova import claims
from cellsched_nova.claims import ClaimComponents
from cellsched_nova import enabled_plugins
from cellsched_nova import filters
from cellsched_nova import offers
from cellsched_nova import placement
from cellsched_nova import requests
from cellsched_nova import source

LOG = log.getLogger(__name__)


def _discard(*decision: Any) -> None:
    """Record no decision."""


@dataclasses.dataclass(frozen=True)
class Components:
    """The components that all decisions share until options change.

    :param lane: decides on the requests of all threads
    :param host_manager: Nova's host manager
    :param client: Nova's report client
    :param claims: the components that claim in Placement
    :param unsupported: finds requirements that no column covers
    :param conf: Nova's configuration
    :param record: called with each decision; must neither block nor fail
    :param metrics: records requests and their filters
    :param recorder: records decisions to files
    """

    hosts: source.NovaHosts
    lane: Lane['RequestDecision']
    plugins: enabled_plugins.EnabledPlugins
    policy: selector.SelectionPolicy
    unsupported: requirements.RequirementCheck
    host_manager: Any
    client: Any
    claims: ClaimComponents
    conf: Any
    record: placer.Record = _discard
    metrics: Metrics = dataclasses.field(default_factory=Metrics)
    recorder: recording.Recorder | None = None


def make_components(
    conf: Any, generator: random.Random, hosts: source.NovaHosts,
    host_manager: Any, client: Any, claims: ClaimComponents,
    nova_conf: Any, record: placer.Record = _discard,
    lane: Lane['RequestDecision'] | None = None,
) -> Components:
    """Return the components for the current options.

    :param conf: the product's configuration
    :param nova_conf: Nova's configuration
    :param lane: the lane of the process; a new one by default
    """
    plugins = enabled_plugins.EnabledPlugins(
        conf, host_manager.enabled_filters, host_manager.weighers,
        enabled_plugins.own_filters(nova_conf))
    # In retries and evacuations, Nova selects as for other requests.
    policy = dataclasses.replace(
        filter_scheduler.selection_policy(conf, generator),
        refused_subset_size=1, evacuation_subset_size=1)
    return Components(
        hosts, lane or make_lane(), plugins, policy,
        requirements.RequirementCheck(plugins.reads), host_manager,
        client, claims, nova_conf, record)


def make_lane() -> Lane['RequestDecision']:
    """Return a lane; the threads of requests claim for themselves."""
    return Lane(RequestDecision.advance, lambda requests: None,
                RequestDecision.undo)


class Watcher(Protocol):
    """Observes the decision on a request.

    The calls repeat if the hosts are read again before a refusal.
    """

    def begin(self, hosts: view.Hosts) -> None:
        """Receive the hosts before the filters run; may change them."""

    def ranked(self, candidates: Candidates, ranking: Ranking) -> None:
        """Receive the ranking of hosts for the first instance."""


#: Attempts to select hosts that do not change meanwhile, and have capacity.
_ATTEMPTS_MAX = 10

#: Attempts to find freed hosts; other requests may use them first.
_FREED_MAX = 3

#: The names of the two ways to decide, in records and log lines.
COLUMNS, CANDIDATES = 'columns', 'allocation candidates'

#: Why a request fails if every host refuses its claims.
_REFUSED = 'Other requests claimed the selected hosts first.'

#: Nova's text for a request without a valid host.
NOVA_TEXT = 'There are not enough hosts available.'


@dataclasses.dataclass(eq=False)
class _Attempt(Attempt):
    """One selection of hosts for a request, and its claims.

    :param make_offers: returns the possible claims on the hosts of a view
    :param asked: the instances that filters and weighers compare with
    :param located: their compute nodes
    :ivar reason: why an instance has no host
    :ivar has_candidates: whether Nova would have found candidates then
    :ivar changed: compute nodes that changed since they were read
    :ivar unchanged: compute nodes that did not
    :ivar unexplained: compute nodes that refused a claim without an error
    """

    pipeline: Pipeline
    make_offers: Callable[[view.Hosts], selector.Offers]
    asked: Iterable[str]
    located: dict[str, str]
    reason: str = ''
    has_candidates: bool = True
    changed: set[str] = dataclasses.field(default_factory=set)
    unchanged: set[str] = dataclasses.field(default_factory=set)
    unexplained: set[str] = dataclasses.field(default_factory=set)


class RequestDecision:
    """Decides on one request.

    :param context: the requester's context
    :param spec: Nova's request, which is modified as Nova modifies it
    :param instances: uuids; None if the caller does not support claims
    :param alternates: number of alternates for each host
    :param claim: False to claim nothing, and to hide the selected hosts from
        other requests
    """

    def __init__(
        self, parts: Components, context: Any, spec: Any,
        instances: Sequence[str] | None, alternates: int,
        claim: bool = True, watcher: Watcher | None = None,
    ) -> None:
        self._parts = parts
        self._context = context.elevated()
        self._spec = spec
        self._claiming = claim and instances is not None
        self._deadline = parts.claims.deadline
        self._counts = claim
        self._watcher = watcher
        self._instances = list(
            instances if instances is not None
            else (uuidutils.generate_uuid()
                  for _ in range(spec.num_instances)))
        self._alternates = alternates
        self._asked_at = time.monotonic()
        self._request: Any = None
        # The number of host reads at the last selection.
        self._readings = 0
        # See HostTable.view.
        self._counts_doubtful = True
        # The refusals since the hosts were read.
        self._refusals = ClaimRefusals()
        # By node that refused claims since, how many servers it may take.
        self._most: dict[str, int] = {}
        # The present attempt; None before the first one.
        self._attempt: _Attempt | None = None
        # The last decision, and the way that led to it.
        self._decision: decision_record.Decision | None = None
        self._way: decision_record.Way | None = None
        # The input of the last selection, and the hosts that it passed over.
        self._basis: recording.Basis | None = None
        self._passed: list[str] = []

    def select(self) -> list[list[Any]]:
        """Return for each instance its claimed host and the alternates.

        :raises nova.exception.NoValidHost: too few hosts fit; all claims are
            released
        """
        began, result = time.monotonic(), metrics.FAILED
        try:
            found = self._select_and_record()
            result = metrics.SELECTED
            return found
        except nova_exception.NoValidHost as exc:
            if not isinstance(exc.__cause__, exception.CellschedException):
                result = metrics.NO_VALID_HOST
            raise
        finally:
            self._parts.metrics.add_all([
                (metrics.REQUESTS, (result,), 1),
                (metrics.REQUEST_SECONDS, (), time.monotonic() - began)])

    def _select_and_record(self) -> list[list[Any]]:
        parts = self._parts
        timeout_s = (parts.conf.cellsched.claim_timeout
                     if self._claiming else 0.0)
        try:
            with self._deadline.of_request(timeout_s):
                parts.hosts.follow(self._context, timeout_s)
                self._request = requests.read(self._spec, self._instances)
                found = self._select()
        except (exception.DatabaseUnreachable, exception.Invalid,
                exception.PluginFailed, exception.ServiceBusy,
                placement.PlacementUnavailable) as exc:
            # After any other error, callers leave a moving server in an
            # inconsistent state.
            LOG.warning('Request refused: %s', exc, exc_info=isinstance(
                exc, exception.PluginFailed))
            self._record(self._undecided(exc.format_message()), error=exc)
            raise nova_exception.NoValidHost(reason=self._text(
                exc.format_message(),
                '' if isinstance(exc, placement.PlacementUnavailable)
                else NOVA_TEXT)) from exc
        except nova_exception.NoValidHost as exc:
            self._record(self._decision or self._undecided(
                exc.kwargs.get('reason') or exc.format_message()))
            raise
        self._record(self._decision, found)
        return found

    def _select(self) -> list[list[Any]]:
        parts = self._parts
        conf = parts.conf.scheduler
        if (self._counts and (
                self._spec.availability_zone
                or conf.limit_tenants_to_placement_aggregate
                or conf.enable_isolated_aggregate_filtering)):
            parts.hosts.follow_aggregates(self._context)
        if utils.request_is_rebuild(self._spec):
            try:
                return self._rebuild()
            except nova_exception.NoValidHost:
                if not self._read_again():
                    raise
                return self._rebuild()
        if not self._beyond_columns():
            LOG.info('Deciding on columns')
            try:
                return self._on_columns()
            except nova_exception.NoValidHost:
                # The hosts were read again, and may have got their first child
                # provider of a class since the way was chosen. If Placement
                # has no dedicated CPUs, they were not read.
                if self._translates and 'PCPU' in self._request.resources():
                    self._read_again()
                if not self._beyond_columns():
                    raise
        return self._on_candidates()

    @property
    def _translates(self) -> bool:
        """Return whether virtual CPUs may serve as dedicated CPUs."""
        return not self._parts.conf.workarounds.disable_fallback_pcpu_query

    def _beyond_columns(self) -> list[str]:
        """Choose the way; return why it is not columns."""
        parts = self._parts
        why = requests.beyond_columns(
            self._spec, self._request, parts.unsupported,
            parts.hosts.non_host_classes,
            parts.conf.scheduler.query_placement_for_routed_network_aggregates,
            parts.hosts.any_without_pcpu and self._translates)
        self._way = decision_record.Way(CANDIDATES if why else COLUMNS, why)
        if why:
            LOG.info('Deciding on allocation candidates because of: %s',
                     '; '.join(why))
        return why

    def _record(
        self, decision: decision_record.Decision | None,
        places: Sequence[Sequence[Any]] = (),
        error: exception.CellschedException | None = None,
    ) -> None:
        """Record a decision and the way that led to it.

        :param error: the error, unless no host was found
        """
        if self._request is None or decision is None:
            # An invalid request has no record.
            return
        decision.way = self._way
        self._parts.metrics.add_all(placer.stage_readings(decision.stages))
        self._parts.record(
            self._context, self._request, self._instances, decision)
        if self._parts.recorder is None:
            return
        if not places and error is None:
            error = exception.NoValidHost(
                reason=decision.reason, rejections=[*decision.rejections],
                placed=0)
        self._parts.recorder.add(recording.MadeDecision(
            self._basis or recording.Basis.now_of(
                self._parts.hosts.table,
                timeutils.utcnow_ts(microsecond=True), self._request),
            self._context.request_id, self._instances, self._alternates,
            self._counts, places, error, self._passed,
            silent=self._parts.hosts.silent, way=self._obstacle()))

    def _obstacle(self) -> str:
        """Return why the decision cannot be made again on columns."""
        if self._way is not None and self._way.name == CANDIDATES:
            return f'it was decided on {CANDIDATES}'
        if self._passed and len(self._instances) > 1:
            return 'some of its claims were refused'
        return ''

    def _note_basis(
        self, hosts: view.Hosts, asked: Iterable[str],
        nodes: Mapping[str, str], seed: int | None,
    ) -> None:
        """Keep the input of a selection, for the recording.

        :param seed: the seed of random selections
        """
        self._passed = []
        if self._parts.recorder is None:
            return
        self._basis = recording.Basis.of(
            hosts, self._request, asked=asked, nodes=nodes, seed=seed,
            refusals=self._refusals.state,
            start=self._parts.policy.start,
            closed=sorted(self._parts.hosts.silent_cells))

    def _undecided(self, reason: str) -> decision_record.Decision:
        """Return the record of a decision without any filter results."""
        return decision_record.Decision(
            len(self._parts.hosts.table), (), (), reason)

    def _on_columns(self) -> list[list[Any]]:
        resources = self._request.resources()

        def prepare() -> _Attempt:
            states = self._states({})
            decides = self._parts.plugins.on_columns(
                self._spec, states, [self._answering_cells()])
            return self._prepare(decides, functools.partial(
                offers.WholeHosts, resources, self._spec, states,
                decides.hardware(self._request)))
        return self._place(prepare, resources)

    def _on_candidates(self) -> list[list[Any]]:
        parts = self._parts
        by_provider = offers.find_candidates(
            self._context, parts.client, parts.host_manager, self._spec,
            self._translates, self._deadline.remaining_s)
        if not by_provider:
            LOG.info('Placement has no allocation candidates')
            self._decision = self._undecided(
                'Placement has no allocation candidates.')
            raise nova_exception.NoValidHost(reason='')

        def prepare() -> _Attempt:
            states = self._states(by_provider)
            decides = parts.plugins.on_candidates(self._spec, states, [
                filters.CandidateHosts(by_provider),
                filters.RefusedHosts(self._most), self._answering_cells()])
            return self._prepare(decides, functools.partial(
                offers.AllocationCandidates, by_provider, self._spec, states,
                decides.hardware(self._request)))
        return self._place(prepare)

    def _place(
        self, prepare: Callable[[], '_Attempt'],
        resources: Mapping[str, int] | None = None,
    ) -> list[list[Any]]:
        """Select and claim hosts; return each with its alternates.

        :param prepare: returns the input of an attempt
        :param resources: the resources of each instance on columns; None
            on allocation candidates
        """
        for _ in self._searches(resources):
            self._refusals, self._most = ClaimRefusals(), {}
            for _ in range(_ATTEMPTS_MAX):
                attempt = self._attempt = prepare()
                try:
                    if self._find_places(attempt):
                        LOG.info('Placed %d instances on hosts %s',
                                 len(attempt.places), sorted({
                                     first.service_host for first, *_
                                     in attempt.places}))
                        return attempt.places
                except source.HostsChanged:
                    LOG.info('A selected host changed; deciding again')
                if attempt.reason:
                    break
                # After a refusal, other selected hosts may be full, too.
                self._parts.hosts.refresh(
                    self._context, time.monotonic(),
                    self._deadline.remaining_s())
            else:
                if not self._refusals.times:
                    raise placement.PlacementUnavailable(
                        reason='the selected hosts change all the time')
                attempt.reason = _REFUSED
        # Instance events show the line that raises.
        raise nova_exception.NoValidHost(reason=self._refuse(
            attempt.reason, NOVA_TEXT if attempt.has_candidates else ''))

    def _searches(
        self, resources: Mapping[str, int] | None
    ) -> Iterator[None]:
        """Yield before each search for hosts.

        Before the next one, more hosts may fit: the hosts are read again,
        pending claims end, and freed capacity is found. On columns, it ends if
        Placement has no capacity.

        :param resources: see :meth:`_place`
        """
        hosts = self._parts.hosts
        for _ in range(_FREED_MAX):
            yield
            # 1. Read the hosts again.
            if resources is not None:
                self._await_pending()
                if not hosts.may_fit(self._context, resources):
                    return
            if self._read_again():
                yield
            # 2. A claim that ended after the selection may have been counted
            #    in it. Placement arbitrates between this claim and those that
            #    are pending.
            if self._attempt is not None and self._attempt.doubtful:
                self._await_pending()
                self._counts_doubtful = not self._claiming
                yield
                self._counts_doubtful = True
            # 3. Find freed capacity.
            if resources is None or not hosts.find_freed(
                    self._context, resources, self._readings,
                    self._deadline.remaining_s()):
                return
        yield

    def _read_again(self) -> bool:
        """Read the hosts before a refusal; return whether that was useful."""
        hosts = self._parts.hosts
        hosts.read_whole(
            self._context, self._asked_at, self._deadline.remaining_s())
        return hosts.readings != self._readings

    def _await_pending(self) -> None:
        """Wait until the claims end that the last selection counted."""
        assert self._attempt is not None
        self._attempt.await_claims(
            self._parts.hosts.table, clock.Clock(),
            self._deadline.remaining_s())

    def _rebuild(self) -> list[list[Any]]:
        """Return the host of a server that is rebuilt with another image.

        The forced host may come from a user, so it must match the host in the
        cell database.
        """
        hosts = self._view()
        forced = {row for name in self._spec.force_hosts or ()
                  for row in hosts.named(name)}
        nodes = [*self._parts.hosts.reported_nodes(self._instances).values()]
        reported = {*map(hosts.row, nodes)}
        found = sorted(forced & reported)
        self._note_basis(hosts, nodes, {}, None)
        states = self._states({})
        pipeline = self._parts.plugins.on_columns(self._spec, states)
        host = hosts.at(np.array(found, dtype='int64'))
        passed = pipeline.candidates(host, self._request, rebuild=True)
        self._decision = decision_record.of(host, passed, ())
        if not len(passed):
            raise nova_exception.NoValidHost(reason=self._refuse(
                'the host does not suit the new image'))
        [row] = passed.filtered.rows[:1].tolist()
        return [[offers.make_selection(hosts, row, states, None, {})]
                for _ in self._instances]

    def _prepare(
        self, pipeline: Pipeline,
        make_offers: Callable[[view.Hosts], selector.Offers],
    ) -> '_Attempt':
        """Read the input of an attempt; blocks."""
        asked = pipeline.located(self._request)
        return _Attempt(pipeline, make_offers, asked,
                        self._parts.hosts.reported_nodes(asked))

    def _find_places(self, attempt: '_Attempt') -> bool:
        """Select, reserve and claim hosts; return whether they are claimed.

        If no host fits, the attempt has no places.

        :raises cellsched_nova.source.HostsChanged: a selected host changed
        """
        # 1. Select and reserve. Nothing may block the lane, so a decision
        #    that reads host states of Nova is made beside it.
        if self._counts and not self._reads_states:
            self._parts.lane.take(self)
        else:
            self.advance()
        if attempt.error is not None:
            raise attempt.error
        if not attempt.places or not self._counts:
            return bool(attempt.places)
        # 2. Verify and claim. An error undoes all of it.
        claimed = claims.ServerClaims(
            self._parts.claims, self._context, self._spec)
        is_claimed = False
        try:
            is_claimed = self._verify_and_claim(attempt, claimed)
        finally:
            if is_claimed:
                self._confirm(attempt, claimed)
            else:
                self._give_up(claimed)
            self._parts.hosts.expire(attempt.unexplained)
        return is_claimed

    def _give_up(self, claimed: claims.ServerClaims) -> None:
        """Release the claims; then other requests may count the hosts."""
        try:
            claimed.release()
        finally:
            self.undo()

    @property
    def _on_table(self) -> bool:
        """Return whether the request is decided on columns."""
        return self._way is not None and self._way.name == COLUMNS

    @property
    def _reads_states(self) -> bool:
        """Return whether the decision reads host states of Nova."""
        return self._parts.plugins.reads_states(
            self._spec, self._parts.host_manager.aggs_by_id)

    def advance(self) -> bool:
        """Select hosts and reserve them; raises nothing.

        :returns: False, because the thread of the request claims
        """
        attempt = self._attempt
        assert attempt is not None
        try:
            self._select_and_reserve(attempt)
        except BaseException as exc:
            # The thread of the request raises it.
            attempt.error = exc
            self.undo()
        return False

    def undo(self) -> None:
        """Roll back the reservation of the present attempt."""
        assert self._attempt is not None
        self._attempt.undo(self._parts.hosts.table)

    def _select_and_reserve(self, attempt: '_Attempt') -> None:
        """Select a host for each instance and reserve the hosts in the table.

        If an instance has no host, nothing is reserved.
        """
        parts, table = self._parts, self._parts.hosts.table
        attempt.doubtful = []
        hosts = self._view(attempt.located, attempt.doubtful)
        if self._watcher is not None:
            self._watcher.begin(hosts)
        found = Selector(
            attempt.pipeline, parts.policy, hosts, self._request,
            self._refusals, offers=attempt.make_offers(hosts))
        if self._counts:
            # Otherwise a watcher may keep the view.
            attempt.selector = found
        complete = all(map(functools.partial(self._choose, found),
                           self._instances))
        self._note_basis(hosts, attempt.asked, attempt.located, found.seed)
        if not complete:
            self._note_rejections(attempt, found)
            return attempt.end(table)
        attempt.places = found.selections(self._alternates)
        self._decision = found.decision()
        if self._counts:
            attempt.allocations = table.reserve(hosts)
            table.detach(hosts)

    def _choose(self, found: Selector, instance: str) -> bool:
        """Select a host for one more instance."""
        # The filters read the current instance.
        self._request.instance_uuid = instance
        self._spec.instance_uuid = instance
        self._spec.obj_reset_changes(['instance_uuid'])
        if self._watcher is not None and instance == self._instances[0]:
            self._watcher.ranked(*found.rank())
        return found.choose(instance, None, instance == self._instances[-1])

    def _note_rejections(self, attempt: '_Attempt', found: Selector) -> None:
        """Record why no host was found."""
        why = found.diagnosis(self._parts.hosts.silent, len(self._instances))
        attempt.reason = why.text()
        attempt.has_candidates = self._has_candidates(found.hosts)
        self._decision = dataclasses.replace(
            found.decision(), rejections=why.to_list(),
            examples=found.examples())

    def _verify_and_claim(
        self, attempt: '_Attempt', claimed: claims.ServerClaims
    ) -> bool:
        """Claim the selected hosts, or an alternative to a single one.

        :returns: False if all of them are refused
        :raises cellsched_nova.source.HostsChanged: a selected host changed
        """
        found = attempt.selector
        assert found is not None
        for number in range(1 + len(found.following)):
            if number:
                attempt.choose_other(self._parts.hosts.table, found,
                                     number - 1, self._alternates)
                self._decision = found.decision()
            self._verify(attempt, found.hosts)
            if not self._claiming or self._claim(
                    attempt, claimed, found.chosen()):
                return True
        self._refusals.times += 1
        return False

    def _verify(self, attempt: '_Attempt', hosts: view.Hosts) -> None:
        """Check that the selected hosts are as they were read.

        An alternate that changed is left out. Each host is read once. The
        NUMA cells and devices of alternates are not compared: they change
        with each server, and a compute claims them again.

        :raises cellsched_nova.source.HostsChanged: a selected host changed
        """
        nodes = {each.compute_node_uuid
                 for place in attempt.places for each in place}
        selected = {first.compute_node_uuid for first, *_ in attempt.places}
        has_hardware = attempt.pipeline.hardware(self._request) is not None
        unread = sorted(nodes - attempt.unchanged - attempt.changed)
        rows = {row: uuid for uuid in unread
                if (row := hosts.row(uuid)) is not None}
        changed = self._parts.hosts.find_changed(
            self._context, hosts, rows, self._on_table
            and self._parts.plugins.reads_traits(self._request),
            [row for row, uuid in rows.items()
             if has_hardware and uuid in selected])
        attempt.changed |= {rows[row] for row in changed}
        read = selected.intersection(unread) if has_hardware else {*unread}
        attempt.unchanged |= read - attempt.changed
        if not attempt.changed.isdisjoint(selected):
            raise source.HostsChanged
        attempt.places = [
            [each for each in place
             if each.compute_node_uuid not in attempt.changed]
            for place in attempt.places]

    def _claim(
        self, attempt: '_Attempt', claimed: claims.ServerClaims,
        chosen: Sequence[selector.ChosenHost],
    ) -> bool:
        """Claim a host for each instance; return False after a refusal."""
        before, result = len(claimed.refusals), 'failed'
        try:
            refused = claimed.claim_hosts({
                instance: each.amounts for instance, each
                in zip(self._instances, chosen)})
            result = 'won' if refused is None else 'lost'
        finally:
            self._parts.metrics.add(metrics.CLAIMS, (result,))
        if refused is None:
            return True
        node = next((each.node for each in chosen
                     if refused in each.amounts), chosen[0].node)
        # The table has no column for a child provider, so count its servers.
        self._most[node] = sum(each.node == node for each in chosen) - 1
        if not self._most[node] or self._on_table:
            self._refusals.add_full(node)
        self._passed.append(node)
        errors = claimed.refusals[before:]
        self._parts.hosts.note_full(errors)
        if not errors:
            attempt.unexplained.add(node)
        return False

    def _confirm(
        self, attempt: '_Attempt', claimed: claims.ServerClaims
    ) -> None:
        """Make other requests count the selected hosts, claimed or not."""
        known = self._parts.hosts
        known.confirm(attempt.allocations, self._claiming, (
            self._instances if self._claiming else ()))
        attempt.end(known.table)
        known.claimed(claimed.writes)

    def _view(
        self, located: dict[str, str] | None = None,
        doubtful: list[table.PendingAllocation] | None = None,
    ) -> view.Hosts:
        # The counter is read before, so that a read that ends meanwhile
        # counts as new.
        self._readings = self._parts.hosts.readings
        return self._parts.hosts.table.view(
            timeutils.utcnow_ts(microsecond=True), located,
            self._counts_doubtful, doubtful)

    def _states(
        self, candidates_: dict[str, list[Any]]
    ) -> enabled_plugins.HostStates:
        manager = self._parts.host_manager
        read = functools.partial(
            manager.get_host_states_by_uuids, self._context)
        return enabled_plugins.HostStates(
            lambda uuids: read(list(uuids), self._spec), candidates_,
            manager.aggs_by_id)

    def _answering_cells(self) -> filters.AnsweringCells:
        return filters.AnsweringCells(self._parts.hosts.silent_cells)

    def _has_candidates(self, hosts: view.Hosts) -> bool:
        """Return whether Nova would have found allocation candidates.

        Nova's text for a request without them has no reason.
        """
        if not self._on_table:
            return True
        request = copy.copy(self._request)
        # Placement knows no server groups.
        request.instance_group = None
        return len(self._parts.plugins.of_placement.candidates(
            hosts, request)) > 0

    def _refuse(self, reason: str, novas: str = NOVA_TEXT) -> str:
        """Log why there is no valid host; return the text for the user.

        :param novas: the reason that Nova gives
        """
        LOG.info('No valid host: %s', reason)
        if self._decision is not None:
            self._decision.reason = reason
        return self._text(reason, novas)

    def _text(self, reason: str, novas: str) -> str:
        """Return the text for the user."""
        if self._parts.conf.cellsched.no_valid_host_text == 'nova':
            return novas
        return reason
