# SPDX-License-Identifier: Apache-2.0
"""Decisions beside those of Nova's scheduler, which nobody is told of.

What its notifications begin is decided on here at once, on the same facts;
when they end it, what the server holds in Placement says where Nova put it.
"""

import collections
from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import time
from typing import Any

from keystoneauth1 import exceptions as ks_exceptions
from nova import context as nova_context
from nova import exception as nova_exception
from nova.scheduler import utils
from oslo_log import log
from oslo_utils import timeutils
from oslo_utils import uuidutils

from cellsched import exception
from cellsched.hosts import view
from cellsched.scheduler.decision.candidates import Candidates
from cellsched.scheduler.decision.ranking import Ranking
from cellsched_nova.decision import Components
from cellsched_nova.decision import RequestDecision
from cellsched_nova import filters
from cellsched_nova.shadow import comparison
from cellsched_nova.shadow import requests

LOG = log.getLogger(__name__)

#: Requests that have begun and not ended; of more the oldest are given up.
PENDING_MAX = 200

#: Resource classes of ports begin so.
_OF_NETWORKS = 'NET_'

_UNREADABLE = (exception.CellschedException, ks_exceptions.ClientException,
               nova_exception.NovaException)

#: Amounts by provider and resource class.
Held = Mapping[str, Mapping[str, int]]

Key = tuple[str | None, str]


class _Onlooker:
    """Remembers how hosts stood.

    :param held: what Nova has claimed for the request already, and what was
        free before
    """

    def __init__(self, held: Held) -> None:
        self._held = held
        self._hosts: view.Hosts | None = None
        self.standings: comparison.HostRanking | None = None
        self.on_candidates = True

    def begin(self, hosts: view.Hosts) -> None:
        self._hosts = hosts
        for uuid, resources in self._held.items():
            row = hosts.row(uuid)
            if row is not None:
                hosts.free(row, resources)

    def ranked(
        self, candidates: Candidates, ranking: Ranking
    ) -> None:
        assert self._hosts is not None, 'it has begun'
        self.standings = comparison.HostRanking(
            self._hosts, candidates, ranking)
        self.on_candidates = any(isinstance(each, filters.CandidateHosts)
                                 for each in candidates.stages)


@dataclasses.dataclass(frozen=True)
class _Decided:
    """A decision that was made here.

    :param first: compute node of the first instance; None for no host
    :param fits: whether there was a host for all instances
    :param host: the name of the first one's host
    :param text: why there was none
    """

    first: str | None
    fits: bool
    host: str | None
    text: str
    standings: comparison.HostRanking | None
    on_candidates: bool


@dataclasses.dataclass
class _Pending:
    """A request that Nova has begun to decide on.

    :param unknown: why it cannot be compared
    """

    key: Key
    began_at: float
    told: requests.NotifiedRequest | None = None
    mine: _Decided | None = None
    missing: tuple[str, ...] = ()
    late_s: float = 0.0
    unknown: str = ''

    @property
    def count(self) -> int:
        return 1 if self.told is None else self.told.spec.num_instances


