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
from nova import objects as nova_objects
from nova.scheduler import request_filter
from nova.scheduler import utils
import numpy as np
from oslo_log import log
from oslo_serialization import jsonutils
from oslo_utils import timeutils
from oslo_utils import uuidutils

from cellsched.claims import remote
from cellsched import clock
from cellsched import exception
from cellsched.filters import base as filters_base
from cellsched.hosts import table
from cellsched.hosts import view
from cellsched import metrics
from cellsched.metrics import Metrics
from cellsched import objects
from cellsched.scheduler.decision.pipeline import Candidates
from cellsched.scheduler.decision.pipeline import Pipeline
from cellsched.scheduler.decision.ranking import Ranking
from cellsched.scheduler.drivers import filter_scheduler
from cellsched.scheduler.explanation import decision_record
from cellsched.scheduler.explanation import diagnosis
from cellsched.scheduler import recording
from cellsched.scheduler import requirements
from cellsched.scheduler.selection import placer
from cellsched.scheduler.selection import selector
from cellsched_nova import claims
from cellsched_nova.claims import ClaimComponents
from cellsched_nova import enabled_plugins
from cellsched_nova import filters
from cellsched_nova import placement
from cellsched_nova import requests
from cellsched_nova import source

LOG = log.getLogger(__name__)


def _discard(*decision: Any) -> None:
    """Record no decision."""


