# SPDX-License-Identifier: Apache-2.0
"""The pipeline: filter the hosts for a request, then weigh them.

It is a function of hosts and a request, without clock, RPC or database. The
caller refreshes the table, claims and logs.

The instances of a request are decided one by one: select a host, reserve the
capacity in the table, call :meth:`Pipeline.recheck` and
:meth:`Pipeline.reweigh`, and select the next host.
"""

from collections.abc import Callable
from collections.abc import Hashable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from collections.abc import Set
import copy
import dataclasses
import functools
import math
import numbers
from typing import Any
from typing import NamedTuple
from typing import TypeVar

import numpy as np

from cellsched import exception
from cellsched.filters import base
from cellsched.hardware import fit
from cellsched.hosts import view
from cellsched import objects
from cellsched.scheduler.decision import capacity
from cellsched.scheduler.decision import kept
from cellsched.scheduler.decision.ranking import FindBest
from cellsched.scheduler.decision.ranking import Ranking
from cellsched.scheduler.decision.ranking import WeightPart
from cellsched.scheduler.decision import required_traits
from cellsched.weighers.base import Weigher

#: Plug-ins.
Plugin = base.Filter | Weigher
_Kind = TypeVar('_Kind', base.Filter, Weigher)
_Answer = TypeVar('_Answer')

#: Scores, with what is known of them if they are kept.
Scores = tuple[view.Column, kept.KeptScores | None]

#: Default methods, which return True and need not be called.
_DEFAULTS = (base.Filter.applies, Weigher.applies)

#: Default methods, which need no locations.
_LOCATED_NONE = (base.Filter.located, Weigher.located)


