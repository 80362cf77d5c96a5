# SPDX-License-Identifier: Apache-2.0
"""The API that a front end calls."""

import functools
from typing import TYPE_CHECKING

from oslo_config import cfg

from cellsched.api import authorization
from cellsched.conf import api as api_conf
from cellsched.db import api as api_schema
from cellsched.parts import servers as server_parts
from cellsched.wiring import factory

# A command uses one part of the API, and imports what that needs: all of it
# takes longer than most commands do.
if TYPE_CHECKING:
    from futurist import ThreadPoolExecutor

    from cellsched.api.aggregates import Aggregates
    from cellsched.api.cells import CellStates
    from cellsched.api.flavors import Flavors
    from cellsched.api.host_drain import HostDrain
    from cellsched.api.moves import Moves
    from cellsched.api.providers import Providers
    from cellsched.api.quotas import Quotas
    from cellsched.api import server_details
    from cellsched.api.server_groups import ServerGroups
    from cellsched.api import server_history
    from cellsched.api.servers import Servers
    from cellsched.api.services import Services
    from cellsched.listing import servers as listing
    from cellsched.rpc import background_sender
    from cellsched.rpc import compute as compute_rpc
    from cellsched.rpc import conductor as conductor_rpc

#: What the API has, by the names of its attributes.
FACETS = ('aggregates', 'cells', 'details', 'flavors', 'history',
          'host_drain', 'moves', 'providers', 'quotas', 'server_groups',
          'servers', 'services')


class APIParts(server_parts.ServerParts):
    """The parts of a front end."""

    @functools.cached_property
    def senders(self) -> 'ThreadPoolExecutor':
        """Threads that send, for who does not wait for a broker for long."""
        from futurist import ThreadPoolExecutor

        return ThreadPoolExecutor(self.conf.executor_thread_pool_size)

    def close(self) -> None:
        if 'senders' in self.__dict__:
            self.senders.shutdown(wait=False)
        super().close()


