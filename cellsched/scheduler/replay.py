# SPDX-License-Identifier: Apache-2.0
"""Deciding recorded requests again, with the same or with another policy."""

import collections
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
from importlib import metadata
import itertools
from random import Random
from typing import Any
import zlib

import numpy as np
from oslo_config import cfg

from cellsched.conf import enabled
from cellsched.conf import filter_scheduler as policy_options
from cellsched.conf import metrics as metrics_options
from cellsched.conf import scheduler as scheduler_options
from cellsched.context import admin
from cellsched import exception
from cellsched.hosts.table import HostTable
from cellsched.hosts import view
from cellsched import objects
from cellsched import plugins
from cellsched.scheduler.decision.pipeline import Pipeline
from cellsched.scheduler.decision.pipeline import Rejection
from cellsched.scheduler.drivers import filter_scheduler
from cellsched.scheduler.recording import Answer
from cellsched.scheduler.recording import Entry
from cellsched.scheduler import request_validation
from cellsched.scheduler import requirements
from cellsched.scheduler.selection.claims import ClaimRefusals
from cellsched.scheduler.selection import existing_claims
from cellsched.scheduler.selection.selector import Selector
from cellsched.scheduler.selection.selector import with_members
from cellsched.weighers.base import Weigher

#: What became of a request: the same; another host; refused; a host, where
#: the recorded request was refused; not decided again.
SAME, ELSEWHERE, REFUSED, FITS, SKIPPED = CHANGES = (
    'same', 'elsewhere', 'refused', 'fits', 'skipped')

#: The options that name plug-ins.
_FILTERS, _WEIGHERS = 'enabled_filters', 'weight_classes'

#: The names of the recorded options, by group.
_OPTIONS: Mapping[str, Sequence[str]] = {
    'DEFAULT': ['service_down_time'], **{
        group: [opt.dest for opt in opts
                if opt.dest not in ('record', 'record_mb')]
        for group, opts in (('filter_scheduler', policy_options.OPTS),
                            ('metrics', metrics_options.OPTS),
                            ('scheduler', scheduler_options.OPTS))}}

#: Errors that depend on the policy. A failure of the claim store does not.
_OF_POLICY = frozenset({
    'HardwareRequestInvalid', 'HostStateUncertain', 'Invalid', 'InvalidField',
    'MaxRetriesExceeded', 'NoValidHost', 'PluginFailed'})


