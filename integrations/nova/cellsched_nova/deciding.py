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
from nova.scheduler import utils
import numpy as np
from oslo_log import log
from oslo_utils import timeutils
from oslo_utils import uuidutils

from cellsched import exception
from cellsched.filters import base as filters_base
from cellsched.hosts import table
from cellsched.hosts import view
from cellsched.scheduler.decision.pipeline import Pipeline
from cellsched.scheduler.explanation import decision_record
from cellsched_nova import candidates
from cellsched_nova import choosing
from cellsched_nova import claims
from cellsched_nova import decision_parts
from cellsched_nova import placement
from cellsched_nova import requests
from cellsched_nova import rows
from cellsched_nova import selections
from cellsched_nova import stages

LOG = log.getLogger(__name__)

#: Times to claim for all instances of a request together, before it is done in
#: turn.
_TOGETHER_MAX = 3

#: Times to look for hosts that were freed; others may be faster to use them.
_FREED_MAX = 3

#: What a request is decided on, as it is told.
COLUMNS, CANDIDATES = 'columns', 'allocation candidates'

#: What Nova tells users of every request that finds no host.
NOVA_TEXT = 'There are not enough hosts available.'


class RequestDecision:
    """Decides on one request.

    :param context: the requester's
    :param spec: Nova's request; it is written as Nova writes it
    :param instances: uuids; None where the caller knows of no claims
    :param alternates: how many others to return with each host
    :param claim: False to claim nothing in any case, and to have no other
        request count what was chosen
    """

    def __init__(
        self, parts: decision_parts.Parts, context: Any, spec: Any,
        instances: Sequence[str] | None, alternates: int,
        claim: bool = True, watcher: choosing.Watcher | None = None,
    ) -> None:
        self._parts = parts
        self._context = context.elevated()
        self._spec = spec
        self._claiming = claim and instances is not None
        self._patience = parts.claims.patience
        self._counts = claim
        self._watcher = watcher
        self._instances = list(
            instances if instances is not None
            else (uuidutils.generate_uuid()
                  for _ in range(spec.num_instances)))
        self._alternates = alternates
        self._asked_at = time.monotonic()
        self._request: Any = None
        # How often hosts had been read when they were looked at last.
        self._readings = 0
        # What was decided last, and how.
        self._decision: decision_record.Decision | None = None
        self._way: decision_record.Way | None = None

    def select(self) -> list[list[Any]]:
        """Return for each instance its host, which is claimed, and others.

        :raises nova.exception.NoValidHost: there are not enough; nothing
            stays claimed
        """
        parts = self._parts
        parts.hosts.follow(self._context)
        timeout_s = (parts.conf.cellsched.claim_timeout
                     if self._claiming else 0.0)
        try:
            self._request = requests.read(self._spec, self._instances)
            with self._patience.of_request(timeout_s):
                found = self._select()
        except (exception.DatabaseUnreachable, exception.Invalid,
                exception.PluginFailed,
                placement.PlacementUnavailable) as exc:
            # With any other error callers leave a server that was to move in
            # a state that is none.
            LOG.warning('Refused: %s', exc, exc_info=isinstance(
                exc, exception.PluginFailed))
            self._record(self._undecided(exc.format_message()))
            raise nova_exception.NoValidHost(
                reason=self._text(exc.format_message())) from exc
        except nova_exception.NoValidHost as exc:
            self._record(self._decision or self._undecided(
                exc.kwargs.get('reason') or exc.format_message()))
            raise
        self._record(self._decision)
        return found

    def _select(self) -> list[list[Any]]:
        parts = self._parts
        if utils.request_is_rebuild(self._spec):
            return self._on_fresh_hosts(self._rebuild)
        why = requests.beyond_columns(
            self._spec, self._request, parts.unread,
            parts.hosts.given_by_others, parts.conf.scheduler
            .query_placement_for_routed_network_aggregates)
        self._way = decision_record.Way(CANDIDATES if why else COLUMNS, why)
        if why:
            LOG.info('Deciding on allocation candidates, as it asks for '
                     '%s', '; '.join(why))
            return self._on_candidates()
        LOG.info('Deciding on columns')
        return self._on_columns()

    def _record(self, decision: decision_record.Decision | None) -> None:
        """Have a decision kept, with the way that it was made."""
        if self._request is None or decision is None:
            # It made no sense, and nothing can be told of it.
            return
        decision.way = self._way
        self._parts.record(
            self._context, self._request, self._instances, decision)

    def _undecided(self, reason: str) -> decision_record.Decision:
        """Return what is told where no host was asked."""
        return decision_record.Decision(
            len(self._parts.hosts.table), (), (), reason)

    def _on_columns(self) -> list[list[Any]]:
        resources = self._request.resources()

        def choose(together: bool = False) -> list[list[Any]]:
            states = self._states({})
            pipeline = self._parts.plugins.on_columns(
                self._spec, states, self._cells())
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
            except claims.NotTogether as exc:
                if exc.provider is None:
                    break
                hosts.reload([exc.provider])
        return choose(False)

    def _on_candidates(self) -> list[list[Any]]:
        parts = self._parts
        by_provider, providers = candidates.find(
            self._context, parts.client, parts.host_manager, self._spec,
            not parts.conf.workarounds.disable_fallback_pcpu_query,
            self._patience.left_s)
        if not by_provider:
            LOG.info('Placement has no allocation candidates')
            self._decision = self._undecided(
                'Placement has no allocation candidates.')
            raise nova_exception.NoValidHost(reason='')

        def choose() -> list[list[Any]]:
            states = self._states(by_provider)
            pipeline = parts.plugins.on_candidates(
                self._spec, states, [stages.CandidateHosts(providers),
                                     *self._cells()])
            return self._choose(pipeline, candidates.AllocationCandidates(
                by_provider, self._spec, states), states)
        return self._on_fresh_hosts(choose)

    def _on_fresh_hosts(
        self, choose: Callable[[], list[list[Any]]]
    ) -> list[list[Any]]:
        """Return what is chosen; refuse only on hosts as they are now."""
        hosts = self._parts.hosts
        try:
            return choose()
        except nova_exception.NoValidHost:
            if not hosts.refresh(self._context, self._asked_at) and (
                    hosts.unread is None):
                raise
        hosts.await_placement(self._context, self._patience.left_s())
        return choose()

    def _on_freed_hosts(
        self, choose: Callable[[], list[list[Any]]],
        resources: Mapping[str, int],
    ) -> list[list[Any]]:
        """Return what is chosen; refuse only what Placement has no room for.

        :param resources: what each instance takes
        """
        for _ in range(_FREED_MAX):
            try:
                return self._on_fresh_hosts(choose)
            except nova_exception.NoValidHost:
                if not self._parts.hosts.find_freed(
                        self._context, resources, self._readings):
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
        its = hosts.at(np.array(found, dtype='int64'))
        left = pipeline.candidates(its, self._request, rebuild=True)
        self._decision = decision_record.of(its, left, ())
        if not len(left):
            raise nova_exception.NoValidHost(reason=self._refuse(
                'the host does not suit the new image'))
        [row] = left.filtered.rows[:1].tolist()
        chosen = choosing.ChosenHost(row, None, {})
        return [[selections.make(hosts, chosen, states)]
                for _ in self._instances]

    def _choose(
        self, pipeline: Pipeline, offers: choosing.Offers,
        states: rows.HostStates, together: bool = False,
    ) -> list[list[Any]]:
        """Return a host for each instance, which is claimed, and others.

        :param together: claim for all instances with one request
        :raises claims.NotTogether: that was refused
        """
        located = self._parts.hosts.reported_nodes(
            pipeline.located(self._request))
        # One that ends just now is counted too late, and so looked at.
        self._readings = self._parts.hosts.readings
        hosts = self._view(located)
        watcher = self._watcher
        if watcher is not None:
            watcher.begin(hosts)
        claimed = claims.ServerClaims(
            self._parts.claims, self._context, self._spec)
        wanted: list[tuple[str, choosing.AllocationRequest]] = []

        def claim(uuid: str, request: choosing.AllocationRequest) -> bool:
            if together:
                wanted.append((uuid, request))
            return (together or not self._claiming
                    or claimed.claim(uuid, request))

        chooser = choosing.Chooser(
            pipeline, self._parts.policy, hosts, self._request, offers, claim,
            watcher)
        try:
            for instance in self._instances:
                self._begin(instance)
                if not chooser.choose(
                        instance, instance == self._instances[-1]):
                    raise nova_exception.NoValidHost(
                        reason=self._none_left(chooser))
            if together:
                claimed.claim_together(wanted)
            places = chooser.with_alternates(self._alternates)
            found = [[selections.make(hosts, each, states)
                      for each in place] for place in places]
            self._decision = chooser.decision()
        except BaseException:
            claimed.give_back()
            self._parts.hosts.expire(chooser.refused)
            raise
        if self._counts:
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
        """Have other requests count what was chosen, claimed or not.

        :param refused: compute nodes whose claims were
        :param writes: for each what it took of each provider
        """
        known = self._parts.hosts
        allocations = known.table.reserve(hosts, table.Verify.NONE) or ()
        known.confirm(allocations, self._claiming)
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

    def _cells(self) -> list[filters_base.Filter]:
        return [stages.enabled_cells(self._parts.host_manager),
                stages.AnsweringCells(self._parts.hosts.silent_cells)]

    # Who reads an instance's events sees the line that raises.

    def _none_left(self, chooser: choosing.Chooser) -> str:
        """Return what is told of a request that there are not enough for."""
        why = chooser.diagnosis(
            self._parts.hosts.silent, len(self._instances))
        self._decision = dataclasses.replace(
            chooser.decision(), rejections=why.to_list(),
            examples=chooser.examples())
        return self._refuse(why.text())

    def _refuse(self, reason: str) -> str:
        """Tell operators why there is no host; return what users are told."""
        LOG.info('No valid host: %s', reason)
        if self._decision is not None:
            self._decision.reason = reason
        return self._text(reason)

    def _text(self, reason: str) -> str:
        """Return what users are told."""
        if self._parts.conf.cellsched.no_valid_host_text == 'nova':
            return NOVA_TEXT
        return reason