class PluginCalls:
    """Calls plug-ins for a decision.

    :param now: returns monotonic seconds to time plug-ins; None for no timing
    :ivar seconds: total time of the calls by plug-in
    """

    def __init__(self, now: Callable[[], float] | None = None) -> None:
        self._now = now
        self.seconds: dict[Plugin, float] = {}

    def ask(
        self, plugin: Plugin, question: Callable[..., _Answer],
        *arguments: Any,
    ) -> _Answer:
        """Call a plug-in and return its result.

        :raises cellsched.exception.Invalid: the plug-in refused the input
        :raises cellsched.exception.PluginFailed: the plug-in failed otherwise;
            its exception, even ``SystemExit``, is the cause
        """
        now = self._now
        began = 0.0 if now is None else now()
        try:
            return question(*arguments)
        except (*exception.STOPS, exception.Invalid, exception.PluginFailed):
            raise
        except BaseException as exc:
            raise _failure(plugin) from exc
        finally:
            if now is not None:
                self.seconds[plugin] = (
                    self.seconds.get(plugin, 0.0) + now() - began)

    def applying(
        self, plugins: Iterable[_Kind], request: objects.RequestSpec
    ) -> list[_Kind]:
        """Return the plug-ins that apply to a request.

        A plug-in with the default method applies and is not called.
        """
        return [each for each in plugins if type(each).applies in _DEFAULTS
                or self.ask(each, each.applies, request)]

    def located(
        self, plugins: Iterable[Plugin], request: objects.RequestSpec
    ) -> set[str]:
        """Return the instances whose hosts the plug-ins need."""
        instances: set[str] = set()
        for each in plugins:
            if type(each).located in _LOCATED_NONE:
                continue
            if self.ask(each, each.applies, request):
                named = self.ask(each, each.located, request)
                self.ask(each, instances.update, named)
        return instances

    def mask(
        self, stage: base.Filter, hosts: view.Hosts,
        request: objects.RequestSpec,
    ) -> view.Mask | None:
        """Return the mask of a filter; None if it keeps all hosts."""
        answer = self.ask(stage, stage.keep, hosts, request)
        if answer is None:
            return None
        if not _is_column(answer, 'b', len(hosts)):
            raise _wrong(
                stage, f'its mask is not an array of {len(hosts)} booleans')
        return answer

    def key(
        self, stage: base.Filter, hosts: view.Hosts,
        request: objects.RequestSpec,
    ) -> Hashable:
        """Return the key of a filter's verdicts; None if it has none."""
        if type(stage).cache_key is base.Filter.cache_key:
            return None
        return self.ask(stage, stage.cache_key, hosts, request)

    def kept_mask(
        self, stage: base.Filter, key: Hashable, hosts: view.Hosts,
        request: objects.RequestSpec,
    ) -> kept.KeptMask:
        """Return the verdicts of a filter with a key on all hosts."""
        return kept.mask(
            stage, key, hosts,
            lambda some: self.mask(stage, some, request),
            None if type(stage).valid_until is base.Filter.valid_until
            else functools.partial(self.ask, stage, stage.valid_until))

    def scores(
        self, weigher: Weigher, hosts: view.Hosts,
        request: objects.RequestSpec,
    ) -> view.Column | None:
        """Return the scores of a weigher; None if they do not differ."""
        answer = self.ask(weigher, weigher.score, hosts, request)
        if answer is None:
            return None
        if not _is_column(answer, 'biuf', len(hosts)):
            raise _wrong(
                weigher, f'its scores are not an array of {len(hosts)} '
                         'numbers')
        return answer

    def kept_scores(
        self, weigher: Weigher, hosts: view.Hosts,
        request: objects.RequestSpec,
    ) -> Scores | None:
        """Return the scores of a weigher, kept if they depend on columns."""
        if (weigher.by_columns and hosts.is_whole
                and len(hosts) >= kept.LARGE):
            known = kept.scores(weigher, hosts, lambda some: self.scores(
                weigher, some, request))
            return None if known.values is None else (known.values, known)
        ask = functools.partial(self.scores, weigher, hosts, request)
        scores = (hosts.memo_until_change(weigher, ask)
                  if weigher.by_columns else ask())
        return None if scores is None else (scores, None)

    def parts(
        self,
        weighed: Iterable[tuple[
            Weigher, float | view.Column, Scores]],
        mask: view.Mask | None,
    ) -> list[WeightPart]:
        """Return the contribution of each weigher to the weights.

        :param weighed: weighers with their multipliers and scores
        :param mask: mask of the hosts that count; None for all
        """
        return [self.ask(
            weigher, WeightPart, weigher, scores, multiplier, mask,
            None if known is None else known.extrema(mask))
            for weigher, multiplier, (scores, known) in weighed]

    def multipliers(
        self, weighers: Iterable[Weigher], hosts: view.Hosts
    ) -> dict[Weigher, float | view.Column]:
        """Return the weighers with a multiplier other than zero."""
        found = {}
        for weigher in weighers:
            multiplier = self.multiplier(weigher, hosts)
            if isinstance(multiplier, np.ndarray) or multiplier:
                found[weigher] = multiplier
        return found

    def multiplier(
        self, weigher: Weigher, hosts: view.Hosts
    ) -> float | view.Column:
        """Return a weigher's multiplier, one for all hosts or one per host."""
        answer = self.ask(weigher, weigher.multiplier, hosts)
        if type(answer) is float or isinstance(answer, numbers.Real):
            finite = math.isfinite(answer)
        elif _is_column(answer, 'iuf', len(hosts)):
            finite = bool(np.isfinite(answer).all())
        else:
            raise _wrong(
                weigher, 'its multiplier is neither a number nor an array of '
                         f'{len(hosts)} numbers')
        if not finite:
            raise _wrong(weigher, 'its multiplier is not finite')
        return answer


def kind_of(plugin: Plugin) -> str:
    """Return the kind of a plug-in in messages."""
    return 'Weigher' if isinstance(plugin, Weigher) else 'Filter'


def _failure(plugin: Plugin) -> exception.PluginFailed:
    return exception.PluginFailed(kind=kind_of(plugin), plugin=plugin.name)


