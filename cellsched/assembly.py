# SPDX-License-Identifier: Apache-2.0
"""The one place that wires: from configuration to services.

Here, and nowhere else, connections, threads and random sources are made.
Production, tests, benchmarks and demonstrations differ in the configuration
and the :class:`Parts` that they hand over, and in nothing else.
"""

from collections.abc import Callable
from collections.abc import Sequence
import functools
import random as random_
import threading
from typing import Any
from typing import TypeVar

from futurist import periodics
from futurist import ThreadPoolExecutor
from oslo_config import cfg
import oslo_messaging

from cellsched.api import aggregates
from cellsched.api import flavors
from cellsched.api import server_groups
from cellsched.api import servers
from cellsched.api import validation
from cellsched.cells import cell0
from cellsched.cells import discovery
from cellsched.cells import gather
from cellsched.cells import registry
from cellsched.cells import target
from cellsched.cells import versions as cell_versions
from cellsched import claims as claims_
from cellsched.claims import base as claims_base
from cellsched import clock as clock_
from cellsched.compute import agent
from cellsched.compute import outcomes as outcomes_
from cellsched.compute import tracker
from cellsched.conductor import recoverer
from cellsched.conductor import service as conductor_service
from cellsched.conductor.tasks import build_and_schedule
from cellsched.conductor.tasks import build_instances
from cellsched.db import api as api_schema
from cellsched.db import cell as cell_schema
from cellsched.db import session
from cellsched import exception
from cellsched.filters import loading as filters
from cellsched.listing import instances as listing
from cellsched.notify import notifier
from cellsched import plugins
from cellsched.rpc import compute as compute_rpc
from cellsched.rpc import conductor as conductor_rpc
from cellsched.rpc import scheduler as scheduler_rpc
from cellsched.rpc import server as rpc_server
from cellsched.rpc import transport
from cellsched.scheduler import checking
from cellsched.scheduler.drivers import base as drivers
from cellsched.scheduler.drivers import filter_scheduler
from cellsched.scheduler import recorder
from cellsched.scheduler import service as scheduler_service
from cellsched.virt import base as virt

_Made = TypeVar('_Made')


class Parts:
    """What the services of one process share, each made when it is needed.

    To be made after a process has forked. What is handed over is used as it
    is, and closed by who handed it over.

    :param clock: tells the time
    :param random: the source of chance
    :param claims: the claim store, in place of the one configured
    """

    def __init__(
        self, conf: cfg.ConfigOpts, clock: clock_.Clock | None = None,
        random: random_.Random | None = None,
        claims: claims_base.ClaimStore | None = None,
    ) -> None:
        self.conf = conf
        self.clock = clock or clock_.Clock()
        self.random = random or random_.Random()
        self.databases = session.Databases()
        self.transports = transport.Transports(conf)
        self.compute_cap = cell_versions.ComputeCap(
            conf.upgrade_levels.compute,
            functools.partial(cell_versions.lowest, self))
        self.compute = compute_rpc.ComputeAPIs(version_cap=self.compute_cap)
        if claims is not None:
            self.claims = claims

    @functools.cached_property
    def claims(self) -> claims_base.ClaimStore:
        """The claim store."""
        return claims_.load(self.conf, self)

    @functools.cached_property
    def database(self) -> session.Database:
        """The API database."""
        return self._database('api_database', api_schema.SCHEMA.name)

    @functools.cached_property
    def cell_database(self) -> session.Database:
        """The database of this process's own cell."""
        return self._database('database', cell_schema.SCHEMA.name)

    @functools.cached_property
    def cells(self) -> registry.CellRegistry:
        return registry.CellRegistry(
            self.database, self.clock, self.conf.cells.refresh_interval)

    @functools.cached_property
    def targets(self) -> target.Targets:
        return target.Targets(
            self.databases, self.transports,
            session.engine_options(self.conf.database))

    @functools.cached_property
    def executor(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.conf.cell_worker_thread_pool_size)

    @functools.cached_property
    def gatherer(self) -> gather.Gatherer:
        return gather.Gatherer(
            self.executor, self.targets, self.clock, self.conf.cells.timeout)

    @functools.cached_property
    def discovery(self) -> discovery.Discovery:
        return discovery.Discovery(
            self.database, self.cells, self.targets, self.clock)

    @functools.cached_property
    def cell0(self) -> cell0.Cell0:
        return cell0.Cell0(self.database, self.cells, self.targets,
                           self.clock, self.conf.host)

    @functools.cached_property
    def decisions(self) -> recorder.Recorder:
        """Keeps what schedulers of this process decide."""
        return recorder.Recorder(
            self.database, self.clock, self.conf.scheduler.decision_retention)

    @functools.cached_property
    def driver(self) -> virt.Driver:
        """The virtualisation driver of this host."""
        name = self.conf.compute_driver
        loaded = plugins.load_all(plugins.VIRT, [name], base=virt.Driver)
        return loaded[name](self.conf, self.clock)

    def close(self) -> None:
        """Close what was opened here."""
        if 'decisions' in self.__dict__:
            # They go before the database does.
            self.decisions.close()
        if 'executor' in self.__dict__:
            self.executor.shutdown(wait=False)
        self.transports.close()
        self.databases.close()

    def _database(self, group: str, schema: str) -> session.Database:
        options = getattr(self.conf, group)
        if not options.connection:
            raise exception.ConfigurationInvalid(
                field=f'[{group}] connection',
                expected=f'the SQLAlchemy URL of the {schema} database; it '
                         'is not set')
        return self.databases.get(
            options.connection, schema, session.engine_options(options))