class ShadowScheduler:
    """Decides on what Nova's scheduler decides on, and compares.

    One thread at a time tells it of requests.

    :param parts: what decides; it claims nothing
    :param keep: keeps a comparison
    :param timeout_s: seconds after which Nova has refused
    :param now: a time in seconds that never goes back
    """

    def __init__(
        self, parts: Components,
        keep: Callable[[comparison.Comparison], None], timeout_s: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        # Which of equals is taken does not matter here.
        self._parts = dataclasses.replace(parts, policy=dataclasses.replace(
            parts.policy, start=0.0, subset_size=1, shuffle=False))
        self._keep = keep
        self._timeout_s = timeout_s
        self._now = now
        self._pending: collections.OrderedDict[Key, _Pending] = (
            collections.OrderedDict())

    def begin(
        self, context: Any, payload: Mapping[str, Any], age_s: float = 0.0
    ) -> None:
        """Learn that Nova begins to choose; decide.

        Whatever is raised, when Nova ends the request it is kept as one that
        cannot be compared, and why.

        :param context: the requester's
        :param payload: of the notification
        :param age_s: seconds since it was told
        """
        uuid = requests.instance_of(payload)
        key = context.request_id, uuid
        if key in self._pending:
            # Nova would not have begun again if there had been a host.
            self._conclude(self._pending.pop(key), ended=False)
        if len(self._pending) >= PENDING_MAX:
            _, oldest = self._pending.popitem(last=False)
            self._give_up(oldest, 'too many requests at a time')
        began_at = self._now()
        pending = self._pending[key] = _Pending(key, began_at - age_s)
        if age_s > self._timeout_s:
            pending.unknown = 'heard of too late'
            return
        try:
            pending.told = requests.read(context, payload, self._parts.conf)
            pending.missing = pending.told.missing
            self._decide(context, pending)
        except Exception as exc:
            pending.unknown = _short(exc)
            if not isinstance(exc, _UNREADABLE):
                raise
        pending.late_s = age_s + self._now() - began_at

    def end(self, context: Any, payload: Mapping[str, Any]) -> None:
        """Learn that Nova has chosen; compare."""
        uuid = requests.instance_of(payload)
        pending = self._pending.pop((context.request_id, uuid), None)
        others = 0
        if pending is None:
            # Of several instances the last is named then.
            found = [key for key, each in self._pending.items()
                     if key[0] == context.request_id and each.count > 1]
            if len(found) != 1:
                LOG.debug('Nothing was heard of the beginning for %s', uuid)
                return
            pending = self._pending.pop(found[0])
            others = pending.count - 1
        self._conclude(pending, ended=True, others=others)

    def expire(self) -> None:
        """Take it that Nova refused what it has not ended for long."""
        before = self._now() - self._timeout_s
        while self._pending:
            key, oldest = next(iter(self._pending.items()))
            if oldest.began_at > before:
                break
            del self._pending[key]
            self._conclude(oldest, ended=False)

    def _decide(self, context: Any, pending: _Pending) -> None:
        told = pending.told
        assert told is not None, 'it was heard'
        taken = self._taken(told)
        pending.mine = self._decided(context, told, taken)
        if not taken:
            # What is claimed by now may be in the facts, or not: it is in
            # those that are read next.
            taken = self._taken(told)
            if taken:
                pending.mine = self._decided(context, told, taken)
        if taken and told.spec.num_instances > 1:
            pending.missing += ('what was claimed for the other servers',)
        if taken and pending.mine.on_candidates:
            pending.missing += ('room as it was before Nova claimed',)

    def _decided(
        self, context: Any, told: requests.NotifiedRequest, taken: Held
    ) -> _Decided:
        """Return what is decided on facts that are read now.

        :param taken: what Nova has claimed, which counts as if it had not
        """
        self._parts.hosts.expire(taken)
        self._parts.hosts.refresh(nova_context.get_admin_context())
        onlooker = _Onlooker(taken)
        spec = told.spec.obj_clone()
        decision = RequestDecision(
            self._parts, context, spec, [told.instance, *(
                uuidutils.generate_uuid()
                for _ in range(spec.num_instances - 1))], 0,
            claim=False, watcher=onlooker)
        text, chosen = '', None
        try:
            [[chosen, *_], *_] = decision.select()
        except nova_exception.NoValidHost as exc:
            text = (exc.kwargs.get('reason')
                    or 'Placement has no allocation candidates')
        standings = onlooker.standings
        first = (chosen.compute_node_uuid if chosen is not None
                 else None if standings is None else standings.best)
        return _Decided(
            first, chosen is not None,
            None if first is None else self._host(first), text, standings,
            onlooker.on_candidates)

    def _conclude(
        self, pending: _Pending, ended: bool, others: int = 0
    ) -> None:
        """Compare, as Nova's choice is known.

        :param ended: whether Nova said that it has chosen
        :param others: instances whose hosts are not looked at
        """
        if pending.told is None or pending.mine is None or pending.unknown:
            self._give_up(pending, pending.unknown)
            return
        try:
            novas, verdict = self._verdict(
                pending, pending.told, pending.mine, ended)
        except Exception as exc:
            self._give_up(pending, _short(exc))
            if not isinstance(exc, _UNREADABLE):
                raise
            return
        if pending.missing and not verdict.outcome.agrees and (
                verdict.outcome is not comparison.Outcome.UNKNOWN):
            verdict = comparison.Verdict(
                comparison.Outcome.UNKNOWN, '; '.join(pending.missing),
                ': '.join(filter(None, (
                    verdict.outcome, verdict.reason, verdict.detail))))
        mine = pending.mine
        host = mine.host if novas is not None or mine.fits else None
        self._tell(pending, host, None if novas is None else self._host(novas),
                   verdict, others)

    def _verdict(
        self, pending: _Pending, told: requests.NotifiedRequest,
        mine: _Decided, ended: bool,
    ) -> tuple[str | None, comparison.Verdict]:
        """Return Nova's compute node, if it chose any, and the verdict."""
        unknown = comparison.Outcome.UNKNOWN
        held = self._held(told.instance)
        is_rebuild = utils.request_is_rebuild(told.spec)
        nodes = self._nodes(held, () if is_rebuild else (
            told.spec.ignore_hosts or ()))
        if is_rebuild and not ended:
            nodes = []
        if len(nodes) > 1:
            return None, comparison.Verdict(
                unknown, 'the server holds something of several hosts')
        if ended and not nodes:
            return None, comparison.Verdict(
                unknown, 'the server holds nothing any more')
        if any(name.startswith(_OF_NETWORKS) for resources in held.values()
               for name in resources):
            pending.missing += ('resources of ports',)
        if nodes:
            [novas] = nodes
            return novas, self._compared(told, mine, novas)
        if not mine.fits and mine.first is not None:
            # One that moves may have been built with others.
            return None, comparison.Verdict(
                unknown, 'how many servers were asked for')
        return None, comparison.compare(
            mine.first, None, mine.standings, text=mine.text)

    def _compared(
        self, told: requests.NotifiedRequest, mine: _Decided, novas: str
    ) -> comparison.Verdict:
        verdict = comparison.compare(
            mine.first, novas, mine.standings,
            self._parts.conf.filter_scheduler.host_subset_size, mine.text)
        target = told.spec.requested_destination
        if (verdict.outcome in (comparison.Outcome.REJECTED,
                                comparison.Outcome.NONE)
                and target is not None and 'cell' in target and target.cell
                and self._cell(novas) != target.cell.uuid):
            return comparison.Verdict(
                comparison.Outcome.UNKNOWN, 'moves between cells')
        return verdict

    def _held(self, instance: str) -> dict[str, dict[str, int]]:
        """Return what an instance holds of each provider."""
        said = self._parts.client.get_allocs_for_consumer(
            nova_context.get_admin_context(), instance)['allocations']
        return {uuid: dict(each['resources']) for uuid, each in said.items()}

    def _taken(self, told: requests.NotifiedRequest) -> Held:
        """Return what Nova has claimed for a request so far."""
        if utils.request_is_rebuild(told.spec):
            return {}
        held = self._held(told.instance)
        there = set(self._nodes(held, told.spec.ignore_hosts or ()))
        return {uuid: resources for uuid, resources in held.items()
                if uuid in there}

    def _nodes(self, held: Held, ignored: Any) -> list[str]:
        """Return the compute nodes that give something, but for some hosts."""
        found = dict.fromkeys(
            uuid if self._host(uuid) is not None else self._root(uuid)
            for uuid in held)
        names = {name.lower() for name in ignored}
        return [uuid for uuid in found if uuid is not None and (
            (self._value(uuid, 'host') or '').lower() not in names)]

    def _root(self, uuid: str) -> str | None:
        """Return the compute node whose child a provider is, if it is one."""
        answer = self._parts.client.get(
            f'/resource_providers/{uuid}', version='1.14')
        if answer.status_code != 200:
            return None
        root: str = answer.json()['root_provider_uuid']
        return root if self._host(root) is not None else None

    def _host(self, uuid: str) -> str | None:
        """Return the name of a host, with that of its node if it differs."""
        host, node = (self._value(uuid, name) for name in (
            'host', 'nodename'))
        return host if host == node else f'{host} ({node})'

    def _cell(self, uuid: str) -> str | None:
        """Return the uuid of the cell of a compute node."""
        code = self._value(uuid, 'cell')
        return None if code is None else str(
            self._parts.hosts.table.snapshot.encodings['cell'].values[code])

    def _value(self, uuid: str, name: str) -> Any:
        snapshot = self._parts.hosts.table.snapshot
        row = snapshot.rows.get(uuid)
        return None if row is None else snapshot.columns[name][row]

    def _give_up(self, pending: _Pending, reason: str) -> None:
        self._tell(pending, None, None, comparison.Verdict(
            comparison.Outcome.UNKNOWN, reason), 0)

    def _tell(
        self, pending: _Pending, host: str | None, nova_host: str | None,
        verdict: comparison.Verdict, others: int,
    ) -> None:
        request_id, uuid = pending.key
        LOG.log(log.DEBUG if verdict.outcome.agrees else log.INFO,
                'Instance %s: %s; %s; %s', uuid, verdict.outcome,
                verdict.reason, verdict.detail)
        try:
            self._keep(comparison.Comparison(
                timeutils.utcnow_ts(microsecond=True), request_id, uuid, host,
                nova_host, verdict, pending.late_s, others))
        except exception.CellschedException as exc:
            LOG.error('Instance %s: a comparison cannot be kept: %s', uuid,
                      exc)


def _short(exc: Exception) -> str:
    """Return an error as a reason that requests have in common."""
    return type(exc).__name__