def _wrong(plugin: Plugin, problem: str) -> exception.PluginFailed:
    """Return the error for an invalid result of a plug-in."""
    failure = _failure(plugin)
    failure.__cause__ = TypeError(problem)
    return failure


def _is_column(answer: Any, kinds: str, length: int) -> bool:
    return (isinstance(answer, np.ndarray) and answer.dtype.kind in kinds
            and answer.shape == (length,))


#: While more than one host in this many remains, filters read whole columns
#: with a mask. Gathering the remaining rows pays only when they are few.
_FEW_FILTERED = 6


class FilterStep(NamedTuple):
    """The result of one stage.

    :param entered: the number of hosts that reached it
    :param left: the number of hosts that passed
    :param find_rejected: returns the rows that the stage rejected
    """

    stage: base.Filter
    entered: int
    left: int
    find_rejected: Callable[[], view.Column]

    @property
    def rejected(self) -> view.Column:
        """The rows that the stage rejected."""
        return self.find_rejected()


def _rejected(
    hosts: view.Hosts, before: view.Mask | None, after: view.Mask
) -> view.Column:
    """Return the rows that a stage rejected.

    :param before: mask of the hosts that reached it; None for all
    :param after: mask of the hosts that passed
    """
    out = ~after
    if before is not None:
        out &= before
    return hosts.rows[out]


@dataclasses.dataclass(frozen=True, eq=False)
class FilteredHosts:
    """The hosts that remain after some stages.

    :param hosts: a superset of the remaining hosts
    :param mask: mask of the remaining hosts; None for all
    :param left: number of remaining hosts
    :param steps: results of the stages that rejected hosts
    :param passed: the same hosts, if they are kept for later requests
    """

    hosts: view.Hosts
    mask: view.Mask | None
    left: int
    steps: tuple[FilterStep, ...] = ()
    passed: kept.PassingHosts | None = None

    @property
    def rows(self) -> view.Column:
        """The table rows of the remaining hosts."""
        if self.mask is None:
            return self.hosts.rows
        places = np.flatnonzero(self.mask)
        return self.hosts.table_rows(places)

    def narrowed(self, few: float = 1) -> 'FilteredHosts':
        """Return the same without rejected hosts in ``hosts``.

        :param few: do it only if fewer than one in this many remains
        """
        if self.left * few >= len(self.hosts):
            return self
        return FilteredHosts(
            self.hosts.at(self.rows), None, self.left, self.steps)

    def without(self, rows: Iterable[int]) -> 'FilteredHosts':
        """Return the same without the hosts in these table rows."""
        mask = np.isin(self.hosts.rows, list(rows), invert=True)
        if self.mask is not None:
            mask &= self.mask
        return FilteredHosts(
            self.hosts, mask, int(np.count_nonzero(mask)), self.steps)

    def through(
        self, stages: Iterable[base.Filter], request: objects.RequestSpec,
        calls: PluginCalls | None = None,
    ) -> 'FilteredHosts':
        """Return the hosts that also pass these stages.

        :param calls: calls the stages
        """
        calls = calls or PluginCalls()
        hosts, mask, remaining = self.hosts, self.mask, self.left
        steps = list(self.steps)
        for stage in stages:
            if not remaining:
                break
            if mask is not None and (
                    stage.by_row or remaining * _FEW_FILTERED < len(hosts)):
                hosts = hosts.at(hosts.table_rows(np.flatnonzero(mask)))
                mask = None
            answer = calls.mask(stage, hosts, request)
            if answer is None:
                continue
            passed = answer if mask is None else mask & answer
            count = int(np.count_nonzero(passed))
            if count < remaining:
                steps.append(FilterStep(
                    stage, remaining, count, functools.partial(
                        _rejected, hosts, mask, passed)))
                mask, remaining = passed, count
        return FilteredHosts(hosts, mask, remaining, tuple(steps))