class Service:
    """A service: what answers its messages, and what it does of its own.

    :param periodic: pairs of a function and the seconds between its calls
    """

    def __init__(
        self, parts: Parts,
        rpc_servers: Sequence[oslo_messaging.MessageHandlingServer],
        periodic: Sequence[tuple[Callable[[], None], float]] = (),
    ) -> None:
        self.parts = parts
        self._servers = rpc_servers
        self._periodic = periodic
        self._started: list[oslo_messaging.MessageHandlingServer] = []
        self._workers: list[
            tuple[periodics.PeriodicWorker, threading.Thread]] = []
        self._stopping = threading.Event()

    def start(self) -> None:
        """Begin to answer."""
        for server in self._servers:
            server.start()
            self._started.append(server)
        for function, spacing_s in self._periodic:
            task = periodics.periodic(spacing_s)(self._task(function))
            worker = periodics.PeriodicWorker([(task, (), {})])
            thread = threading.Thread(target=worker.start, daemon=True)
            thread.start()
            self._workers.append((worker, thread))

    def stop(self) -> None:
        """Take no more messages, and finish what was begun."""
        self._stopping.set()
        for server in self._started:
            server.stop()
        for server in self._started:
            server.wait()
        for worker, thread in self._workers:
            # This waits for its turn as long as there is something to do.
            worker.stop()
            thread.join()
        self.parts.close()

    def _task(self, function: Callable[[], None]) -> Callable[[], None]:
        """Return a function that futurist can mark, as it cannot methods."""
        @functools.wraps(function)
        def task() -> None:
            if not self._stopping.is_set():
                function()
        return task


