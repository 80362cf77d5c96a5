# SPDX-License-Identifier: Apache-2.0
"""A deployment of Nova, as commands read it."""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import random
from typing import Any

import nova.conf
from nova import context as nova_context
from nova import exception as nova_exception
from nova import objects as nova_objects
from nova.scheduler.client import report
from nova.scheduler import host_manager

from cellsched.cli import deployment
from cellsched.conf import database
from cellsched.context import RequestContext
from cellsched.db.api.decisions import DecisionRow
from cellsched.db import session
from cellsched import exception
from cellsched.hosts import document
from cellsched import objects
from cellsched.objects import base
from cellsched.scheduler.explanation import decision_record
from cellsched.scheduler import planning as product_planning
from cellsched_nova import claims
from cellsched_nova import configuration
from cellsched_nova.decision import Components
from cellsched_nova.decision import make_components
from cellsched_nova.decision import RequestDecision
from cellsched_nova import enabled_plugins
from cellsched_nova import filters
from cellsched_nova import options
from cellsched_nova import placement
from cellsched_nova import records
from cellsched_nova import requests
from cellsched_nova import rows
from cellsched_nova import source


class NovaPlanner:
    """Decides as the scheduler does, by either way, and claims nothing.

    :param parts: what decides; what it is to record is not
    """

    def __init__(self, parts: Components) -> None:
        # A plan is the same each time, whichever process makes it.
        self._parts = dataclasses.replace(
            parts, policy=dataclasses.replace(parts.policy, start=0.0))

    def plan(
        self, context: RequestContext, request: objects.RequestSpec,
        uuids: Sequence[str], alternates: int,
    ) -> tuple[list[list[Any]], decision_record.Decision]:
        """Return for each server its host and others, and the decision.

        Nothing is chosen, and there is a reason, where not all of them fit.

        :raises cellsched.exception.Invalid: Nova's API would have refused it
        """
        kept: list[decision_record.Decision] = []
        parts = dataclasses.replace(
            self._parts, record=lambda *said: kept.append(said[-1]))
        asking = nova_context.RequestContext(
            user_id=context.user_id, project_id=context.project_id,
            is_admin=True)
        decision = RequestDecision(
            parts, asking, requests.write(asking, request, uuids[0]), uuids,
            alternates, claim=False)
        try:
            places = decision.select()
        except nova_exception.NoValidHost as exc:
            if not kept:
                # Of a request that makes no sense nothing is recorded.
                raise exc.__cause__ or exc from None
            places = []
        return places, kept[-1]


CONF = nova.conf.CONF

#: The uuid of a server that is none.
_NOBODY = '00000000-0000-4000-8000-000000000000'


