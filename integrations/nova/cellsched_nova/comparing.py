# SPDX-License-Identifier: Apache-2.0
"""The choice of this scheduler and that of Nova's, beside each other."""

from collections.abc import Mapping
import dataclasses
import enum

import numpy as np

from cellsched.hosts import view
from cellsched.scheduler.decision.candidates import Candidates
from cellsched.scheduler.decision.ranking import Ranking
from cellsched.scheduler.decision.ranking import WeightPart

#: By what share weights may differ that count as equal.
_NEAR = 1e-9


class Outcome(enum.StrEnum):
    """The outcomes of a comparison, with what people read of them."""

    SAME = 'same host'
    EQUAL = 'equal weight'
    NEITHER = 'neither found a host'
    WEIGHT = 'other weight'
    REJECTED = "Nova's host rejected"
    NONE = 'no host found'
    MORE = 'host found, Nova found none'
    UNKNOWN = 'cannot tell'

    @property
    def agrees(self) -> bool:
        """True where Nova may have chosen so on another day."""
        return self in (Outcome.SAME, Outcome.EQUAL, Outcome.NEITHER)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The outcome of one comparison.

    :param reason: what made it so, in words that many requests have in
        common; empty where there is nothing to say
    :param detail: figures of this request
    """

    outcome: Outcome
    reason: str = ''
    detail: str = ''


class Standings:
    """Hosts as they stood when one was to be chosen.

    It is a copy of little, which stays as it is whatever becomes of the
    ranking, and keeps neither the hosts nor what asked them.

    :param hosts: all hosts that there were
    :param candidates: which of them passed, and why the others did not
    :param ranking: these by weight
    """

    def __init__(
        self, hosts: view.Hosts, candidates: Candidates,
        ranking: Ranking,
    ) -> None:
        self._row = hosts.columns.snapshot.rows.get
        self._stages = [stage.name for stage in candidates.stages]
        self._rejected_by = np.full(len(hosts), -1, 'int16')
        for number, stage in enumerate(candidates.stages):
            self._rejected_by[candidates.rejected(stage)] = number
        self._rows = ranking.rows
        self._weights = ranking.weights
        top = ranking.top(1)
        #: Compute node uuid of the best host; None where none is left.
        self.best: str | None = hosts['uuid'][top[0]] if top else None
        self._shares = {
            part.weigher.name: _weighted(part, ranking)
            for part in ranking.parts if part.counts}

    def rejection(self, uuid: str) -> str | None:
        """Return the name of what rejected a host, or None if it passed."""
        row = self._row(uuid)
        if row is None:
            return 'host not known'
        if self._place(row) is not None:
            return None
        number = self._rejected_by[row]
        return self._stages[number] if number >= 0 else 'nothing to claim'

    def weight(self, uuid: str) -> float | None:
        """Return the weight of a host; None if it did not pass."""
        place = self._of(uuid)
        return None if place is None else float(self._weights[place])

    def better(self, uuid: str) -> int:
        """Return how many hosts have a greater weight than one."""
        weight = self.weight(uuid)
        if weight is None:
            return len(self._weights)
        return int(np.count_nonzero(
            (self._weights > weight)
            & ~np.isclose(self._weights, weight, rtol=_NEAR, atol=0.0)))

    def leads(self, uuid: str, other: str) -> Mapping[str, float]:
        """Return by how much each weigher prefers one host to the other.

        What it prefers most comes first.
        """
        one, two = self._of(uuid), self._of(other)
        if one is None or two is None:
            return {}
        found = {name: float(shares[one] - shares[two])
                 for name, shares in self._shares.items()}
        return dict(sorted(found.items(), key=lambda pair: -pair[1]))

    def _of(self, uuid: str) -> int | None:
        row = self._row(uuid)
        return None if row is None else self._place(row)

    def _place(self, row: int) -> int | None:
        place = int(np.searchsorted(self._rows, row))
        there = place < len(self._rows) and self._rows[place] == row
        return place if there else None


def compare(
    ours: str | None, novas: str | None, standings: Standings | None,
    subset_size: int = 1, text: str = '',
) -> Verdict:
    """Return how two choices compare.

    :param ours: compute node uuid of what was chosen here; None for no host
    :param novas: of what Nova chose
    :param standings: how hosts stood here; None where none was asked
    :param subset_size: of how many of the best Nova chooses one by chance
    :param text: why no host was found here
    """
    if novas is None:
        if ours is None:
            return Verdict(Outcome.NEITHER, detail=text)
        return Verdict(Outcome.MORE)
    rejection = None if standings is None else standings.rejection(novas)
    if ours is None:
        return Verdict(Outcome.NONE, rejection or text, text)
    if ours == novas:
        return Verdict(Outcome.SAME)
    if standings is None or rejection is not None:
        return Verdict(Outcome.REJECTED, rejection or text)
    better = standings.better(novas)
    weights = standings.weight(ours), standings.weight(novas)
    detail = (f'rank {better + 1}, weight {weights[1]!r}; of the host chosen '
              f'here {weights[0]!r}')
    if not better:
        return Verdict(Outcome.EQUAL, detail=detail)
    if better < subset_size:
        return Verdict(Outcome.EQUAL, 'among those of which Nova chooses one '
                       'by chance', detail)
    leads = standings.leads(ours, novas)
    return Verdict(Outcome.WEIGHT, next(iter(leads), ''), '; '.join((
        detail, *(f'{name} {lead:+g}' for name, lead in leads.items()))))


def _weighted(
    part: WeightPart, ranking: Ranking
) -> view.Column:
    """Return what a weigher adds to weights, up to a constant."""
    weights = np.empty(len(ranking.hosts))
    part.weighted(weights)
    return (weights if ranking.mask is None
            else weights[ranking.mask]).astype('float32')