class API:
    """What a front end calls, in its own process."""

    def __init__(
        self, parts: Parts, servers_: servers.Servers,
        flavors_: flavors.Flavors, server_groups_: server_groups.ServerGroups,
        aggregates_: aggregates.Aggregates,
    ) -> None:
        self.parts = parts
        self.servers = servers_
        self.flavors = flavors_
        self.server_groups = server_groups_
        self.aggregates = aggregates_

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
    name = conf.scheduler.driver
    driver = plugins.load_all(
        plugins.DRIVERS, [name], base=drivers.Driver)[name](conf, parts)
    manager = scheduler_service.Scheduler(
        driver, conf.scheduler.max_attempts, checking.bounds(conf.scheduler),
        notifier.Notifier(
            parts.transports.notifications(), conf.host,
            conf.notifications.notification_format,
            conf.notifications.versioned_notifications_topics))
    return Service(parts, [rpc_server.server(
        parts.transports.get(), scheduler_rpc.TOPIC, conf.host, [manager],
        conf.rpc_clock_tolerance, conf.scheduler.remote_exceptions)],
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
        api_schema.SCHEMA.check(parts.database)
        task = _build_and_schedule(parts)
        endpoints.append(conductor_service.SuperConductor(task))
        lease_s = conf.conductor.build_lease
        periodic.append((recoverer.Recoverer(
            parts.database, task, parts.clock, lease_s).run, lease_s / 2))
        periodic += parts.compute_cap.periodic(conf.cells.refresh_interval)
    if conf.database.connection or not endpoints:
        cell_schema.SCHEMA.check(parts.cell_database)
        endpoints.append(conductor_service.CellConductor(
            _build_instances(parts)))
    parts.claims.check()
    return Service(parts, [rpc_server.server(
        parts.transports.get(), conductor_rpc.TOPIC, conf.host, endpoints,
        conf.rpc_clock_tolerance)], periodic)


@_factory
def compute(conf: cfg.ConfigOpts, parts: Parts) -> Service:
    """Return the agent of this host, on its cell's transport.

    The host is reported before this returns. Where the agent has the API
    database too, it is mapped to its cell at once; else a scheduler maps it
    as soon as it sees it.

    :raises cellsched.exception.HostMappingExists: another cell has a host of
        this name
    """
    cell_schema.SCHEMA.check(parts.cell_database)
    parts.claims.check()
    outcomes = outcomes_.Outcomes()
    reports = tracker.Tracker(
        conf, parts.cell_database, parts.claims, parts.driver, parts.clock,
        outcomes)
    if conf.api_database.connection:
        parts.discovery.map_own_host(conf.database.connection, conf.host)
    own = parts.transports.get()
    builder = agent.Agent(
        conf.host, parts.cell_database, parts.claims, parts.driver,
        conductor_rpc.ConductorAPI(
            own, None, conf.upgrade_levels.conductor, conductor_rpc.VERSION),
        parts.clock, outcomes)
    server = rpc_server.server(own, compute_rpc.TOPIC, conf.host, [builder],
                               conf.rpc_clock_tolerance)
    reports.report()
    return Service(parts, [server],
                   [(reports.report, conf.report_interval)])


@_factory
def api(conf: cfg.ConfigOpts, parts: Parts) -> API:
    """Return what a front end calls."""
    api_schema.SCHEMA.check(parts.database)
    reader = listing.Servers(
        parts.database, parts.cells, parts.targets, parts.gatherer)
    hints = frozenset[str]().union(*(
        each.hints for each in filters.make(
            conf, conf.filter_scheduler.enabled_filters)))
    bounds = validation.Bounds(
        conf.scheduler.max_instances_per_request, conf.api.max_limit, hints,
        conf.api.server_group_members)
    return API(
        parts,
        servers.Servers(
            parts.database, parts.targets, reader,
            conductor_rpc.ConductorAPI(
                parts.transports.get(), conf.api.send_retries,
                conf.upgrade_levels.conductor),
            compute_rpc.ComputeAPIs(conf.api.send_retries, parts.compute_cap),
            parts.claims, parts.clock, bounds),
        flavors.Flavors(parts.database, parts.clock),
        server_groups.ServerGroups(
            parts.database, parts.clock, conf.api.max_limit),
        aggregates.Aggregates(parts.database, parts.clock))


def _build_and_schedule(parts: Parts) -> build_and_schedule.BuildAndSchedule:
    conf = parts.conf
    return build_and_schedule.BuildAndSchedule(
        parts.database, parts.targets, parts.cell0,
        scheduler_rpc.SchedulerAPI(
            parts.transports.get(), conf.long_rpc_timeout,
            conf.rpc_response_timeout, conf.upgrade_levels.scheduler,
            scheduler_rpc.VERSION),
        parts.compute, parts.claims, parts.clock, conf.host,
        conf.conductor.build_lease)


def _build_instances(parts: Parts) -> build_instances.BuildInstances:
    conf = parts.conf
    return build_instances.BuildInstances(
        parts.cell_database, parts.compute.get(parts.transports.get()),
        parts.claims, parts.clock, conf.host, conf.scheduler.max_attempts)
