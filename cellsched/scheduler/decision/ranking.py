# SPDX-License-Identifier: Apache-2.0
"""Ranking of hosts by weight, and the composition of a weight."""

from collections.abc import Callable
from collections.abc import Hashable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import math
import sys

import numpy as np

from cellsched.hosts import view
from cellsched.weighers import base

#: Scores whose distance from zero exceeds this multiple of their range are
#: shifted to zero before they are multiplied, to keep precision.
_FAR = 1e3

#: Up to this many of the best hosts are found one by one, which takes less
#: time than a partition of all weights.
_FEW = 16

#: Rows that are added up at a time, so that they stay in the cache of the CPU.
CHUNK = 2 ** 15

#: The smallest range of scores that a multiplier can be divided by.
_LEAST = 1e-270


# Not frozen: many are made for each decision, and frozen dataclasses take
# three times as long.
@dataclasses.dataclass
class WeightShare:
    """The share of one weigher in the weight of one host.

    :param raw: the score
    :param scaled: the score, scaled to 0..1 over all candidates
    :param weight: the scaled score times the multiplier
    """

    by: str
    raw: float
    scaled: float
    multiplier: float
    weight: float


class WeightPart:
    """The contribution of one weigher to the weights.

    :param scores: the scores, one for each host
    :param multiplier: one for all hosts or one for each host
    :param mask: mask of the hosts that count; None for all
    :param extrema: minimum and maximum of the scores, if they are known and
        all hosts count
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
        """Find the bounds of the scaling; return whether they changed.

        A bound that the weigher does not set is the minimum or maximum of the
        scores of the hosts that count.
        """
        weigher = self.weigher
        return self._scale_between(
            _end(self.scores, None if weigher.minval is not None else mask,
                 np.minimum),
            _end(self.scores, None if weigher.maxval is not None else mask,
                 np.maximum))

    def _scale_between(self, least: float, most: float) -> bool:
        """Set the bounds from the extrema; see :meth:`find_bounds`."""
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
        #: Whether it affects the ranking. With equal bounds all scores are 0;
        #: bounds that are too close to divide a multiplier count as equal.
        self.counts = self.high - self.low > _LEAST
        #: Whether scores are shifted to 0 before multiplication.
        self._moved = (isinstance(self.multiplier, np.ndarray)
                       or abs(self.low) > _FAR * (self.high - self.low))
        self._how = self.low, self.high, self._clamped
        return self._how != before

    def weighted(self, out: view.Column, places: view.Column | slice) -> None:
        """Write its addition to the weights, up to a constant.

        :param out: an array with one entry for each host
        :param places: indexes of the hosts
        """
        scores, multiplier = self.scores[places], self.multiplier
        if isinstance(multiplier, np.ndarray):
            multiplier = multiplier[places]
        if self._clamped:
            # The other bounds are those of the hosts that count.
            scores = np.clip(scores, self.weigher.minval, self.weigher.maxval)
        if self._moved:
            scores = scores - self.low
        np.multiply(scores, multiplier / (self.high - self.low), out=out)

    @property
    def constant(self) -> float:
        """Return the constant that :meth:`weighted` leaves out."""
        if self._moved or not self.low:
            return 0.0
        return float(-self.low * (self.multiplier / (self.high - self.low)))

    @property
    def key(self) -> Hashable:
        """Return a cache key of its addition to the weights.

        None if the addition depends on more than the columns of the table.
        """
        if not self.weigher.by_columns or isinstance(
                self.multiplier, np.ndarray):
            return None
        return self.weigher, self._how, float(self.multiplier)

    def weighted_at(self, place: int) -> float:
        """Return its addition to one host's weight, up to the constant."""
        score = float(self.scores[place])
        if self._clamped:
            score = min(max(score, self.low), self.high)
        if self._moved:
            score -= self.low
        multiplier = (self.multiplier[place] if isinstance(
            self.multiplier, np.ndarray) else self.multiplier)
        return float(score * (multiplier / (self.high - self.low)))

    def share(self, place: int) -> WeightShare:
        """Return its share in the weight of the host at an index."""
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
        """Copy the scores, so that changes of the table do not affect them.

        Hosts that do not count get the score of a host that does, so that they
        rarely determine a bound.
        """
        self.scores = np.array(self.scores, dtype='float64')
        if mask is not None and mask.any():
            np.putmask(self.scores, ~mask, self.scores[mask.argmax()])

    def change(self, place: int, score: float, mask: view.Mask | None) -> bool:
        """Update the score of a host; return whether the bounds changed.

        The scores must be detached.

        :param mask: mask of the hosts that count
        """
        before = float(self.scores[place])
        self.scores[place] = score
        least, most = self._extrema
        if not math.isfinite(score):
            raise ValueError('its scores are not all finite')
        # The score stored for rejected hosts may be outdated.
        if before <= least:
            least = _end(self.scores, mask, np.minimum)
        if before >= most:
            most = _end(self.scores, mask, np.maximum)
        return self._scale_between(min(least, score), max(most, score))

    def leave_out(self, place: int, mask: view.Mask) -> bool:
        """Exclude a host; return whether the bounds changed.

        :param mask: mask of the hosts that count
        """
        return self.change(place, float(self.scores[mask.argmax()]), mask)


