# SPDX-License-Identifier: Apache-2.0
"""Weights and their order."""

import math

import hypothesis
from hypothesis import strategies as st
import numpy as np

from cellsched.scheduler.decision import ranking
from cellsched.testing import builders
from tests.unit import base
from tests.unit.scheduler import toys

_BOUND = st.none() | st.integers(-3, 3)
_SCORE = st.integers(-5, 5) | st.floats(-1e6, 1e6, allow_nan=False)


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


def part(scores, times=1.0, minval=None, maxval=None, mask=None):
    return ranking.WeightPart(
        toys.Weigher(None, minval=minval, maxval=maxval), np.array(scores),
        np.array(times) if isinstance(times, list) else times,
        None if mask is None else np.array(mask))


def ranked(*parts, count=None, mask=None, at=None):
    """Return a ranking of as many hosts as there are scores."""
    count = len(parts[0].scores) if count is None else count
    hosts = builders.hosts(count)
    if at is not None:
        hosts = builders.hosts(max(at, default=0) + 1).at(
            np.array(at, dtype='int64'))
    return ranking.Ranking(
        hosts, None if mask is None else np.array(mask, dtype=bool), parts)


class TestScaled(base.TestCase):

    def assertScaled(self, expected, scores, minval=None, maxval=None):
        found = ranked(part(scores, 1.0, minval, maxval))
        np.testing.assert_allclose(
            found.weights, expected, rtol=1e-9, atol=1e-9)
        self.assertEqual(expected, [
            found.weighed(row)[1][0].scaled for row in range(len(scores))])

    def test_scores_are_scaled_to_0_to_1(self):
        self.assertScaled([0.0, 0.25, 1.0], [-2, 0, 6])

    def test_minval_is_zero_and_less_is_clamped(self):
        self.assertScaled([0.5, 0.0, 1.0], [4, -4, 8], minval=0)

    def test_equal_scores_above_minval_are_all_best(self):
        self.assertScaled([1.0, 1.0], [7, 7], minval=0)

    def test_equal_scores_without_a_bound_are_zero(self):
        self.assertScaled([0.0, 0.0], [7, 7])
        self.assertScaled([0.0, 0.0], [0, 0], minval=0)
        self.assertScaled([0.0, 0.0], [-3, -4], minval=0)

    def test_maxval_limits_scores(self):
        self.assertScaled([0.0, 1.0, 1.0], [1, 3, 9], maxval=3)
        self.assertScaled([0.0, 0.5, 1.0], [-1, 5, 99], minval=0, maxval=10)

    def test_integers_of_any_size_are_scaled(self):
        self.assertScaled([0.0, 1.0], [-2 ** 62, 2 ** 62])

    def test_scores_far_from_zero_lose_no_digit(self):
        self.assertScaled([0.0, 0.5, 1.0], [1e12, 1e12 + 1, 1e12 + 2])

    def test_weights_of_scores_far_from_zero_lose_no_digit(self):
        found = ranked(part([1e15, 1e15 + 1, 1e15 + 2], 0.3))

        np.testing.assert_allclose(
            found.weights, [0.0, 0.15, 0.3], rtol=1e-9, atol=1e-9)

    def test_infinite_score_and_no_number_fail(self):
        for score in (math.nan, math.inf, -math.inf):
            for bounds in ((None, None), (0, None), (0, 9)):
                self.assertRaises(
                    ValueError, part, [1.0, score, 2.0], 1.0, *bounds)

    def test_nearly_equal_scores_are_equal(self):
        self.assertScaled([0.0, 0.0], [0, 2.2e-311])
        self.assertScaled([0.0], [-2.2e-311], maxval=0)
        self.assertScaled([0.0, 1.0], [0, 1e-250])

    def test_given_scores_are_not_modified(self):
        scores = np.array([1.0, 2.0])
        scores.flags.writeable = False

        ranked(part(scores))

        self.assertEqual([1.0, 2.0], scores.tolist())

    @hypothesis.given(scores=st.lists(_SCORE, min_size=1, max_size=9),
                      bounds=st.tuples(_BOUND, _BOUND))
    def test_result_equals_plain_python(self, scores, bounds):
        hypothesis.assume(None in bounds or bounds[0] < bounds[1])
        # What is nearly one number is scaled by chance.
        numbers = [*scores, *(bound for bound in bounds if bound is not None)]
        hypothesis.assume(all(a == b or abs(a - b) > 1e-6
                              for a in numbers for b in numbers))

        self.assertScaled(scaled(scores, *bounds), scores, *bounds)


