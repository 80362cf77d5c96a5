# SPDX-License-Identifier: Apache-2.0
"""The decision: which hosts may take a request, and which is best.

A function of hosts and a request. There is no clock here, no RPC and no
database; who calls brings the table up to date, claims and logs.

Several instances of one request are decided one by one: choose a host, take
the room in the table, :meth:`Pipeline.recheck`, :meth:`Pipeline.reweigh`,
choose again.
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


#: If less than one host in so many is left, only those are weighed, and else
#: whole columns: to pick nearly all out of a column takes longer than to weigh
#: a few more.
_FEW = 8 / 7


class Pipeline:
    """Filters and weighers in order, and the rules by which they decide.

    First comes what the request itself says of where it may go, then room for
    what it takes, then the filters. A request that is forced to a host passes
    the filters by. A plug-in that fails, or whose answer is not one, fails
    the request with a :class:`cellsched.exception.PluginFailed` that names
    it. When it finds the input bad, its :class:`cellsched.exception.Invalid`
    is passed on.

    :param destinations: stages that every request has to pass
    :param needs: returns the stages for what a request takes; other than by
        default where somebody else has seen to it that hosts have room
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
        #: Scheduler hints that some filter reads.
        self.hints = frozenset(
            hint for each in self._filters for hint in each.hints)
        #: Demands that some stage reads.
        self.reads = capacity.Capacity.reads.union(
            *(each.reads for each in (*self._destinations, *self._filters)))

    def timed(self, now: Callable[[], float]) -> 'Pipeline':
        """Return the same decision, for one request and with timed plug-ins.

        :param now: returns a time in seconds that never goes back
        """
        made = copy.copy(self)
        made._calls = plugin_calls.PluginCalls(now)
        return made

    def slow(self, seconds: float) -> list[tuple[str, str, float]]:
        """Return the plug-ins that took longer than this since it is timed.

        :returns: for each its kind, its name and its seconds
        """
        return [(plugin_calls.kind_of(plugin), plugin.name, took)
                for plugin, took in self._calls.seconds.items()
                if took > seconds]

    def located(self, request: objects.RequestSpec) -> set[str]:
        """Return the instances whose hosts the plug-ins need to know."""
        return self._calls.located(self._locating, request)

    def required_traits(self, request: objects.RequestSpec) -> Set[str]:
        """Return the traits that every request has to find on a host.

        Those of numbered groups are not among them.

        :raises cellsched.exception.InvalidField: what asks for them makes no
            sense
        """
        return frozenset[str]().union(*(
            self._calls.ask(stage, stage.required, request)
            for stage in self._destinations
            if isinstance(stage, required_traits.RequiredTraits)))

    def candidates(
        self, hosts: view.Hosts, request: objects.RequestSpec,
        rebuild: bool = False,
    ) -> Candidates:
        """Return the hosts that may take an instance of the request.

        :param rebuild: the server stays on its host and takes nothing more;
            only what depends on the image is asked
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
        left = everyone.through(stages, request, self._calls)
        left = left.narrowed(_FEW)
        return Candidates(stages, left)

    def _check_group(self, request: objects.RequestSpec) -> None:
        """Refuse a server group whose wish would not be heard.

        :raises cellsched.exception.InvalidField: names the wish
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
        """Return those who still are candidates after a host was chosen.

        Only stages whose verdict that can change are asked again, those that
        are local about that host alone; and a host that was out stays out.

        :param row: the host on which something was taken
        """
        again = [stage for stage in candidates.stages
                 if not stage.run_filter_once_per_request]
        left = candidates.filtered
        chosen = FilteredHosts(
            left.hosts.at(np.array([row])), None, 1)
        asked = chosen.through(
            [stage for stage in again if stage.local], request, self._calls)
        if not asked.left:
            left = dataclasses.replace(
                left.without([row]), steps=(*left.steps, *asked.steps))
        others = [stage for stage in again if not stage.local]
        if others:
            left = left.through(others, request, self._calls)
        return Candidates(candidates.stages, left)

    def rejections(
        self, request: objects.RequestSpec,
        candidates: Candidates, besides: Sequence[int] = (),
    ) -> list[Rejection]:
        """Return what hosts failed at; see ``Candidates.rejections``."""
        return candidates.rejections(request, self._calls, besides)

    def limits(
        self, request: objects.RequestSpec,
        candidates: Candidates, row: int,
    ) -> dict[str, int]:
        """Return what a build may use on a host, as the filters say."""
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
        """Return the candidates by weight.

        A weight is the sum of each weigher's score, scaled to 0..1 over the
        candidates and multiplied. Fewer than two have nothing to weigh.
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
        """Return the candidates by weight after a host was chosen.

        That is what :meth:`weigh` returns, at a cost of what changed.

        :param ranking: the weights before, of a ranking that was detached
            from the table; it is used up
        :param row: the host on which something was taken
        """
        hosts, mask = candidates.filtered.hosts, candidates.filtered.mask
        place = ranking.place(row)
        still = place is not None and (mask is None or bool(mask[place]))
        lost = len(ranking) - len(candidates)
        if (hosts is not ranking.hosts or place is None
                or len(candidates) < 2 or lost != (not still)):
            again = self.weigh(request, candidates)
            again.detach()
            return again
        chosen = hosts.at(np.array([row]))
        ranking.mask = mask
        moved = False
        for part in ranking.parts:
            weigher = part.weigher
            if still and weigher.fixed:
                continue
            if not weigher.local:
                scores = self._calls.scores(weigher, hosts, request)
                part.scores = (np.zeros(len(hosts)) if scores is None
                               else scores)
                part.detach(mask)
                self._calls.ask(weigher, part.find_bounds, mask)
                moved = True
            elif still:
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
        """Return the scores of weighers; None where all hosts are alike."""
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
    """Return what a filter allows on the one host that was chosen."""
    return {name: int(column[0])
            for name, column in stage.limits(chosen, request).items()}
