# SPDX-License-Identifier: Apache-2.0
"""The conductor: above the cells, of a cell, or both."""

from collections.abc import Callable
import functools
from typing import Any
from typing import NamedTuple
from typing import TypeAlias

from oslo_config import cfg

from cellsched.audit.auditor import LeakedClaims
from cellsched.audit import repairs
from cellsched.audit.state import StateReader
from cellsched.conductor import recovery
from cellsched.conductor.tasks import build_and_schedule
from cellsched.conductor.tasks import build_instances
from cellsched.conductor.tasks import move
from cellsched.db import api as api_schema
from cellsched.db import cell as cell_schema
from cellsched.db.cell import services
from cellsched import deletion
from cellsched.network.deallocation import NetworkDeallocation
from cellsched import plugins
from cellsched.rpc import conductor as conductor_rpc
from cellsched.rpc import scheduler as scheduler_rpc
from cellsched.rpc import server as rpc_server
from cellsched.wiring import base
from cellsched.wiring.components import CellComponents
from cellsched.wiring.components import Components
from cellsched.wiring.components import conductor_components
from cellsched.wiring.service import Service

#: Renewals of a build lease before it expires.
_RENEWALS = 3

#: Searches for overdue moves per move deadline.
_SEARCHES = 4

#: Kinds of plug-ins that a conductor uses.
PLUGINS = (plugins.CLAIMS, plugins.NETWORKS, plugins.QUOTA)

#: Pairs of a function and the seconds between its calls.
Periodic: TypeAlias = list[tuple[Callable[[], None], float]]


@base.factory(conductor_components)
def conductor(conf: cfg.ConfigOpts, parts: CellComponents) -> Service:
    """Return a conductor, on the transport of ``transport_url``.

    With an API database it is the conductor above the cells, with a cell's
    database that of the cell, and with both it is both, for a deployment of
    one cell.

    :raises cellsched.exception.ConfigurationInvalid: no database is
        configured
    """
    endpoints: list[Any] = []
    periodic: Periodic = []
    heartbeat = parts.heartbeat(services.CONDUCTOR, conductor_rpc.TOPIC)
    at_once: Periodic = [(heartbeat.report, conf.report_interval)]
    leased: Callable[[], list[str]] = list
    builder = None
    if conf.api_database.connection:
        assert isinstance(parts, Components)
        builder = builds(parts)
        endpoints.append(conductor_rpc.SuperConductor(builder.task.run))
        endpoints.append(_moves(parts))
        periodic += builder.periodic
        at_once += parts.service_counts()
        leased = builder.task.leases.uuids
    if conf.database.connection or not endpoints:
        cell_schema.SCHEMA.check(parts.cell_database)
        networks = NetworkDeallocation(
            parts.network, parts.cell_database, parts.clock)
        endpoints.append(conductor_rpc.CellConductor(
            _build_instances(parts, networks).run))
        periodic.append((
            recovery.NetworkCleanup(
                parts.cell_database, networks).run,
            conf.conductor.network_sweep_interval))
        periodic.append((
            recovery.StrandedDeletions(
                parts.cell_database, parts.claims, conf.service_down_time).run,
            conf.conductor.recovery_interval))
        deadline_s = conf.conductor.move_deadline
        periodic.append((
            recovery.StalledMigrations(
                parts.cell_database,
                parts.compute.get(parts.transports.get()), parts.claims,
                conf.host, deadline_s, conf.service_down_time).run,
            deadline_s / _SEARCHES))
        parts.claims.check()
    server = rpc_server.server(
        parts.transports.get(), conductor_rpc.TOPIC, conf.host, endpoints,
        clock=parts.clock)
    if builder is not None:
        builder.recoverer.queued = server.waiting_instances
    return Service(parts, [server], periodic, at_once,
                   state=functools.partial(_cells, parts), builds=leased,
                   at_stop=heartbeat.stop)


def _cells(parts: CellComponents) -> dict[str, Any]:
    """Return the cells, for a report on a conductor above them."""
    return {'Cells': [
        {'name': cell.name, 'uuid': cell.uuid, 'disabled': cell.disabled}
        for cell in parts.cells.all()]} if isinstance(
            parts, Components) else {}


