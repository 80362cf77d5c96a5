# SPDX-License-Identifier: Apache-2.0
"""Hosts in the order of their weights, and how a weight is made."""

from collections.abc import Hashable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import math

import numpy as np

from cellsched.hosts import view
from cellsched.weighers import base

#: Where scores lie this many times their range away from zero, they are moved
#: to zero before they are multiplied, so that no digit is lost.
_FAR = 1e3

#: A range that any multiplier of an operator can be divided by.
_LEAST = 1e-270


# Many are made for each decision, and frozen ones take three times as long.
@dataclasses.dataclass
class WeightShare:
    """The share of one weigher in the weight of one host.

    :param raw: its score
    :param scaled: the score, scaled to 0..1 over all that passed
    :param weight: that, multiplied
    """

    by: str
    raw: float
    scaled: float
    multiplier: float
    weight: float


class WeightPart:
    """The part of one weigher in the weights.

    :param scores: its scores, one for each host
    :param multiplier: for all hosts or for each
    :param mask: the hosts that count; all where it is None
    :param extrema: the least and the greatest of the scores, if they are known
        and all count
    :raises ValueError: a score is not finite
    """

    def __init__(
        self, weigher: base.Weigher, scores: view.Column,
        multiplier: float | view.Column, mask: view.Mask | None,
        extrema: tuple[float, float] | None = None,
    ) -> None:
        self.weigher = weigher
        self.scores = scores
        self.multiplier = multiplier
        self._how: tuple[float, float, bool] | None = None
        if extrema is None:
            self.find_bounds(mask)
        else:
            self._scale_between(*extrema)

    def find_bounds(self, mask: view.Mask | None = None) -> bool:
        """Find between what scores are scaled; return whether that changed.

        A bound that the weigher does not set is the least or the greatest of
        the scores of the hosts that count.
        """
        weigher = self.weigher
        return self._scale_between(
            _end(self.scores, None if weigher.minval is not None else mask,
                 np.minimum),
            _end(self.scores, None if weigher.maxval is not None else mask,
                 np.maximum))

    def _scale_between(self, least: float, most: float) -> bool:
        """Take over the extrema of the scores; see :meth:`find_bounds`."""
        if not math.isfinite(least) or not math.isfinite(most):
            raise ValueError('its scores are not all finite')
        before = self._how
        low, high = self.weigher.minval, self.weigher.maxval
        self.low = least if low is None else float(low)
        self.high = max(most, self.low) if high is None else float(high)
        if low is None:
            self.low = min(least, self.high)
        self._clamped = least < self.low or most > self.high
        self._extrema = least, most
        self._how = self.low, self.high, self._clamped
        return self._how != before

    @property
    def counts(self) -> bool:
        """Return whether it tells hosts apart: all are 0 on equal bounds.

        Bounds between which no multiplier can be divided are equal.
        """
        return self.high - self.low > _LEAST

    def weighted(self, out: view.Column) -> None:
        """Write what it adds to the weights, up to a constant.

        :param out: an array with one entry for each host
        """
        scores = self.scores
        if self._clamped:
            scores = np.clip(scores, self.low, self.high)
        if self._moved:
            scores = scores - self.low
        np.multiply(scores, self.multiplier / (self.high - self.low), out=out)

    @property
    def constant(self) -> float:
        """Return the constant that it adds to each weight beside."""
        if self._moved or not self.low:
            return 0.0
        return float(-self.low * (self.multiplier / (self.high - self.low)))

    @property
    def key(self) -> Hashable:
        """Return the key that tells apart what it adds to the weights.

        None where it depends on more than the columns of the table.
        """
        if not self.weigher.by_columns or isinstance(
                self.multiplier, np.ndarray):
            return None
        return self.weigher, self._how, float(self.multiplier)

    def weighted_at(self, place: int) -> float:
        """Return what it adds to one host's weight, up to that constant."""
        score = float(self.scores[place])
        if self._clamped:
            score = min(max(score, self.low), self.high)
        if self._moved:
            score -= self.low
        multiplier = (self.multiplier[place] if isinstance(
            self.multiplier, np.ndarray) else self.multiplier)
        return float(score * (multiplier / (self.high - self.low)))

    @property
    def _moved(self) -> bool:
        """Return whether scores are moved to 0 before they are multiplied."""
        return (isinstance(self.multiplier, np.ndarray)
                or abs(self.low) > _FAR * (self.high - self.low))

    def share(self, place: int) -> WeightShare:
        """Return what it gives the host in a place."""
        raw = float(self.scores[place])
        multiplier = float(self.multiplier[place] if isinstance(
            self.multiplier, np.ndarray) else self.multiplier)
        scaled = 0.0
        if self.counts:
            score = (min(max(raw, self.low), self.high) if self._clamped
                     else raw)
            scaled = (score - self.low) / (self.high - self.low)
        return WeightShare(self.weigher.name, raw, scaled, multiplier,
                           multiplier * scaled)

    def detach(self, mask: view.Mask | None) -> None:
        """Keep the scores as they are, whatever becomes of the table.

        Hosts that do not count get the score of one that does, so that
        bounds are hardly ever found among them.
        """
        self.scores = np.array(self.scores, dtype='float64')
        if mask is not None and mask.any():
            np.putmask(self.scores, ~mask, self.scores[mask.argmax()])

    def change(
        self, place: int, score: float, mask: view.Mask | None
    ) -> bool:
        """Take over a host's score; return whether that moved the bounds.

        The scores are detached.

        :param mask: the hosts that count
        """
        before = float(self.scores[place])
        self.scores[place] = score
        least, most = self._extrema
        if not math.isfinite(score):
            raise ValueError('its scores are not all finite')
        # The score that is kept for hosts that are out may be outdated.
        if before <= least:
            least = _end(self.scores, mask, np.minimum)
        if before >= most:
            most = _end(self.scores, mask, np.maximum)
        return self._scale_between(min(least, score), max(most, score))

    def leave_out(self, place: int, mask: view.Mask) -> bool:
        """Let a host count no more; return whether that moved the bounds.

        :param mask: the hosts that count
        """
        return self.change(place, float(self.scores[mask.argmax()]), mask)