@dataclasses.dataclass(frozen=True)
class Nearest:
    """The nearest miss: ``hosts`` hosts lack only ``amount``."""

    hosts: int
    amount: float
    unit: str


@dataclasses.dataclass(frozen=True)
class Rejection:
    """The number of ``hosts`` that a stage rejected first, for one reason.

    :param internals: names for administrators, that go with the reason
    :param rows: the rows of the hosts
    """

    by: str
    hosts: int
    reason: str
    nearest: Nearest | None = None
    internals: str | None = None
    rows: view.Column | None = dataclasses.field(
        default=None, compare=False, repr=False)


@dataclasses.dataclass(frozen=True, eq=False)
class Candidates:
    """The hosts that passed, and the rejections of all other hosts.

    :param stages: the stages in order
    :param filtered: the hosts that passed all stages
    """

    stages: tuple[base.Filter, ...]
    filtered: FilteredHosts

    @property
    def rows(self) -> view.Column:
        """The table rows of the hosts that passed."""
        return self.filtered.rows

    def __len__(self) -> int:
        return self.filtered.left

    def without(self, rows: Sequence[int]) -> 'Candidates':
        """Return the candidates without hosts that the claim store refused."""
        return Candidates(self.stages, self.filtered.without(rows))

    def rejected(self, stage: base.Filter) -> view.Column:
        """Return the rows that each stage rejected; each row appears once."""
        found = [step.rejected for step in self.filtered.steps
                 if step.stage is stage]
        return np.concatenate(found) if found else np.empty(0, 'int64')

    def rejections(
        self, request: objects.RequestSpec,
        calls: PluginCalls | None = None,
        besides: Sequence[int] = (),
    ) -> list[Rejection]:
        """Return the rejections in the order of the stages.

        The nearest misses include the amounts that this request has already
        taken on a host.

        :param besides: rows of hosts that are counted elsewhere
        """
        return list(self._rejections(request, calls or PluginCalls(), besides))

    def _rejections(
        self, request: objects.RequestSpec, calls: PluginCalls,
        besides: Sequence[int],
    ) -> Iterator[Rejection]:
        for stage in self.stages:
            rows = self.rejected(stage)
            # Most stages reject nothing.
            if len(rows):
                rows = np.setdiff1d(rows, besides)
            if len(rows):
                hosts = self.filtered.hosts.at(rows)
                internals = calls.ask(stage, stage.internals, hosts, request)
                for reason in calls.ask(stage, stage.reasons, hosts, request):
                    nearest = calls.ask(stage, _nearest, reason.shortfall)
                    some = rows[reason.hosts]
                    yield Rejection(stage.name, len(some), reason.text,
                                    nearest, internals, some)


def _nearest(shortfall: tuple[view.Column, str] | None) -> Nearest | None:
    if shortfall is None:
        return None
    amounts, unit = shortfall
    # A host whose capacity was released meanwhile lacks nothing.
    amounts = amounts[amounts > 0]
    if not len(amounts):
        return None
    least = amounts.min().item()
    if least == int(least):
        least = int(least)
    return Nearest(int(np.count_nonzero(amounts == least)), least, unit)


#: If fewer than one host in this many remains, only the remaining rows are
#: weighed, otherwise whole columns: gathering most rows of a column takes
#: longer than weighing a few more.
_FEW_WEIGHED = 8 / 7

#: The same if the scores of all hosts are kept.
_FEW_KEPT = 256


