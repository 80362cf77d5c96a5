# SPDX-License-Identifier: Apache-2.0
"""The record of a decision, its document, and its storage.

The document is plain data. It has all data that operators need to understand
the decision, and no credentials. Strings of users are cut to a limit.
"""

import collections
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import datetime
import logging
import threading
from typing import Any

from oslo_log import log
from oslo_serialization import jsonutils

from cellsched.clock import Clock
from cellsched.context import RequestContext
from cellsched.db.api import decisions
from cellsched.db import session
from cellsched import exception
from cellsched.filters import base
from cellsched.hardware.devices import Pools
from cellsched.hardware.host import HostTopology
from cellsched.hardware import units
from cellsched.hosts import view
from cellsched import objects
from cellsched.observability.conditions import Conditions
from cellsched.scheduler.decision import allocation
from cellsched.scheduler.decision.pipeline import Candidates
from cellsched.scheduler.decision.pipeline import FilterStep
from cellsched.scheduler.decision.ranking import Ranking
from cellsched.scheduler.decision.ranking import WeightShare

LOG = log.getLogger(__name__)


@dataclasses.dataclass
class Count:
    """The numbers of hosts that reached a stage and that passed it."""

    by: str
    entered: int
    left: int
    reason: str


@dataclasses.dataclass
class Place:
    """A host with its weight and the shares of the weight.

    :param providers: the parts of its providers, if other providers than the
        host serve any; see :func:`providers`
    :param hardware: its CPUs, pages and devices for the instance, with the
        cells and devices of the host; None if the claim names none
    """

    host: str
    node: str
    cell: str
    weight: float
    shares: Sequence[WeightShare] = ()
    providers: Sequence[dict[str, Any]] = ()
    hardware: tuple[
        Mapping[str, int], HostTopology | None, Pools] | None = None


@dataclasses.dataclass
class Pick:
    """The host selected for one instance.

    :param candidates: number of candidates
    :param second: the host that would have been selected without the first
    """

    instance: str
    candidates: int
    first: Place
    second: Place | None = None


@dataclasses.dataclass
class Way:
    """The decision path of a request, where several exist.

    :param name: name of the path
    :param reasons: why the request took this path; empty for the default path
    """

    name: str
    reasons: Sequence[str] = ()