@dataclasses.dataclass(frozen=True)
class Components:
    """The components that all decisions share until options change.

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
    plugins: enabled_plugins.EnabledPlugins
    policy: selector.SelectionPolicy
    unsupported: requirements.UnsupportedRequirements
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
) -> Components:
    """Return the components for the current options.

    :param conf: the product's configuration
    :param nova_conf: Nova's configuration
    """
    plugins = enabled_plugins.EnabledPlugins(
        conf, host_manager.enabled_filters, host_manager.weighers)
    return Components(
        hosts, plugins, filter_scheduler.selection_policy(conf, generator),
        requirements.UnsupportedRequirements(plugins.reads), host_manager,
        client, claims, nova_conf, record)


AllocationRequest = Mapping[str, Any]


class Offers(Protocol):
    """The possible claims on each host."""

    def first(self, uuid: str) -> AllocationRequest | None:
        """Return the first possible claim on a compute node, or None."""

    def chosen(
        self, uuid: str, instance: str, request: AllocationRequest
    ) -> None:
        """Count a claim of a compute node for an instance."""


@dataclasses.dataclass(frozen=True)
class ChosenHost:
    """A selected host or an alternate.

    :param row: row in the host table
    :param allocation_request: the claim on this host; None for a rebuild
    """

    row: int
    allocation_request: AllocationRequest | None
    limits: Mapping[str, int]


class Watcher(Protocol):
    """Observes the decision on a request.

    The calls repeat if the hosts are read again before a refusal.
    """

    def begin(self, hosts: view.Hosts) -> None:
        """Receive the hosts before the filters run; may change them."""

    def ranked(self, candidates: Candidates, ranking: Ranking) -> None:
        """Receive the ranking of hosts for the first instance."""


@dataclasses.dataclass
class Reservations:
    """The hosts of a request that other requests count as taken.

    :param hosts: the view of the request
    :param known: the table of all requests; None to reserve nothing
    :param if_free: whether a host must still have the capacity
    :ivar made: the number of reservations, with those that are undone
    """

    hosts: view.Hosts
    known: table.HostTable | None = None
    if_free: bool = False
    allocations: list[table.PendingAllocation] = dataclasses.field(
        default_factory=list)
    made: int = 0

    def add(self, row: int, resources: Mapping[str, int]) -> bool:
        """Reserve a host; return False if others took its capacity."""
        if self.known is None:
            return True
        reserve = (self.known.reserve_if_free if self.if_free
                   else self.known.reserve)
        found = reserve(self.hosts, [(row, resources)])
        self.allocations += found or ()
        self.made += len(found or ())
        return found is not None

    def undo_last(self) -> None:
        """Undo the last reservation: its claim was refused."""
        if self.known is not None:
            self.known.rollback([self.allocations.pop()])

    def undo(self) -> None:
        if self.known is not None:
            self.known.rollback(self.allocations)


@dataclasses.dataclass
class Chooser:
    """Selects and claims the best host for each instance in turn.

    After a refused claim the next best host is tried.

    :param claim: claims an allocation request for an instance, and returns
        False if capacity is missing
    :param reserve: reserves the resources of the host in a row, and returns
        False if other requests took them since the view was made
    :param watcher: observes the ranking for the first instance
    :param changed: returns which of some rows changed since they were read
    :ivar refused: compute nodes with refused claims
    """

    pipeline: Pipeline
    policy: selector.SelectionPolicy
    hosts: view.Hosts
    request: objects.RequestSpec
    offers: Offers
    claim: Callable[[str, AllocationRequest], bool]
    reserve: Callable[[int, Mapping[str, int]], bool] = (
        lambda row, resources: True)
    watcher: Watcher | None = None
    changed: Callable[[Sequence[int]], set[int]] = lambda rows: set()

    def __post_init__(self) -> None:
        self._candidates: Candidates | None = None
        self._ranking: Ranking | None = None
        self._taken: int | None = None
        self._chosen: list[ChosenHost] = []
        self._picks: list[decision_record.Pick] = []
        self.refused: list[str] = []

    def choose(
        self, instance: str, last: bool, alternates: int | None = None
    ) -> bool:
        """Select a host for one more instance; return False if none fits.

        :param last: this is the last instance
        :param alternates: the number of alternates to check together with the
            host before the claim; None to check nothing
        :raises cellsched_nova.source.HostsChanged: the host changed
        """
        ranking = self._rank()
        if self.watcher is not None and self._candidates is not None and (
                not self._chosen):
            self.watcher.ranked(self._candidates, ranking)
        if not (last or self._chosen):
            # The next instance needs a ranking of its own.
            ranking.detach()
        for row in self._in_order(ranking):
            uuid = self._uuid(row)
            request = self.offers.first(uuid)
            if request is None:
                continue
            own = _own_resources(uuid, request)
            if not self.reserve(row, own):
                continue
            if alternates is not None:
                self._check(row, [] if self._chosen else [
                    each.row for each in self._alternates(
                        ranking, self._cell_of(row), {row}, alternates)])
            if not self.claim(instance, request):
                self.refused.append(uuid)
                continue
            self._chosen.append(ChosenHost(row, request, self._limits(row)))
            self._picks.append(self._pick(ranking, row, instance, request))
            self.offers.chosen(uuid, instance, request)
            self.hosts.take(row, own, instance)
            self._taken = row
            return True
        return False

    def with_alternates(self, count: int) -> list[list[ChosenHost]]:
        """Return for each instance its host and the best alternates.

        Alternates are in the same cell. If too few of its hosts were selected
        for no instance, those that were selected for other instances follow:
        each alternate is claimed before its use.

        :param count: maximum number of alternates
        """
        if not count:
            return [[chosen] for chosen in self._chosen]
        ranking = (self._rank() if len(self._chosen) > 1
                   or self._ranking is None else self._ranking)
        cells = self.hosts['cell']
        selected = {chosen.row for chosen in self._chosen}
        alternates: dict[int, list[ChosenHost]] = {}
        for chosen in self._chosen:
            cell = int(cells[chosen.row])
            if cell not in alternates:
                rows = self._cell_of(chosen.row)
                found = self._alternates(ranking, rows, selected, count)
                if len(found) < count and len(selected) > 1:
                    # One more, because a host is no alternate to itself.
                    found += self._alternates(
                        ranking, np.intersect1d(rows, [*selected]), set(),
                        count - len(found) + 1)
                changed = self.changed([each.row for each in found])
                alternates[cell] = [each for each in found
                                    if each.row not in changed]
        return [[chosen, *[
            each for each in alternates[int(cells[chosen.row])]
            if each.row != chosen.row][:count]] for chosen in self._chosen]

    def check_all(self) -> None:
        """Check all selected hosts together.

        :raises cellsched_nova.source.HostsChanged: a host changed
        """
        if self.changed([each.row for each in self._chosen]):
            raise source.HostsChanged

    def _check(self, row: int, alternates: Sequence[int]) -> None:
        if row in self.changed([row, *alternates]):
            raise source.HostsChanged

    def _cell_of(self, row: int) -> view.Column:
        """Return the rows of the hosts in the same cell."""
        cells = self.hosts['cell']
        return np.flatnonzero(cells == cells[row])

    def diagnosis(
        self, silent: Sequence[str], count: int
    ) -> diagnosis.Diagnosis:
        """Return why each host was rejected, after no host was found.

        :param silent: names of the cells that did not answer
        :param count: number of requested instances
        """
        found, rows = self._candidates, self._lost()
        rejections = () if found is None else self.pipeline.rejections(
            self.request, found, rows)
        return diagnosis.Diagnosis(
            len(self.hosts), rejections, len(rows), silent, count,
            len(self._chosen))

    def decision(self) -> decision_record.Decision:
        """Return the record of the decision."""
        return decision_record.of(self.hosts, self._candidates, self._picks)

    def examples(self) -> dict[str, list[str]]:
        """Return the names of a few rejected hosts for each stage."""
        return diagnosis.examples(self.hosts, self._candidates, self._lost())

    def _lost(self) -> list[int]:
        """Return the rows of hosts with refused claims."""
        return [row for row in map(self.hosts.row, self.refused)
                if row is not None]

    def _pick(
        self, ranking: Ranking, row: int, instance: str,
        request: AllocationRequest,
    ) -> decision_record.Pick:
        """Return the record of one selected host."""
        pick = decision_record.pick(
            self.hosts, ranking, row, instance, detailed=not self._picks)
        pick.first.providers = _providers(
            pick.first.node, self._uuid(row), request)
        return pick

    def _alternates(
        self, ranking: Ranking, among: view.Column, selected: set[int],
        count: int,
    ) -> list[ChosenHost]:
        found: list[ChosenHost] = []
        # Selected hosts may rank first.
        for row in ranking.top(count + len(selected), among):
            if row in selected or len(found) >= count:
                continue
            request = self.offers.first(self._uuid(row))
            if request is not None:
                found.append(ChosenHost(row, request, self._limits(row)))
        return found

    def _rank(self) -> Ranking:
        """Return the remaining hosts, by weight."""
        request, pipeline = self.request, self.pipeline
        if self._candidates is None or self._taken is not None and any(
                stage.reopens for stage in self._candidates.stages):
            self._candidates = self._ranking = self._taken = None
            self._candidates = pipeline.candidates(self.hosts, request)
        if self._ranking is None:
            self._ranking = pipeline.weigh(request, self._candidates)
        elif self._taken is not None:
            row, self._taken = self._taken, None
            self._candidates = pipeline.recheck(request, self._candidates, row)
            self._ranking = pipeline.reweigh(
                request, self._candidates, self._ranking, row)
        return self._ranking

    def _in_order(self, ranking: Ranking) -> Iterator[int]:
        """Yield the selected host, then the other hosts, best first."""
        selected = self.policy.pick(ranking)
        yield from selected
        for row in ranking if selected else ():
            if row not in selected:
                yield row

    def _limits(self, row: int) -> Mapping[str, int]:
        return {} if self._candidates is None else self.pipeline.limits(
            self.request, self._candidates, row)

    def _uuid(self, row: int) -> str:
        uuid: str = self.hosts['uuid'][row]
        return uuid


def _own_resources(uuid: str, request: AllocationRequest) -> dict[str, int]:
    """Return the resources that a claim takes from the host itself."""
    own = request['allocations'].get(uuid)
    return dict(own['resources']) if own else {}


def _providers(
    node: str, uuid: str, request: AllocationRequest
) -> list[dict[str, Any]]:
    """Return the resources of each provider if there are several.

    A provider may serve several groups; the amounts are not split by group.
    """
    allocations = request['allocations']
    if not allocations.keys() - {uuid}:
        return []
    groups: dict[str, list[str]] = {}
    for suffix, providers in request.get('mappings', {}).items():
        for provider in providers:
            groups.setdefault(provider, []).append(suffix)
    return [
        {'group': ', '.join(sorted(groups.get(provider, ()))),
         'provider': provider, 'name': node if provider == uuid else None,
         'resources': dict(amounts['resources'])}
        for provider, amounts in sorted(
            allocations.items(), key=lambda pair: (pair[0] != uuid, pair[0]))]


#: Attempts to claim for all instances of a request together, before the
#: instances are claimed in turn.
_TOGETHER_MAX = 3

#: Attempts to select hosts that do not change meanwhile.
_CHANGED_MAX = 10

#: Attempts to find freed hosts; other requests may use them first.
_FREED_MAX = 3

#: The names of the two ways to decide, in records and log lines.
COLUMNS, CANDIDATES = 'columns', 'allocation candidates'

#: Nova's text for a request without a valid host.
NOVA_TEXT = 'There are not enough hosts available.'


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
        # The number of host reads at the last selection, and the state of
        # the table; see HostTable.settled.
        self._readings = 0
        self._settled: int | None = None
        # See HostTable.view.
        self._counts_doubtful = True
        # Whether Placement has no capacity for an instance.
        self._is_full = False
        # The last decision, and the way that led to it.
        self._decision: decision_record.Decision | None = None
        self._way: decision_record.Way | None = None
        # The input of the last selection, and the hosts that it passed over.
        self._basis: recording.Basis | None = None
        self._passed: Sequence[str] = ()

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
                exception.PluginFailed,
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
            return self._on_fresh_hosts(self._rebuild)
        if not self._beyond_columns():
            LOG.info('Deciding on columns')
            try:
                return self._on_columns()
            except nova_exception.NoValidHost:
                # The hosts were read again, and may have got their first child
                # provider of a class since the way was chosen.
                if not self._beyond_columns():
                    raise
        return self._on_candidates()

    def _beyond_columns(self) -> list[str]:
        """Choose the way; return why it is not columns."""
        parts = self._parts
        why = requests.beyond_columns(
            self._spec, self._request, parts.unsupported,
            parts.hosts.non_host_classes,
            parts.conf.scheduler.query_placement_for_routed_network_aggregates)
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
        self._parts.metrics.add_later(functools.partial(
            placer.stage_readings, decision.stages))
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
        nodes: Mapping[str, str],
    ) -> selector.SelectionPolicy:
        """Keep the input of a selection, for the recording.

        :returns: the policy, whose random selections can be repeated then
        """
        parts = self._parts
        policy, seed = parts.policy, None
        if parts.recorder is None:
            return policy
        if policy.subset_size > 1 or policy.shuffle:
            seed = policy.random.getrandbits(63)
            policy = policy.seeded(seed)
        manager = parts.host_manager
        self._passed = ()
        self._basis = recording.Basis.of(
            hosts, self._request, asked=asked, nodes=nodes, seed=seed,
            start=parts.policy.start, closed=sorted({
                *parts.hosts.silent_cells, *manager.cells.keys() - {
                    cell.uuid for cell in manager.enabled_cells}}))
        return policy

    def _undecided(self, reason: str) -> decision_record.Decision:
        """Return the record of a decision without any filter results."""
        return decision_record.Decision(
            len(self._parts.hosts.table), (), (), reason)

    def _on_columns(self) -> list[list[Any]]:
        resources = self._request.resources()

        def choose(together: bool = False) -> list[list[Any]]:
            states = self._states({})
            pipeline = self._parts.plugins.on_columns(
                self._spec, states, self._cells())
            return self._choose(pipeline, WholeHosts(
                resources, self._spec, states), states, together)

        if not self._claiming or len(self._instances) < 2:
            return self._on_freed_hosts(choose, resources)
        return self._on_freed_hosts(
            functools.partial(self._together_or_in_turn, choose), resources)

    def _together_or_in_turn(
        self, choose: Callable[[bool], list[list[Any]]]
    ) -> list[list[Any]]:
        """Select hosts, and claim them with one request if possible.

        :param choose: selects hosts; its argument is whether to claim for all
            instances together
        """
        hosts = self._parts.hosts
        for _ in range(_TOGETHER_MAX):
            try:
                return choose(True)
            except claims.NotTogether as exc:
                if exc.provider is None:
                    break
                hosts.reload([exc.provider])
        return choose(False)

    def _on_candidates(self) -> list[list[Any]]:
        parts = self._parts
        by_provider, providers = find_candidates(
            self._context, parts.client, parts.host_manager, self._spec,
            not parts.conf.workarounds.disable_fallback_pcpu_query,
            self._deadline.remaining_s)
        if not by_provider:
            LOG.info('Placement has no allocation candidates')
            self._decision = self._undecided(
                'Placement has no allocation candidates.')
            raise nova_exception.NoValidHost(reason='')

        def choose() -> list[list[Any]]:
            states = self._states(by_provider)
            pipeline = parts.plugins.on_candidates(
                self._spec, states, [filters.CandidateHosts(providers),
                                     *self._cells()])
            return self._choose(pipeline, AllocationCandidates(
                by_provider, self._spec, states), states)
        return self._on_settled_hosts(choose)

    def _on_fresh_hosts(
        self, choose: Callable[[], list[list[Any]]],
        may_fit: Callable[[], bool] = lambda: True,
    ) -> list[list[Any]]:
        """Select hosts; before a refusal, read the hosts again.

        :param may_fit: returns False if the read is useless
        """
        hosts = self._parts.hosts
        choose = functools.partial(self._on_unchanged_hosts, choose)
        try:
            return choose()
        except nova_exception.NoValidHost:
            if not may_fit():
                raise
            hosts.read_whole(
                self._context, self._asked_at, self._deadline.remaining_s())
            if hosts.readings == self._readings:
                raise
        return choose()

    def _on_unchanged_hosts(
        self, choose: Callable[[], list[list[Any]]]
    ) -> list[list[Any]]:
        """Select hosts; read the hosts and repeat if one has changed."""
        hosts = self._parts.hosts
        for _ in range(_CHANGED_MAX):
            try:
                return choose()
            except source.HostsChanged:
                LOG.info('A selected host changed; deciding again')
                hosts.refresh(self._context, time.monotonic(),
                              self._deadline.remaining_s())
        raise placement.PlacementUnavailable(
            reason='the selected hosts change all the time')

    def _on_freed_hosts(
        self, choose: Callable[[], list[list[Any]]],
        resources: Mapping[str, int],
    ) -> list[list[Any]]:
        """Select hosts; refuse only if Placement has no capacity.

        :param resources: the resources of each instance
        """
        hosts = self._parts.hosts

        def may_fit() -> bool:
            self._await_pending()
            self._is_full = not hosts.may_fit(self._context, resources)
            return not self._is_full

        for _ in range(_FREED_MAX):
            try:
                return self._on_settled_hosts(choose, may_fit)
            except nova_exception.NoValidHost:
                if self._is_full or not hosts.find_freed(
                        self._context, resources, self._readings,
                        self._deadline.remaining_s()):
                    raise
        return self._on_unchanged_hosts(choose)

    def _on_settled_hosts(
        self, choose: Callable[[], list[list[Any]]],
        may_fit: Callable[[], bool] = lambda: True,
    ) -> list[list[Any]]:
        """Select hosts; before a refusal, wait for pending claims.

        A claim that ended after the selection may have been counted in it.

        :param may_fit: see :meth:`_on_fresh_hosts`
        """
        known = self._parts.hosts.table
        try:
            return self._on_fresh_hosts(choose, may_fit)
        except nova_exception.NoValidHost:
            if self._is_full or self._settled is not None and (
                    self._settled == known.settled()):
                raise
        self._await_pending()
        # Placement arbitrates between this claim and those that are pending.
        self._counts_doubtful = not self._claiming
        try:
            return self._on_unchanged_hosts(choose)
        finally:
            self._counts_doubtful = True

    def _await_pending(self) -> None:
        placer.await_pending(
            self._parts.hosts.table, clock.Clock(), min(
                placer.PENDING_S, self._deadline.remaining_s()))

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
        self._note_basis(hosts, nodes, {})
        states = self._states({})
        pipeline = self._parts.plugins.on_columns(self._spec, states)
        host = hosts.at(np.array(found, dtype='int64'))
        passed = pipeline.candidates(host, self._request, rebuild=True)
        self._decision = decision_record.of(host, passed, ())
        if not len(passed):
            raise nova_exception.NoValidHost(reason=self._refuse(
                'the host does not suit the new image'))
        [row] = passed.filtered.rows[:1].tolist()
        chosen = ChosenHost(row, None, {})
        return [[make_selection(hosts, chosen, states)]
                for _ in self._instances]

    def _choose(
        self, pipeline: Pipeline, offers: Offers,
        states: enabled_plugins.HostStates, together: bool = False,
    ) -> list[list[Any]]:
        """Return for each instance its claimed host and the alternates.

        :param together: claim for all instances with one request
        :raises claims.NotTogether: the claim for all instances was refused
        """
        # 1. Take a view of the hosts.
        asked = pipeline.located(self._request)
        located = self._parts.hosts.reported_nodes(asked)
        hosts = self._view(located)
        policy = self._note_basis(hosts, asked, located)
        if self._watcher is not None:
            self._watcher.begin(hosts)
        claimed = claims.ServerClaims(
            self._parts.claims, self._context, self._spec)
        batch: list[tuple[str, AllocationRequest]] = []
        reserved = self._reservations(hosts)

        def claim(uuid: str, request: AllocationRequest) -> bool:
            if together:
                batch.append((uuid, request))
            return together or self._claim(claimed, reserved, uuid, request)

        # 2. Select a host for each instance, reserve it in the table of all
        #    requests, and claim it, or collect the claims for one write. An
        #    error undoes all of it.
        chooser = Chooser(
            pipeline, policy, hosts, self._request, offers, claim,
            reserved.add, self._watcher, self._checks(hosts))
        self._passed = chooser.refused
        try:
            for instance in self._instances:
                self._begin(instance)
                if not chooser.choose(
                        instance, instance == self._instances[-1],
                        None if together else self._alternates):
                    raise nova_exception.NoValidHost(
                        reason=self._none_left(chooser))
            if together:
                chooser.check_all()
                self._count_claim(lambda: claimed.claim_together(batch))
            places = chooser.with_alternates(self._alternates)
            found = [[make_selection(hosts, each, states)
                      for each in place] for place in places]
            self._decision = chooser.decision()
        except BaseException:
            claimed.release()
            self._undo(reserved, claimed.unexplained(chooser.refused))
            raise
        # 3. Count the claims as made.
        self._confirm(hosts, reserved, claimed.unexplained(chooser.refused),
                      claimed.writes)
        LOG.info('Placed %d instances on hosts %s', len(found),
                 sorted({first.service_host for first, *_ in found}))
        return found

    def _claim(
        self, claimed: claims.ServerClaims, reserved: Reservations, uuid: str,
        request: AllocationRequest,
    ) -> bool:
        """Claim a reserved host; undo the reservation if it is refused."""
        if not self._claiming or self._count_claim(
                lambda: claimed.claim(uuid, request)):
            return True
        reserved.undo_last()
        self._parts.hosts.note_full(claimed.refusals[-1:])
        return False

    def _count_claim(self, claim: Callable[[], bool | None]) -> bool:
        """Claim, and record the result in the metrics.

        :param claim: returns False if the claim is refused
        :returns: whether it is not
        """
        result = 'failed'
        try:
            won = claim() is not False
            result = 'won' if won else 'lost'
            return won
        except claims.NotTogether:
            result = 'lost'
            raise
        finally:
            self._parts.metrics.add(metrics.CLAIMS, (result,))

    def _checks(
        self, hosts: view.Hosts
    ) -> Callable[[Sequence[int]], set[int]]:
        """Return a function that returns which rows changed since the read.

        It reads each host once.
        """
        checked: dict[int, bool] = {}
        way = self._way
        with_traits = (way is not None and way.name == COLUMNS
                       and self._parts.plugins.reads_traits(self._request))

        def changed(rows: Sequence[int]) -> set[int]:
            unknown = [row for row in dict.fromkeys(rows)
                       if row not in checked]
            if unknown and self._counts:
                found = self._parts.hosts.find_changed(
                    self._context, hosts, unknown, with_traits)
                checked.update((row, row in found) for row in unknown)
            return {row for row in rows if checked.get(row)}
        return changed

    def _begin(self, instance: str) -> None:
        """Set the current instance for the filters."""
        self._request.instance_uuid = instance
        self._spec.instance_uuid = instance
        self._spec.obj_reset_changes(['instance_uuid'])

    def _reservations(self, hosts: view.Hosts) -> Reservations:
        if not self._counts:
            return Reservations(hosts)
        # Placement may know of capacity that the table does not have yet.
        return Reservations(
            hosts, self._parts.hosts.table,
            self._way is not None and self._way.name == COLUMNS)

    def _undo(
        self, reserved: Reservations, refused: Iterable[str]
    ) -> None:
        """Free the hosts of a failed selection; read the refused ones again.

        :param refused: compute nodes with refused claims
        """
        reserved.undo()
        if self._settled is not None:
            # This selection counted none of its own reservations.
            self._settled += reserved.made
        self._parts.hosts.expire(refused)

    def _confirm(
        self, hosts: view.Hosts, reserved: Reservations,
        refused: Iterable[str],
        writes: Iterable[dict[str, dict[str, int]]],
    ) -> None:
        """Make other requests count the selected hosts, claimed or not.

        :param refused: compute nodes with refused claims
        :param writes: for each write, the amounts taken from each provider
        """
        if not self._counts:
            return
        known = self._parts.hosts
        known.confirm(reserved.allocations, self._claiming)
        known.table.reuse(hosts)
        known.claimed(writes)
        if refused:
            known.expire(refused)

    def _view(self, located: dict[str, str] | None = None) -> view.Hosts:
        # The counters are read before, so that a read or a claim that ends
        # meanwhile counts as new.
        self._readings = self._parts.hosts.readings
        self._settled = self._parts.hosts.table.settled()
        return self._parts.hosts.table.view(
            timeutils.utcnow_ts(microsecond=True), located,
            self._counts_doubtful)

    def _states(
        self, candidates_: dict[str, list[Any]]
    ) -> enabled_plugins.HostStates:
        manager = self._parts.host_manager
        read = functools.partial(
            manager.get_host_states_by_uuids, self._context)
        return enabled_plugins.HostStates(
            lambda uuids: read(list(uuids), self._spec), candidates_,
            manager.aggs_by_id)

    def _cells(self) -> list[filters_base.Filter]:
        return [filters.enabled_cells(self._parts.host_manager),
                filters.AnsweringCells(self._parts.hosts.silent_cells)]

    # Instance events show the line that raises, so the callers raise.

    def _none_left(self, chooser: Chooser) -> str:
        """Record the rejections, and return the text for the user."""
        why = chooser.diagnosis(self._parts.hosts.silent, len(self._instances))
        self._decision = dataclasses.replace(
            chooser.decision(), rejections=why.to_list(),
            examples=chooser.examples())
        return self._refuse(why.text(), NOVA_TEXT if self._has_candidates(
            chooser.hosts) else '')

    def _has_candidates(self, hosts: view.Hosts) -> bool:
        """Return whether Nova would have found allocation candidates.

        Nova's text for a request without them has no reason.
        """
        if self._way is None or self._way.name != COLUMNS:
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


def make_selection(
    hosts: view.Hosts, chosen: ChosenHost, states: enabled_plugins.HostStates
) -> Any:
    """Return Nova's ``Selection`` of a selected host or an alternate."""
    uuid, host, nodename, cell, zone = hosts.values_at(
        chosen.row, 'uuid', 'host', 'nodename', 'cell', 'availability_zone')
    state = states.get(uuid)
    limits = {**({} if state is None else state.limits), **chosen.limits}
    request = chosen.allocation_request
    return nova_objects.Selection(
        compute_node_uuid=uuid, service_host=host, nodename=nodename,
        cell_uuid=cell,
        limits=nova_objects.SchedulerLimits.from_dict(limits),
        allocation_request=jsonutils.dumps(request),
        allocation_request_version=(
            None if request is None else placement.CANDIDATES),
        availability_zone=zone)


