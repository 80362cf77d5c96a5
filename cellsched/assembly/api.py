# SPDX-License-Identifier: Apache-2.0
"""The API that a front end calls."""

import functools

from futurist import ThreadPoolExecutor
from oslo_config import cfg

from cellsched.api import aggregates
from cellsched.api import cells
from cellsched.api import flavors
from cellsched.api import host_drain
from cellsched.api import moves
from cellsched.api import quotas
from cellsched.api import server_groups
from cellsched.api import server_history
from cellsched.api import servers
from cellsched.api import services
from cellsched.api import validation
from cellsched.assembly import service
from cellsched.conf import api as api_conf
from cellsched.db import api as api_schema
from cellsched.filters import registry as filters
from cellsched.listing import pages
from cellsched.listing import servers as listing
from cellsched.parts import servers as server_parts
from cellsched.rpc import background_sender
from cellsched.rpc import compute as compute_rpc
from cellsched.rpc import conductor as conductor_rpc


class APIParts(server_parts.ServerParts):
    """The parts of a front end."""

    @functools.cached_property
    def senders(self) -> ThreadPoolExecutor:
        """Threads that send, for who does not wait for a broker for long."""
        return ThreadPoolExecutor(self.conf.executor_thread_pool_size)

    def close(self) -> None:
        if 'senders' in self.__dict__:
            self.senders.shutdown(wait=False)
        super().close()


class API:
    """The API that a front end calls, in its own process."""

    def __init__(
        self, parts: APIParts, servers_: servers.Servers,
        flavors_: flavors.Flavors, server_groups_: server_groups.ServerGroups,
        aggregates_: aggregates.Aggregates, quotas_: quotas.Quotas,
        moves_: moves.Moves, services_: services.Services,
        history: server_history.ServerHistory,
        host_drain_: host_drain.HostDrain, cells_: cells.CellStates,
    ) -> None:
        self.parts = parts
        self.servers = servers_
        self.flavors = flavors_
        self.server_groups = server_groups_
        self.aggregates = aggregates_
        self.quotas = quotas_
        self.moves = moves_
        self.services = services_
        self.history = history
        self.host_drain = host_drain_
        self.cells = cells_

    def close(self) -> None:
        self.parts.close()


@service.factory(APIParts)
def api(conf: cfg.ConfigOpts, parts: APIParts) -> API:
    """Return what a front end calls."""
    api_schema.SCHEMA.check(parts.database)
    reader = listing.ServerListing(
        parts.database, parts.cells, parts.gatherer, pages.ListingPolicy(
            api_conf.batch_size(conf),
            conf.api.instance_list_per_project_cells,
            conf.api.list_records_by_skipping_down_cells))
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
    services_ = services.Services(
        parts.database, parts.cells, parts.targets, parts.gatherer,
        conf.service_down_time)
    moves_ = moves.Moves(
        parts.database, parts.targets, reader, conductor_, compute_,
        parts.claims, conf.host, conf.service_down_time, parts.new_uuid)
    history = server_history.ServerHistory(
        reader, parts.cells, parts.gatherer)
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
        moves_, services_, history, host_drain.HostDrain(
            parts.database, parts.targets, moves_, services_, history,
            parts.clock),
        cells.CellStates(parts.database, parts.cells, parts.gatherer,
                         conf.service_down_time))