class TestWeights(base.TestCase):

    def test_parts_are_multiplied_and_added_up(self):
        found = ranked(part([0, 5, 10], 2.0), part([4.0, 2.0, 0.0], -1.0))

        self.assertEqual([-1.0, 0.5, 2.0], found.weights.tolist())
        self.assertEqual(2.0, found.weighed(2)[0])

    def test_multiplier_may_differ_from_host_to_host(self):
        found = ranked(part([0, 1, 1], [1.0, 2.0, -1.0]))

        self.assertEqual([0.0, 2.0, -1.0], found.weights.tolist())

    def test_masked_hosts_do_not_affect_the_scale(self):
        mask = [False, True, True, True, False]
        found = ranked(part([99, 1, 3, 2, -99], mask=mask), mask=mask)

        self.assertEqual([1, 2, 3], found.rows.tolist())
        self.assertEqual([0.0, 1.0, 0.5], found.weights.tolist())
        self.assertEqual(([2, 3, 1], 3), (list(found), len(found)))

    def test_shares_add_up_to_the_weight(self):
        found = ranked(part([0, 5, 10], 2.0), part([4, 2, 0], [1., 3., 5.]),
                       part([7, 7, 7], 9.0))

        self.assertEqual(
            [ranking.WeightShare('Weigher', 5.0, 0.5, 2.0, 1.0),
             ranking.WeightShare('Weigher', 2.0, 0.5, 3.0, 1.5),
             ranking.WeightShare('Weigher', 7.0, 0.0, 9.0, 0.0)],
            found.weighed(1)[1])
        self.assertEqual(2.5, found.weighed(1)[0])

    def test_weights_without_parts_are_zero(self):
        self.assertEqual([0.0, 0.0], ranked(count=2).weights.tolist())

    def test_absent_host_has_no_share(self):
        found = ranked(part([1, 2]), at=[3, 7])

        self.assertEqual(
            (None, (0.0, ())), (found.place(5), found.weighed(5)))
        self.assertEqual((1, 1.0), (found.place(7), found.weighed(7)[0]))

    def test_detached_scores_do_not_change(self):
        hosts = builders.hosts(free_ram_mb=[100, 300, 200])
        found = ranking.Ranking(hosts, None, [ranking.WeightPart(
            toys.Weigher(None), hosts['free_ram_mb'], 1.0, None)])
        found.detach()

        hosts.take(1, {'MEMORY_MB': 250})
        found.add_up()

        self.assertEqual([0.0, 1.0, 0.5], found.weights.tolist())


class TestOrder(base.TestCase):

    def test_best_host_is_first_and_ties_keep_the_order(self):
        self.assertEqual([7, 3, 5, 2], list(ranked(
            part([0.5, 1.0, 1.0, 2.0]), at=[2, 3, 5, 7])))

    def test_empty_ranking_has_no_order(self):
        for found in (ranked(count=0), ranked(
                part([1, 2]), mask=[False, False])):
            self.assertEqual(
                ([], [], []), (list(found), found.top(3), found.tied()))

    def test_top_is_restricted_to_named_hosts(self):
        among = np.array([0, 2, 4])
        found = ranked(part([1, 9, 3, 8]), at=[0, 1, 2, 4])

        self.assertEqual([4, 2], found.top(2, among))
        self.assertEqual([4], found.top(1, among))
        self.assertEqual([], ranked(part([9, 8]), at=[1, 3]).top(
            1, np.array([0, 2])))

    def test_second_is_best_without_the_first(self):
        found = ranked(part([1, 9, 3, 9]))

        self.assertEqual([3, 1, 1], [
            found.second(row) for row in (1, 3, 0)])
        self.assertEqual([1, 3, 2, 0], list(found))
        self.assertIsNone(ranked(count=1).second(0))
        self.assertIsNone(ranked(
            part([1, 2]), mask=[True, False]).second(0))

    def test_tied_are_the_hosts_with_the_greatest_weight(self):
        self.assertEqual([1, 3], ranked(part([1, 9, 3, 9])).tied())
        self.assertEqual([3], ranked(
            part([1, 9, 3, 8]), mask=[True, False, True, True]).tied())
        self.assertEqual([0, 1], ranked(count=2).tied())

    @hypothesis.given(
        weights=st.lists(st.integers(-3, 3), max_size=80),
        count=st.integers(1, 90), data=st.data())
    def test_order_equals_a_stable_sort(self, weights, count, data):
        def drawn():
            return np.array(data.draw(st.lists(
                st.booleans(), min_size=len(weights),
                max_size=len(weights))), dtype=bool)

        among, mask = drawn(), drawn()
        masked = data.draw(st.booleans()) and bool(mask.any())
        parts = [part(weights, mask=mask if masked else None)] if (
            weights) else []
        found = ranked(*parts, count=len(weights),
                       mask=mask if masked else None)
        order = sorted(range(len(weights)), key=lambda row: -weights[row])
        if masked:
            order = [row for row in order if mask[row]]

        self.assertEqual(order, list(found))
        self.assertEqual(order[:count], found.top(count))
        self.assertEqual([row for row in order if among[row]][:count],
                         found.top(count, np.flatnonzero(among)))
        start = data.draw(st.floats(0, 1, exclude_max=True))
        begin = int(start * len(weights))
        turned = sorted(order, key=lambda row: (-weights[row], row < begin))
        self.assertEqual(turned[:count], found.top(count, start=start))
        self.assertEqual(
            [row for row in turned if among[row]][:count],
            found.top(count, np.flatnonzero(among), start))
        if len(order) > 1:
            self.assertEqual(order[1], found.second(order[0]))