class Ranking:
    """Hosts with their weights; the heavier, the better.

    :param mask: the hosts that count; all where it is None
    :param parts: what makes the weights; nothing, where there is nothing to
        choose
    """

    def __init__(
        self, hosts: view.Hosts, mask: view.Mask | None = None,
        parts: Sequence[WeightPart] = (),
    ) -> None:
        self.hosts = hosts
        self.mask = mask
        self.parts = list(parts)
        #: Whether scores are those of the table no longer.
        self._is_detached = False
        self.add_up()

    def add_up(self) -> None:
        """Make the weights of the parts."""
        counting = [part for part in self.parts if part.counts]
        self._offset = sum(part.constant for part in counting)
        self._sunk = self.mask is None
        key = tuple(part.key for part in counting)
        self._is_kept = None not in key and not self._is_detached
        # As most requests are alike, others have added up the same.
        self._weights = (
            self.hosts.memo_until_change(key, lambda: self._sum(counting))
            if self._is_kept else self._sum(counting))

    def _sum(self, parts: Sequence[WeightPart]) -> view.Column:
        """Return the weights."""
        count = len(self.hosts)
        if not parts:
            return np.zeros(count)
        weights, buffer = np.empty(count), np.empty(count)
        for part in parts:
            if part is parts[0]:
                part.weighted(weights)
            else:
                part.weighted(buffer)
                weights += buffer
        return weights

    def _own(self) -> view.Column:
        """Return the weights, to be changed."""
        if self._is_kept:
            self._weights, self._is_kept = self._weights.copy(), False
        return self._weights

    def _sink(self) -> None:
        """Give the hosts that do not count the least weight.

        That takes long, and is needed only when one of them is on top.
        """
        if not self._sunk:
            assert self.mask is not None
            self._own()[~self.mask] = -math.inf
            self._sunk = True

    def change(self, place: int) -> None:
        """Make the weight of one host anew, as the bounds are the same."""
        counts = self.mask is None or bool(self.mask[place])
        self._own()[place] = sum(
            part.weighted_at(place) for part in self.parts if part.counts
        ) if counts else -math.inf

    def detach(self) -> None:
        """Keep all scores as they are, whatever becomes of the table."""
        self._own()
        self._is_detached = True
        for part in self.parts:
            part.detach(self.mask)

    @property
    def rows(self) -> view.Column:
        """The rows of the table of the hosts that count, ascending."""
        rows = self.hosts.rows
        return rows if self.mask is None else rows[self.mask]

    @property
    def weights(self) -> view.Column:
        """The weight of each of the rows."""
        weights = self._weights + self._offset
        return weights if self.mask is None else weights[self.mask]

    def __len__(self) -> int:
        return (len(self.hosts) if self.mask is None
                else int(np.count_nonzero(self.mask)))

    def __iter__(self) -> Iterator[int]:
        """Yield the rows, best first; equals in the order of the table."""
        count, done = 1, 0
        # Nearly always the first is taken, and to find it needs no sort.
        while len(best := self.top(count)) > done:
            yield from best[done:]
            count, done = count * 32, len(best)

    def top(self, count: int, among: view.Column | None = None) -> list[int]:
        """Return the best rows, best first; equals in the table's order.

        :param among: rows of the table to choose from, ascending
        """
        if count == 1 and among is None:
            row = self.best()
            return [] if row is None else [row]
        places = None
        if among is not None:
            places = self.hosts.places(among)
            if self.mask is not None:
                places = places[self.mask[places]]
        else:
            self._sink()
        weights = self._weights if places is None else self._weights[places]
        if count < len(weights):
            least = np.partition(weights, -count)[-count]
            best = np.flatnonzero(weights >= least)
            best = best[np.argsort(-weights[best], kind='stable')][:count]
        else:
            best = np.argsort(-weights, kind='stable')
        best = best[weights[best] > -math.inf]
        return self.hosts.table_rows(
            best if places is None else places[best]).tolist()

    def best(self, start: float = 0.0) -> int | None:
        """Return the best row; of equals the first from this share on."""
        place = int(start * len(self._weights))
        return self._best((place, None), (0, place))

    def second(self, first: int) -> int | None:
        """Return the row that is best without this one."""
        place = self.place(first)
        if place is None:
            return None
        return self._best((0, place), (place + 1, None))

    def _best(self, *ranges: tuple[int, int | None]) -> int | None:
        """Return the row of the greatest weight in these ranges of places."""
        best = _greatest(self._weights, ranges)
        if best is not None and self.mask is not None and (
                not self.mask[best]):
            self._sink()
            best = _greatest(self._weights, ranges)
        if best is None or self._weights[best] == -math.inf:
            return None
        return int(self.hosts.table_rows(best))

    def tied(self) -> list[int]:
        """Return the rows that share the greatest weight."""
        if not len(self):
            return []
        self._sink()
        best = np.flatnonzero(self._weights == self._weights.max())
        return self.hosts.table_rows(best).tolist()

    def place(self, row: int) -> int | None:
        """Return where a row of the table is among the hosts, or None."""
        return self.hosts.place(row)

    def weighed(
        self, row: int, detailed: bool = True
    ) -> tuple[float, Sequence[WeightShare]]:
        """Return the weight of the host in a row, and what made it.

        :param detailed: whether what made it is asked for
        """
        place = self.place(row)
        if place is None:
            return 0.0, ()
        return float(self._weights[place] + self._offset), [
            part.share(place) for part in self.parts] if detailed else ()


def _greatest(
    weights: view.Column, ranges: Iterable[tuple[int, int | None]]
) -> int | None:
    """Return the first place of the greatest weight in ranges, in order."""
    found = None
    for start, end in ranges:
        part = weights[start:end]
        if len(part):
            place = start + int(part.argmax())
            if found is None or weights[place] > weights[found]:
                found = place
    return found


def _end(
    scores: view.Column, mask: view.Mask | None, end: np.ufunc
) -> float:
    """Return the least or the greatest of the scores that count.

    To find where it is costs less than to pick those that count, which is
    seldom needed then.
    """
    found = end.reduce(scores)
    if mask is not None and not mask[(scores == found).argmax()]:
        found = end.reduce(scores[mask])
    return float(found)
