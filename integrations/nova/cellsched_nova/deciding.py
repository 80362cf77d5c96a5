# SPDX-License-Identifier: Apache-2.0
"""The decision on one request of Nova's, by the way that it needs.

A plain request is decided on columns, and what it takes is claimed of its
host. One that asks for more than columns say is put to Placement, as Nova
does, and decided on the hosts that are left.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import time
from typing import Any

from nova import exception as nova_exception
from nova import objects as nova_objects
from nova.scheduler import utils
import numpy as np
from oslo_log import log
from oslo_serialization import jsonutils
from oslo_utils import timeutils
from oslo_utils import uuidutils

from cellsched.claims import base as claims_base
from cellsched import exception
from cellsched.filters import base as filters_base
from cellsched.hosts import table as table_
from cellsched.hosts import view
from cellsched.scheduler.decision import pipeline as pipeline_
from cellsched.scheduler import demands
from cellsched.scheduler.placement import selection
from cellsched_nova import candidates
from cellsched_nova import choosing
from cellsched_nova import claims
from cellsched_nova import enabled_plugins
from cellsched_nova import placement
from cellsched_nova import requests
from cellsched_nova import rows
from cellsched_nova import source
from cellsched_nova import stages

LOG = log.getLogger(__name__)

#: Times to claim for all instances of a request together, before it is done in
#: turn.
_TOGETHER_MAX = 3

#: What Nova tells users of every request that finds no host.
NOVA_TEXT = 'There are not enough hosts available.'


@dataclasses.dataclass(frozen=True)
class Parts:
    """The parts that all decisions share until options change.

    :param host_manager: Nova's
    :param client: Nova's report client
    :param store: the product's claim store
    :param unread: finds what a request asks for that no column is read for
    :param conf: Nova's configuration
    """

    hosts: source.NovaHosts
    plugins: enabled_plugins.EnabledPlugins
    policy: selection.SelectionPolicy
    unread: demands.Unread
    host_manager: Any
    client: Any
    store: claims_base.ClaimStore
    conf: Any


class _NotTogether(Exception):
    """The instances of a request cannot be claimed for together.

    :ivar provider: one that has no room for all; None where an instance holds
        something
    """

    def __init__(self, provider: str | None) -> None:
        super().__init__(provider)
        self.provider = provider


def _claim_all(
    claimed: claims.ServerClaims,
    wanted: Sequence[tuple[str, choosing.AllocationRequest]],
) -> None:
    """Claim for all instances of a request with one write.

    :raises _NotTogether: nothing is claimed
    """
    try:
        refused = claimed.claim_all(wanted)
    except exception.ClaimConflict:
        raise _NotTogether(None) from None
    if refused is not None:
        raise _NotTogether(refused)


class RequestDecision:
    """Decides on one request.

    :param context: the requester's
    :param spec: Nova's request; it is written as Nova writes it
    :param instances: uuids; None where the caller knows of no claims
    :param alternates: how many others to return with each host
    """

    def __init__(
        self, parts: Parts, context: Any, spec: Any,
        instances: Sequence[str] | None, alternates: int,
    ) -> None:
        self._parts = parts
        self._context = context.elevated()
        self._spec = spec
        self._claiming = instances is not None
        self._instances = list(
            instances if instances is not None
            else (uuidutils.generate_uuid()
                  for _ in range(spec.num_instances)))
        self._alternates = alternates
        self._asked_at = time.monotonic()

    def select(self) -> list[list[Any]]:
        """Return for each instance its host, which is claimed, and others.

        :raises nova.exception.NoValidHost: there are not enough; nothing
            stays claimed
        """
        parts = self._parts
        parts.hosts.follow(self._context)
        try:
            self._request = requests.read(self._spec, self._instances)
            if utils.request_is_rebuild(self._spec):
                return self._on_fresh_hosts(self._rebuild)
            why = requests.beyond_columns(
                self._spec, self._request, parts.unread,
                parts.hosts.given_by_others, parts.conf.scheduler
                .query_placement_for_routed_network_aggregates)
            if why:
                LOG.debug('Decided on allocation candidates, as it asks for '
                          '%s', '; '.join(why))
                return self._on_candidates()
            LOG.debug('Decided on columns')
            return self._on_columns()
        except (exception.DatabaseUnreachable, exception.Invalid,
                exception.PluginFailed) as exc:
            # With any other error callers leave a server that was to move in
            # a state that is none.
            LOG.warning('Refused: %s', exc, exc_info=isinstance(
                exc, exception.PluginFailed))
            raise nova_exception.NoValidHost(
                reason=self._text(exc.format_message())) from exc

    def _on_columns(self) -> list[list[Any]]:
        resources = self._request.resources()

        def choose(together: bool = False) -> list[list[Any]]:
            states = self._states({})
            pipeline = self._parts.plugins.on_columns(
                self._spec, states, self._enabled_cells())
            return self._choose(pipeline, candidates.WholeHosts(
                resources, self._spec, states), states, together)

        if not self._claiming or len(self._instances) < 2:
            return self._on_freed_hosts(choose, resources)
        return self._on_freed_hosts(
            functools.partial(self._together_or_in_turn, choose), resources)

    def _together_or_in_turn(
        self, choose: Callable[[bool], list[list[Any]]]
    ) -> list[list[Any]]:
        """Return what is chosen, and claimed with one request if it can be.

        :param choose: is told whether to claim for all instances together
        """
        hosts = self._parts.hosts
        for _ in range(_TOGETHER_MAX):
            try:
                return choose(True)
            except _NotTogether as exc:
                if exc.provider is None:
                    break
                hosts.reload([exc.provider])
        return choose(False)

    def _on_candidates(self) -> list[list[Any]]:
        parts = self._parts
        by_provider, providers = candidates.find(
            self._context, parts.client, parts.host_manager, self._spec,
            not parts.conf.workarounds.disable_fallback_pcpu_query)
        if not by_provider:
            LOG.info('Placement has no allocation candidates')
            raise nova_exception.NoValidHost(reason='')

        def choose() -> list[list[Any]]:
            states = self._states(by_provider)
            pipeline = parts.plugins.on_candidates(
                self._spec, states, [stages.CandidateHosts(providers),
                                     *self._enabled_cells()])
            return self._choose(pipeline, candidates.AllocationCandidates(
                by_provider, self._spec, states), states)
        return self._on_fresh_hosts(choose)

    def _on_fresh_hosts(
        self, choose: Callable[[], list[list[Any]]]
    ) -> list[list[Any]]:
        """Return what is chosen; refuse only on hosts as they are now."""
        try:
            return choose()
        except nova_exception.NoValidHost:
            if not self._parts.hosts.refresh(self._context, self._asked_at):
                raise
            return choose()

    def _on_freed_hosts(
        self, choose: Callable[[], list[list[Any]]],
        resources: Mapping[str, int],
    ) -> list[list[Any]]:
        """Return what is chosen; refuse only what Placement has no room for.

        :param resources: what each instance takes
        """
        try:
            return self._on_fresh_hosts(choose)
        except nova_exception.NoValidHost:
            try:
                freed = self._parts.hosts.find_freed(self._context, resources)
            except placement.PlacementUnavailable as exc:
                LOG.warning('Refused on hosts as they were: %s', exc)
                freed = False
            if not freed:
                raise
            return choose()

    def _rebuild(self) -> list[list[Any]]:
        """Return the host of a server that is to get another image.

        Nova takes the hint's word for it that the server is there; it may be
        a user's.
        """
        hosts = self._view()
        rows_ = {row for name in self._spec.force_hosts or ()
                 for row in hosts.named(name)}
        mine = {hosts.row(node) for node in (
            self._parts.hosts.reported_nodes(self._instances).values())}
        found = sorted(rows_ & mine)
        states = self._states({})
        pipeline = self._parts.plugins.on_columns(self._spec, states)
        left = pipeline.candidates(
            hosts.at(np.array(found, dtype='int64')), self._request,
            rebuild=True)
        if not len(left):
            raise self._no_valid_host('the host does not suit the new image')
        [row] = left.filtered.rows[:1].tolist()
        chosen = choosing.ChosenHost(row, None, {})
        return [[self._selection(hosts, chosen, states)]
                for _ in self._instances]

    def _choose(
        self, pipeline: pipeline_.Pipeline, offers: choosing.Offers,
        states: rows.HostStates, together: bool = False,
    ) -> list[list[Any]]:
        """Return a host for each instance, which is claimed, and others.

        :param together: claim for all instances with one request
        :raises _NotTogether: that was refused
        """
        located = self._parts.hosts.reported_nodes(
            pipeline.located(self._request))
        hosts = self._view(located)
        claimed = claims.ServerClaims(
            self._context, self._parts.client, self._parts.store, self._spec)
        wanted: list[tuple[str, choosing.AllocationRequest]] = []

        def claim(uuid: str, request: choosing.AllocationRequest) -> bool:
            if together:
                wanted.append((uuid, request))
            return (together or not self._claiming
                    or claimed.claim(uuid, request))

        chooser = choosing.Chooser(
            pipeline, self._parts.policy, hosts, self._request, offers, claim)
        try:
            for instance in self._instances:
                self._begin(instance)
                if not chooser.choose(
                        instance, instance == self._instances[-1]):
                    raise self._no_valid_host(chooser.diagnosis(
                        self._parts.hosts.silent, len(self._instances)
                    ).text())
            if together:
                _claim_all(claimed, wanted)
            places = chooser.with_alternates(self._alternates)
            found = [[self._selection(hosts, each, states)
                      for each in place] for place in places]
        except BaseException:
            claimed.give_back()
            self._parts.hosts.expire(chooser.refused)
            raise
        self._note(hosts, chooser.refused, claimed.writes)
        LOG.info('Placed %d instances on %s', len(found),
                 sorted({first.service_host for first, *_ in found}))
        return found

    def _begin(self, instance: str) -> None:
        """Have filters see which instance comes now."""
        self._request.instance_uuid = instance
        self._spec.instance_uuid = instance
        self._spec.obj_reset_changes(['instance_uuid'])

    def _note(
        self, hosts: view.Hosts, refused: Iterable[str],
        writes: Iterable[dict[str, dict[str, int]]],
    ) -> None:
        """Have other requests count what was claimed.

        :param refused: compute nodes whose claims were
        :param writes: for each what it took of each provider
        """
        known = self._parts.hosts
        takings = known.table.note(hosts, table_.Check.NOTHING) or ()
        known.confirm(takings)
        known.table.reuse(hosts)
        known.claimed(writes)
        if refused:
            known.expire(refused)

    def _view(self, located: dict[str, str] | None = None) -> view.Hosts:
        return self._parts.hosts.table.view(
            timeutils.utcnow_ts(microsecond=True), located)

    def _states(
        self, candidates_: dict[str, list[Any]]
    ) -> rows.HostStates:
        manager = self._parts.host_manager
        read = functools.partial(
            manager.get_host_states_by_uuids, self._context)
        return rows.HostStates(
            lambda uuids: read(list(uuids), self._spec), candidates_,
            manager.aggs_by_id)

    def _enabled_cells(self) -> list[filters_base.Filter]:
        manager = self._parts.host_manager
        return [stages.EnabledCells(manager.cells.keys() - {
            cell.uuid for cell in manager.enabled_cells})]

    def _selection(
        self, hosts: view.Hosts, chosen: choosing.ChosenHost,
        states: rows.HostStates,
    ) -> Any:
        uuid, host, nodename, cell, zone = hosts.values_at(
            chosen.row, 'uuid', 'host', 'nodename', 'cell',
            'availability_zone')
        state = states.get(uuid)
        limits = {**({} if state is None else state.limits), **chosen.limits}
        wanted = chosen.allocation_request
        return nova_objects.Selection(
            compute_node_uuid=uuid, service_host=host, nodename=nodename,
            cell_uuid=cell,
            limits=nova_objects.SchedulerLimits.from_dict(limits),
            allocation_request=jsonutils.dumps(wanted),
            allocation_request_version=(
                None if wanted is None else candidates.VERSION),
            availability_zone=zone)

    def _no_valid_host(self, reason: str) -> nova_exception.NoValidHost:
        LOG.info('No valid host: %s', reason)
        return nova_exception.NoValidHost(reason=self._text(reason))

    def _text(self, reason: str) -> str:
        """Return what users are told."""
        if self._parts.conf.cellsched.no_valid_host_text == 'nova':
            return NOVA_TEXT
        return reason
