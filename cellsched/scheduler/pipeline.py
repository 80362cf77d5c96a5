# SPDX-License-Identifier: Apache-2.0
"""The decision: which hosts may take a request, and which is best.

A function of a host table and a request. There is no clock here, no RPC and
no database; who calls brings the table up to date, claims and logs.

Several instances of one request are decided one by one: choose a host, take
the room in the table, :meth:`Pipeline.recheck`, choose again.
"""

from collections.abc import Iterable

import numpy as np

from cellsched.filters import base as filters_
from cellsched.hosts import table
from cellsched import objects
from cellsched.scheduler import answers
from cellsched.scheduler import candidates as candidates_
from cellsched.scheduler import capacity
from cellsched.scheduler import ranking
from cellsched.weighers import base as weighers_


class Pipeline:
    """Filters and weighers in order, and the rules by which they decide.

    Room for what the request takes comes before the filters. A plug-in that
    fails, or whose answer is not one, fails the request with a
    :class:`cellsched.exception.PluginFailed` that names it. When it finds the
    input bad, its :class:`cellsched.exception.Invalid` is passed on.
    """

    def __init__(
        self, filters: Iterable[filters_.Filter],
        weighers: Iterable[weighers_.Weigher],
    ) -> None:
        self._filters = tuple(filters)
        self._weighers = tuple(weighers)
        #: Scheduler hints that some filter reads.
        self.hints = frozenset(
            hint for each in self._filters for hint in each.hints)

    def located(self, request: objects.RequestSpec) -> set[str]:
        """Return the instances whose hosts the filters need to know."""
        instances: set[str] = set()
        for each in _that_apply(self._filters, request):
            named = answers.ask(each, each.located, request)
            answers.ask(each, instances.update, named)
        return instances

    def candidates(
        self, hosts: table.HostTable, request: objects.RequestSpec
    ) -> candidates_.Candidates:
        """Return the hosts that may take an instance of the request."""
        stages = _that_apply((*capacity.stages(request), *self._filters),
                             request)
        everyone = candidates_.Candidates(
            stages, np.ones(len(hosts), dtype=bool), {})
        return _sift(everyone, stages, hosts, request)

    def recheck(
        self, hosts: table.HostTable, request: objects.RequestSpec,
        candidates: candidates_.Candidates,
    ) -> candidates_.Candidates:
        """Return those who still are candidates after something was taken.

        Only stages whose verdict that can change run again, and a host that
        was out stays out.
        """
        again = [stage for stage in candidates.stages
                 if not stage.run_filter_once_per_request]
        return _sift(candidates, again, hosts, request)

    def weigh(
        self, hosts: table.HostTable, request: objects.RequestSpec,
        candidates: candidates_.Candidates,
    ) -> ranking.Ranking:
        """Return the candidates by weight.

        A weight is the sum of each weigher's score, scaled to 0..1 over the
        candidates and multiplied. Fewer than two have nothing to weigh.
        """
        rows = candidates.rows
        weights = np.zeros(len(rows))
        if len(rows) > 1:
            for weigher in self._weighers:
                _add_part(weights, weigher, hosts, request, rows)
        return ranking.Ranking(rows, weights)


def _that_apply(
    stages: Iterable[filters_.Filter], request: objects.RequestSpec
) -> tuple[filters_.Filter, ...]:
    return tuple(stage for stage in stages
                 if answers.ask(stage, stage.applies, request))


def _sift(
    candidates: candidates_.Candidates, stages: Iterable[filters_.Filter],
    hosts: table.HostTable, request: objects.RequestSpec,
) -> candidates_.Candidates:
    """Return the candidates that pass these stages."""
    mask, rejected = candidates.mask, dict(candidates.rejected)
    left = np.count_nonzero(mask)
    for stage in stages:
        if not left:
            break
        passed = mask & answers.mask(stage, hosts, request)
        passed_count = np.count_nonzero(passed)
        if passed_count < left:
            out = mask ^ passed
            if stage in rejected:
                out |= rejected[stage]
            rejected[stage] = out
            mask, left = passed, passed_count
    if mask is candidates.mask:
        return candidates
    return candidates_.Candidates(candidates.stages, mask, rejected)


def _add_part(
    weights: table.Column, weigher: weighers_.Weigher, hosts: table.HostTable,
    request: objects.RequestSpec, rows: table.Column,
) -> None:
    """Add one weigher's part to the weights of these rows."""
    multiplier = answers.multiplier(weigher, hosts)
    if isinstance(multiplier, np.ndarray):
        multiplier = multiplier[rows]
    elif multiplier == 0:
        return
    scores = answers.scores(weigher, hosts, request)
    if len(rows) < len(hosts):
        scores = scores[rows]
    part = answers.ask(
        weigher, ranking.scaled, scores, weigher.minval, weigher.maxval)
    if np.ndim(multiplier) or multiplier != 1:
        part *= multiplier
    weights += part