@dataclasses.dataclass
class Decision:
    """A decision on one request.

    :param hosts: number of hosts
    :param stages: number of hosts before and after each stage
    :param picks: the selected hosts by instance; only the first has the
        shares of its weights
    :param reason: why no host was found, for users
    :param rejections: the same in figures
    :param examples: names of some rejected hosts by stage, if no host was
        found; not for users
    :param way: the decision path, if there are several
    :param slow: kind, name and seconds of each slow plug-in of a plan; not
        part of the record
    """

    hosts: int
    stages: Sequence[Count]
    picks: Sequence[Pick]
    reason: str | None = None
    rejections: Sequence[dict[str, Any]] = ()
    examples: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    way: Way | None = None
    slow: Sequence[tuple[str, str, float]] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain data."""
        # dataclasses.asdict() takes longer than the decision.
        record = {
            **vars(self),
            'stages': [dict(vars(stage)) for stage in self.stages],
            'picks': [{**vars(pick), 'first': _as_dict(pick.first),
                       'second': _as_dict(pick.second)}
                      for pick in self.picks],
            'rejections': list(self.rejections),
            'examples': dict(self.examples),
            'way': None if self.way is None else {
                'name': self.way.name, 'reasons': list(self.way.reasons)}}
        del record['slow']
        return record


def _as_dict(place: Place | None) -> dict[str, Any] | None:
    return None if place is None else {
        **vars(place),
        'shares': [dict(vars(share)) for share in place.shares],
        'providers': list(place.providers),
        # The form of operators; few records are read.
        'hardware': units.parts(*place.hardware) if place.hardware else []}


def of(
    hosts: view.Hosts, found: Candidates | None,
    picks: Sequence[Pick],
) -> Decision:
    """Return the record of a decision.

    :param found: the final candidates, which are empty if all hosts were
        rejected; None without a pipeline run
    """
    # Compare with None: empty candidates still have rejections.
    steps = () if found is None else found.filtered.steps
    stages = () if found is None else found.stages
    return Decision(len(hosts), counts(len(hosts), stages, steps), picks)


def pick(
    hosts: view.Hosts, ranking: Ranking, row: int, instance: str,
    detailed: bool,
) -> Pick:
    """Return the record of one selected host."""
    other = ranking.second(row) if detailed else None
    return Pick(
        instance, len(ranking), _place(hosts, ranking, row, detailed),
        None if other is None else _place(hosts, ranking, other, detailed))


def providers(
    hosts: view.Hosts, row: int, allocated: allocation.ProviderAllocations
) -> list[dict[str, Any]]:
    """Return the parts of an allocation by provider, as plain data.

    Each has ``group``, the suffix, which is empty for unnumbered amounts;
    ``provider``, a uuid; ``name``, or None for a child provider, whose name is
    unknown here; and ``resources``. Unnumbered amounts come first, with the
    host before other providers. The list is empty if the host serves all.
    """
    root, nodename = hosts.values_at(row, 'uuid', 'nodename')
    found: dict[tuple[str, str], dict[str, int]] = {}
    for part in allocated.parts:
        found.setdefault((part.suffix, part.provider), {}).update(
            part.resources)
    if {*found} <= {('', root)}:
        return []
    names = {root: nodename, **{
        uuid: each.name for uuid, each in hosts.sharing.items()}}
    return [
        {'group': suffix, 'provider': uuid, 'name': names.get(uuid),
         'resources': found[suffix, uuid]} for suffix, uuid in sorted(
            found, key=lambda key: (key[0] != '', key[1] != root))]


def counts(
    hosts: int, stages: Sequence[base.Filter],
    steps: Iterable[FilterStep],
) -> list[Count]:
    """Return the number of hosts before and after each stage, in order.

    The rejections of a stage that ran several times are added.

    :param hosts: number of hosts that reached the first stage
    """
    rejected: dict[base.Filter, int] = {}
    for step in steps:
        rejected[step.stage] = (
            rejected.get(step.stage, 0) + step.entered - step.left)
    found = []
    for stage in stages:
        remaining = hosts - rejected.get(stage, 0)
        found.append(Count(stage.name, hosts, remaining, stage.reason))
        hosts = remaining
    return found


def _place(
    hosts: view.Hosts, ranking: Ranking, row: int, detailed: bool
) -> Place:
    host, nodename, cell = hosts.values_at(row, 'host', 'nodename', 'cell')
    return Place(host, nodename, cell, *ranking.weighed(row, detailed))


#: The version of the document.
VERSION = 1

#: Limits for users' input: characters of a string, and values of a list, a
#: hint or a mapping.
_TEXT_MAX = 255
_VALUES_MAX = 20

_MORE = '…'


def document_of(
    decision: Decision, request: objects.RequestSpec,
    instances: Sequence[str], request_id: str | None,
    decided_at: datetime.datetime,
) -> dict[str, Any]:
    """Return the document of a decision.

    :param instances: uuids of the instances
    """
    reported = decision.to_dict()
    if decision.way is not None:
        # Reasons contain names of hints and properties from users.
        reported['way']['reasons'] = _cut([*decision.way.reasons])
    return {
        'version': VERSION,
        'decided_at': decided_at.isoformat(timespec='milliseconds') + 'Z',
        'request_id': request_id,
        **reported,
        'request': summary(request, len(instances)),
        'instances': list(instances),
    }


def summary(request: objects.RequestSpec, instances: int) -> dict[str, Any]:
    """Return a summary of the request."""
    image, group, target = map(request.get, (
        'image', 'instance_group', 'requested_destination'))
    found: dict[str, Any] = _cut({
        'project_id': request.get('project_id'),
        'user_id': request.get('user_id'),
        'flavor': request.flavor.get('name'),
        'image': image.get('id') if image else None,
        'availability_zone': request.get('availability_zone'),
        'hints': request.get('scheduler_hints') or {},
        'group': group.get('uuid') if group else None,
        'group_policy': group.get('policy') if group else None,
        **{name: request.get(name) or [] for name in (
            'force_hosts', 'force_nodes', 'ignore_hosts')}})
    if target is not None:
        # The URLs of a cell are left out.
        cell = target.get('cell')
        found['destination'] = _cut({
            'host': target.get('host'), 'node': target.get('node'),
            'cell': cell.get('uuid') if cell else None})
    return {**found, 'instances': instances, **_demand(request)}


def _demand(request: objects.RequestSpec) -> dict[str, Any]:
    """Return the requested resources, if they are valid."""
    try:
        return {'resources': request.resources(), 'groups': _groups(request)}
    except exception.Invalid as exc:
        # A scheduler of another package may still accept the request.
        return {'resources': {}, 'groups': [],
                'problem': _cut(exc.format_message())}


def _groups(request: objects.RequestSpec) -> list[dict[str, Any]]:
    """Return the first few numbered groups."""
    return [
        {'suffix': group.suffix,
         'resources': dict(group.resources[:_VALUES_MAX]),
         'required': _cut(sorted(group.required)),
         'forbidden': _cut(sorted(group.forbidden))}
        for group in request.group_demand().groups[:_VALUES_MAX]]


def _cut(value: Any) -> Any:
    """Return plain data of users, cut to the limits."""
    if isinstance(value, str):
        return value if len(value) <= _TEXT_MAX else (
            value[:_TEXT_MAX - 1] + _MORE)
    if not isinstance(value, (Mapping, list, tuple)):
        return value
    more = len(value) - _VALUES_MAX
    if not isinstance(value, Mapping):
        return [*map(_cut, value[:_VALUES_MAX]),
                *([f'{_MORE} {more} more'] if more > 0 else ())]
    return {**{_cut(name): _cut(value[name])
               for name in [*value][:_VALUES_MAX]},
            **({_MORE: [f'{more} more']} if more > 0 else {})}


#: Seconds between writes to the database.
SPACING_S = 1.0

#: The most decisions that wait for a write; beyond it the oldest are dropped.
WAITING_MAX = 1000

#: Purging: seconds between runs, rows of one transaction, and transactions of
#: one run.
PURGE_SPACING_S = 60.0
PURGE_ROWS = 500
PURGE_ROUNDS = 20

#: Conditions of the API database.
_UNWRITTEN = 'Decisions cannot be written; they wait'
_UNREMOVED = 'Old decisions cannot be removed'

#: The longest request id that is stored.
_REQUEST_ID_MAX = 255


@dataclasses.dataclass(frozen=True)
class _WaitingDecision:
    """A decision that waits for its write; its objects must not change."""

    now: datetime.datetime
    decided_at: float
    request_id: str | None
    request: objects.RequestSpec
    uuids: Sequence[str]
    decision: Decision


@dataclasses.dataclass(eq=False)
class Recorder:
    """Writes decisions to the API database in the background.

    A decision that could not be written is retried.

    :param retention_s: seconds to keep decisions; zero stores none
    """

    database: session.Database
    clock: Clock
    retention_s: float

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._flushing = self.clock.lock()
        self._waiting = collections.deque[_WaitingDecision]()
        self._forgotten = 0
        self._conditions = Conditions(LOG, self.clock.monotonic)
        self._purged_at: float | None = None

    def record(
        self, context: RequestContext, request: objects.RequestSpec,
        uuids: Sequence[str], decision: Decision,
    ) -> None:
        """Queue a decision for the next write; never blocks.

        The request and the decision must not be changed afterwards.
        """
        if not self.retention_s:
            return
        made = _WaitingDecision(
            self.clock.now(), self.clock.timestamp(), context.request_id,
            request, tuple(uuids), decision)
        with self._lock:
            self._waiting.append(made)
            self._bound()

    @property
    def waiting(self) -> int:
        """The number of decisions that wait for a write."""
        return len(self._waiting)

    def flush(self) -> None:
        """Write waiting decisions and purge old ones; never raises."""
        with self._flushing:
            self._write()
            now = self.clock.monotonic()
            if _UNWRITTEN not in self._conditions and self.retention_s and (
                    self._purged_at is None
                    or now - self._purged_at >= PURGE_SPACING_S):
                self._purge()
                self._purged_at = now

    def close(self) -> None:
        """Write the waiting decisions a last time."""
        with self._flushing:
            self._write()
        if self._waiting:
            LOG.error('%d decisions could not be written and are lost',
                      len(self._waiting))

    def _write(self) -> None:
        with self._lock:
            batch, self._waiting = self._waiting, collections.deque()
        if not batch:
            return
        made = [(each, row) for each in batch
                if (row := _row(each)) is not None]
        try:
            with self.database.writer() as connection:
                decisions.create(connection, [row for _, row in made],
                                 self.clock.now())
        except Exception as exc:
            self._put_back([each for each, _ in made])
            self._conditions.occur(_UNWRITTEN, exc, logging.ERROR, True)
            return
        with self._lock:
            forgotten, self._forgotten = self._forgotten, 0
        self._conditions.end(_UNWRITTEN)
        if forgotten:
            LOG.warning('%d decisions were forgotten before they could be '
                        'written', forgotten)

    def _put_back(self, batch: Sequence[_WaitingDecision]) -> None:
        with self._lock:
            self._waiting.extendleft(reversed(batch))
            self._bound()

    def _bound(self) -> None:
        """Drop the oldest decisions beyond the limit; the lock is held."""
        while len(self._waiting) > WAITING_MAX:
            self._waiting.popleft()
            self._forgotten += 1

    def _purge(self) -> None:
        before = self.clock.timestamp() - self.retention_s
        try:
            for _ in range(PURGE_ROUNDS):
                with self.database.writer() as connection:
                    gone = decisions.purge(connection, before, PURGE_ROWS)
                if gone < PURGE_ROWS:
                    break
            self._conditions.end(_UNREMOVED)
        except Exception as exc:
            self._conditions.occur(_UNREMOVED, exc, logging.ERROR, True)


def _row(made: _WaitingDecision) -> decisions.DecisionRow | None:
    """Return the row of a decision, or None if it cannot be stored."""
    try:
        request_id = _request_id(made.request_id)
        return decisions.DecisionRow(
            request_id, made.decided_at, made.uuids,
            # Limit the size: databases are slow with long values.
            jsonutils.dumps(document_of(
                made.decision, made.request, made.uuids, request_id,
                made.now), separators=(',', ':')))
    except Exception:
        # A retry would fail again and block the remaining decisions.
        LOG.exception('A decision on %s cannot be kept', made.uuids[:1])
        return None


def _request_id(value: str | None) -> str | None:
    """Return a request id that every database can store, from the caller's."""
    if not value:
        return None
    if (len(value) <= _REQUEST_ID_MAX and value.isascii()
            and value.isprintable()):
        return value
    return ''.join(each for each in value[:_REQUEST_ID_MAX]
                   if each.isascii() and each.isprintable())
