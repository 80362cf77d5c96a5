# SPDX-License-Identifier: Apache-2.0
"""The API that a front end calls."""

import functools
import importlib
from typing import Any
from typing import TYPE_CHECKING

from oslo_config import cfg

from cellsched.api import authorization
from cellsched.api import validation
from cellsched.conf import api as api_conf
from cellsched.db import api as api_schema
from cellsched.hardware import aliases
from cellsched.listing.servers import ListingPolicy
from cellsched.listing.servers import ServerListing
from cellsched.rpc.client import BackgroundSender
from cellsched.rpc.compute import ComputeAPIs
from cellsched.rpc.conductor import ConductorAPI
from cellsched.wiring import base
from cellsched.wiring.components import Components

if TYPE_CHECKING:
    from cellsched.api.aggregates import Aggregates
    from cellsched.api.cells import CellStates
    from cellsched.api.flavors import Flavors
    from cellsched.api.host_drain import HostDrain
    from cellsched.api.moves import Moves
    from cellsched.api.providers import Providers
    from cellsched.api.quotas import Quotas
    from cellsched.api.server_details import Details
    from cellsched.api.server_details import ServerHistory
    from cellsched.api.server_groups import ServerGroups
    from cellsched.api.servers import Servers
    from cellsched.api.services import Services

#: Attributes of the API, each a controller.
CONTROLLERS = (
    'aggregates', 'cells', 'details', 'flavors', 'history', 'host_drain',
    'moves', 'providers', 'quotas', 'server_groups', 'servers', 'services')


