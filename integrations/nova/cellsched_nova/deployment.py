# SPDX-License-Identifier: Apache-2.0
"""A deployment of Nova, read by the commands."""

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
from cellsched.scheduler.decision.pipeline import Pipeline
from cellsched.scheduler.explanation import decision_record
from cellsched.scheduler import planning as product_planning
from cellsched_nova import claims
from cellsched_nova import configuration
from cellsched_nova.decision import Components
from cellsched_nova.decision import make_components
from cellsched_nova.decision import RequestDecision
from cellsched_nova import enabled_plugins
from cellsched_nova import options
from cellsched_nova import placement
from cellsched_nova import records
from cellsched_nova import requests
from cellsched_nova import source


class NovaPlanner:
    """Selects hosts as the scheduler does, without claims.

    :param parts: the components; no decision is recorded
    """

    def __init__(self, parts: Components) -> None:
        # Without a random start, each process makes the same plan.
        self._parts = dataclasses.replace(
            parts, policy=dataclasses.replace(parts.policy, start=0.0))

    @configuration.translate_errors()
    def plan(
        self, context: RequestContext, request: objects.RequestSpec,
        uuids: Sequence[str], alternates: int,
    ) -> tuple[list[list[Any]], decision_record.Decision]:
        """Return the host and alternates of each server, and the decision.

        If some servers do not fit, the list is empty and the decision has the
        reason.

        :raises cellsched.exception.Invalid: Nova's API would reject the
            request
        """
        kept: list[decision_record.Decision] = []
        parts = dataclasses.replace(
            self._parts, record=lambda *fields: kept.append(fields[-1]))
        requester = nova_context.RequestContext(
            user_id=context.user_id, project_id=context.project_id,
            is_admin=True)
        decision = RequestDecision(
            parts, requester, requests.write(requester, request, uuids[0]),
            uuids, alternates, claim=False)
        try:
            places = decision.select()
        except nova_exception.NoValidHost as exc:
            if not kept:
                # An invalid request has no decision.
                raise exc.__cause__ or exc from None
            places = []
        return places, kept[-1]


CONF = nova.conf.CONF

#: A uuid that no instance has.
_NO_INSTANCE = '00000000-0000-4000-8000-000000000000'


