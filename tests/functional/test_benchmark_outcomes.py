# SPDX-License-Identifier: Apache-2.0
"""Benchmarks report wrong refusals and oversold hosts."""

import hypothesis
from hypothesis import strategies as st

from benchmarks import outcomes
from tests.unit import base


def got(start, end, provider='a'):
    return outcomes.Outcome(start, end, provider, True)


def refused(start, end, provider='a'):
    return outcomes.Outcome(start, end, provider, False)


#: When somebody asks, when that takes effect, and when the answer is there.
ASKS = st.lists(st.tuples(
    st.floats(0, 100), st.floats(0, 10), st.floats(0, 10),
    st.sampled_from('ab')), max_size=30)


class TestOutcomes(base.TestCase):

    def test_refusal_of_a_free_place_is_wrong(self):
        self.assertEqual(1, outcomes.wrongly_refused(
            [got(0, 1), refused(2, 3)], {'a': 2}))

    def test_refusal_with_a_free_place_is_wrong(self):
        self.assertEqual(1, outcomes.wrongly_refused(
            [got(0, 1), refused(2, 3), got(4, 5)], {'a': 2}))

    def test_refusal_while_the_last_place_is_taken_is_right(self):
        self.assertEqual(0, outcomes.wrongly_refused(
            [got(0, 1), refused(2, 5), got(4, 6)], {'a': 2}))

    def test_capacity_of_other_providers_does_not_count(self):
        every = [got(0, 1), refused(2, 3)]

        self.assertEqual(0, outcomes.wrongly_refused(
            every, {'a': 1, 'b': 1}))
        every[1] = refused(2, 3, None)
        self.assertEqual(1, outcomes.wrongly_refused(
            every, {'a': 1, 'b': 1}))

    def test_more_servers_than_capacity_are_oversold(self):
        every = [got(0, 1), got(0, 1), got(0, 1), got(0, 1, 'b')]

        self.assertEqual(2, outcomes.oversold(every, {'a': 1, 'b': 1}))

    def test_greater_of_observed_and_reported_oversold_counts(self):
        every = [got(0, 1), got(0, 1)]

        for seen, worst in (0, 1), (3, 3):
            self.assertEqual(
                {'oversold': worst, 'refused_although_it_fitted': 0},
                outcomes.Round(every, {'a': 1}, 0, seen).judged())

    # Both in the same moment.
    @hypothesis.example([(1.0, 0.0, 0.0, 'a'), (1.0, 0.0, 0.0, 'a')], 1, 0)
    @hypothesis.given(ASKS, st.integers(0, 5), st.integers(0, 5))
    def test_exact_store_is_found_to_be_exact(self, asks, of_a, of_b):
        places = {'a': of_a, 'b': of_b}
        left, every = dict(places), []
        for moment, before, after, provider in sorted(asks):
            taken = left[provider] > 0
            left[provider] -= taken
            every.append(outcomes.Outcome(
                moment - before, moment + after, provider, taken))

        self.assertEqual(0, outcomes.wrongly_refused(every, places))
        self.assertEqual(0, outcomes.oversold(every, places))