#: Returns a few rows with the best ones, ascending; None if they are many. The
#: arguments are the number of best rows, and the row that is first among
#: equals.
FindBest = Callable[[int, int], view.Column | None]


class Ranking:
    """Hosts with their weights; the greatest weight is best.

    :param mask: mask of the hosts that count; None for all
    :param parts: the contributions to the weights; empty if there is only one
        candidate
    :param count: the number of hosts that count, if it is known
    :param find_best: finds the best hosts without the weights of all
    """

    def __init__(
        self, hosts: view.Hosts, mask: view.Mask | None = None,
        parts: Sequence[WeightPart] = (), count: int | None = None,
        find_best: FindBest | None = None,
    ) -> None:
        self.hosts = hosts
        self.mask = mask
        self.parts = list(parts)
        #: Whether the scores are detached from the table.
        self._is_detached = False
        self._count, self._find_best = count, find_best
        self._sum: view.Column | None = None
        if find_best is None:
            self.add_up()
        else:
            self._offset = sum(
                part.constant for part in self.parts if part.counts)

    def add_up(self) -> None:
        """Compute the weights from the parts."""
        counting = [part for part in self.parts if part.counts]
        self._offset = sum(part.constant for part in counting)
        self._sunk = self.mask is None
        key = tuple(part.key for part in counting)
        self._is_kept = (None not in key and not self._is_detached
                         and self._find_best is None)
        # Most requests are alike, so an earlier one may have the same sum.
        self._sum = (
            self.hosts.memo_until_change(key, lambda: self._added(counting))
            if self._is_kept else self._added(counting))

    def _added(self, parts: Sequence[WeightPart]) -> view.Column:
        return add_up(parts) if parts else np.zeros(len(self.hosts))

    @property
    def _weights(self) -> view.Column:
        """Return the weights of all hosts."""
        if self._sum is None:
            self.add_up()
        assert self._sum is not None
        return self._sum

    def _own(self) -> view.Column:
        """Return a private copy of the weights, for changes."""
        weights = self._weights
        self._count = self._find_best = None
        if self._is_kept:
            self._sum, self._is_kept = weights.copy(), False
        return self._weights

    def _sink(self) -> None:
        """Give the hosts that do not count the least weight.

        It is slow, and needed only when one of them has the greatest weight.
        """
        weights = self._weights
        if not self._sunk:
            assert self.mask is not None
            if self._is_kept:
                self._sum, self._is_kept = weights.copy(), False
            self._weights[~self.mask] = -math.inf
            self._sunk = True

    def change(self, place: int) -> None:
        """Compute the weight of one host again, with unchanged bounds."""
        counts = self.mask is None or bool(self.mask[place])
        self._own()[place] = sum(
            part.weighted_at(place) for part in self.parts if part.counts
        ) if counts else -math.inf

    def detach(self) -> None:
        """Copy all scores, so that changes of the table do not affect them."""
        self._own()
        self._is_detached = True
        for part in self.parts:
            part.detach(self.mask)

    @property
    def rows(self) -> view.Column:
        """The table rows of the hosts that count, ascending."""
        rows = self.hosts.rows
        return rows if self.mask is None else rows[self.mask]

    @property
    def weights(self) -> view.Column:
        """The weight of each of the rows."""
        weights = self._weights + self._offset
        return weights if self.mask is None else weights[self.mask]

    def __len__(self) -> int:
        if self._count is not None:
            return self._count
        return (len(self.hosts) if self.mask is None
                else int(np.count_nonzero(self.mask)))

    def __iter__(self) -> Iterator[int]:
        """Yield the rows, best first; equals in the order of the table."""
        count, done = 1, 0
        # Nearly always the first is taken, and to find it needs no sort.
        while len(best := self.top(count)) > done:
            yield from best[done:]
            count, done = count * 32, len(best)

    def top(
        self, count: int, among: view.Column | None = None,
        start: float = 0.0,
    ) -> list[int]:
        """Return the best rows, best first; ties in the table's order.

        :param among: table rows to select from, ascending
        :param start: ties in the order that begins after this share of the
            rows
        """
        places = None
        if among is not None:
            places = self.hosts.places(among)
            if self.mask is not None:
                places = places[self.mask[places]]
        elif self._find_best is not None:
            places = self._find_best(count, self._begin(start))
        if places is None and count == 1:
            row = self._first(start)
            return [] if row is None else [row]
        if places is None:
            self._sink()
        weights = self._weights if places is None else self._at(places)
        begin = self._begin(start)
        if places is not None:
            begin = int(np.searchsorted(places, begin))
        best = _greatest_first(weights, count, begin)
        return self.hosts.table_rows(
            best if places is None else places[best]).tolist()

    def _begin(self, start: float) -> int:
        """Return the index of the host after a share of the table's rows."""
        if not start:
            return 0
        row = int(start * len(self.hosts.whole))
        return row if self.hosts.is_whole else int(
            np.searchsorted(self.hosts.rows, row))

    def _at(self, places: view.Column) -> view.Column:
        """Return the weights of hosts, by their indexes."""
        if self._sum is None:
            return add_up(
                [part for part in self.parts if part.counts], places)
        return self._weights[places]

    def best(self, start: float = 0.0) -> int | None:
        """Return the best row; of ties the first after a share of the rows."""
        return next(iter(self.top(1, start=start)), None)

    def _first(self, start: float) -> int | None:
        place = self._begin(start)
        return self._best((place, None), (0, place))

    def second(self, first: int) -> int | None:
        """Return the best row except this one."""
        place = self.place(first)
        if place is None:
            return None
        if self._find_best is not None:
            return next((row for row in self.top(2) if row != first), None)
        return self._best((0, place), (place + 1, None))

    def _best(self, *ranges: tuple[int, int | None]) -> int | None:
        """Return the row with the greatest weight in ranges of indexes."""
        best = _greatest(self._weights, ranges)
        if best is not None and self.mask is not None and (
                not self.mask[best]):
            self._sink()
            best = _greatest(self._weights, ranges)
        if best is None or self._weights[best] == -math.inf:
            return None
        return int(self.hosts.table_rows(best))

    def tied(self) -> list[int]:
        """Return all rows with the greatest weight."""
        if not len(self):
            return []
        self._sink()
        best = np.flatnonzero(self._weights == self._weights.max())
        return self.hosts.table_rows(best).tolist()

    def place(self, row: int) -> int | None:
        """Return the index of a table row among the hosts, or None."""
        return self.hosts.place(row)

    def weighed(
        self, row: int, detailed: bool = True
    ) -> tuple[float, Sequence[WeightShare]]:
        """Return the weight of the host in a row, with its shares.

        :param detailed: whether to return the shares
        """
        place = self.place(row)
        if place is None:
            return 0.0, ()
        weight = self._at(np.array([place]))[0]
        return float(weight + self._offset), [
            part.share(place) for part in self.parts] if detailed else ()


