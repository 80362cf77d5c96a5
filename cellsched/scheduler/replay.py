# SPDX-License-Identifier: Apache-2.0
"""Deciding recorded requests again, with the same or with another policy."""

import collections
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from importlib import metadata
import itertools
from random import Random
from typing import Any
import zlib

import numpy as np
from oslo_config import cfg
from oslo_serialization import jsonutils

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

#: The names of the recorded options, by group.
_OPTIONS: Mapping[str, Sequence[str]] = {
    'DEFAULT': ['service_down_time'], **{
        group: [opt.dest for opt in opts
                if opt.dest not in ('record', 'record_mb')]
        for group, opts in (('filter_scheduler', policy_options.OPTS),
                            ('metrics', metrics_options.OPTS),
                            ('scheduler', scheduler_options.OPTS))}}

#: A row of a table, and the changes of its columns.
RowChanges = tuple[int, view.Changes]

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
        group: {name: section[name] for name in names}
        for group, names in _OPTIONS.items()
        for section in [conf if group == 'DEFAULT' else conf[group]]}
    for plugin in map(type, (*made.filters, *made.weighers)):
        if not getattr(plugin, 'multiplier_name', True):
            # A weigher that was written for Nova has no option.
            continue
        values = plugins.options(conf, plugin)
        options.setdefault(plugins.group(plugin) or 'DEFAULT', {}).update({
            opt.dest: values[opt.dest]
            for opt in enabled.options_of(plugin, plugin.__name__)
            if not opt.secret})
    weighers = [
        name for given in conf.filter_scheduler.weight_classes
        for name in (plugins.names(plugins.WEIGHERS)
                     if given in policy_options.ALL_WEIGHERS else [given])]
    options['filter_scheduler'] |= {
        'weight_classes': [*dict.fromkeys(weighers)], **more}
    return {'release': metadata.version('cellsched'),
            'host': conf.host, 'driver': conf.scheduler.driver,
            'options': jsonutils.to_primitive(options, fallback=str)}


def apply_header(conf: cfg.ConfigOpts, header: Mapping[str, Any]) -> None:
    """Set the recorded options in a configuration.

    :raises cellsched.exception.ConfigurationInvalid: a plug-in is not
        installed, or an option has another type in this release
    """
    options = header.get('options') or {}
    _override(conf, options)
    # This registers the options of the plug-ins.
    filter_scheduler.pipeline_of(conf)
    _override(conf, options)


