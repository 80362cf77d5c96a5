# SPDX-License-Identifier: Apache-2.0
"""Decisions on the requests of nova-scheduler, without claims or answers.

A start notification leads to a decision on the same facts. After the end
notification, the allocations of the server in Placement show Nova's host. The
process stores a comparison of both.
"""

import collections
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import datetime
import random
import signal
import sys
import threading
import time
from typing import Any

from keystoneauth1 import exceptions as ks_exceptions
import nova.conf
from nova import context as nova_context
from nova import exception as nova_exception
from nova import rpc
from nova.scheduler.client import report
from nova.scheduler import host_manager
from nova.scheduler import utils
from oslo_config import cfg
from oslo_log import log
import oslo_messaging
from oslo_utils import timeutils
from oslo_utils import uuidutils

from cellsched.conf import logging_setup
from cellsched import exception
from cellsched.hosts import view
from cellsched.scheduler.decision.pipeline import Candidates
from cellsched.scheduler.decision.ranking import Ranking
from cellsched_nova import claims
from cellsched_nova import configuration
from cellsched_nova import decision
from cellsched_nova.decision import Components
from cellsched_nova.decision import RequestDecision
from cellsched_nova import deployment
from cellsched_nova import enabled_plugins
from cellsched_nova import filters
from cellsched_nova import records
from cellsched_nova.shadow import comparison
from cellsched_nova.shadow import requests
from cellsched_nova import source

CONF = nova.conf.CONF
LOG = log.getLogger(__name__)

#: Drivers that send notifications to other processes.
_DRIVERS = frozenset({'messaging', 'messagingv2', 'routing'})

_EVENT = 'scheduler.select_destinations.'

#: Seconds between checks for requests without an end.
_SPACING_S = 1.0

#: Maximum number of requests without an end; the oldest are given up.
PENDING_MAX = 200

#: The prefix of the resource classes of ports.
_NETWORK_PREFIX = 'NET_'

_UNREADABLE = (exception.CellschedException, ks_exceptions.ClientException,
               nova_exception.NovaException)

#: Amounts by provider and resource class.
Amounts = Mapping[str, Mapping[str, int]]

Key = tuple[str | None, str]


class _RankingWatcher:
    """Copies the ranking of hosts, as it was before Nova's claims.

    :param allocations: the claims of Nova for the request
    """

    def __init__(self, allocations: Amounts) -> None:
        self._allocations = allocations
        self._hosts: view.Hosts | None = None
        self.host_ranking: comparison.HostRanking | None = None
        self.on_candidates = True

    def begin(self, hosts: view.Hosts) -> None:
        self._hosts = hosts
        for uuid, resources in self._allocations.items():
            row = hosts.row(uuid)
            if row is not None:
                hosts.free(row, resources)

    def ranked(self, candidates: Candidates, ranking: Ranking) -> None:
        assert self._hosts is not None, 'begin() comes first'
        self.host_ranking = comparison.HostRanking(
            self._hosts, candidates, ranking)
        self.on_candidates = any(isinstance(each, filters.CandidateHosts)
                                 for each in candidates.stages)


@dataclasses.dataclass(frozen=True)
class _HostDecision:
    """A decision of this package.

    :param first: compute node of the first instance; None for no host
    :param fits: whether all instances have a host
    :param host: name of the first instance's host
    :param text: why no host was found
    :param changes: hosts that changed since the read before, with their facts
        then
    """

    first: str | None
    fits: bool
    host: str | None
    text: str
    host_ranking: comparison.HostRanking | None
    on_candidates: bool
    changes: Mapping[str, Any]


@dataclasses.dataclass
class _PendingRequest:
    """A request without an end notification.

    :param unknown: why it cannot be compared; empty if it can
    :param changed: hosts that may have changed since Nova's decision
    """

    key: Key
    began_at: float
    request: requests.NotifiedRequest | None = None
    decision: _HostDecision | None = None
    missing: tuple[str, ...] = ()
    late_s: float = 0.0
    unknown: str = ''
    changed: frozenset[str] = frozenset()

    @property
    def count(self) -> int:
        return 1 if self.request is None else self.request.spec.num_instances