class API:
    """The API that a front end calls, in its own process.

    Each of :data:`FACETS` is made when it is first asked for.

    :param authorizer: says who may call what
    """

    def __init__(
        self, parts: APIParts, authorizer: authorization.Authorizer
    ) -> None:
        self.parts = parts
        self._authorizer = authorizer

    @functools.cached_property
    def aggregates(self) -> 'Aggregates':
        from cellsched.api.aggregates import Aggregates

        return Aggregates(
            self._authorizer, self.parts.database, self.parts.clock)

    @functools.cached_property
    def cells(self) -> 'CellStates':
        from cellsched.api.cells import CellStates

        parts = self.parts
        return CellStates(
            self._authorizer, parts.database, parts.cells, parts.gatherer,
            parts.conf.service_down_time)

    @functools.cached_property
    def details(self) -> 'server_details.Details':
        from cellsched.api import server_details

        return server_details.Details(
            self._authorizer, self.parts.database, self._listing,
            self.parts.gatherer)

    @functools.cached_property
    def flavors(self) -> 'Flavors':
        from cellsched.api.flavors import Flavors

        return Flavors(
            self._authorizer, self.parts.database, self.parts.clock)

    @functools.cached_property
    def history(self) -> 'server_history.ServerHistory':
        from cellsched.api import server_history

        return server_history.ServerHistory(
            self._authorizer, self._listing, self.parts.cells,
            self.parts.gatherer)

    @functools.cached_property
    def host_drain(self) -> 'HostDrain':
        from cellsched.api.host_drain import HostDrain

        return HostDrain(
            self._authorizer, self.parts.database, self.parts.targets,
            self.moves, self.services, self.history, self.parts.clock)

    @functools.cached_property
    def moves(self) -> 'Moves':
        from cellsched.api.moves import Moves

        parts = self.parts
        return Moves(
            self._authorizer, parts.database, parts.targets, self._listing,
            lambda: self._conductor, lambda: self._compute, parts.claims,
            parts.conf.host,
            parts.conf.service_down_time, parts.new_uuid)

    @functools.cached_property
    def providers(self) -> 'Providers':
        from cellsched.api.providers import Providers

        parts = self.parts
        return Providers(
            self._authorizer, parts.database, parts.cells, parts.gatherer,
            lambda: parts.claims, parts.clock, parts.new_uuid)

    @functools.cached_property
    def quotas(self) -> 'Quotas':
        from cellsched.api.quotas import Quotas

        parts = self.parts
        return Quotas(
            self._authorizer, parts.database, parts.cells, parts.gatherer,
            parts.quotas, parts.clock)

    @functools.cached_property
    def server_groups(self) -> 'ServerGroups':
        from cellsched.api.server_groups import ServerGroups

        return ServerGroups(
            self._authorizer, self.parts.database, self.parts.clock,
            self.parts.conf.api.max_limit)

    @functools.cached_property
    def servers(self) -> 'Servers':
        from cellsched.api.servers import Servers
        from cellsched.api import validation

        parts, conf = self.parts, self.parts.conf
        bounds = validation.ServerBounds(
            conf.scheduler.max_instances_per_request, conf.api.max_limit,
            lambda: self.hints, conf.api.server_group_members)
        return Servers(
            self._authorizer, parts.database, parts.targets, self._listing,
            lambda: self._conductor, lambda: self._compute, parts.claims,
            parts.clock, parts.quotas, bounds, parts.new_uuid, parts.reached)

    @functools.cached_property
    def services(self) -> 'Services':
        from cellsched.api.services import Services

        parts = self.parts
        return Services(
            self._authorizer, parts.database, parts.cells, parts.targets,
            parts.gatherer, parts.conf.service_down_time,
            lambda: parts.claims)

    @functools.cached_property
    def hints(self) -> frozenset[str] | None:
        """Names of the scheduler hints that are read; None for any."""
        from cellsched.filters import registry as filters

        return filters.hints(self.parts.conf)

    @functools.cached_property
    def _listing(self) -> 'listing.ServerListing':
        from cellsched.listing import pages
        from cellsched.listing import servers as listing

        parts, conf = self.parts, self.parts.conf
        return listing.ServerListing(
            parts.database, parts.cells, parts.gatherer, pages.ListingPolicy(
                api_conf.batch_size(conf),
                conf.api.instance_list_per_project_cells,
                conf.api.list_records_by_skipping_down_cells))

    @functools.cached_property
    def _conductor(self) -> 'conductor_rpc.ConductorAPI':
        from cellsched.rpc import conductor as conductor_rpc

        conf = self.parts.conf
        return conductor_rpc.ConductorAPI(
            self.parts.transports.get(), conf.api.send_retries,
            conf.upgrade_levels.conductor, send=self._send)

    @functools.cached_property
    def _compute(self) -> 'compute_rpc.ComputeAPIs':
        from cellsched.rpc import compute as compute_rpc

        return compute_rpc.ComputeAPIs(
            self.parts.conf.api.send_retries, self.parts.compute_cap,
            self._send)

    @functools.cached_property
    def _send(self) -> 'background_sender.BackgroundSender':
        from cellsched.rpc import background_sender

        return background_sender.BackgroundSender(
            self.parts.senders, self.parts.conf.api.send_timeout)

    def check_messages(self) -> None:
        """Make sure that messages can be sent, as far as options say.

        :raises cellsched.exception.ConfigurationInvalid: they cannot
        """
        self.parts.check_messages()
        self._conductor, self._compute  # noqa: B018

    def close(self) -> None:
        self.parts.close()


@factory.factory(APIParts)
def api(conf: cfg.ConfigOpts, parts: APIParts) -> API:
    """Return what a front end calls, all of which is there.

    What is wrong with the configuration is found here, and not by the first
    user of what it is wrong with.
    """
    from cellsched.policies import enforcer

    api_schema.SCHEMA.check(parts.database)
    made = API(parts, enforcer.PolicyAuthorizer(conf, parts.clock))
    made.check_messages()
    for facet in (*FACETS, 'hints'):
        getattr(made, facet)
    return made