class NovaDeployment(deployment.ReadDeployment):
    """Nova's databases and Placement, and the records of decisions.

    The filters and weighers of Nova's configuration select hosts. Nothing is
    claimed or written.

    :param arguments: options that name the configuration files
    :raises cellsched.exception.Invalid: the configuration is not supported
    """

    retention_option = '[cellsched] decision_retention'

    def __init__(self, arguments: Sequence[str]) -> None:
        configure(arguments)
        refuse_any(configuration.problems(CONF))
        #: The product's options, with the values of Nova's configuration.
        self.conf = configuration.ProductOptions(CONF).conf
        self._random = random.Random()
        self._last_snapshot: document.HostDocument | None = None

    @property
    def retention_s(self) -> int:
        return int(CONF.cellsched.decision_retention)

    @property
    def hints(self) -> frozenset[str] | None:
        # Nova ignores unknown hints.
        return None

    def cells(self) -> Mapping[str, str]:
        _need('api_database')
        with configuration.translate_errors():
            return {cell.uuid: cell.name or cell.uuid for cell
                    in nova_objects.CellMappingList.get_all(_admin())}

    def flavor(self, name: str) -> objects.Flavor:
        _need('api_database')
        with configuration.translate_errors():
            for read in (nova_objects.Flavor.get_by_flavor_id,
                         nova_objects.Flavor.get_by_name):
                try:
                    return _read(read(_admin(), name))
                except nova_exception.NotFound:
                    continue
        raise exception.FlavorNotFound(flavor=name)

    def server_group(self, uuid: str) -> objects.InstanceGroup:
        _need('api_database')
        with configuration.translate_errors():
            try:
                return _read(nova_objects.InstanceGroup.get_by_uuid(
                    _admin(), uuid))
            except nova_exception.NotFound:
                raise exception.InstanceGroupNotFound(uuid=uuid) from None

    def snapshot(self) -> document.HostDocument:
        with configuration.translate_errors():
            self._check_placement()
            self._last_snapshot = self._hosts.snapshot(_admin())
            return self._last_snapshot

    def planner(
        self, snapshot: document.HostDocument | None = None
    ) -> deployment.Planner:
        if snapshot is not None:
            return product_planning.on_snapshot(
                self.conf, snapshot, self._random, self._file_pipeline)
        with configuration.translate_errors():
            self._check_placement()
            return NovaPlanner(self._parts)

    def capacity(
        self, snapshot: document.HostDocument, request: objects.RequestSpec
    ) -> product_planning.Capacity:
        """Return how many servers of one kind fit, and the rejections.

        :raises cellsched.exception.Invalid: columns do not cover the request
        """
        if snapshot is not self._last_snapshot:
            return product_planning.capacity(
                self.conf, snapshot, request, self._file_pipeline)
        with configuration.translate_errors():
            parts, context = self._parts, _admin()
            spec = requests.write(context, request, _NO_INSTANCE)
            why = requests.beyond_columns(
                spec, requests.read(spec, [_NO_INSTANCE]), parts.unsupported,
                parts.hosts.non_host_classes, False)
            if not why and request.hardware() is not None:
                # Only plain resources are counted.
                why = ['NUMA cells or PCI devices']
            if why:
                raise exception.Invalid(
                    'the capacity cannot be computed for a request with '
                    f'{"; ".join(why)}; expected a request that columns cover')
            read = functools.partial(
                self._manager.get_host_states_by_uuids, context)
            states = enabled_plugins.HostStates(
                lambda uuids: read(list(uuids), spec), {},
                self._manager.aggs_by_id)
            return product_planning.capacity(
                self.conf, snapshot, request,
                parts.plugins.on_columns(spec, states))

    def pipeline(self) -> Pipeline:
        return self._file_pipeline

    def decisions(self, name: str, limit: int | None) -> list[DecisionRow]:
        return records.find(self._records, name, limit)

    @functools.cached_property
    def _records(self) -> session.Database:
        return records.open_database(CONF)

    @functools.cached_property
    def _client(self) -> Any:
        return report.report_client_singleton()

    @functools.cached_property
    def _manager(self) -> Any:
        # Read instances only for the requested hosts, not for all hosts at
        # the start.
        CONF.set_override('track_instance_changes', False, 'filter_scheduler')
        manager = host_manager.HostManager()
        configuration.check_cells(CONF, manager.cells.values())
        return manager

    @functools.cached_property
    def _hosts(self) -> source.NovaHosts:
        return source.NovaHosts(
            self._manager, self._client, CONF,
            hardware=enabled_plugins.hardware_columns(CONF, self._manager))

    @functools.cached_property
    def _parts(self) -> Components:
        return make_components(
            self.conf, self._random, self._hosts, self._manager, self._client,
            claims.make(self._client, 0.0, self._hosts.places), CONF)

    @functools.cached_property
    def _file_pipeline(self) -> Pipeline:
        """The filters and weighers for the hosts of a file."""
        return enabled_plugins.EnabledPlugins(
            self.conf, *enabled_plugins.load(CONF),
            enabled_plugins.own_filters(CONF)).on_columns(
                None, enabled_plugins.HostStates(_refuse, {}))

    def _check_placement(self) -> None:
        """Check that Placement answers.

        A scheduler continues with the last known hosts; a command has none.
        """
        _need('api_database', 'database', 'placement')
        answer = self._client.get('/traits?name=in:COMPUTE_NODE',
                                  version=placement.CANDIDATES)
        if answer.status_code != 200:
            raise placement.PlacementUnavailable(
                reason=f'it answered with status {answer.status_code}')


def configure(arguments: Sequence[str]) -> None:
    """Read Nova's configuration.

    :param arguments: options that name the configuration files
    :raises cellsched.exception.ConfigurationInvalid: an option is invalid, or
        a file cannot be read
    """
    options.register_opts(CONF)
    database.be_impatient(CONF)
    # No message is sent, but URLs of cells may be templates of transport_url.
    configuration.read(['', *arguments])
    nova_objects.register_all()


def _need(*groups: str) -> None:
    refuse_any(configuration.missing(CONF, *groups))


def refuse_any(problems: Sequence[str]) -> None:
    """Refuse a configuration with problems.

    :param problems: a line for each
    :raises cellsched.exception.Invalid: there are any
    """
    if problems:
        raise exception.Invalid(
            f'invalid configuration of Nova: {"; ".join(problems)}')


def _admin() -> Any:
    return nova_context.get_admin_context()


def _read(thing: Any) -> Any:
    """Return the product's object for an object of Nova."""
    return base.Object.obj_from_primitive(thing.obj_to_primitive())


def _refuse(uuids: Sequence[str]) -> Any:
    raise exception.Invalid(
        'a filter or weigher of Nova reads an attribute that a file of hosts '
        'does not have; expected plug-ins that read columns')
