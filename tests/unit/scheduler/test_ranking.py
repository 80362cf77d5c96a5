# SPDX-License-Identifier: Apache-2.0
"""Weights and their order."""

import hypothesis
from hypothesis import strategies
import numpy as np

from cellsched.scheduler import ranking
from tests.unit import base
from tests.unit.hosts import rows

_BOUND = strategies.none() | strategies.integers(-3, 3)
_SCORE = (strategies.integers(-5, 5)
          | strategies.floats(-1e6, 1e6, allow_nan=False))


def scaled(scores, minval, maxval):
    """Return what Nova's normalisation makes of scores."""
    if minval is not None:
        scores = [max(score, minval) for score in scores]
    if maxval is not None:
        scores = [min(score, maxval) for score in scores]
    low = min(scores) if minval is None else minval
    high = max(scores) if maxval is None else maxval
    if low == high:
        return [0.0 for _ in scores]
    return [(score - float(low)) / (float(high) - float(low))
            for score in scores]


class TestScaled(base.TestCase):

    def assertScaled(self, expected, scores, minval=None, maxval=None):
        self.assertEqual(expected, ranking.scaled(
            np.array(scores), minval, maxval).tolist())

    def test_scores_are_spread_over_zero_to_one(self):
        self.assertScaled([0.0, 0.25, 1.0], [-2, 0, 6])

    def test_minval_is_zero_and_less_is_clamped(self):
        self.assertScaled([0.5, 0.0, 1.0], [4, -4, 8], minval=0)

    def test_equal_scores_above_minval_are_all_best(self):
        self.assertScaled([1.0, 1.0], [7, 7], minval=0)

    def test_equal_scores_are_zero_where_no_bound_spreads_them(self):
        self.assertScaled([0.0, 0.0], [7, 7])
        self.assertScaled([0.0, 0.0], [0, 0], minval=0)
        self.assertScaled([0.0, 0.0], [-3, -4], minval=0)

    def test_maxval_clamps_too(self):
        self.assertScaled([0.0, 1.0, 1.0], [1, 3, 9], maxval=3)
        self.assertScaled([0.0, 0.5, 1.0], [-1, 5, 99], minval=0, maxval=10)

    def test_integers_of_any_size_are_scaled(self):
        self.assertScaled([0.0, 1.0], [-2 ** 62, 2 ** 62])

    def test_infinite_score_and_no_number_fail(self):
        for score in (float('nan'), float('inf'), -float('inf')):
            for bounds in ((None, None), (0, None), (0, 9)):
                self.assertRaises(ValueError, ranking.scaled,
                                  np.array([1.0, score, 2.0]), *bounds)

    def test_scores_themselves_are_left_alone(self):
        scores = np.array([1.0, 2.0])
        scores.flags.writeable = False

        ranking.scaled(scores, None, None)

        self.assertEqual([1.0, 2.0], scores.tolist())

    @hypothesis.given(scores=strategies.lists(_SCORE, min_size=1, max_size=9),
                      bounds=strategies.tuples(_BOUND, _BOUND))
    @rows.settings
    def test_result_is_that_of_plain_python(self, scores, bounds):
        hypothesis.assume(None in bounds or bounds[0] < bounds[1])

        self.assertScaled(scaled(scores, *bounds), scores, *bounds)


class TestRanking(base.TestCase):

    def ranking(self, weights, rows=None):
        rows = range(len(weights)) if rows is None else rows
        return ranking.Ranking(np.array(rows, dtype=int),
                               np.array(weights, dtype=float))

    def test_best_comes_first_and_equals_keep_their_order(self):
        self.assertEqual([7, 3, 5, 2], list(self.ranking(
            [0.5, 1.0, 1.0, 2.0], [2, 3, 5, 7])))

    def test_nothing_has_no_order(self):
        self.assertEqual([], list(self.ranking([])))
        self.assertEqual([], self.ranking([]).top(3))

    def test_top_is_among_the_hosts_that_are_named(self):
        among = np.array([True, False, True, False, True])

        self.assertEqual([4, 2], self.ranking(
            [1, 9, 3, 8], [0, 1, 2, 4]).top(2, among))
        self.assertEqual([4], self.ranking(
            [1, 9, 3, 8], [0, 1, 2, 4]).top(1, among))
        self.assertEqual([], self.ranking(
            [9, 8], [1, 3]).top(1, among))

    @hypothesis.given(
        weights=strategies.lists(strategies.integers(-3, 3), max_size=80),
        count=strategies.integers(0, 90), data=strategies.data())
    @rows.settings
    def test_order_is_that_of_a_stable_sort(self, weights, count, data):
        among = np.array(data.draw(strategies.lists(
            strategies.booleans(), min_size=len(weights),
            max_size=len(weights))), dtype=bool)
        found = self.ranking(weights)
        order = sorted(range(len(weights)), key=lambda row: -weights[row])

        self.assertEqual(order, list(found))
        self.assertEqual(order[:count], found.top(count))
        self.assertEqual([row for row in order if among[row]][:count],
                         found.top(count, among))
