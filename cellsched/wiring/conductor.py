# SPDX-License-Identifier: Apache-2.0
"""The conductor: above the cells, of a cell, or both."""

from collections.abc import Callable
from typing import Any

from oslo_config import cfg

from cellsched.conductor import cell_recovery
from cellsched.conductor import service as conductor_service
from cellsched.conductor.tasks import build_instances
from cellsched.conductor.tasks import move
from cellsched.db import cell as cell_schema
from cellsched import embedding
from cellsched.network import deallocation
from cellsched.parts import cell
from cellsched import plugins
from cellsched.rpc import compute_cap
from cellsched.rpc import conductor as conductor_rpc
from cellsched.rpc import scheduler as scheduler_rpc
from cellsched.rpc import server as rpc_server
from cellsched.wiring import factory
from cellsched.wiring import service

#: How often an overdue move is looked for before it is twice overdue.
_LOOKS = 4

#: Kinds of plug-ins that it uses.
PLUGINS = (plugins.CLAIMS, plugins.NETWORKS, plugins.QUOTA)


class ConductorServiceParts(embedding.ConductorParts, cell.CellParts):
    """The parts of a conductor, wherever it is."""

    def lowest_compute(self) -> compute_cap.Lowest:
        """Ask all cells, or without the API database the process's own."""
        if self.conf.api_database.connection:
            return super().lowest_compute()
        return cell.CellParts.lowest_compute(self)


@factory.factory(ConductorServiceParts)
def conductor(
    conf: cfg.ConfigOpts, parts: ConductorServiceParts
) -> service.Service:
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
        endpoints.append(_moving(parts))
        periodic += embedded.periodic
    if conf.database.connection or not endpoints:
        cell_schema.SCHEMA.check(parts.cell_database)
        endpoints.append(conductor_service.CellConductor(
            _build_instances(parts)))
        periodic.append((cell_recovery.NetworkCleanup(
            parts.cell_database, _freeing(parts)).run,
            conf.conductor.network_sweep_interval))
        periodic += _stalled_migrations(parts)
        parts.claims.check()
    return service.Service(parts, [rpc_server.server(
        parts.transports.get(), conductor_rpc.TOPIC, conf.host, endpoints)],
        periodic)


def _moving(parts: ConductorServiceParts) -> conductor_service.MovingConductor:
    """Return what a conductor above the cells answers."""
    conf = parts.conf
    return conductor_service.MovingConductor(move.Move(
        parts.database, parts.targets,
        scheduler_rpc.SchedulerAPI(
            parts.transports.get(), parts.database.timestamp,
            conf.rpc_response_timeout, conf.long_rpc_timeout,
            conf.upgrade_levels.scheduler, scheduler_rpc.VERSION),
        parts.compute, parts.claims, conf.host,
        parts.task_notifier, parts.reached))


def _stalled_migrations(
    parts: ConductorServiceParts
) -> list[tuple[Callable[[], None], float]]:
    """Return what a conductor of a cell does of its own, and how often."""
    conf = parts.conf
    deadline_s = conf.conductor.move_deadline
    return [(cell_recovery.StalledMigrations(
        parts.cell_database, parts.compute.get(parts.transports.get()),
        parts.claims, conf.host, deadline_s,
        conf.service_down_time).run, deadline_s / _LOOKS)]


def _build_instances(
    parts: ConductorServiceParts
) -> build_instances.BuildInstances:
    conf = parts.conf
    return build_instances.BuildInstances(
        parts.cell_database, parts.compute.get(parts.transports.get()),
        parts.claims, parts.clock, conf.host, conf.scheduler.max_attempts,
        parts.task_notifier, _freeing(parts).free)


def _freeing(parts: ConductorServiceParts) -> deallocation.NetworkDeallocation:
    return deallocation.NetworkDeallocation(
        parts.network, parts.cell_database, parts.clock)
