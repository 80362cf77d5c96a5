# SPDX-License-Identifier: Apache-2.0
"""The one place that wires: from configuration to services.

Here, and nowhere else, connections, threads and random sources are made.
Production, tests, benchmarks and demonstrations differ in the configuration
and the :class:`Parts` that they hand over, and in nothing else.
"""

from collections.abc import Callable
import functools
from typing import Any
from typing import TypeVar

from oslo_config import cfg

from cellsched.api import aggregates
from cellsched.api import flavors
from cellsched.api import moves as moves_
from cellsched.api import quotas
from cellsched.api import server_groups
from cellsched.api import servers
from cellsched.api import validation
from cellsched.assembly import moves
from cellsched.assembly.parts import Parts as Parts
from cellsched.assembly.service import Service as Service
from cellsched.audit import checks
from cellsched.audit import facts
from cellsched.audit import repairs
from cellsched.claims import base as claims_base
from cellsched.compute import agent
from cellsched.compute import host_name
from cellsched.compute import progress
from cellsched.compute import provider_config
from cellsched.compute import tracker
from cellsched.conductor import network_leftovers
from cellsched.conductor import service as conductor_service
from cellsched.conductor.tasks import build_instances
from cellsched.conf import enabled
from cellsched.db import api as api_schema
from cellsched.db import cell as cell_schema
from cellsched import embedding
from cellsched.filters import registry as filters
from cellsched.network import deallocation
from cellsched.notify import scheduler_notifier
from cellsched import plugins
from cellsched.rpc import background_sender
from cellsched.rpc import compute as compute_rpc
from cellsched.rpc import conductor as conductor_rpc
from cellsched.rpc import scheduler as scheduler_rpc
from cellsched.rpc import server as rpc_server
from cellsched.scheduler.drivers import base as drivers
from cellsched.scheduler.drivers import filter_scheduler
from cellsched.scheduler import request_validation
from cellsched.scheduler import service as scheduler_service

_Made = TypeVar('_Made')

#: Seconds until an agent goes on with what it was cut off from.
_RESUMED_S = 1


class API:
    """What a front end calls, in its own process."""

    def __init__(
        self, parts: Parts, servers_: servers.Servers,
        flavors_: flavors.Flavors, server_groups_: server_groups.ServerGroups,
        aggregates_: aggregates.Aggregates, quotas_: quotas.Quotas,
        moves_: moves_.Moves,
    ) -> None:
        self.parts = parts
        self.servers = servers_
        self.flavors = flavors_
        self.server_groups = server_groups_
        self.aggregates = aggregates_
        self.quotas = quotas_
        self.moves = moves_

    def close(self) -> None:
        self.parts.close()


def _factory(make: Callable[[Any, Parts], _Made]) -> Callable[..., _Made]:
    """Let parts be left out; they are closed if they come to no use."""
    @functools.wraps(make)
    def factory(conf: cfg.ConfigOpts, parts: Parts | None = None) -> _Made:
        if parts is not None:
            return make(conf, parts)
        parts = Parts(conf)
        try:
            return make(conf, parts)
        except BaseException:
            parts.close()
            raise
    return factory


@_factory
def scheduler(conf: cfg.ConfigOpts, parts: Parts) -> Service:
    """Return a scheduler, on the transport of ``transport_url``."""
    api_schema.SCHEMA.check(parts.database)
    parts.claims.check()
    driver = enabled.make(
        conf, plugins.DRIVERS, drivers.SchedulerDriver, conf, parts)
    manager = scheduler_service.Scheduler(
        driver, conf.scheduler.max_attempts, request_validation.bounds(
            conf.scheduler),
        scheduler_notifier.SchedulerNotifier(
            parts.transports.notifications(), conf.host,
            conf.notifications.notification_format,
            conf.notifications.versioned_notifications_topics, parts.clock),
        parts.reached, conf.scheduler.unknown_hints == 'ignore',
        conf.scheduler.unmet_demands == 'ignore')
    return Service(parts, [rpc_server.server(
        parts.transports.get(), scheduler_rpc.TOPIC, conf.host, [manager],
        parts.database.timestamp, conf.scheduler.remote_exceptions)],
        driver.periodic())


@_factory
def planner(
    conf: cfg.ConfigOpts, parts: Parts
) -> filter_scheduler.FilterScheduler:
    """Return what plans on the live deployment, and takes nothing.

    It decides with the configured filters and weighers.
    """
    api_schema.SCHEMA.check(parts.database)
    parts.claims.check()
    return filter_scheduler.FilterScheduler(conf, parts)


