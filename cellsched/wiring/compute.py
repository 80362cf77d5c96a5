# SPDX-License-Identifier: Apache-2.0
"""The compute agent of a host."""

import functools

from oslo_config import cfg

from cellsched.compute import agent
from cellsched.compute import host_name
from cellsched.compute import instance_locks
from cellsched.compute import moves
from cellsched.compute import progress
from cellsched.compute import provider_config
from cellsched.compute import tracker
from cellsched.conf import enabled
from cellsched.db import cell as cell_schema
from cellsched.parts import cell
from cellsched import plugins
from cellsched.rpc import compute as compute_rpc
from cellsched.rpc import conductor as conductor_rpc
from cellsched.rpc import server as rpc_server
from cellsched.virt import base as virt
from cellsched.wiring import factory
from cellsched.wiring import service

#: Seconds until an agent goes on with what it was cut off from.
RESUMED_S = 1

#: Kinds of plug-ins that it uses.
PLUGINS = (plugins.CLAIMS, plugins.NETWORKS, plugins.VIRT)


class AgentParts(cell.CellParts):
    """The parts of a compute agent."""

    @functools.cached_property
    def driver(self) -> virt.ComputeDriver:
        """The virtualisation driver of this host."""
        return enabled.make(
            self.conf, plugins.VIRT, virt.ComputeDriver, self.conf, self.clock)

    @functools.cached_property
    def instance_locks(self) -> instance_locks.Semaphores:
        """Locks that keep threads of the agent off the same instance."""
        return instance_locks.Semaphores(self.clock)


class HostAgent:
    """The agent of one host: its server, and what it does of its own."""

    def __init__(self, parts: AgentParts) -> None:
        self.parts = parts
        conf = parts.conf
        own = parts.transports.get()
        outcomes = progress.Outcomes()
        more = provider_config.ProviderConfig(
            conf.compute.provider_config_location)
        more.load()
        self._tracker = tracker.Tracker(
            conf, parts.cell_database, parts.claims, parts.driver, outcomes,
            new_uuid=parts.new_uuid, provider_config=more,
            name=host_name.HostName(
                conf.host, parts.cell_database, parts.clock,
                conf.service_down_time))
        self._builder = agent.Agent(
            conf.host, parts.cell_database, parts.claims, parts.driver,
            conductor_rpc.ConductorAPI(
                own, None, conf.upgrade_levels.conductor,
                conductor_rpc.BUILD_INSTANCES),
            parts.clock, outcomes, parts.network, conf.max_concurrent_builds,
            parts.reached, parts.instance_locks)
        self._mover = moving_agent(parts)
        self.server = rpc_server.server(
            own, compute_rpc.TOPIC, conf.host, [self._builder, self._mover])
        self.report = self._tracker.report
        self.resume = self._builder.resume
        self.resume_soon = self._builder.resume_soon

    def prepare(self) -> None:
        """Map and report the host, before it answers.

        :raises cellsched.exception.HostMappingExists: another cell has a host
            of this name
        """
        if self.parts.conf.api_database.connection:
            _map_own_host(self.parts)
        self.report()
        self._mover.clean_up()


@factory.factory(AgentParts)
def compute(conf: cfg.ConfigOpts, parts: AgentParts) -> service.Service:
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
    check_stores(parts)
    one = HostAgent(parts)
    one.prepare()
    return service.Service(
        parts, [one.server],
        [(one.report, conf.report_interval), (one.resume_soon, RESUMED_S)],
        [(one.resume, conf.resume_interval)])


def check_stores(parts: AgentParts) -> None:
    """Make sure that an agent can use its cell's database and its claims."""
    cell_schema.SCHEMA.check(parts.cell_database)
    parts.claims.check()


def moving_agent(parts: AgentParts) -> moves.MovingAgent:
    """Return what an agent answers."""
    return moves.MovingAgent(
        parts.conf.host, parts.cell_database, parts.claims, parts.driver,
        parts.compute.get(parts.transports.get()), parts.network,
        parts.reached, parts.instance_locks)


def _map_own_host(parts: AgentParts) -> None:
    # Most agents have no API database, and import nothing that knows it.
    from cellsched.parts import api_database

    conf = parts.conf
    api_database.APIDatabaseParts(
        conf, parts.clock, databases=parts.databases,
        transports=parts.transports,
    ).discovery.map_own_host(conf.database.connection, conf.host)
