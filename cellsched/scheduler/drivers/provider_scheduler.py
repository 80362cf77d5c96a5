# SPDX-License-Identifier: Apache-2.0
"""The driver that has the claim store find hosts, and keeps no table."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any

from oslo_config import cfg
from oslo_log import log

from cellsched.claims import base as claims_base
from cellsched.claims import validation
from cellsched.clock import Clock
from cellsched.context import admin
from cellsched.context import RequestContext
from cellsched import exception
from cellsched.host_manager import host_reader
from cellsched.host_manager import manager
from cellsched.host_manager import mass_outage
from cellsched.host_manager.mass_outage import find
from cellsched.host_manager.source import HostSource
from cellsched.hosts import columns
from cellsched.hosts import document
from cellsched.hosts import plugin_columns
from cellsched.hosts.table import HostTable
from cellsched.hosts.table import PendingAllocation
from cellsched import migrations
from cellsched import objects
from cellsched.objects import request_groups
from cellsched.observability import metrics
from cellsched import plugins
from cellsched.scheduler.decision import capacity
from cellsched.scheduler.decision import mandatory_stages
from cellsched.scheduler.decision.pipeline import Pipeline
from cellsched.scheduler.decision.pipeline import Rejection
from cellsched.scheduler.decision import required_traits
from cellsched.scheduler.drivers import base
from cellsched.scheduler.drivers import filter_scheduler
from cellsched.scheduler.explanation import decision_record
from cellsched.scheduler.selection import existing_claims
from cellsched.scheduler.selection import placer

LOG = log.getLogger(__name__)

#: The maximum number of names to look up; beyond it all hosts are read.
NAMES_MAX = 500

#: The diagnosis entry for hosts that the store did not find.
QUERY = 'query'

_NOT_FOUND = 'lacks room or a trait'
_NOT_ASKED_FOR = 'is not the host that was requested'


@dataclasses.dataclass(eq=False)
class RequestHosts(HostSource):
    """Reads the hosts of one request on demand.

    These are the hosts that the claim store finds, up to a limit, and the
    hosts of the instances that the request depends on. If a request names its
    hosts, only these are read and the store is not queried.

    :param hosts_max: the maximum number of hosts from the store; if it has
        more, the rest are read only if none of these is suitable
    :param reported: returns the reported hosts of instances
    :param relevant: returns the names of hosts that a request depends on
    """

    reader: host_reader.HostReader
    claims: claims_base.ClaimStore
    clock: Clock
    pipeline: Pipeline
    request: objects.RequestSpec
    uuids: Sequence[str]
    hosts_max: int
    reported: Callable[[Iterable[str]], Mapping[str, str]]
    relevant: Callable[[objects.RequestSpec], Iterable[str]]

    def __post_init__(self) -> None:
        self._context: RequestContext | None = None
        self._reading = self.reader.nothing()
        self._scope = host_reader.EVERYTHING
        self._beats: HostTable | None = None
        self._is_cut = False
        self._reads_all = False
        # Refused hosts are read again, also those that are full.
        self._refused: set[str] = set()

    @property
    def table(self) -> HostTable:  # type: ignore[override]
        """The hosts that were read last."""
        return self._reading.table

    @property
    def silent(self) -> Sequence[str]:  # type: ignore[override]
        """Cells that did not answer, by identity."""
        return self._reading.silent

    def follow(self, context: RequestContext) -> bool:
        """Read the hosts; return whether this call read them."""
        return self.refresh(context)

    def refresh(
        self, context: RequestContext, since: float | None = None
    ) -> bool:
        """Read the hosts again."""
        self._context = context
        self._read()
        return True

    def extend(self) -> bool:
        """Read all hosts, if the store found more than the limit.

        :returns: whether it did
        """
        if not self._is_cut:
            return False
        self._reads_all = True
        self._read()
        return True

    def snapshot(self, context: RequestContext) -> document.HostDocument:
        """Return all current hosts, without regard to a request."""
        reading = self.reader.read(
            context, host_reader.EVERYTHING, self.reader.sharing())
        return document.HostDocument(
            reading.table, self.clock.steady(), self.reader.cell_names(),
            list(reading.silent))

    def left_out(self) -> list[Rejection]:
        """Return the number of hosts that were not read, with the reason."""
        count = len(self._everyone()) - len(self.table)
        if count <= 0:
            return []
        if _named(self.request):
            return [Rejection(
                'RequestedHost', count, _NOT_ASKED_FOR)]
        return [Rejection(QUERY, count, _NOT_FOUND)]

    def reload(self, providers: Sequence[str]) -> None:
        """Query the store again, also for hosts that refused a claim."""
        self._refused.update(providers)
        self._read()

    def confirm(
        self, allocations: Iterable[PendingAllocation], claimed: bool = True
    ) -> None:
        """Count allocations in later requests, until they expire."""
        reading = self._reading
        self.reader.choices.add([host_reader.RecentChoice(
            allocation.node, allocation.at, reading.marks.get(allocation.node),
            {} if claimed else _held(reading.table, allocation))
            for allocation in allocations])

    def reported_nodes(self, instances: Iterable[str]) -> dict[str, str]:
        """Return the nodes of instances that a host has reported."""
        reported = self.reported(instances)
        if not reported:
            return {}
        return manager.nodes(reported, self.table.view(self.clock.steady()))

    def mass_outage_error(self) -> exception.HostStateUncertain | None:
        """Return an error if the state of hosts is uncertain, else None."""
        found = find(self._everyone(), self.clock.steady(),
                     self.reader.policy.limits)
        if found is None:
            self.reader.conditions.end(mass_outage.CONDITION)
            return None
        self.reader.conditions.occur(mass_outage.CONDITION, found.text)
        return exception.HostStateUncertain(
            hosts=found.hosts, known=found.known)

    def _everyone(self) -> HostTable:
        """Return a table of all hosts, with few facts read."""
        if self._scope.nodes is None or self._context is None:
            return self.table
        if self._beats is None:
            self._beats = self.reader.beats(self._context)
        return self._beats

    def _read(self) -> None:
        assert self._context is not None
        self._beats = None
        sharing = self.reader.sharing()
        self._scope = self._find(sharing)
        self._reading = self.reader.read(self._context, self._scope, sharing)

    def _find(self, sharing: host_reader.Sharing) -> host_reader.HostScope:
        """Return the hosts to read."""
        self._is_cut = False
        if self._reads_all:
            return host_reader.EVERYTHING
        nodes, names = self._known()
        named = _named(self.request)
        names |= named
        if len(names) > NAMES_MAX:
            return host_reader.EVERYTHING
        if not named:
            query = query_of(
                self.pipeline, self.request, sharing.usages,
                [trait for each in sharing.providers for trait in each.traits])
            if query is None:
                return host_reader.EVERYTHING
            found = self.claims.find_providers(query, self.hosts_max)
            self._is_cut = len(found) >= self.hosts_max
            nodes.update(found)
        return host_reader.HostScope(frozenset(nodes), frozenset(names))

    def _known(self) -> tuple[set[str], set[str]]:
        """Return relevant nodes and host names, including full hosts."""
        rest = self.pipeline.located(self.request).difference(self.uuids)
        held = self.claims.claims_of(
            [*rest, *self.uuids, *(
                existing_claims.consumer_of_move(self.request, uuid)
                for uuid in self.uuids)])
        providers = self._refused.union(
            each.provider for claims in held.values() for each in claims)
        roots = self.claims.roots(providers)
        names = {*self.reported([*rest, *self.uuids]).values(),
                 *self.relevant(self.request)}
        return {roots.get(each, each) for each in providers}, names


def _named(request: objects.RequestSpec) -> set[str]:
    """Return the hosts that a request is restricted to by name, or None."""
    target = request.get('requested_destination')
    host = target.get('host') if target is not None else None
    return {*(request.get('force_hosts') or ()), *([host] if host else ())}


def _held(
    table: HostTable, allocation: PendingAllocation
) -> dict[str, dict[str, int]]:
    """Return the allocated amounts, by provider."""
    row = table.row(allocation.node)
    children = () if row is None else table.written_value('child_uuids', row)
    found: dict[str, dict[str, int]] = {}
    for name, amount in allocation.resources:
        resource, _, place = name.partition(columns.AT)
        provider = (allocation.node if not place else
                    children[int(place) - 1] if place.isdigit() else place)
        found.setdefault(provider, {})[resource] = amount
    return found


def query_of(
    pipeline: Pipeline, request: objects.RequestSpec,
    sharing: Iterable[claims_base.Usage] = (),
    shared_traits: Iterable[str] = (),
) -> claims_base.ProviderQuery | None:
    """Return the query for providers that satisfy a request.

    The query leaves out resource classes and traits of sharing providers: the
    store does not know which hosts share them.

    :param sharing: the sharing providers' resource classes
    :param shared_traits: the sharing providers' traits
    :returns: None if a host needs no resources of its own
    :raises cellsched.exception.InvalidField: the request is not valid
    """
    demand = request.group_demand()
    requested = _amounts(request, demand.groups)
    for usage in sharing:
        for resource in list(requested):
            remaining = (usage.capacity.get(resource, 0)
                         - usage.used.get(resource, 0))
            if remaining >= min(requested[resource]):
                del requested[resource]
    if not requested:
        return None
    required = set(pipeline.required_traits(request)).union(
        *(group.required for group in demand.groups))
    return claims_base.ProviderQuery(
        requested, _known(required.difference(shared_traits)),
        _known(required_traits.forbidden(request)))


def _amounts(
    request: objects.RequestSpec,
    groups: Iterable[request_groups.RequestGroup],
) -> dict[str, set[int]]:
    """Return the amounts for a single provider, by resource class."""
    whole = request.resources()
    capacity.check(whole)
    requested = {resource: {amount} for resource, amount in whole.items()}
    for group in groups:
        for resource, amount in group.resources:
            requested.setdefault(resource, set()).add(amount)
    return requested


def _known(traits: Iterable[str]) -> frozenset[str]:
    # An invalid trait name excludes no host here; a later step checks it.
    return frozenset(filter(validation.is_trait, traits))


class ProviderScheduler(filter_scheduler.FilterScheduler):
    """Queries the claim store for hosts with capacity, and reads only these.

    For each request the store finds the providers with the capacity and the
    traits, and the driver reads their hosts from the cells. The filters and
    weighers of ``filter_scheduler`` decide among them, and the claim
    arbitrates. No host is kept between requests. The store must support
    ``query``.
    """

    def __init__(
        self, conf: cfg.ConfigOpts, parts: base.SchedulerParts
    ) -> None:
        if claims_base.Capability.QUERY not in parts.claims.capabilities:
            raise _cannot_find(conf)
        super().__init__(conf, parts)
        if parts.recorder is not None:
            self.placer.recorder = None
            LOG.warning('Decisions are not recorded: the driver '
                        'provider_scheduler keeps no hosts')

    def make_source(self) -> RequestHosts:
        conf, parts = self.conf, self.parts
        self._reader = host_reader.HostReader(
            parts.database, parts.cells, parts.gatherer, parts.discovery,
            parts.claims, parts.clock, filter_scheduler.refresh_policy(conf),
            conf.default_availability_zone, plugin_columns.load())
        self._instance_reports = manager.InstanceReports()
        return self._hosts(self.make_pipeline(), objects.RequestSpec(), ())

    def placer_of(
        self, request: objects.RequestSpec, uuids: Sequence[str]
    ) -> placer.Placer:
        return self.placer.on(
            self._hosts(self.placer.pipeline, request, uuids))

    def _metrics(self) -> list[metrics.Reading]:
        # No hosts are kept, so there are no metrics of hosts and capacity.
        return [
            (metrics.SILENT_CELLS, (), len(self._reader.silent)),
            *filter_scheduler.cell_metrics(self._reader.health, {
                cell.uuid: cell.name for cell in self.parts.cells.known()}),
            (metrics.QUEUED, ('decisions',), self.parts.decisions.waiting)]

    def periodic(self) -> Sequence[tuple[Callable[[], None], float]]:
        return [(self.parts.decisions.flush, decision_record.SPACING_S)]

    def state(self) -> Mapping[str, Any]:
        return {}

    def unready(self) -> str:
        return ''

    def update_aggregates(
        self, aggregates: Iterable[objects.Aggregate]
    ) -> None:
        self._reader.tell_aggregates(aggregates)

    def delete_aggregate(self, aggregate: int) -> None:
        self._reader.forget_aggregate(aggregate)

    def update_instances(
        self, host: str, instances: Iterable[str], complete: bool
    ) -> None:
        self._instance_reports.add(host, instances, complete)

    def delete_instance(self, host: str, instance: str) -> None:
        self._instance_reports.forget(instance)
        held = self.parts.claims.claims_of(migrations.consumers([instance]))
        if not held:
            return
        reading = self._reader.read(
            admin(),
            host_reader.HostScope(frozenset(), frozenset({host})),
            host_reader.NO_SHARING)
        gone = existing_claims.held_on(
            reading.table.view(self.parts.clock.steady()), host, held)
        if gone:
            self.parts.claims.release(gone)

    def _hosts(
        self, pipeline: Pipeline, request: objects.RequestSpec,
        uuids: Sequence[str],
    ) -> RequestHosts:
        """Return the hosts of one request, not read yet."""
        return RequestHosts(
            self._reader, self.parts.claims, self.parts.clock, pipeline,
            request, uuids, self.conf.scheduler.max_placement_results,
            self._instance_reports.hosts, self._relevant)

    def _relevant(self, request: objects.RequestSpec) -> list[str]:
        """Return hosts that a decision depends on, including full hosts.

        A project's reserved hosts determine whether it has any. A server that
        leaves a host that is down is spread over other hosts.
        """
        names = list(request.get('ignore_hosts') or ())
        if self.conf.scheduler.limit_tenants_to_placement_aggregate:
            names += self._reader.hosts_kept_for(
                mandatory_stages.TENANT_KEY, request.get('project_id') or '',
                NAMES_MAX)
        return names


def _cannot_find(conf: cfg.ConfigOpts) -> exception.ConfigurationInvalid:
    stores, _ = plugins.load_installed(plugins.CLAIMS)
    able = sorted(name for name, store in stores.items()
                  if claims_base.Capability.QUERY in getattr(
                      store, 'capabilities', ()))
    return exception.ConfigurationInvalid(
        field='[claims] store',
        problem=f'{conf.claims.store} cannot find providers by query, which '
                '[scheduler] driver = provider_scheduler needs',
        expected=f'one of {", ".join(able)}, or another driver, such as '
                 'filter_scheduler')