@dataclasses.dataclass(frozen=True)
class WholeHosts:
    """Offers all resources from the host itself.

    :param resources: amounts by resource class
    """

    resources: Mapping[str, int]
    spec: Any
    states: enabled_plugins.HostStates

    def first(self, uuid: str) -> AllocationRequest:
        return {'allocations': {uuid: {'resources': dict(self.resources)}},
                'mappings': {'': [uuid]}}

    def chosen(
        self, uuid: str, instance: str, request: AllocationRequest
    ) -> None:
        _consume(self.states.get(uuid), self.spec)


@dataclasses.dataclass(frozen=True)
class AllocationCandidates:
    """Offers the allocation candidates of Placement.

    :param by_provider: allocation requests by each of their providers, in
        Placement's order
    """

    by_provider: Mapping[str, Sequence[AllocationRequest]]
    spec: Any
    states: enabled_plugins.HostStates

    def first(self, uuid: str) -> AllocationRequest | None:
        state = self.states.get(uuid)
        # Filters of Nova may remove candidates from the host state.
        remaining = (self.by_provider.get(uuid, ()) if state is None
                     else state.allocation_candidates)
        return remaining[0] if remaining else None

    def chosen(
        self, uuid: str, instance: str, request: AllocationRequest
    ) -> None:
        # For filters only: the conductor reads the selection.
        for group in self.spec.requested_resources:
            group.provider_uuids = request['mappings'][group.requester_id]
        _consume(self.states.get(uuid), self.spec)