def add_up(
    parts: Sequence[WeightPart], places: view.Column | None = None
) -> view.Column:
    """Return the weights of hosts, up to a constant.

    :param parts: at least one contribution
    :param places: indexes of the hosts; None for all
    """
    count = len(parts[0].scores if places is None else places)
    weights, buffer = np.empty(count), np.empty(min(count, CHUNK))
    for start in range(0, count, CHUNK):
        end = min(start + CHUNK, count)
        some: view.Column | slice = (
            slice(start, end) if places is None else places[start:end])
        total, more = weights[start:end], buffer[:end - start]
        for number, part in enumerate(parts):
            part.weighted(more if number else total, some)
            if number:
                total += more
    return weights


def _greatest_first(
    weights: view.Column, count: int, begin: int
) -> view.Column:
    """Return the indexes of the greatest finite weights, greatest first.

    :param begin: the index from which ties are ordered
    """
    weights = np.concatenate((weights[begin:], weights[:begin]))
    count = min(count, len(weights))
    if count <= _FEW:
        found: list[int] = []
        while len(found) < count:
            place = int(weights.argmax())
            if weights[place] == -math.inf:
                break
            found.append(place)
            weights[place] = -math.inf
        best = np.array(found, 'int64')
    else:
        least = max(np.partition(weights, -count)[-count], -sys.float_info.max)
        best = np.flatnonzero(weights >= least)
        best = best[np.argsort(-weights[best], kind='stable')][:count]
    return (best + begin) % len(weights)


def _greatest(
    weights: view.Column, ranges: Iterable[tuple[int, int | None]]
) -> int | None:
    """Return the first index of the greatest weight in ranges, in order."""
    found = None
    for start, end in ranges:
        part = weights[start:end]
        if len(part):
            place = start + int(part.argmax())
            if found is None or weights[place] > weights[found]:
                found = place
    return found


def _end(scores: view.Column, mask: view.Mask | None, end: np.ufunc) -> float:
    """Return the minimum or maximum of the scores that count.

    The extreme of all scores is found first. Only if its host does not count
    are the scores that count gathered, which is slower.
    """
    found = end.reduce(scores)
    if mask is not None and not mask[(scores == found).argmax()]:
        # A boolean index takes several times as long.
        found = end.reduce(scores.take(np.flatnonzero(mask)))
    return float(found)
