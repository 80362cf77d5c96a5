# SPDX-License-Identifier: Apache-2.0
"""Choosing and claiming hosts for the instances of one request, in turn."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any
from typing import Protocol

import numpy as np

from cellsched.hosts import view
from cellsched import objects
from cellsched.scheduler.decision.candidates import Candidates
from cellsched.scheduler.decision.pipeline import Pipeline
from cellsched.scheduler.decision.ranking import Ranking
from cellsched.scheduler.explanation import decision_record
from cellsched.scheduler.explanation import diagnosis
from cellsched.scheduler.selection import selection

AllocationRequest = Mapping[str, Any]


class Offers(Protocol):
    """The claims that hosts offer."""

    def first(self, uuid: str) -> AllocationRequest | None:
        """Return what to claim on a compute node, if anything is left."""

    def chosen(
        self, uuid: str, instance: str, request: AllocationRequest
    ) -> None:
        """Learn that a compute node was claimed for an instance."""


@dataclasses.dataclass(frozen=True)
class ChosenHost:
    """A host that was chosen, or an alternate.

    :param row: its row in the table
    :param allocation_request: what was, or is to be, claimed there
    """

    row: int
    allocation_request: AllocationRequest
    limits: Mapping[str, int]


class Watcher(Protocol):
    """Looks on while a request is decided on.

    Where hosts were too old to refuse on, all of it is done once more.
    """

    def begin(self, hosts: view.Hosts) -> None:
        """See the hosts before any of them is asked; they may be changed."""

    def ranked(
        self, candidates: Candidates, ranking: Ranking
    ) -> None:
        """See the order of hosts for the first instance."""


class Chooser:
    """Chooses the best host for one instance after the other, and claims it.

    A host whose claim is refused is passed over, and the next best is tried.

    :param claim: claims an allocation request for an instance, and returns
        False where there is no room
    :param watcher: is shown how hosts stand for the first instance
    :ivar refused: compute nodes whose claims were refused
    """

    def __init__(
        self, pipeline: Pipeline, policy: selection.SelectionPolicy,
        hosts: view.Hosts, request: objects.RequestSpec, offers: Offers,
        claim: Callable[[str, AllocationRequest], bool],
        watcher: Watcher | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._policy = policy
        self._hosts = hosts
        self._request = request
        self._offers = offers
        self._claim = claim
        self._watcher = watcher
        self._candidates: Candidates | None = None
        self._ranking: Ranking | None = None
        self._taken: int | None = None
        self._chosen: list[ChosenHost] = []
        self._picks: list[decision_record.Pick] = []
        self.refused: list[str] = []

    def choose(self, instance: str, last: bool) -> bool:
        """Choose a host for one more instance; return whether there is one.

        :param last: no other instance comes after this one
        """
        ranking = self._rank()
        if self._watcher is not None and self._candidates is not None and (
                not self._chosen):
            self._watcher.ranked(self._candidates, ranking)
        if not (last or self._chosen):
            # Another ranking is to be made of this one.
            ranking.detach()
        for row in self._in_order(ranking):
            uuid = self._uuid(row)
            wanted = self._offers.first(uuid)
            if wanted is None:
                continue
            if not self._claim(instance, wanted):
                self.refused.append(uuid)
                continue
            self._chosen.append(ChosenHost(
                row, wanted, self._limits(row)))
            self._picks.append(self._pick(ranking, row, instance, wanted))
            self._offers.chosen(uuid, instance, wanted)
            self._hosts.take(row, _taken(uuid, wanted), instance)
            self._taken = row
            return True
        return False

    def with_alternates(self, count: int) -> list[list[ChosenHost]]:
        """Return for each instance its host and the best of others.

        :param count: of alternates, which are of the same cell and were
            chosen for no instance
        """
        if not count:
            return [[chosen] for chosen in self._chosen]
        ranking = (self._rank() if len(self._chosen) > 1
                   or self._ranking is None else self._ranking)
        cells = self._hosts['cell']
        mine = {chosen.row for chosen in self._chosen}
        others: dict[int, list[ChosenHost]] = {}
        for chosen in self._chosen:
            cell = int(cells[chosen.row])
            if cell not in others:
                others[cell] = self._alternates(
                    ranking, np.flatnonzero(cells == cell), mine, count)
        return [[chosen, *others[int(cells[chosen.row])]]
                for chosen in self._chosen]

    def diagnosis(
        self, silent: Sequence[str], wanted: int
    ) -> diagnosis.Diagnosis:
        """Return what became of the hosts, after there was none."""
        found, rows = self._candidates, self._lost()
        rejections = () if found is None else self._pipeline.rejections(
            self._request, found, rows)
        return diagnosis.Diagnosis(
            len(self._hosts), rejections, len(rows), silent, wanted,
            len(self._chosen))

    def decision(self) -> decision_record.Decision:
        """Return what was decided, to be told later."""
        return decision_record.of(
            self._hosts, self._candidates, self._picks)

    def examples(self) -> dict[str, list[str]]:
        """Return names of hosts that were rejected, a few for each stage."""
        return diagnosis.examples(
            self._hosts, self._candidates, self._lost())

    def _lost(self) -> list[int]:
        """Return the rows of hosts whose claims were refused."""
        return [row for row in map(self._hosts.row, self.refused)
                if row is not None]

    def _pick(
        self, ranking: Ranking, row: int, instance: str,
        wanted: AllocationRequest,
    ) -> decision_record.Pick:
        """Return what is to be told of a choice."""
        pick = decision_record.pick(
            self._hosts, ranking, row, instance, detailed=not self._picks)
        pick.first.providers = _providers(
            pick.first.node, self._uuid(row), wanted)
        return pick

    def _alternates(
        self, ranking: Ranking, among: view.Column, mine: set[int],
        count: int,
    ) -> list[ChosenHost]:
        found = []
        # Those that were chosen may be on top.
        for row in ranking.top(count + len(mine), among):
            if row in mine or len(found) >= count:
                continue
            wanted = self._offers.first(self._uuid(row))
            if wanted is not None:
                found.append(ChosenHost(row, wanted, self._limits(row)))
        return found

    def _rank(self) -> Ranking:
        """Return the hosts that are left, by weight."""
        request, pipeline = self._request, self._pipeline
        if self._candidates is None or self._taken is not None and any(
                stage.reopens for stage in self._candidates.stages):
            self._candidates = self._ranking = self._taken = None
            self._candidates = pipeline.candidates(self._hosts, request)
        if self._ranking is None:
            self._ranking = pipeline.weigh(request, self._candidates)
        elif self._taken is not None:
            row, self._taken = self._taken, None
            self._candidates = pipeline.recheck(
                request, self._candidates, row)
            self._ranking = pipeline.reweigh(
                request, self._candidates, self._ranking, row)
        return self._ranking

    def _in_order(self, ranking: Ranking) -> Iterator[int]:
        """Yield the host to choose, then the others, best first."""
        first = self._policy.pick(ranking)
        if first is None:
            return
        yield first
        for row in ranking:
            if row != first:
                yield row

    def _limits(self, row: int) -> Mapping[str, int]:
        return {} if self._candidates is None else self._pipeline.limits(
            self._request, self._candidates, row)

    def _uuid(self, row: int) -> str:
        uuid: str = self._hosts['uuid'][row]
        return uuid


def _taken(uuid: str, wanted: AllocationRequest) -> dict[str, int]:
    """Return what a claim takes of the host itself."""
    asked = wanted['allocations'].get(uuid)
    return dict(asked['resources']) if asked else {}


def _providers(
    node: str, uuid: str, wanted: AllocationRequest
) -> list[dict[str, Any]]:
    """Return what the providers of a host give, where not it alone does.

    A provider may give for several groups; which part is whose is not said.
    """
    allocations = wanted['allocations']
    if not allocations.keys() - {uuid}:
        return []
    groups: dict[str, list[str]] = {}
    for suffix, providers in wanted.get('mappings', {}).items():
        for provider in providers:
            groups.setdefault(provider, []).append(suffix)
    return [
        {'group': ', '.join(sorted(groups.get(provider, ()))),
         'provider': provider, 'name': node if provider == uuid else None,
         'resources': dict(asked['resources'])}
        for provider, asked in sorted(
            allocations.items(), key=lambda pair: (pair[0] != uuid, pair[0]))]
