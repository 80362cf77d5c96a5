# SPDX-License-Identifier: Apache-2.0
"""The compute agent of a host, and the agents of many hosts in one process."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from oslo_config import cfg
from oslo_log import log

from cellsched.batching import TaskQueue
from cellsched.compute import agent
from cellsched.compute.agent import Semaphores
from cellsched.compute.guests import GuestFiles
from cellsched.compute.guests import Guests
from cellsched.compute.host_name import HostIdentity
from cellsched.compute.host_name import HostName
from cellsched.compute.host_name import StateFile
from cellsched.compute import moves
from cellsched.compute.places import PlaceFiles
from cellsched.compute.places import Places
from cellsched.compute import progress
from cellsched.compute.provider_config import ProviderConfig
from cellsched.compute.tracker import Tracker
from cellsched.db import cell as cell_schema
from cellsched import exception
from cellsched import plugins
from cellsched.rpc import compute as compute_rpc
from cellsched.rpc import conductor as conductor_rpc
from cellsched.rpc import server as rpc_server
from cellsched.wiring import base
from cellsched.wiring.service import Service

LOG = log.getLogger(__name__)

#: Seconds between searches for builds that a restart interrupted.
_RESUME_S = 1

#: Kinds of plug-ins that a compute agent uses.
PLUGINS = (plugins.CLAIMS, plugins.NETWORKS, plugins.VIRT)


class HostAgent:
    """The agent of one host: an RPC server and periodic functions.

    :param queue: processes the messages; by default the agent has its own
    """

    def __init__(
        self, parts: base.AgentComponents, queue: TaskQueue | None = None
    ) -> None:
        self.parts = parts
        conf = parts.conf
        transport = parts.transports.get()
        locks = Semaphores(parts.clock)
        outcomes = progress.Outcomes()
        config = ProviderConfig(conf.compute.provider_config_location)
        config.load()
        self._name = HostName(
            conf.host, parts.cell_database, parts.clock,
            conf.service_down_time)
        self._state = StateFile(conf.state_path)
        places = Places(
            PlaceFiles(conf.state_path), parts.claims,
            conf.compute.packing_host_numa_cells_allocation_strategy)
        self._tracker = Tracker(
            conf, parts.cell_database, parts.claims, parts.driver, outcomes,
            new_uuid=parts.new_uuid, provider_config=config, name=self._name,
            state=self._state, places_=places)
        self._guests = Guests(
            conf.host, parts.cell_database, parts.driver, parts.clock,
            GuestFiles(conf.state_path), places)
        builder = agent.Agent(
            conf.host, parts.cell_database, parts.claims, parts.driver,
            conductor_rpc.ConductorAPI(
                transport, None, conf.upgrade_levels.conductor,
                conductor_rpc.BUILD_INSTANCES),
            parts.clock, outcomes, parts.network, self._guests, parts.metrics,
            conf.max_concurrent_builds, parts.reached, locks)
        self._mover = moving_agent(parts, locks, self._guests)
        self.server = rpc_server.server(
            transport, compute_rpc.TOPIC, conf.host, [builder, self._mover],
            queue=queue, clock=parts.clock)
        self.report = self._tracker.report
        self._builder = builder
        self.resume_soon = builder.resume_soon

    def resume(self) -> None:
        """Resume interrupted builds, deletions and migrations."""
        self._builder.resume()
        self._mover.revert_failed()

    def prepare(self) -> None:
        """Find out which host this is, map it, report it, and clean up.

        :raises cellsched.exception.HostMappingExists: another cell has a host
            of this name
        :raises cellsched.exception.HostIdentityConflict: another machine has
            its name or its uuid, or it has guests of another host
        """
        parts, conf = self.parts, self.parts.conf
        discovery = None
        if conf.api_database.connection:
            # Most agents have no API database, and import no code that reads
            # it.
            from cellsched.wiring.components import Components

            discovery = Components(
                conf, parts.clock, databases=parts.databases,
                transports=parts.transports).discovery
        # An agent that does not start must not write anything.
        cell = discovery and discovery.own_cell(
            conf.database.connection, conf.host)
        self._name.host_id = HostIdentity(
            conf, parts.cell_database, parts.claims, parts.driver,
            self._state, self._guests, parts.new_uuid).begin()
        if discovery and cell:
            discovery.map_host(cell, conf.host)
        self.report()
        self._mover.clean_up()
        self._mover.revert_failed()


@base.factory(base.AgentComponents)
def compute(conf: cfg.ConfigOpts, parts: base.AgentComponents) -> Service:
    """Return the agent of this host, on the transport of its cell.

    The host is reported before this returns. Builds that a restart
    interrupted continue when the agent starts. If the agent has the API
    database, it maps its host to the cell; otherwise a scheduler does.

    :raises cellsched.exception.HostMappingExists: another cell has a host of
        this name
    :raises cellsched.exception.HostIdentityConflict: another machine has its
        name or its uuid, or it has guests of another host
    :raises cellsched.exception.InvalidField: a provider configuration file is
        invalid
    """
    _check_stores(parts)
    host = HostAgent(parts)
    host.prepare()
    return Service(
        parts, [host.server],
        [(host.report, conf.report_interval), (host.resume_soon, _RESUME_S)],
        [(host.resume, conf.resume_interval)])


def agent_group(
    parts: base.AgentComponents, hosts: Iterable[base.AgentComponents],
    started: Callable[[], None] = lambda: None,
) -> tuple[Service, list[HostAgent]]:
    """Return the agents of many hosts of one cell, as one service.

    A process can so have thousands of hosts, for a demonstration or a test of
    the services above them. The agents share threads and the components of
    ``parts``. Over a broker, each agent also has a connection of its own and
    the thread that reads from it, because oslo.messaging receives the messages
    of one host with each listener. Hosts are reported before this returns.

    :param hosts: components of each host, with the databases, transports and
        claims of ``parts``
    :param started: called after each report of a host
    :returns: the service, and the agents in the order of ``hosts``
    """
    _check_stores(parts)
    agents = []
    conf = parts.conf
    places = conf.executor_thread_pool_size
    pool = ThreadPoolExecutor(TaskQueue.threads(places))
    queue = TaskQueue(pool, places)
    for host in hosts:
        agents.append(HostAgent(host, queue))
        agents[-1].prepare()
        started()
    return Service(
        parts, [each.server for each in agents],
        [(_call_each([each.report for each in agents]), conf.report_interval),
         (_call_each([each.resume_soon for each in agents]), _RESUME_S)],
        [(_call_each([each.resume for each in agents]),
          conf.resume_interval)],
        # The servers have waited for its threads, up to the deadline.
        at_stop=lambda: pool.shutdown(wait=False)), agents


def moving_agent(
    parts: base.AgentComponents, locks: Semaphores | None = None,
    guests: Guests | None = None,
) -> moves.MovingAgent:
    """Return the endpoint of migrations on a host.

    :param locks: locks of instances that the agent's endpoints share
    :param guests: the guests of the host
    """
    return moves.MovingAgent(
        parts.conf.host, parts.cell_database, parts.claims, parts.driver,
        parts.compute.get(parts.transports.get()), parts.network,
        guests or Guests(parts.conf.host, parts.cell_database, parts.driver,
                         parts.clock),
        parts.reached, locks or Semaphores(parts.clock))


def _call_each(functions: Sequence[Callable[[], None]]) -> Callable[[], None]:
    """Return a function that calls all functions, even if some fail.

    The first failure is raised at the end, and the other failures are logged.
    :class:`.HostNameTaken` is raised at once: the process must end.
    """
    def call_each() -> None:
        failures = []
        for function in functions:
            try:
                function()
            except exception.HostNameTaken:
                raise
            except Exception as exc:
                failures.append(exc)
        for failure in failures[1:]:
            LOG.error('Periodic task failed for another host too: %s', failure)
        if failures:
            raise failures[0]
    return call_each


def _check_stores(parts: base.AgentComponents) -> None:
    """Check the schemas of the cell's database and of the claim store."""
    cell_schema.SCHEMA.check(parts.cell_database)
    parts.claims.check()