class ShadowScheduler:
    """Decides on the requests of nova-scheduler, and compares.

    Only one thread may call it at a time.

    :param parts: the components, without claims
    :param keep: stores a comparison
    :param timeout_s: seconds after which a request without an end is refused
    :param now: returns monotonic time in seconds
    """

    def __init__(
        self, parts: Components,
        keep: Callable[[comparison.Comparison], None], timeout_s: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        # The choice among equal hosts does not matter for a comparison.
        self._parts = dataclasses.replace(parts, policy=dataclasses.replace(
            parts.policy, start=0.0, subset_size=1, shuffle=False))
        self._keep = keep
        self._timeout_s = timeout_s
        self._now = now
        self._pending: collections.OrderedDict[Key, _PendingRequest] = (
            collections.OrderedDict())

    def begin(
        self, context: Any, payload: Mapping[str, Any], age_s: float = 0.0
    ) -> None:
        """Decide on a request that Nova has begun.

        After an error the request remains. Its end is recorded as a comparison
        with the outcome unknown.

        :param context: the requester's context
        :param payload: payload of the start notification
        :param age_s: seconds since the notification was sent
        """
        uuid = requests.instance_of(payload)
        key = context.request_id, uuid
        if key in self._pending:
            # A new start means that the previous attempt found no host.
            self._conclude(self._pending.pop(key), ended=False)
        if len(self._pending) >= PENDING_MAX:
            _, oldest = self._pending.popitem(last=False)
            self._report_unknown(oldest, 'too many requests at a time')
        began_at = self._now()
        pending = self._pending[key] = _PendingRequest(key, began_at - age_s)
        if age_s > self._timeout_s:
            pending.unknown = 'the notification came too late'
            return
        try:
            pending.request = requests.read(context, payload, self._parts.conf)
            pending.missing = pending.request.missing
            self._decide(context, pending)
        except Exception as exc:
            pending.unknown = _reason(exc)
            if not isinstance(exc, _UNREADABLE):
                raise
        pending.late_s = age_s + self._now() - began_at

    def end(self, context: Any, payload: Mapping[str, Any]) -> None:
        """Compare the decisions on a request that Nova has ended."""
        uuid = requests.instance_of(payload)
        pending = self._pending.pop((context.request_id, uuid), None)
        other_count = 0
        if pending is None:
            # The end of a request for several instances names the last one.
            found = [key for key, each in self._pending.items()
                     if key[0] == context.request_id and each.count > 1]
            if len(found) != 1:
                LOG.debug('No start notification was received',
                          instance_uuid=uuid)
                return
            pending = self._pending.pop(found[0])
            other_count = pending.count - 1
        self._conclude(pending, ended=True, other_count=other_count)

    def refuse(
        self, context: Any, payload: Mapping[str, Any], age_s: float = 0.0
    ) -> None:
        """Compare a request if Nova's conductor reports that it has no host.

        Without allocation candidates, Nova sends no other notification.

        :param payload: payload of the conductor's error
        :param age_s: seconds since the notification was sent
        """
        request = requests.refused(payload)
        if request is None:
            return
        key = context.request_id, requests.instance_of(request)
        if key not in self._pending:
            self.begin(context, request, age_s)
        self._conclude(self._pending.pop(key), ended=False)

    def expire(self) -> None:
        """Conclude old requests without an end: Nova refused them."""
        before = self._now() - self._timeout_s
        while self._pending:
            key, oldest = next(iter(self._pending.items()))
            if oldest.began_at > before:
                break
            del self._pending[key]
            self._conclude(oldest, ended=False)

    def _decide(self, context: Any, pending: _PendingRequest) -> None:
        request = pending.request
        assert request is not None, 'begin() has set it'
        claimed = self._claimed(request)
        pending.decision = self._make_decision(context, request, claimed)
        if not claimed:
            # Nova may have claimed during the decision. If so, decide again:
            # the next read of the facts includes the claim.
            claimed = self._claimed(request)
            if claimed:
                pending.decision = self._make_decision(
                    context, request, claimed, pending.decision.changes)
        pending.changed = frozenset(
            uuid for uuid, before in pending.decision.changes.items()
            if before is None or not _is_like(
                before, self._parts.hosts.facts(uuid),
                claimed.get(uuid, {})))
        if claimed and request.spec.num_instances > 1:
            pending.missing += ('claims of the other servers',)
        if claimed and pending.decision.on_candidates:
            pending.missing += ('free capacity before the claim of Nova',)

    def _make_decision(
        self, context: Any, request: requests.NotifiedRequest,
        claimed: Amounts, changes: Mapping[str, Any] | None = None,
    ) -> _HostDecision:
        """Return a decision on new facts.

        :param claimed: the claims of Nova, which count as free capacity
        :param changes: the changes before an earlier decision on the request
        """
        hosts = self._parts.hosts
        hosts.expire(claimed)
        hosts.refresh(nova_context.get_admin_context())
        changes = {**hosts.last_changes, **(changes or {})}
        watcher = _RankingWatcher(claimed)
        spec = request.spec.obj_clone()
        selection = RequestDecision(
            self._parts, context, spec, [request.instance, *(
                uuidutils.generate_uuid()
                for _ in range(spec.num_instances - 1))], 0,
            claim=False, watcher=watcher)
        text, chosen = '', None
        try:
            [[chosen, *_], *_] = selection.select()
        except nova_exception.NoValidHost as exc:
            text = (exc.kwargs.get('reason')
                    or 'Placement has no allocation candidates')
        host_ranking = watcher.host_ranking
        first = (chosen.compute_node_uuid if chosen is not None
                 else None if host_ranking is None else host_ranking.best)
        return _HostDecision(
            first, chosen is not None,
            None if first is None else self._host(first), text, host_ranking,
            watcher.on_candidates, changes)

    def _conclude(
        self, pending: _PendingRequest, ended: bool, other_count: int = 0
    ) -> None:
        """Compare with Nova's selection.

        :param ended: whether Nova sent an end notification
        :param other_count: number of instances without comparison
        """
        request, decision = pending.request, pending.decision
        if request is None or decision is None or pending.unknown:
            self._report_unknown(pending, pending.unknown)
            return
        try:
            nova_node, verdict = self._verdict(
                pending, request, decision, ended)
        except Exception as exc:
            self._report_unknown(pending, _reason(exc))
            if not isinstance(exc, _UNREADABLE):
                raise
            return
        missing = pending.missing
        if not pending.changed.isdisjoint((decision.first, nova_node)):
            missing += ('changes of a host since the decision of Nova',)
        if missing and not verdict.outcome.agrees and (
                verdict.outcome is not comparison.Outcome.UNKNOWN):
            verdict = comparison.Verdict(
                comparison.Outcome.UNKNOWN, '; '.join(missing),
                ': '.join(filter(None, (
                    verdict.outcome, verdict.reason, verdict.detail))))
        host = (decision.host if nova_node is not None or decision.fits
                else None)
        nova_host = None if nova_node is None else self._host(nova_node)
        self._report(pending, host, nova_host, verdict, other_count)

    def _verdict(
        self, pending: _PendingRequest, request: requests.NotifiedRequest,
        decision: _HostDecision, ended: bool,
    ) -> tuple[str | None, comparison.Verdict]:
        """Return the compute node of Nova or None, and the verdict."""
        # 1. Find Nova's host by the allocations, except those on the source
        #    host of a move.
        unknown = comparison.Outcome.UNKNOWN
        allocations = self._allocations(request.instance)
        is_rebuild = utils.request_is_rebuild(request.spec)
        nodes = self._nodes(allocations, () if is_rebuild else (
            request.spec.ignore_hosts or ()))
        if is_rebuild and not ended:
            nodes = []
        # 2. Give up if the allocations do not show one host.
        if len(nodes) > 1:
            return None, comparison.Verdict(
                unknown, 'the server has allocations of several hosts')
        if ended and not nodes:
            return None, comparison.Verdict(
                unknown, 'the server has no allocations any more')
        if any(name.startswith(_NETWORK_PREFIX)
               for resources in allocations.values() for name in resources):
            pending.missing += ('resources of ports',)
        # 3. Compare with the decision.
        if nodes:
            [nova_node] = nodes
            return nova_node, self._compare(request, decision, nova_node)
        if not decision.fits and decision.first is not None:
            # The number is that of the first build, not of the move.
            return None, comparison.Verdict(
                unknown, 'number of requested servers')
        return None, comparison.compare(
            decision.first, None, decision.host_ranking, text=decision.text)

    def _compare(
        self, request: requests.NotifiedRequest, decision: _HostDecision,
        nova_node: str,
    ) -> comparison.Verdict:
        verdict = comparison.compare(
            decision.first, nova_node, decision.host_ranking,
            self._parts.conf.filter_scheduler.host_subset_size, decision.text)
        target = request.spec.requested_destination
        if (verdict.outcome in (comparison.Outcome.REJECTED,
                                comparison.Outcome.NONE)
                and target is not None and 'cell' in target and target.cell
                and self._cell(nova_node) != target.cell.uuid):
            return comparison.Verdict(
                comparison.Outcome.UNKNOWN, 'moves between cells')
        return verdict

    def _allocations(self, instance: str) -> dict[str, dict[str, int]]:
        """Return the allocations of an instance, by provider."""
        found = self._parts.client.get_allocs_for_consumer(
            nova_context.get_admin_context(), instance)['allocations']
        return {uuid: dict(each['resources']) for uuid, each in found.items()}

    def _claimed(self, request: requests.NotifiedRequest) -> Amounts:
        """Return the current claims of Nova for a request."""
        if utils.request_is_rebuild(request.spec):
            return {}
        allocations = self._allocations(request.instance)
        nodes = set(self._nodes(allocations, request.spec.ignore_hosts or ()))
        return {uuid: resources for uuid, resources in allocations.items()
                if uuid in nodes}

    def _nodes(self, allocations: Amounts, ignored: Any) -> list[str]:
        """Return the compute nodes with allocations, but for some hosts."""
        found = dict.fromkeys(
            uuid if self._host(uuid) is not None else self._root(uuid)
            for uuid in allocations)
        names = {name.lower() for name in ignored}
        return [uuid for uuid in found if uuid is not None and (
            (self._value(uuid, 'host') or '').lower() not in names)]

    def _root(self, uuid: str) -> str | None:
        """Return the compute node that is a provider's root, or None."""
        answer = self._parts.client.get(
            f'/resource_providers/{uuid}', version='1.14')
        if answer.status_code != 200:
            return None
        root: str = answer.json()['root_provider_uuid']
        return root if self._host(root) is not None else None

    def _host(self, uuid: str) -> str | None:
        """Return the name of a host, with its node's name if different."""
        host, node = (self._value(uuid, name) for name in ('host', 'nodename'))
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

    def _report_unknown(self, pending: _PendingRequest, reason: str) -> None:
        self._report(pending, None, None, comparison.Verdict(
            comparison.Outcome.UNKNOWN, reason), 0)

    def _report(
        self, pending: _PendingRequest, host: str | None,
        nova_host: str | None, verdict: comparison.Verdict, other_count: int,
    ) -> None:
        request_id, uuid = pending.key
        LOG.log(log.DEBUG if verdict.outcome.agrees else log.INFO,
                'Comparison with Nova: outcome %s, reason %s, detail %s',
                verdict.outcome, verdict.reason, verdict.detail,
                instance_uuid=uuid)
        try:
            self._keep(comparison.Comparison(
                timeutils.utcnow_ts(microsecond=True), request_id, uuid, host,
                nova_host, verdict, pending.late_s, other_count))
        except exception.CellschedException as exc:
            LOG.error('A comparison cannot be stored: %s', exc,
                      instance_uuid=uuid)


def _is_like(before: Any, now: Any, claimed: Mapping[str, int]) -> bool:
    """Return whether only a claim was added to the facts of a provider."""
    used = {name: amount + claimed.get(name, 0) for name, amount
            in {**dict.fromkeys(claimed, 0), **before.used}.items()}
    return now is not None and used == {
        **dict.fromkeys(used, 0), **now.used} and (
            before.capacity, before.traits) == (now.capacity, now.traits)


def _reason(exc: Exception) -> str:
    """Return the type of an error, as a reason that reports can group by."""
    return type(exc).__name__


class Endpoint:
    """Receives the notifications of nova-scheduler in both formats."""

    filter_rule = oslo_messaging.NotificationFilter(
        event_type=r'^(scheduler\.select_destinations\.(start|end)'
                   r'|compute_task\.\w+\.error)$')

    def __init__(self, shadow: ShadowScheduler) -> None:
        self._shadow = shadow
        self._lock = threading.Lock()

    def info(
        self, context: Any, publisher_id: str, event_type: str,
        payload: Mapping[str, Any], metadata: Mapping[str, Any],
    ) -> None:
        """Handle a notification of the scheduler; never fails."""
        self._handle(
            self._shadow.begin if event_type == f'{_EVENT}start'
            else lambda context, payload, age_s: self._shadow.end(
                context, payload), context, publisher_id, payload, metadata)

    def error(
        self, context: Any, publisher_id: str, event_type: str,
        payload: Mapping[str, Any], metadata: Mapping[str, Any],
    ) -> None:
        """Handle an error of a conductor; never fails."""
        self._handle(
            self._shadow.refuse, context, publisher_id, payload, metadata)

    def _handle(
        self, handle: Callable[[Any, Mapping[str, Any], float], None],
        context: Any, publisher_id: str, payload: Mapping[str, Any],
        metadata: Mapping[str, Any],
    ) -> None:
        try:
            with self._lock:
                handle(context, payload, _age_s(metadata))
        except requests.RequestUnknown as exc:
            LOG.warning('A notification of publisher %s is ignored: %s',
                        publisher_id, exc)
        except Exception:
            # The next notifications must still be received.
            LOG.exception('A notification of publisher %s is ignored',
                          publisher_id)

    def expire(self) -> None:
        """Conclude the requests without an end; never fails."""
        try:
            with self._lock:
                self._shadow.expire()
        except Exception:
            # The next requests may still be compared.
            LOG.exception('A request could not be compared')


def problems(conf: cfg.ConfigOpts) -> list[str]:
    """Return the problems of the notifications, a line for each."""
    drivers = conf.oslo_messaging_notifications.driver
    if _DRIVERS.intersection(drivers):
        return []
    return ['[oslo_messaging_notifications] driver: nova-scheduler sends no '
            'notifications; expected one of ' + ', '.join(sorted(_DRIVERS))]


def topics(conf: cfg.ConfigOpts) -> list[str]:
    """Return the topics of the most detailed enabled format."""
    found: list[str] = (
        conf.oslo_messaging_notifications.topics
        if conf.notifications.notification_format == 'unversioned'
        else conf.notifications.versioned_notifications_topics)
    return found


def listener(conf: cfg.ConfigOpts, endpoint: Endpoint) -> Any:
    """Return the listener, in a pool so that other listeners still receive."""
    return oslo_messaging.get_notification_listener(
        oslo_messaging.get_notification_transport(
            conf, allowed_remote_exmods=rpc.get_allowed_exmods()),
        [oslo_messaging.Target(topic=topic) for topic in topics(conf)],
        [endpoint], executor='threading',
        serializer=rpc.RequestContextSerializer(None),
        pool=conf.cellsched.shadow_pool)


def make_shadow(
    conf: cfg.ConfigOpts, store: comparison.ComparisonStore
) -> ShadowScheduler:
    """Return the scheduler that decides as the manager does, without claims.

    Reads Nova's databases and Placement.
    """
    own = configuration.ProductOptions(conf).conf
    manager = host_manager.HostManager()
    configuration.check_cells(conf, manager.cells.values())
    client = report.report_client_singleton()
    hosts = source.NovaHosts(
        manager, client, conf,
        hardware=enabled_plugins.hardware_columns(conf, manager))
    parts = decision.make_components(
        own, random.Random(), hosts, manager, client,
        claims.make(client, 0.0, hosts.places), conf)
    return ShadowScheduler(parts, store.add, conf.cellsched.shadow_timeout)


def set_up(conf: cfg.ConfigOpts) -> None:
    """Set the options for a process that receives no calls.

    Nova's API and computes send changes of aggregates and instances to
    schedulers only.
    """
    for name, value, group in (
            ('track_instance_changes', False, 'filter_scheduler'),
            ('full_refresh_interval', 1, 'cellsched'),
            ('no_valid_host_text', 'cellsched', 'cellsched')):
        conf.set_override(name, value, group)


def run(argv: Sequence[str]) -> int:
    """Compare until the process is stopped; return an exit code.

    :param argv: options of oslo.config
    :raises cellsched.exception.CellschedException: the start failed
    """
    deployment.configure(argv)
    found = [*configuration.problems(CONF, 'api_database', 'placement'),
             *problems(CONF)]
    if found:
        for problem in found:
            print(f'invalid configuration: {problem}', file=sys.stderr)
        return 1
    with configuration.translate_errors():
        store = comparison.ComparisonStore(
            records.open_database(CONF), CONF.cellsched.comparison_retention)
        logging_setup.set_up(CONF, 'nova')
        set_up(CONF)
        endpoint = Endpoint(make_shadow(CONF, store))
        server = listener(CONF, endpoint)
    stopping = threading.Event()
    for number in signal.SIGINT, signal.SIGTERM:
        signal.signal(number, lambda *arguments: stopping.set())
    # One thread handles notifications in order: start before end.
    server.start(override_pool_size=1)
    LOG.info('Listening to topics %s', ', '.join(topics(CONF)))
    while not stopping.wait(_SPACING_S):
        endpoint.expire()
    server.stop()
    server.wait()
    return 0


def _age_s(metadata: Mapping[str, Any]) -> float:
    """Return the seconds since a notification was sent."""
    try:
        sent_at = datetime.datetime.fromisoformat(metadata['timestamp'])
    except (KeyError, TypeError, ValueError):
        return 0.0
    if sent_at.tzinfo is None:
        sent_at = sent_at.replace(tzinfo=datetime.UTC)
    return max(0.0, (timeutils.utcnow(True) - sent_at).total_seconds())
