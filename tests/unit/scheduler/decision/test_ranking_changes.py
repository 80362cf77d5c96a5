# SPDX-License-Identifier: Apache-2.0
"""A ranking whose scores change one by one, as instances take their places."""

import math

import hypothesis
from hypothesis import strategies as st
import numpy as np

from cellsched.scheduler.decision import ranking
from cellsched.testing import builders
from tests.unit import base
from tests.unit.scheduler import toys


def part(scores, times=1.0, minval=None, maxval=None, mask=None):
    """Return a part whose scores are detached."""
    made = ranking.WeightPart(
        toys.Weigher(None, minval=minval, maxval=maxval), np.array(scores),
        np.array(times) if isinstance(times, list) else times, mask)
    made.detach(mask)
    return made


def only(*places):
    """Return a mask of three hosts of which some count."""
    return np.array([place in places for place in range(3)])


class TestBounds(base.TestCase):

    def bounds(self, made):
        return made.low, made.high

    def test_score_within_the_bounds_moves_no_bound(self):
        made = part([1.0, 5.0, 9.0])

        self.assertFalse(made.change(1, 6.0, None))

        self.assertEqual((1.0, 9.0), self.bounds(made))
        self.assertEqual([1.0, 6.0, 9.0], made.scores.tolist())

    def test_score_beyond_the_bounds_moves_a_bound(self):
        for place, score, expected in (
                (1, 10.0, (1.0, 10.0)), (1, 0.0, (0.0, 9.0)),
                (2, 7.0, (1.0, 7.0)), (0, 3.0, (3.0, 9.0)),
                (2, 4.0, (1.0, 5.0)), (0, 6.0, (5.0, 9.0))):
            made = part([1.0, 5.0, 9.0])

            self.assertTrue(made.change(place, score, None))

            self.assertEqual(expected, self.bounds(made))

    def test_score_beyond_a_bound_of_the_weigher_is_limited(self):
        made = part([0.0, 4.0, 10.0], minval=0, maxval=10)
        self.assertFalse(made.change(0, 1.0, None))

        for place, score in ((0, -1.0), (2, 11.0)):
            made = part([0.0, 4.0, 10.0], minval=0, maxval=10)
            self.assertTrue(made.change(place, score, None))
            self.assertEqual((0.0, 10.0), self.bounds(made))
            self.assertEqual({0.0, 0.4, 1.0}, {
                made.share(each).scaled for each in range(3)})

    def test_excluded_host_is_no_bound(self):
        for place, mask, expected in (
                (2, only(0, 1), (1.0, 5.0)), (0, only(1, 2), (5.0, 9.0))):
            made = part([1.0, 5.0, 9.0])

            self.assertTrue(made.leave_out(place, mask))

            self.assertEqual(expected, self.bounds(made))
        self.assertFalse(part([1.0, 5.0, 9.0]).leave_out(1, only(0, 2)))

    def test_masked_hosts_are_no_bound(self):
        mask = only(1, 2)
        made = part([99.0, 1.0, 2.0], mask=mask)

        self.assertTrue(made.change(2, 3.0, mask))

        self.assertEqual((1.0, 3.0), self.bounds(made))

    def test_bounds_found_again_are_unchanged(self):
        made = part([1.0, 5.0, 9.0])
        self.assertFalse(made.find_bounds())

        made.scores[2] = 8.0

        self.assertTrue(made.find_bounds())
        self.assertFalse(made.find_bounds())

    def test_infinite_score_is_refused(self):
        for score in (math.nan, math.inf, -math.inf):
            for place in range(3):
                self.assertRaises(
                    ValueError, part([1.0, 5.0, 9.0]).change, place, score,
                    None)


class TestChange(base.TestCase):

    @hypothesis.given(
        scores=st.lists(st.integers(-4, 4), min_size=3, max_size=6),
        bounds=st.tuples(st.none() | st.integers(-3, 0),
                         st.none() | st.integers(1, 3)),
        times=st.none() | st.integers(-2, 2), data=st.data())
    def test_changed_weights_equal_fresh_weights(
            self, scores, bounds, times, data):
        count = len(scores)
        multiplier = (
            [float(number) for number in range(count)] if times is None
            else float(times))
        hosts = builders.hosts(count)
        mask = None
        if data.draw(st.booleans()):
            mask = np.array([True, True, *data.draw(st.lists(
                st.booleans(), min_size=count - 2, max_size=count - 2))])
        made = ranking.Ranking(hosts, mask, [part(
            [float(score) for score in scores], multiplier, *bounds, mask)])
        made.detach()

        for place in data.draw(st.lists(
                st.sampled_from([0, 1]), min_size=1, max_size=3)):
            score = float(data.draw(st.integers(-5, 5)))
            scores[place] = score
            if made.parts[0].change(place, score, mask):
                made.add_up()
            else:
                made.change(place)

        fresh = ranking.Ranking(hosts, mask, [part(
            [float(score) for score in scores], multiplier, *bounds, mask)])
        np.testing.assert_allclose(
            made.weights, fresh.weights, rtol=1e-9, atol=1e-9)
        self.assertEqual(len(fresh), len(made))
        for row in fresh.rows.tolist():
            self.assertEqual(fresh.weighed(row)[1], made.weighed(row)[1])

    def test_excluded_host_is_last(self):
        scores = part([1.0, 5.0, 9.0])
        made = ranking.Ranking(builders.hosts(3), None, [scores])
        made.detach()
        made.mask = only(0, 2)
        self.assertFalse(scores.leave_out(1, made.mask))

        made.change(1)

        self.assertEqual([2, 0], list(made))
        self.assertEqual(-math.inf, made.weighed(1)[0])
        self.assertEqual([0.0, 1.0], made.weights.tolist())

    def test_weigher_with_equal_scores_adds_zero(self):
        flat = part([7.0, 7.0, 7.0], 9.0)
        made = ranking.Ranking(
            builders.hosts(3), None, [flat, part([1.0, 2.0, 3.0])])
        made.detach()

        made.change(1)

        self.assertFalse(flat.counts)
        self.assertEqual([0.0, 0.5, 1.0], made.weights.tolist())