class Pipeline:
    """The stages, filters and weighers of a decision, in order.

    1. ``destinations``: the destinations that the request names.
    2. ``needs``: capacity for its amounts.
    3. The filters, which a request that is forced to a host skips.
    4. The weighers.

    A plug-in that fails, or returns an invalid result, fails the request with
    a :class:`cellsched.exception.PluginFailed` that names the plug-in. An
    :class:`cellsched.exception.Invalid` of a plug-in is raised unchanged.

    :param destinations: stages that apply to every request
    :param needs: returns the stages for the amounts of a request; replaced if
        the hosts are known to have capacity
    :param packs_cells: whether NUMA cells with less free room are tried first
    """

    def __init__(
        self, filters: Iterable[base.Filter],
        weighers: Iterable[Weigher],
        destinations: Iterable[base.Filter] = (),
        needs: Callable[
            [view.Hosts, objects.RequestSpec], Iterable[base.Filter]
        ] = capacity.stages,
        packs_cells: bool = False,
    ) -> None:
        self._needs = needs
        self._packs_cells = packs_cells
        #: The filters and the weighers, in order.
        self.filters = tuple(filters)
        self.weighers = tuple(weighers)
        self._destinations = tuple(destinations)
        self._calls = PluginCalls()
        self._limiting = frozenset(
            each for each in self.filters
            if type(each).limits is not base.Filter.limits)
        everyone: tuple[base.Filter | Weigher, ...] = (
            *self._destinations, *self.filters, *self.weighers)
        self._locating = tuple(
            each for each in everyone if type(each).located not in (
                base.Filter.located, Weigher.located))
        self._serves = frozenset[str]().union(
            *(each.serves for each in self.filters),
            *(each.serves for each in self.weighers))
        #: Scheduler hints that the enabled filters read.
        self.hints = frozenset(
            hint for each in self.filters for hint in each.hints)
        #: Requirements that the enabled stages read.
        self.reads = capacity.Capacity.reads.union(
            *(each.reads for each in (*self._destinations, *self.filters)))
        self._places_hardware = not self.reads.isdisjoint(
            ('numa_topology', 'pci_requests'))

    def hardware(self, request: objects.RequestSpec) -> fit.Demand | None:
        """Return the NUMA cells and the devices to select for an instance.

        :returns: None if it asks for none, or if no enabled stage checks them
        """
        demand = request.hardware() if self._places_hardware else None
        if demand is None or not self._packs_cells:
            return demand
        return demand._replace(packs=True)

    def timed(self, now: Callable[[], float]) -> 'Pipeline':
        """Return a copy for one request that times its plug-ins.

        :param now: returns monotonic seconds
        """
        made = copy.copy(self)
        made._calls = PluginCalls(now)
        return made

    def slow(self, seconds: float) -> list[tuple[str, str, float]]:
        """Return the plug-ins of a timed copy that took longer than a limit.

        :returns: kind, name and seconds of each plug-in
        """
        return [(kind_of(plugin), plugin.name, took)
                for plugin, took in self._calls.seconds.items()
                if took > seconds]

    def located(self, request: objects.RequestSpec) -> set[str]:
        """Return the instances whose hosts the plug-ins need."""
        return self._calls.located(self._locating, request)

    def required_traits(self, request: objects.RequestSpec) -> Set[str]:
        """Return the traits that a host must have for the request.

        Traits of numbered groups are not included.

        :raises cellsched.exception.InvalidField: a field that requests a trait
            is invalid
        """
        return frozenset[str]().union(*(
            self._calls.ask(stage, stage.required, request)
            for stage in self._destinations
            if isinstance(stage, required_traits.RequiredTraits)))

    def candidates(
        self, hosts: view.Hosts, request: objects.RequestSpec,
        rebuild: bool = False,
    ) -> Candidates:
        """Return the candidates for an instance of the request.

        :param rebuild: the server stays on its host and takes no more
            capacity, so only filters that depend on the image apply
        """
        self._check_group(request)
        stages: tuple[base.Filter, ...]
        if rebuild:
            stages = tuple(each for each in self.filters
                           if each.run_on_rebuild)
        else:
            forced = request.get('force_hosts') or request.get('force_nodes')
            stages = (*self._destinations, *self._needs(hosts, request),
                      *(() if forced else self.filters))
        stages = tuple(self._calls.applying(stages, request))
        keys = []
        is_large = hosts.is_whole and len(hosts) >= kept.LARGE
        for stage in stages if is_large else ():
            key = self._calls.key(stage, hosts, request)
            if key is None:
                break
            keys.append(key)
        remaining = self._passed(hosts, request, stages[:len(keys)], keys)
        if len(keys) < len(stages):
            remaining = remaining.through(
                stages[len(keys):], request, self._calls)
        return Candidates(stages, remaining.narrowed(
            _FEW_WEIGHED if remaining.passed is None else _FEW_KEPT))

    def _passed(
        self, hosts: view.Hosts, request: objects.RequestSpec,
        stages: Sequence[base.Filter], keys: Sequence[Hashable],
    ) -> FilteredHosts:
        """Return the hosts that pass stages whose verdicts are kept."""
        if not stages or not len(hosts):
            return FilteredHosts(hosts, None, len(hosts))
        passed = kept.passed(
            tuple(zip(stages, keys)),
            [self._calls.kept_mask(stage, key, hosts, request)
             for stage, key in zip(stages, keys)], hosts)
        steps, entered = [], len(hosts)
        for place, (stage, count) in enumerate(zip(stages, passed.counts)):
            if count < entered:
                steps.append(FilterStep(
                    stage, entered, count, functools.partial(
                        passed.rejected_by, place)))
            entered = count
        return FilteredHosts(
            hosts, passed.mask if entered < len(hosts) else None, entered,
            tuple(steps), passed)

    def _check_group(self, request: objects.RequestSpec) -> None:
        """Refuse a server group with a rule that no enabled stage reads.

        :raises cellsched.exception.InvalidField: names the rule
        """
        group = request.get('instance_group')
        if group is None:
            return
        policy = group.get('policy')
        if policy and policy not in self._serves:
            raise exception.InvalidField(
                where='server group', field='policy',
                problem=f'no enabled filter or weigher supports '
                        f'{policy!a:.60}')
        if 'spread' in group.rules and 'spread' not in self._serves:
            raise exception.InvalidField(
                where='server group', field='rules.spread',
                problem='no enabled filter supports this rule')

    def recheck(
        self, request: objects.RequestSpec,
        candidates: Candidates, row: int,
    ) -> Candidates:
        """Return the remaining candidates after a host was selected.

        Only stages whose result can change are called again, local stages only
        for that host. A rejected host stays rejected.

        :param row: the host on which capacity was reserved
        """
        again = [stage for stage in candidates.stages
                 if not stage.run_filter_once_per_request]
        remaining = candidates.filtered
        chosen = FilteredHosts(remaining.hosts.at(np.array([row])), None, 1)
        asked = chosen.through(
            [stage for stage in again if stage.local], request, self._calls)
        if not asked.left:
            remaining = dataclasses.replace(
                remaining.without([row]),
                steps=(*remaining.steps, *asked.steps))
        rest = [stage for stage in again if not stage.local]
        if rest:
            remaining = remaining.through(rest, request, self._calls)
        return Candidates(candidates.stages, remaining)

    def rejections(
        self, request: objects.RequestSpec,
        candidates: Candidates, besides: Sequence[int] = (),
    ) -> list[Rejection]:
        """Return the rejections; see ``Candidates.rejections``."""
        return candidates.rejections(request, self._calls, besides)

    def limits(
        self, request: objects.RequestSpec,
        candidates: Candidates, row: int,
    ) -> dict[str, Any]:
        """Return the limits that the filters set for a build on a host."""
        limits: dict[str, Any] = {}
        if not self._limiting:
            return limits
        chosen = candidates.filtered.hosts.at(np.array([row]))
        for stage in candidates.stages:
            if stage in self._limiting:
                limits |= self._calls.ask(
                    stage, _limits, stage, chosen, request)
        return limits

    def weigh(
        self, request: objects.RequestSpec,
        candidates: Candidates,
    ) -> Ranking:
        """Return the candidates ranked by weight.

        A weight is the sum of the weighers' scores, each scaled to 0..1 over
        the candidates and multiplied. A single candidate is not weighed.
        """
        weighers = self._calls.applying(self.weighers, request)
        filtered = candidates.filtered
        if any(each.by_row for each in weighers):
            filtered = filtered.narrowed()
        hosts, mask = filtered.hosts, filtered.mask
        if len(candidates) < 2:
            return Ranking(hosts, mask)
        weighed = [
            (weigher, multiplier, scores) for weigher, multiplier
            in self._calls.multipliers(weighers, hosts).items()
            if (scores := self._calls.kept_scores(
                weigher, hosts, request)) is not None]
        parts = self._calls.parts(weighed, mask)
        return Ranking(
            hosts, mask, parts, len(candidates),
            self._best(filtered, parts, [known for _, _, (_, known)
                                         in weighed]))

    @staticmethod
    def _best(
        filtered: FilteredHosts, parts: Sequence[WeightPart],
        known: Sequence[kept.KeptScores | None],
    ) -> FindBest | None:
        """Return what finds the best hosts, if all parts of it are kept."""
        if filtered.passed is None:
            return None
        counting = [(part, scores) for part, scores in zip(parts, known)
                    if part.counts]
        if not counting or any(
                scores is None or part.key is None
                for part, scores in counting):
            return None
        sum_ = kept.weight_sum(
            [part for part, _ in counting],
            [scores for _, scores in counting if scores is not None],
            filtered.hosts)
        return functools.partial(
            filtered.passed.best(sum_).contenders, filtered.passed, sum_)

    def reweigh(
        self, request: objects.RequestSpec,
        candidates: Candidates, ranking: Ranking,
        row: int,
    ) -> Ranking:
        """Return the candidates ranked by weight after a host was selected.

        The result is that of :meth:`weigh`, at the cost of the change.

        :param ranking: the previous ranking, detached from the table; it is
            consumed
        :param row: the host on which capacity was reserved
        """
        # 1. A ranking of other hosts, or one in which more than the selected
        #    host has changed, is made anew.
        hosts, mask = candidates.filtered.hosts, candidates.filtered.mask
        place = ranking.place(row)
        kept = place is not None and (mask is None or bool(mask[place]))
        lost = len(ranking) - len(candidates)
        if (hosts is not ranking.hosts or place is None
                or len(candidates) < 2 or lost != (not kept)):
            again = self.weigh(request, candidates)
            again.detach()
            return again
        # 2. Otherwise ask each weigher for as little as possible: a local one
        #    scores each host by itself, so only the selected host changes. If
        #    the host has left the ranking, only the bounds of the scores can
        #    change.
        chosen = hosts.at(np.array([row]))
        ranking.mask = mask
        moved = False
        for part in ranking.parts:
            weigher = part.weigher
            if kept and weigher.fixed:
                continue
            if not weigher.local:
                scores = self._calls.scores(weigher, hosts, request)
                part.scores = (np.zeros(len(hosts)) if scores is None
                               else scores)
                part.detach(mask)
                self._calls.ask(weigher, part.find_bounds, mask)
                moved = True
            elif kept:
                scores = self._calls.scores(weigher, chosen, request)
                if scores is not None:
                    moved |= self._calls.ask(
                        weigher, part.change, place, float(scores[0]), mask)
            elif mask is not None:
                moved |= part.leave_out(place, mask)
        # 3. If the bounds of a weigher moved, the weights of all hosts scale
        #    anew. Otherwise one weight changes.
        if moved:
            ranking.add_up()
        else:
            ranking.change(place)
        return ranking


def _limits(
    stage: base.Filter, chosen: view.Hosts, request: objects.RequestSpec
) -> dict[str, Any]:
    """Return the limits that a filter sets on the selected host."""
    return {name: column[0] if column.dtype == object else int(column[0])
            for name, column in stage.limits(chosen, request).items()}