def header_of(
    conf: cfg.ConfigOpts, pipeline: Pipeline | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Return the header of a recording: the policy as plain data.

    :param pipeline: the decision in place of the configured one
    :param more: values of ``[filter_scheduler]`` in place of the configured
        ones
    """
    made = pipeline or filter_scheduler.pipeline_of(conf)
    options: dict[str, dict[str, Any]] = {
        group: {name: _plain(section[name]) for name in names}
        for group, names in _OPTIONS.items()
        for section in [conf if group == 'DEFAULT' else conf[group]]}
    for plugin in map(type, (*made.filters, *made.weighers)):
        if not getattr(plugin, 'multiplier_name', True):
            # A weigher that was written for Nova has no option.
            continue
        section = options.setdefault(plugins.group(plugin) or 'DEFAULT', {})
        values = plugins.options(conf, plugin)
        section |= {opt.dest: _plain(values[opt.dest])
                    for opt in enabled.options_of(plugin, plugin.__name__)
                    if not opt.secret}
    options['filter_scheduler'] |= {_WEIGHERS: _weighers(conf), **more}
    return {'release': metadata.version('cellsched'),
            'host': conf.host, 'driver': conf.scheduler.driver,
            'options': options}


def _weighers(conf: cfg.ConfigOpts) -> list[str]:
    """Return the names of the weighers, without ``all_weighers``."""
    names: dict[str, None] = {}
    for name in conf.filter_scheduler.weight_classes:
        names |= dict.fromkeys(
            plugins.names(plugins.WEIGHERS)
            if name in policy_options.ALL_WEIGHERS else [name])
    return [*names]


def _plain(value: Any) -> Any:
    """Return the value of an option as plain data that oslo.config reads."""
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    return value if isinstance(value, (bool, float, int, str)) else (
        None if value is None else str(value))


def apply_header(conf: cfg.ConfigOpts, header: Mapping[str, Any]) -> None:
    """Set the recorded options in a configuration.

    :raises cellsched.exception.ConfigurationInvalid: a plug-in is not
        installed, or an option has another type in this release
    """
    options = header.get('options') or {}
    named = options.get('filter_scheduler') or {}
    for name in ('available_filters', _FILTERS, _WEIGHERS):
        if name in named:
            _override(conf, 'filter_scheduler', name, named[name])
    # This registers the options of the plug-ins.
    filter_scheduler.pipeline_of(conf)
    for group, values in options.items():
        if group != 'DEFAULT' and group not in conf:
            continue
        section = conf if group == 'DEFAULT' else conf[group]
        for name, value in values.items():
            # An option of an earlier release may be gone.
            if name in section and value is not None:
                _override(conf, group, name, value)


def _override(
    conf: cfg.ConfigOpts, group: str, name: str, value: Any
) -> None:
    if isinstance(value, list):
        # The values of an option are tuples, if they have parts.
        value = [tuple(each) if isinstance(each, list) else each
                 for each in value]
    try:
        conf.set_override(name, value, None if group == 'DEFAULT' else group)
    except (TypeError, ValueError) as exc:
        raise exception.ConfigurationInvalid(
            field=f'[{group}] {name}', problem='the recorded value is not '
            f'valid in this release: {exc!s:.120}') from None


def set_multipliers(
    conf: cfg.ConfigOpts, weighers: Iterable[Weigher],
    multipliers: Mapping[str, str],
) -> None:
    """Set the multipliers of weighers that have not weighed yet.

    :param multipliers: numbers by the name of the weigher
    :raises cellsched.exception.InvalidField: a weigher is not enabled, or a
        number is invalid
    """
    known = {each.name: each for each in weighers if each.multiplier_name}
    for name, text in multipliers.items():
        weigher = known.get(name)
        if weigher is None:
            raise exception.InvalidField(
                where='options', field='--weight-multiplier',
                problem=f'{name!a:.80} is no enabled weigher',
                expected=f'one of {", ".join(sorted(known))}')
        try:
            conf.set_override(weigher.multiplier_name, text,
                              plugins.group(type(weigher)))
        except ValueError:
            raise exception.InvalidField(
                where='options', field='--weight-multiplier',
                problem=f'{text!a:.40} is not valid for {name}',
                expected='a number that its option accepts') from None


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A request that was decided again.

    :param answer: the new answer
    :param change: one of :data:`CHANGES`
    :param reason: why it changed, or why it was not decided again
    :param remark: what limits the comparison
    """

    entry: Entry
    answer: Answer
    change: str
    reason: str = ''
    remark: str = ''


class Replay:
    """Decides recorded requests again.

    :param conf: the configuration of the policy
    :param carry: whether later decisions see the servers on the hosts that
        are selected now, in place of the recorded ones
    """

    def __init__(
        self, conf: cfg.ConfigOpts, pipeline: Pipeline | None = None,
        carry: bool = True,
    ) -> None:
        self._pipeline = pipeline or filter_scheduler.pipeline_of(conf)
        self._policy = filter_scheduler.selection_policy(conf, Random(0))
        self._rotates = conf.filter_scheduler.rotate_best_same_weighed_hosts
        self._requirements = requirements.RequirementCheck(
            self._pipeline.reads, conf.scheduler.unmet_demands == 'ignore')
        self._carries = carry
        #: The servers that are on other hosts than recorded.
        self.moves = Moves()

    def decide(self, entry: Entry) -> Outcome:
        """Decide a request again, on the hosts of the record."""
        data = entry.data
        skip = data.get('way') or ''
        if entry.answer.error and entry.answer.error not in _OF_POLICY:
            skip = f'it failed with {entry.answer.error}'
        if skip:
            return Outcome(entry, entry.answer, SKIPPED, skip)
        assert entry.table is not None
        with self.moves.applied(entry.table, entry.process):
            outcome = self._outcome(entry)
        if self._carries and outcome.change != SAME and data.get('claims'):
            self.moves.add(entry.table, entry.request, entry.answer,
                           outcome.answer)
        return outcome

    def _outcome(self, entry: Entry) -> Outcome:
        request = with_members(entry.request, entry.uuids)
        remark = ''
        try:
            refusal = self._requirements.refusal(request, admin())
            if refusal is not None:
                raise refusal
            if self._pipeline.located(request).difference(
                    entry.uuids, entry.data.get('nodes', ()),
                    entry.data.get('asked', ())):
                remark = ('a filter or weigher needs the hosts of servers '
                          'that are not recorded')
            answer = self._answer(entry, request)
        except exception.CellschedException as exc:
            answer = Answer.of((), exc)
        change = _change(entry.answer, answer)
        reason = '' if change == SAME else self._reason(
            entry, request, answer, change)
        return Outcome(entry, answer, change, reason, remark)

    def _answer(
        self, entry: Entry, request: objects.RequestSpec
    ) -> Answer:
        data, hosts = entry.data, entry.hosts()
        if request.hint(request_validation.REBUILD):
            verdict = existing_claims.check(
                hosts, self._pipeline, request, data.get('asked', ()))
            if verdict.why is not None:
                raise verdict.why.error()
            return Answer.of(verdict.places)
        refusals = data.get('refusals')
        policy = dataclasses.replace(
            self._policy, start=data.get('start', 0.0)
            if self._rotates else 0.0)
        uuids, kept, held = entry.uuids, data.get('kept', {}), data.get(
            'held', {})
        selector = Selector(
            self._pipeline, policy, hosts, request,
            None if refusals is None else ClaimRefusals.of(refusals),
            data.get('seed') or zlib.crc32(''.join(uuids).encode()))
        complete = all(
            selector.choose(uuid, kept.get(uuid), uuid == uuids[-1],
                            [(provider, amounts) for provider, amounts
                             in held.get(uuid, ())])
            for uuid in uuids)
        if not complete:
            raise selector.diagnosis(
                data.get('silent', ()), len(uuids)).with_left_out(
                [Rejection(*each) for each in data.get('left_out', ())]
            ).error()
        places = self._claimed(entry, hosts, selector)
        assert entry.table is not None
        entry.table.reuse(hosts)
        return places

    def _claimed(
        self, entry: Entry, hosts: view.Hosts, selector: Selector
    ) -> Answer:
        """Return the selected hosts whose claims were not refused.

        :raises cellsched.exception.NoValidHost: all of them were
        """
        passed = frozenset(entry.data.get('passed', ()))
        alternates = entry.data.get('alternates', 0)
        places = selector.selections(alternates)
        if passed.isdisjoint(first.compute_node_uuid for first, *_ in places):
            return Answer.of(places)
        for number, host in enumerate(selector.alternatives()):
            if host.node not in passed:
                selector.choose_other(number, entry.data.get('full', ()))
                return Answer.of(selector.selections(alternates))
        raise exception.NoValidHost(
            reason='Other requests claimed the selected hosts first.',
            rejections=[], placed=0)

    def _reason(
        self, entry: Entry, request: objects.RequestSpec, answer: Answer,
        change: str,
    ) -> str:
        if change == REFUSED:
            return answer.reason
        if change == FITS:
            return f'it was refused: {entry.answer.reason}'
        before, after = next(
            (one, other) for one, other
            in zip(entry.answer.places, answer.places)
            if one.node != other.node)
        hosts = entry.hosts()
        return self._preference(hosts, request, hosts.row(before.node),
                                hosts.row(after.node))

    def _preference(
        self, hosts: view.Hosts, request: objects.RequestSpec,
        before: int | None, after: int | None,
    ) -> str:
        """Return why a host is selected in place of another one."""
        if before is None:
            return 'the recorded host is unknown'
        found = self._pipeline.candidates(hosts, request)
        for stage in found.stages:
            if before in found.rejected(stage):
                return f'{stage.name}: the recorded host {stage.reason}'
        ranking = self._pipeline.weigh(request, found)
        weight, shares = ranking.weighed(before)
        if after is None or not shares:
            return 'an earlier server of the request took its room'
        best, new_shares = ranking.weighed(after)
        gains = sorted(
            ((new.weight - old.weight, new.by)
             for new, old in zip(new_shares, shares)), reverse=True)
        if best == weight:
            return 'both weigh the same'
        if best < weight:
            return 'random selection among the best hosts'
        gain, name = gains[0]
        return f'{name} prefers it by {gain:.3g}'


def _change(before: Answer, after: Answer) -> str:
    if before.places and after.places:
        return SAME if [each.node for each in before.places] == [
            each.node for each in after.places] else ELSEWHERE
    if before.places:
        return REFUSED
    return FITS if after.places else SAME


@dataclasses.dataclass(eq=False)
class Move:
    """A server on another host than recorded.

    :param before: the recorded node; None if it was refused
    :param after: the node now; None if it is refused
    :param releases: servers that its host releases until it counts as deleted
    """

    before: str | None
    after: str | None
    changes: view.Changes
    releases: float = 1.0


class Moves:
    """Servers that are on other hosts than recorded.

    A recording does not say which servers are deleted: one counts until its
    recorded host has released half of the servers that it had.
    """

    def __init__(self) -> None:
        #: By the node that shows whether the server still exists.
        self._by_node: dict[str, list[Move]] = {}
        #: The servers of these nodes, as the first process knew them last.
        self._counts: dict[str, float] = {}
        self._process: int | None = None
        #: All changes, by node and column.
        self._sums: dict[str, collections.Counter[str]] = {}

    def add(
        self, table: HostTable, request: objects.RequestSpec, before: Answer,
        after: Answer,
    ) -> None:
        """Add the servers of a request that are elsewhere."""
        # The builds in progress end soon, on whichever host they are.
        changes = tuple(
            (name, amount) for name, amount
            in view.changes(tuple(request.resources().items()))
            if name != view.BUILDS)
        for old, new in itertools.zip_longest(
                [place.node for place in before.places],
                [place.node for place in after.places]):
            if old == new:
                continue
            move, node = Move(old, new, changes), old or new
            row = table.row(node)
            if row is not None:
                count = float(table.written('num_instances')[row])
                move.releases = max(count / 2, 1.0)
                self._counts.setdefault(node, count)
            self._by_node.setdefault(node, []).append(move)
            self._note(old, view.inverse(changes))
            self._note(new, changes)

    @contextlib.contextmanager
    def applied(self, table: HostTable, process: int) -> Iterator[None]:
        """Let the overlay of a table include the servers in a block.

        :param process: the process that recorded the table
        """
        if self._process in (None, process):
            # All processes see the same servers.
            self._process = process
            self._end(table)
        snapshot = table.snapshot
        changes = [(snapshot.rows[node], tuple(sums.items()))
                   for node, sums in self._sums.items()
                   if node in snapshot.rows]
        snapshot.overlay.extend(changes)
        yield
        snapshot.overlay.extend(
            (row, view.inverse(changed)) for row, changed in changes)

    def _end(self, table: HostTable) -> None:
        """Remove the servers that count as deleted."""
        numbers = table.written('num_instances')
        for node, moves in [*self._by_node.items()]:
            row = table.row(node)
            if row is None:
                continue
            before = self._counts.get(node, 0.0)
            self._counts[node] = count = float(numbers[row])
            for move in moves if count < before else ():
                move.releases -= before - count
                if move.releases <= 0:
                    self._note(move.before, move.changes)
                    self._note(move.after, view.inverse(move.changes))
            self._by_node[node] = [
                move for move in moves if move.releases > 0]
            if not self._by_node[node]:
                del self._by_node[node], self._counts[node]

    def _note(self, node: str | None, changes: view.Changes) -> None:
        if node is None:
            return
        sums = self._sums.setdefault(node, collections.Counter())
        for name, amount in changes:
            sums[name] += amount
        if not any(sums.values()):
            del self._sums[node]


@dataclasses.dataclass(frozen=True)
class Packing:
    """The use of hosts.

    :param empty: hosts without servers
    :param used: the share of each standard resource in use, on all hosts
        with servers
    """

    hosts: int
    empty: int
    used: Mapping[str, float]


#: Columns of the offered and the free amount of resources.
_RESOURCES = ('VCPU', 'MEMORY_MB', 'DISK_GB')


def packing(table: HostTable, now: float) -> Packing:
    """Return how full the hosts of a table are."""
    hosts = table.view(now)
    busy = hosts['num_instances'] > 0
    used = {}
    for resource in _RESOURCES:
        offered = filter_scheduler.offered(hosts, resource)[busy]
        free = np.maximum(hosts.available(resource)[busy], 0)
        total = float(offered.sum())
        used[resource] = (
            round(1 - float(free.sum()) / total, 4) if total else 0.0)
    return Packing(len(hosts), int(np.count_nonzero(~busy)), used)