def _override(
    conf: cfg.ConfigOpts, options: Mapping[str, Mapping[str, Any]]
) -> None:
    """Set options that are registered; one of an earlier release may be gone.

    :param options: values by group and name
    """
    for group, name, value in (
            (group, name, value) for group, values in options.items()
            for name, value in values.items() if value is not None):
        section = conf if group == 'DEFAULT' else (
            conf[group] if group in conf else ())
        if name not in section:
            continue
        if isinstance(value, list):
            # The values of an option are tuples, if they have parts.
            value = [tuple(each) if isinstance(each, list) else each
                     for each in value]
        try:
            conf.set_override(
                name, value, None if group == 'DEFAULT' else group)
        except (TypeError, ValueError) as exc:
            raise exception.ConfigurationInvalid(
                field=f'[{group}] {name}', problem='the recorded value is '
                f'not valid in this release: {exc!s:.120}') from None


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
        self._requirements = requirements.RequirementCheck(
            self._pipeline.reads, conf.scheduler.unmet_demands == 'ignore')
        self._carries = carry
        #: The servers that are on other hosts than recorded.
        self.moves = Moves()

    def decide(self, entry: Entry) -> Outcome:
        """Decide a request again, on the hosts of the record."""
        skip = entry.data['way']
        if entry.answer.error and entry.answer.error not in _OF_POLICY:
            skip = f'it failed with {entry.answer.error}'
        if skip:
            return Outcome(entry, entry.answer, SKIPPED, skip)
        assert entry.table is not None
        outcome = self._outcome(entry, self.moves.changes(
            entry.table, entry.process))
        if self._carries and outcome.change != SAME and entry.data['claims']:
            self.moves.add(entry.table, entry.request, entry.answer,
                           outcome.answer)
        return outcome

    def _outcome(self, entry: Entry, moved: Sequence[RowChanges]) -> Outcome:
        """Decide a request again.

        :param moved: the changes by the servers that are elsewhere
        """
        request, remark = with_members(entry.request, entry.uuids), ''
        try:
            refusal = self._requirements.refusal(request, admin())
            if refusal is not None:
                raise refusal
            if self._pipeline.located(request).difference(
                    entry.uuids, entry.data['nodes'], entry.data['asked']):
                remark = ('a filter or weigher needs the hosts of servers '
                          'that are not recorded')
            answer = self._answer(entry, request, entry.hosts(moved))
        except exception.CellschedException as exc:
            answer = Answer.of((), exc)
        before, reason = entry.answer, ''
        if [place.node for place in before.places] == [
                place.node for place in answer.places]:
            change = SAME
        elif not answer.places:
            change, reason = REFUSED, answer.reason
        elif not before.places:
            change, reason = FITS, f'it was refused: {before.reason}'
        else:
            change, hosts = ELSEWHERE, entry.hosts(moved)
            reason = self._preference(hosts, request, *next(
                (hosts.row(old.node), hosts.row(new.node))
                for old, new in zip(before.places, answer.places)
                if old.node != new.node))
        return Outcome(entry, answer, change, reason, remark)

    def _answer(
        self, entry: Entry, request: objects.RequestSpec, hosts: view.Hosts
    ) -> Answer:
        data = entry.data
        if request.hint(request_validation.REBUILD):
            verdict = existing_claims.check(
                hosts, self._pipeline, request, data['asked'])
            if verdict.why is not None:
                raise verdict.why.error()
            return Answer.of(verdict.places)
        uuids, refusals = entry.uuids, data['refusals']
        selector = Selector(
            # Zero stands for a policy that does not rotate.
            self._pipeline, dataclasses.replace(
                self._policy, start=self._policy.start and data['start']),
            hosts, request, refusals and ClaimRefusals.of(refusals),
            data['seed'] or zlib.crc32(''.join(uuids).encode()))
        if not all(selector.choose(
                uuid, data['kept'].get(uuid), uuid == uuids[-1],
                data['held'].get(uuid, ())) for uuid in uuids):
            raise selector.diagnosis(
                data['silent'], len(uuids)).with_left_out(
                [Rejection(*each) for each in data['left_out']]).error()
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
        passed = frozenset(entry.data['passed'])
        alternates = entry.data['alternates']
        places = selector.selections(alternates)
        if passed.isdisjoint(first.compute_node_uuid for first, *_ in places):
            return Answer.of(places)
        for number, host in enumerate(selector.alternatives()):
            if host.node not in passed:
                selector.choose_other(number, entry.data['full'])
                return Answer.of(selector.selections(alternates))
        raise exception.NoValidHost(
            reason='Other requests claimed the selected hosts first.',
            rejections=[], placed=0)

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

    def changes(
        self, table: HostTable, process: int
    ) -> Sequence[RowChanges]:
        """Return the changes of a table's rows by these servers.

        :param process: the process that recorded the table
        """
        if self._process in (None, process):
            # All processes see the same servers.
            self._process = process
            self._end(table)
        rows = table.snapshot.rows
        return [(rows[node], tuple(sums.items()))
                for node, sums in self._sums.items() if node in rows]

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


def packing(hosts: view.Hosts) -> dict[str, Any]:
    """Return how full hosts are.

    This is the number of ``hosts``, those without servers (``empty``), and
    the share of each standard resource in use on all other hosts (``used``).
    """
    busy = hosts['num_instances'] > 0
    used = {}
    for resource in ('VCPU', 'MEMORY_MB', 'DISK_GB'):
        total = float(filter_scheduler.offered(hosts, resource)[busy].sum())
        free = np.maximum(hosts.available(resource)[busy], 0)
        used[resource] = (
            round(1 - float(free.sum()) / total, 4) if total else 0.0)
    return {'hosts': len(hosts), 'empty': int(np.count_nonzero(~busy)),
            'used': used}