class API:
    """The API that a front end calls, in its own process.

    Each of :data:`CONTROLLERS` is made, and its module imported, when it is
    first used: a command uses one of them, and the import of all takes longer
    than most commands.

    :param authorizer: checks the policy rule of each operation
    """

    def __init__(
        self, parts: Components, authorizer: authorization.Authorizer
    ) -> None:
        self.parts = parts
        self._authorizer = authorizer

    def _make(self, module: str, name: str, *args: Any) -> Any:
        """Return a controller of a module of ``cellsched.api``."""
        controller = getattr(
            importlib.import_module(f'cellsched.api.{module}'), name)
        return controller(self._authorizer, *args)

    @functools.cached_property
    def aggregates(self) -> 'Aggregates':
        parts = self.parts
        return self._make(
            'aggregates', 'Aggregates', parts.database, parts.targets,
            parts.clock, parts.conf.default_availability_zone, parts.new_uuid)

    @functools.cached_property
    def cells(self) -> 'CellStates':
        parts = self.parts
        return self._make('cells', 'CellStates', parts.database, parts.cells,
                          parts.gatherer, parts.conf.service_down_time)

    @functools.cached_property
    def details(self) -> 'Details':
        return self._make('server_details', 'Details', self.parts.database,
                          self._listing, self.parts.gatherer)

    @functools.cached_property
    def flavors(self) -> 'Flavors':
        return self._make('flavors', 'Flavors', self.parts.database,
                          self.parts.clock)

    @functools.cached_property
    def history(self) -> 'ServerHistory':
        return self._make('server_details', 'ServerHistory', self._listing,
                          self.parts.cells, self.parts.gatherer)

    @functools.cached_property
    def host_drain(self) -> 'HostDrain':
        parts = self.parts
        return self._make('host_drain', 'HostDrain', parts.database,
                          parts.targets, self.moves, self.services,
                          self.history, parts.claims, parts.clock,
                          parts.conf.service_down_time)

    @functools.cached_property
    def moves(self) -> 'Moves':
        parts = self.parts
        return self._make(
            'moves', 'Moves', parts.database, parts.targets, self._listing,
            lambda: self._conductor, lambda: self._compute, parts.claims,
            parts.conf.host, parts.conf.service_down_time, parts.new_uuid)

    @functools.cached_property
    def providers(self) -> 'Providers':
        parts = self.parts
        return self._make(
            'providers', 'Providers', parts.database, parts.cells,
            parts.gatherer, lambda: parts.claims, parts.clock, parts.new_uuid)

    @functools.cached_property
    def quotas(self) -> 'Quotas':
        parts = self.parts
        return self._make('quotas', 'Quotas', parts.database, parts.cells,
                          parts.gatherer, parts.quotas, parts.clock)

    @functools.cached_property
    def server_groups(self) -> 'ServerGroups':
        parts = self.parts
        return self._make('server_groups', 'ServerGroups', parts.database,
                          parts.clock, parts.conf.api.max_limit)

    @functools.cached_property
    def servers(self) -> 'Servers':
        parts, conf = self.parts, self.parts.conf
        bounds = validation.ServerBounds(
            conf.scheduler.max_instances_per_request, conf.api.max_limit,
            lambda: self.hints, conf.api.server_group_members)
        return self._make(
            'servers', 'Servers', parts.database, parts.targets,
            self._listing, lambda: self._conductor, lambda: self._compute,
            parts.claims, parts.clock, parts.quotas, bounds, parts.new_uuid,
            parts.reached, conf.host, conf.service_down_time,
            conf.default_schedule_zone or None,
            aliases.by_name(conf.pci.alias))

    @functools.cached_property
    def services(self) -> 'Services':
        parts = self.parts
        return self._make(
            'services', 'Services', parts.database, parts.cells,
            parts.targets, parts.gatherer, parts.conf.service_down_time,
            lambda: parts.claims, parts.clock)

    @functools.cached_property
    def hints(self) -> frozenset[str] | None:
        """Names of the scheduler hints that filters read; None for any."""
        return read_hints(self.parts.conf)

    @functools.cached_property
    def _listing(self) -> ServerListing:
        parts, conf = self.parts, self.parts.conf
        return ServerListing(
            parts.database, parts.cells, parts.gatherer, ListingPolicy(
                api_conf.batch_size(conf),
                conf.api.instance_list_per_project_cells,
                conf.api.list_records_by_skipping_down_cells))

    @functools.cached_property
    def _conductor(self) -> ConductorAPI:
        conf = self.parts.conf
        return ConductorAPI(
            self.parts.transports.get(), conf.api.send_retries,
            conf.upgrade_levels.conductor, send=self._send)

    @functools.cached_property
    def _compute(self) -> ComputeAPIs:
        return ComputeAPIs(
            self.parts.conf.api.send_retries, self.parts.compute_cap,
            self._send)

    @functools.cached_property
    def _send(self) -> BackgroundSender:
        return BackgroundSender(
            self.parts.senders, self.parts.conf.api.send_timeout)

    def check_messages(self) -> None:
        """Check the options of messages; connects to nothing.

        :raises cellsched.exception.ConfigurationInvalid: one is invalid
        """
        self.parts.check_messages()
        self._conductor, self._compute  # noqa: B018

    def close(self) -> None:
        self.parts.close()


@base.factory(Components)
def api(conf: cfg.ConfigOpts, parts: Components) -> API:
    """Return the API of a front end, with all its controllers made.

    So an error of the configuration is raised here, and not by a request.
    """
    # A command checks no policy, and does not import oslo.policy.
    from cellsched.policies import enforcer

    api_schema.SCHEMA.check(parts.database)
    controllers = API(parts, enforcer.PolicyAuthorizer(conf, parts.clock))
    controllers.check_messages()
    parts.trace('api')
    for name in (*CONTROLLERS, 'hints'):
        getattr(controllers, name)
    return controllers


def read_hints(conf: cfg.ConfigOpts) -> frozenset[str] | None:
    """Return the scheduler hints that filters read; None for any."""
    # Filters import NumPy, which most commands do not need.
    from cellsched.scheduler.decision import registry

    return registry.read_hints(conf)


def command_api(parts: Components) -> API:
    """Return the API of a command, which checks no policy rule.

    The user of a command can read the URLs of the databases.
    """
    api_schema.SCHEMA.check(parts.database)
    return API(parts, authorization.LocalOperator())