def find_candidates(
    context: Any, client: Any, host_manager: Any, spec: Any, fallback: bool,
    remaining_s: Callable[[], float] = lambda: 0.0,
) -> tuple[dict[str, list[AllocationRequest]], frozenset[str]]:
    """Return the allocation candidates of a request, requested as in Nova.

    Nova's request filters run before and modify the request.

    :param fallback: request virtual CPUs in place of pinned CPUs too, which
        hosts with an older configuration report
    :param remaining_s: returns the seconds that remain for retries
    :returns: allocation requests by each of their providers, and all providers
    :raises nova.exception.NoValidHost: a request filter found no host
    :raises cellsched_nova.placement.PlacementUnavailable: Placement does not
        answer, or rejects the request as invalid
    """
    try:
        request_filter.process_reqspec(context, spec)
    except nova_exception.RequestFilterFailed as exc:
        raise nova_exception.NoValidHost(reason=exc.message) from exc
    found: list[AllocationRequest] = []
    providers: set[str] = set()
    for translated in (True, False):
        query = utils.resources_from_request_spec(
            context, spec, host_manager, enable_pinning_translate=translated)
        answer = _read_candidates(context, client, query, remaining_s())
        found.extend(answer['allocation_requests'])
        providers.update(answer['provider_summaries'])
        if not (query.cpu_pinning_requested and fallback):
            break
    by_provider: dict[str, list[AllocationRequest]] = {}
    for each in found:
        for uuid in each['allocations']:
            by_provider.setdefault(uuid, []).append(each)
    return by_provider, frozenset(providers)


def _read_candidates(
    context: Any, client: Any, query: Any, timeout_s: float
) -> Mapping[str, Any]:
    """Return Placement's answer, with retries.

    Nova's own client does not report a missing answer.
    """
    reason = ''
    for _ in remote.attempts(clock.Clock(), random.Random(), timeout_s):
        try:
            answer: Mapping[str, Any] = placement.read(
                client, context,
                f'/allocation_candidates?{query.to_querystring()}')
        except placement.PlacementRefused:
            raise
        except placement.PlacementUnavailable as exc:
            reason = exc.kwargs['reason']
        else:
            return answer
    raise placement.PlacementUnavailable(reason=reason)


def _consume(state: Any | None, spec: Any) -> None:
    """Count a claim in Nova's host state, if it was read."""
    if state is not None:
        state.consume_from_request(spec)
