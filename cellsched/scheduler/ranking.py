# SPDX-License-Identifier: Apache-2.0
"""Hosts in the order of their weights, and how a weight is made."""

from collections.abc import Iterator
import dataclasses
import math

import numpy as np

from cellsched.hosts import table


@dataclasses.dataclass(frozen=True, eq=False)
class Ranking:
    """Hosts with their weights; the heavier, the better.

    :param rows: rows of the table, ascending
    :param weights: the weight of each of these rows
    """

    rows: table.Column
    weights: table.Column

    def __iter__(self) -> Iterator[int]:
        """Yield the rows, best first; equals in the order of the table."""
        count, done = 1, 0
        # Nearly always the first is taken, and to find it needs no sort.
        while done < len(self.rows):
            best = self.top(count)
            yield from best[done:]
            count, done = count * 32, len(best)

    def top(self, count: int, among: table.Mask | None = None) -> list[int]:
        """Return the best rows, best first; equals in the table's order.

        :param among: hosts to choose from, one entry for each row of the
            table
        """
        rows, weights = self.rows, self.weights
        if among is not None:
            chosen = np.flatnonzero(among[rows])
            rows, weights = rows[chosen], weights[chosen]
        if count == 1 and len(rows):
            return [int(rows[weights.argmax()])]
        if 0 < count < len(rows):
            least = np.partition(weights, -count)[-count]
            chosen = np.flatnonzero(weights >= least)
            rows, weights = rows[chosen], weights[chosen]
        order = np.argsort(-weights, kind='stable')[:count]
        return rows[order].tolist()


def scaled(
    scores: table.Column, minval: float | None, maxval: float | None
) -> table.Column:
    """Return scores clamped to these bounds and scaled to 0..1.

    A bound that is None is the least or the greatest of the scores. Where
    the bounds are equal, so that nothing tells hosts apart, all are 0.

    :raises ValueError: a score is not finite
    """
    least, most = float(scores.min()), float(scores.max())
    if not math.isfinite(least) or not math.isfinite(most):
        raise ValueError('its scores are not all finite')
    low, high = least, most
    if minval is not None:
        low, high = float(minval), max(high, float(minval))
    if maxval is not None:
        low, high = min(low, float(maxval)), float(maxval)
    if low == high:
        return np.zeros(len(scores))
    if least < low or most > high:
        scores = np.clip(scores, low, high)
    result = scores.astype('float64')
    if low:
        result -= low
    result /= high - low
    return result
