# SPDX-License-Identifier: Apache-2.0
"""The driver that has the claim store find hosts, and keeps no table."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import threading
from typing import Any

from oslo_config import cfg

from cellsched.claims import base as claims_base
from cellsched.context import admin
from cellsched.context import RequestContext
from cellsched import exception
from cellsched.host_manager import host_reader
from cellsched.host_manager import manager
from cellsched.hosts import plugin_columns
from cellsched import migrations
from cellsched import objects
from cellsched.objects import resource_classes
from cellsched import plugins
from cellsched.scheduler.decision import mandatory_stages
from cellsched.scheduler.drivers import base
from cellsched.scheduler.drivers import filter_scheduler
from cellsched.scheduler.explanation import recorder
from cellsched.scheduler import request_validation
from cellsched.scheduler import requirements
from cellsched.scheduler.selection import existing_claims
from cellsched.scheduler.selection import request_hosts


class ProviderScheduler(base.SchedulerDriver):
    """Queries the claim store for hosts with capacity, and reads only these.

    For each request the store finds the providers with the capacity and the
    traits, and the driver reads their hosts from the cells. The filters and
    weighers of ``filter_scheduler`` decide among them, and the claim
    arbitrates. No host is kept between requests. The store must support
    ``query``.
    """

    # The pipeline knows the requirements that its stages read.
    reads = None

    def __init__(
        self, conf: cfg.ConfigOpts, parts: base.SchedulerParts
    ) -> None:
        super().__init__(conf, parts)
        if claims_base.Capability.QUERY not in parts.claims.capabilities:
            raise _cannot_find(conf)
        self._pipeline = filter_scheduler.pipeline_of(conf)
        # Report a broken plug-in at start, not with the first request.
        resource_classes.load()
        self.hints = self._pipeline.hints | {request_validation.REBUILD}
        self._reader = host_reader.HostReader(
            parts.database, parts.cells, parts.gatherer, parts.discovery,
            parts.claims, parts.clock, filter_scheduler.refresh_policy(conf),
            conf.default_availability_zone, plugin_columns.load())
        self._reports_lock = threading.Lock()
        self._instance_reports = manager.InstanceReports()
        self._placer = filter_scheduler.make_placer(
            conf, parts, self._hosts(objects.RequestSpec(), ()),
            self._pipeline)
        self._networks = requirements.NetworkRequirements(
            parts.network,
            conf.scheduler.query_placement_for_routed_network_aggregates)

    def periodic(self) -> Sequence[tuple[Callable[[], None], float]]:
        return [(self.parts.decisions.flush, recorder.SPACING_S)]

    def select_destinations(
        self, context: RequestContext, request: objects.RequestSpec,
        instance_uuids: Sequence[str], alternates: int, claim: bool = True,
    ) -> list[list[objects.Selection]]:
        request = self._networks.add(context, request)
        return self._placer.on(self._hosts(request, instance_uuids)).place(
            context, request, instance_uuids, alternates, claim)

    def update_aggregates(
        self, aggregates: Iterable[objects.Aggregate]
    ) -> None:
        self._reader.tell_aggregates(aggregates)

    def delete_aggregate(self, aggregate: int) -> None:
        self._reader.forget_aggregate(aggregate)

    def update_instances(
        self, host: str, instances: Iterable[str], complete: bool
    ) -> None:
        with self._reports_lock:
            if complete:
                self._instance_reports.replace(host, instances)
            else:
                self._instance_reports.update(host, instances)

    def delete_instance(self, host: str, instance: str) -> None:
        with self._reports_lock:
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

    def plan(
        self, context: RequestContext, request: objects.RequestSpec,
        instance_uuids: Sequence[str], alternates: int,
    ) -> Any:
        """Decide as :meth:`select_destinations` does, and claim nothing."""
        request = self._networks.add(context, request)
        return self._placer.on(self._hosts(request, instance_uuids)).plan(
            context, request, instance_uuids, alternates)

    def _hosts(
        self, request: objects.RequestSpec, uuids: Sequence[str]
    ) -> request_hosts.RequestHosts:
        """Return the hosts of one request, not read yet."""
        return request_hosts.RequestHosts(
            self._reader, self.parts.claims, self.parts.clock, self._pipeline,
            request, uuids, self.conf.scheduler.max_placement_results,
            self._reported, self._relevant)

    def _reported(self, instances: Iterable[str]) -> dict[str, str]:
        with self._reports_lock:
            return self._instance_reports.hosts(instances)

    def _relevant(self, request: objects.RequestSpec) -> list[str]:
        """Return hosts that a decision depends on, whatever their capacity.

        A project's reserved hosts determine whether it has any. A server that
        leaves a host that is down is spread over other hosts.
        """
        names = list(request.get('ignore_hosts') or ())
        if self.conf.scheduler.limit_tenants_to_placement_aggregate:
            names += self._reader.hosts_kept_for(
                mandatory_stages.TENANT_KEY, request.get('project_id') or '',
                request_hosts.NAMES_MAX)
        return names


def _cannot_find(conf: cfg.ConfigOpts) -> exception.ConfigurationInvalid:
    stores, _ = plugins.load_installed(plugins.CLAIMS)
    able = sorted(name for name, store in stores.items()
                  if claims_base.Capability.QUERY in getattr(
                      store, 'capabilities', ()))
    return exception.ConfigurationInvalid(
        field='[claims] store',
        expected='one that finds providers by query, as [scheduler] driver '
                 f'provider_scheduler needs, such as {", ".join(able)}, and '
                 f'not {conf.claims.store}; or another driver, such as '
                 'filter_scheduler')