class Builds(NamedTuple):
    """The builds of a conductor above the cells.

    :param scheduler: the client of schedulers
    :param task: the build task
    :param recoverer: resumes interrupted builds
    :param periodic: renewal of leases, recovery of interrupted builds and
        deletions, casts that no compute host received, and release of leaked
        claims; each function runs in its own thread
    """

    scheduler: scheduler_rpc.SchedulerAPI
    task: build_and_schedule.BuildAndSchedule
    recoverer: recovery.Recoverer
    periodic: Periodic


def builds(parts: Components) -> Builds:
    """Return the builds of a conductor above the cells.

    :raises cellsched.exception.SchemaOutOfDate: a database lacks its tables
    :raises cellsched.exception.DatabaseUnreachable: a database does not
        answer
    """
    api_schema.SCHEMA.check(parts.database)
    parts.claims.check()
    options = parts.conf.conductor
    scheduler = _scheduler(parts, options.scheduling_timeout)
    # Claims may be in the SQLite file of the API database.
    url = parts.conf.api_database.connection
    shares_a_file = url.startswith('sqlite') and (
        parts.conf.claims.connection or url) == url
    task = build_and_schedule.BuildAndSchedule(
        parts.database, parts.targets, parts.cell0, scheduler, parts.compute,
        parts.claims, parts.quotas, parts.clock, parts.conf.host,
        build_and_schedule.TaskLimits(
            options.build_lease, options.build_deadline,
            options.build_attempts, options.joint_transactions,
            options.retry_delay, options.retries,
            fenced=not shares_a_file),
        new_uuid=parts.new_uuid, reached=parts.reached,
        notifier=parts.task_notifier, metrics=parts.metrics)
    reader = StateReader(
        parts.database, parts.cells, parts.gatherer, parts.claims)
    leaked = LeakedClaims(reader, repairs.Repairs(
        reader, parts.targets, parts.cell0, parts.clock, parts.conf.host))
    recoverer = recovery.Recoverer(
        parts.database, task, options.build_lease, parts.builders,
        options.recovery_threads, new_uuid=parts.new_uuid,
        metrics=parts.metrics)
    deletions = recovery.InterruptedDeletions(
        parts.database, deletion.Deletion(
            parts.database, parts.targets, lambda: parts.compute,
            parts.claims, parts.clock, parts.conf.service_down_time,
            parts.reached), parts.new_uuid(), parts.builders)
    stalled = recovery.StalledBuilds(
        parts.database, parts.cells, parts.gatherer, parts.targets,
        parts.compute, conductor_rpc.ConductorAPIs(
            options.send_retries, parts.conf.upgrade_levels.conductor,
            conductor_rpc.BUILD_INSTANCES),
        recovery.RetryPolicy(
            options.cast_timeout, options.cast_attempts,
            parts.conf.service_down_time),
        parts.builders, metrics=parts.metrics)
    return Builds(scheduler, task, recoverer, [
        (task.leases.renew, options.build_lease / _RENEWALS),
        (recoverer.run, options.recovery_interval),
        (deletions.run, options.recovery_interval),
        (stalled.run, options.cast_check_interval),
        (leaked.run, options.claims_check_interval),
        *parts.compute_cap.periodic(parts.conf.cells.refresh_interval)])


def _scheduler(
    parts: Components, timeout_s: float
) -> scheduler_rpc.SchedulerAPI:
    conf = parts.conf
    return scheduler_rpc.SchedulerAPI(
        parts.transports.get(), parts.database.timestamp, timeout_s,
        conf.long_rpc_timeout, conf.upgrade_levels.scheduler,
        scheduler_rpc.VERSION)


def _moves(parts: Components) -> conductor_rpc.MovingConductor:
    conf = parts.conf
    return conductor_rpc.MovingConductor(move.Move(
        parts.database, parts.targets,
        _scheduler(parts, conf.rpc_response_timeout), parts.compute,
        parts.claims, conf.host, parts.task_notifier, parts.reached,
        conf.default_availability_zone).run)


def _build_instances(
    parts: CellComponents, networks: NetworkDeallocation
) -> build_instances.BuildInstances:
    conf = parts.conf
    return build_instances.BuildInstances(
        parts.cell_database, parts.compute.get(parts.transports.get()),
        parts.claims, parts.clock, conf.host, conf.scheduler.max_attempts,
        parts.task_notifier, networks.free)