@_factory
def conductor(conf: cfg.ConfigOpts, parts: Parts) -> Service:
    """Return a conductor, on the transport of ``transport_url``.

    With an API database it is the one above the cells; with a cell's
    database it is that cell's; with both it is both, for deployments of a
    single cell.

    :raises cellsched.exception.ConfigurationInvalid: neither is configured
    """
    endpoints: list[Any] = []
    periodic: list[tuple[Callable[[], None], float]] = []
    if conf.api_database.connection:
        embedded = embedding.EmbeddedConductor(conf, parts)
        endpoints.append(conductor_service.SuperConductor(embedded.task))
        endpoints.append(moves.conductor(parts))
        periodic += embedded.periodic
    if conf.database.connection or not endpoints:
        cell_schema.SCHEMA.check(parts.cell_database)
        endpoints.append(conductor_service.CellConductor(
            _build_instances(parts)))
        periodic.append((network_leftovers.NetworkLeftovers(
            parts.cell_database, _freeing(parts)).run,
            conf.conductor.network_sweep_interval))
        periodic += moves.stranded(parts)
        parts.claims.check()
    return Service(parts, [rpc_server.server(
        parts.transports.get(), conductor_rpc.TOPIC, conf.host, endpoints)],
        periodic)


@_factory
def compute(conf: cfg.ConfigOpts, parts: Parts) -> Service:
    """Return the agent of this host, on its cell's transport.

    The host is reported before this returns. What it left lying the last time
    is taken up beside its messages, as soon as it answers. Where the agent
    has the API database too, it is mapped to its cell at once; else a
    scheduler maps it as soon as it sees it.

    :raises cellsched.exception.HostMappingExists: another cell has a host of
        this name
    :raises cellsched.exception.InvalidField: a file that says what its nodes
        can do is wrong
    """
    cell_schema.SCHEMA.check(parts.cell_database)
    parts.claims.check()
    outcomes = progress.Outcomes()
    more = provider_config.ProviderConfig(
        conf.compute.provider_config_location)
    more.load()
    reports = tracker.Tracker(
        conf, parts.cell_database, parts.claims, parts.driver, outcomes,
        new_uuid=parts.new_uuid, provider_config=more,
        name=host_name.HostName(
            conf.host, parts.cell_database, parts.clock,
            conf.service_down_time))
    if conf.api_database.connection:
        parts.discovery.map_own_host(conf.database.connection, conf.host)
    own = parts.transports.get()
    builder = agent.Agent(
        conf.host, parts.cell_database, parts.claims, parts.driver,
        conductor_rpc.ConductorAPI(
            own, None, conf.upgrade_levels.conductor,
            conductor_rpc.BUILD_INSTANCES),
        parts.clock, outcomes, parts.network, conf.max_concurrent_builds,
        parts.reached, parts.instance_locks)
    mover = moves.agent(parts)
    server = rpc_server.server(
        own, compute_rpc.TOPIC, conf.host, [builder, mover])
    reports.report()
    mover.clean_up()
    return Service(parts, [server],
                   [(reports.report, conf.report_interval),
                    (builder.resume_soon, _RESUMED_S)],
                   [(builder.resume, conf.resume_interval)])


@_factory
def api(conf: cfg.ConfigOpts, parts: Parts) -> API:
    """Return what a front end calls."""
    api_schema.SCHEMA.check(parts.database)
    reader = parts.listing
    bounds = validation.ServerBounds(
        conf.scheduler.max_instances_per_request, conf.api.max_limit,
        filters.hints(conf), conf.api.server_group_members)
    send = background_sender.BackgroundSender(
        parts.senders, conf.api.send_timeout)
    conductor_ = conductor_rpc.ConductorAPI(
        parts.transports.get(), conf.api.send_retries,
        conf.upgrade_levels.conductor, send=send)
    compute_ = compute_rpc.ComputeAPIs(
        conf.api.send_retries, parts.compute_cap, send)
    return API(
        parts,
        servers.Servers(
            parts.database, parts.targets, reader, conductor_, compute_,
            parts.claims, parts.clock, parts.quotas, bounds,
            parts.new_uuid, parts.reached),
        flavors.Flavors(parts.database, parts.clock),
        server_groups.ServerGroups(
            parts.database, parts.clock, conf.api.max_limit),
        aggregates.Aggregates(parts.database, parts.clock),
        quotas.Quotas(parts.database, parts.cells, parts.gatherer,
                      parts.quotas, parts.clock),
        moves.api(parts, reader, conductor_, compute_))


@_factory
def auditor(conf: cfg.ConfigOpts, parts: Parts) -> checks.Auditor:
    """Return what looks for what must not be, in all databases.

    Claims that only another process sees are not looked at.
    """
    api_schema.SCHEMA.check(parts.database)
    parts.claims.check()
    shared = claims_base.Trait.SHARED in parts.claims.traits
    reader = facts.Reader(
        parts.database, parts.cells, parts.gatherer,
        parts.claims if shared else None)
    return checks.Auditor(
        reader, repairs.Repairs(
            reader, parts.targets, parts.cell0, parts.clock, conf.host),
        parts.clock)


def _build_instances(parts: Parts) -> build_instances.BuildInstances:
    conf = parts.conf
    return build_instances.BuildInstances(
        parts.cell_database, parts.compute.get(parts.transports.get()),
        parts.claims, parts.clock, conf.host, conf.scheduler.max_attempts,
        parts.task_notifier, _freeing(parts).free)


def _freeing(parts: Parts) -> deallocation.NetworkDeallocation:
    return deallocation.NetworkDeallocation(
        parts.network, parts.cell_database, parts.clock)
