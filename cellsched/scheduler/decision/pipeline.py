# SPDX-License-Identifier: Apache-2.0
"""The pipeline: filter the hosts for a request, then weigh them.

It is a function of hosts and a request, without clock, RPC or database. The
caller refreshes the table, claims and logs.

The instances of a request are decided one by one: select a host, reserve the
capacity in the table, call :meth:`Pipeline.recheck` and
:meth:`Pipeline.reweigh`, and select the next host.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
from collections.abc import Set
import copy
import dataclasses

import numpy as np

from cellsched import exception
from cellsched.filters import base
from cellsched.hosts import view
from cellsched import objects
from cellsched.scheduler.decision.candidates import Candidates
from cellsched.scheduler.decision.candidates import FilteredHosts
from cellsched.scheduler.decision.candidates import Rejection
from cellsched.scheduler.decision import capacity
from cellsched.scheduler.decision import plugin_calls
from cellsched.scheduler.decision.ranking import Ranking
from cellsched.scheduler.decision import required_traits
from cellsched.weighers.base import Weigher


#: If fewer than one host in this many remains, only the remaining rows are
#: weighed, otherwise whole columns: gathering most rows of a column takes
#: longer than weighing a few more.
_FEW = 8 / 7


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
    """

    def __init__(
        self, filters: Iterable[base.Filter],
        weighers: Iterable[Weigher],
        destinations: Iterable[base.Filter] = (),
        needs: Callable[
            [view.Hosts, objects.RequestSpec], Iterable[base.Filter]
        ] = capacity.stages,
    ) -> None:
        self._needs = needs
        self._filters = tuple(filters)
        self._weighers = tuple(weighers)
        self._destinations = tuple(destinations)
        self._calls = plugin_calls.PluginCalls()
        self._limiting = frozenset(
            each for each in self._filters
            if type(each).limits is not base.Filter.limits)
        everyone: tuple[base.Filter | Weigher, ...] = (
            *self._destinations, *self._filters, *self._weighers)
        self._locating = tuple(
            each for each in everyone if type(each).located not in (
                base.Filter.located, Weigher.located))
        self._serves = frozenset[str]().union(
            *(each.serves for each in self._filters),
            *(each.serves for each in self._weighers))
        #: Scheduler hints that the enabled filters read.
        self.hints = frozenset(
            hint for each in self._filters for hint in each.hints)
        #: Requirements that the enabled stages read.
        self.reads = capacity.Capacity.reads.union(
            *(each.reads for each in (*self._destinations, *self._filters)))

    def timed(self, now: Callable[[], float]) -> 'Pipeline':
        """Return a copy for one request that times its plug-ins.

        :param now: returns monotonic seconds
        """
        made = copy.copy(self)
        made._calls = plugin_calls.PluginCalls(now)
        return made

    def slow(self, seconds: float) -> list[tuple[str, str, float]]:
        """Return the plug-ins of a timed copy that took longer than a limit.

        :returns: kind, name and seconds of each plug-in
        """
        return [(plugin_calls.kind_of(plugin), plugin.name, took)
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
            stages = tuple(each for each in self._filters
                           if each.run_on_rebuild)
        else:
            forced = request.get('force_hosts') or request.get('force_nodes')
            stages = (*self._destinations, *self._needs(hosts, request),
                      *(() if forced else self._filters))
        stages = tuple(self._calls.applying(stages, request))
        everyone = FilteredHosts(hosts, None, len(hosts))
        remaining = everyone.through(stages, request, self._calls)
        remaining = remaining.narrowed(_FEW)
        return Candidates(stages, remaining)

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
                expected=f'one that is enabled here, not '
                         f'{policy!a:.60}')
        if 'spread' in group.rules and 'spread' not in self._serves:
            raise exception.InvalidField(
                where='server group', field='rules.spread',
                expected='no rule that is not enabled here')

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
        chosen = FilteredHosts(
            remaining.hosts.at(np.array([row])), None, 1)
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
    ) -> dict[str, int]:
        """Return the limits that the filters set for a build on a host."""
        limits: dict[str, int] = {}
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
        weighers = self._calls.applying(self._weighers, request)
        filtered = candidates.filtered
        if any(each.by_row for each in weighers):
            filtered = filtered.narrowed()
        hosts, mask = filtered.hosts, filtered.mask
        if len(candidates) < 2:
            return Ranking(hosts, mask)
        multipliers = self._calls.multipliers(weighers, hosts)
        scores = self._scores(multipliers, hosts, request)
        return Ranking(hosts, mask, self._calls.parts([
            (weigher, multiplier, known)
            for weigher, multiplier in multipliers.items()
            if (known := scores[weigher]) is not None], mask))

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
        hosts, mask = candidates.filtered.hosts, candidates.filtered.mask
        place = ranking.place(row)
        kept = place is not None and (mask is None or bool(mask[place]))
        lost = len(ranking) - len(candidates)
        if (hosts is not ranking.hosts or place is None
                or len(candidates) < 2 or lost != (not kept)):
            again = self.weigh(request, candidates)
            again.detach()
            return again
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
        if moved:
            ranking.add_up()
        else:
            ranking.change(place)
        return ranking

    def _scores(
        self, weighers: Iterable[Weigher], hosts: view.Hosts,
        request: objects.RequestSpec,
    ) -> dict[Weigher, plugin_calls.Scores | None]:
        """Return the scores of weighers; None if they do not differ."""
        kept = tuple(each for each in weighers
                     if each.by_columns) if hosts.is_whole else ()
        found = dict(hosts.memo_until_change(kept, lambda: (
            self._calls.kept_scores(kept, hosts, request)))) if kept else {}
        for weigher in weighers:
            if weigher not in found:
                scores = self._calls.scores(weigher, hosts, request)
                found[weigher] = None if scores is None else (scores, None)
        return found


def _limits(
    stage: base.Filter, chosen: view.Hosts, request: objects.RequestSpec
) -> dict[str, int]:
    """Return the limits that a filter sets on the selected host."""
    return {name: int(column[0])
            for name, column in stage.limits(chosen, request).items()}