class NovaDeployment(deployment.ReadDeployment):
    """Nova's databases and Placement, and the records of decisions.

    What Nova's configuration enables decides. Nothing is claimed or written.

    :param arguments: options that say which configuration is read
    :raises cellsched.exception.Invalid: what cannot be honoured
    """

    retention_option = '[cellsched] decision_retention'

    def __init__(self, arguments: Sequence[str]) -> None:
        configure(arguments)
        problems = configuration.problems(CONF)
        if problems:
            raise exception.Invalid(
                'invalid configuration of Nova: '
                f'{"; ".join(problems)}')
        #: The product's options, as Nova's configuration says them.
        self.conf = configuration.ProductOptions(CONF).conf
        self._random = random.Random()
        self._taken: document.HostDocument | None = None

    @property
    def retention_s(self) -> int:
        return int(CONF.cellsched.decision_retention)

    @property
    def hints(self) -> frozenset[str] | None:
        # Nova ignores those that nobody reads.
        return None

    def cells(self) -> Mapping[str, str]:
        with configuration.translate_errors():
            return {cell.uuid: cell.name or cell.uuid for cell
                    in nova_objects.CellMappingList.get_all(_admin())}

    def flavor(self, name: str) -> objects.Flavor:
        with configuration.translate_errors():
            for read in (nova_objects.Flavor.get_by_flavor_id,
                         nova_objects.Flavor.get_by_name):
                try:
                    return _read(read(_admin(), name))
                except nova_exception.NotFound:
                    continue
        raise exception.FlavorNotFound(flavor=name)

    def server_group(self, uuid: str) -> objects.InstanceGroup:
        with configuration.translate_errors():
            try:
                return _read(nova_objects.InstanceGroup.get_by_uuid(
                    _admin(), uuid))
            except nova_exception.NotFound:
                raise exception.InstanceGroupNotFound(
                    uuid=uuid) from None

    def snapshot(self) -> document.HostDocument:
        with configuration.translate_errors():
            self._check_placement()
            self._taken = self._hosts.snapshot(_admin())
            return self._taken

    def planner(
        self, snapshot: document.HostDocument | None = None
    ) -> deployment.Planner:
        if snapshot is not None:
            return product_planning.on_snapshot(
                self.conf, snapshot, self._random,
                self._without_cells.on_columns(None, rows.HostStates(
                    _refuse, {})))
        with configuration.translate_errors():
            self._check_placement()
            return _Translating(NovaPlanner(self._parts))

    def capacity(
        self, snapshot: document.HostDocument, request: objects.RequestSpec
    ) -> product_planning.Capacity:
        """Return how many servers of one kind fit, and what rejects.

        :raises cellsched.exception.Invalid: columns do not say all about what
            is asked for
        """
        if snapshot is not self._taken:
            return product_planning.capacity(
                self.conf, snapshot, request,
                self._without_cells.on_columns(None, rows.HostStates(
                    _refuse, {})))
        with configuration.translate_errors():
            parts, context = self._parts, _admin()
            spec = requests.write(context, request, _NOBODY)
            why = requests.beyond_columns(
                spec, requests.read(spec, [_NOBODY]), parts.unread,
                parts.hosts.given_by_others, False)
            if why:
                raise exception.Invalid(
                    'Room is counted on columns, which do not say all about: '
                    f'{"; ".join(why)}')
            read = functools.partial(
                self._manager.get_host_states_by_uuids, context)
            states = rows.HostStates(
                lambda uuids: read(list(uuids), spec), {},
                self._manager.aggs_by_id)
            return product_planning.capacity(
                self.conf, snapshot, request, parts.plugins.on_columns(
                    spec, states, [filters.enabled_cells(self._manager)]))

    def decisions(
        self, name: str, limit: int | None
    ) -> list[DecisionRow]:
        return records.find(self._records, name, limit)

    @functools.cached_property
    def _records(self) -> session.Database:
        return records.open_database(CONF)

    @functools.cached_property
    def _client(self) -> Any:
        return report.report_client_singleton()

    @functools.cached_property
    def _manager(self) -> Any:
        # Instances are read of the hosts that are asked about, and not at
        # once of all.
        CONF.set_override('track_instance_changes', False, 'filter_scheduler')
        manager = host_manager.HostManager()
        configuration.check_cells(CONF, manager.cells.values())
        return manager

    @functools.cached_property
    def _hosts(self) -> source.NovaHosts:
        return source.NovaHosts(self._manager, self._client, CONF)

    @functools.cached_property
    def _parts(self) -> Components:
        return make_components(
            self.conf, self._random, self._hosts, self._manager, self._client,
            claims.make(self._client, 0.0, self._hosts.places), CONF)

    @functools.cached_property
    def _without_cells(self) -> enabled_plugins.EnabledPlugins:
        """The filters and weighers, for hosts of a file."""
        return enabled_plugins.EnabledPlugins(
            self.conf, *enabled_plugins.load(CONF))

    def _check_placement(self) -> None:
        """Make sure that Placement answers.

        A scheduler goes on with what it knew; here that is nothing.
        """
        answer = self._client.get('/traits?name=in:COMPUTE_NODE',
                                  version=placement.CANDIDATES)
        if answer.status_code != 200:
            raise placement.PlacementUnavailable(
                reason=f'it answers with {answer.status_code}')


class _Translating:
    """Plans, and translates the errors of Nova's libraries."""

    def __init__(self, planner: NovaPlanner) -> None:
        self._planner = planner

    def plan(self, *args: Any) -> Any:
        with configuration.translate_errors():
            return self._planner.plan(*args)


def configure(arguments: Sequence[str]) -> None:
    """Read Nova's configuration.

    :param arguments: options that say which
    :raises cellsched.exception.ConfigurationInvalid: it cannot be read
    """
    options.register_opts(CONF)
    database.be_impatient(CONF)
    # Nothing is sent, but URLs of cells may be templates of that of messages.
    configuration.read(['', *arguments])
    nova_objects.register_all()


def _admin() -> Any:
    return nova_context.get_admin_context()


def _read(thing: Any) -> Any:
    """Return an object of Nova's as one of the product's."""
    return base.Object.obj_from_primitive(thing.obj_to_primitive())


def _refuse(uuids: Sequence[str]) -> Any:
    raise exception.Invalid(
        'a filter or weigher of Nova\'s reads of hosts what no file has')
