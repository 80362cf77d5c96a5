# SPDX-License-Identifier: Apache-2.0
"""The least and the greatest of columns."""

import math

import numpy as np

from cellsched.hosts import extrema
from tests.unit import base


class TestExtrema(base.TestCase):

    def setUp(self):
        super().setUp()
        self.extrema = extrema.Extrema()
        self.assertEqual(
            (1.0, 3.0), self.extrema.get('a', np.array([3.0, 1.0])))

    def test_what_is_known_is_not_looked_for_again(self):
        self.assertEqual(
            (1.0, 3.0), self.extrema.get('a', np.array([-9.0, 9.0])))

    def test_columns_have_extrema_of_their_own(self):
        self.assertEqual(
            (-9.0, 9.0), self.extrema.get('b', np.array([-9.0, 9.0])))

    def test_changed_column_is_looked_at_again(self):
        self.extrema.get('b', np.array([5.0]))
        self.extrema.forget('a')

        self.assertEqual(
            (-9.0, 9.0), self.extrema.get('a', np.array([-9.0, 9.0])))
        self.assertEqual((5.0, 5.0), self.extrema.get('b', np.array([6.0])))

    def test_those_of_others_are_handed_on(self):
        self.extrema.get('b', np.array([5.0]))
        following = self.extrema.without({'b'})

        self.assertEqual((1.0, 3.0), following.get('a', np.array([6.0])))
        self.assertEqual((6.0, 6.0), following.get('b', np.array([6.0])))


class TestOf(base.TestCase):

    def test_value_that_is_no_number_makes_extrema_none(self):
        self.assertTrue(
            all(map(math.isnan, extrema.of(np.array([1.0, math.nan])))))

    def test_empty_column_has_extrema_that_every_value_is_beyond(self):
        self.assertEqual((math.inf, -math.inf), extrema.of(np.empty(0)))

    def test_extrema_of_truth_values_are_numbers(self):
        self.assertEqual((0.0, 1.0), extrema.of(np.array([True, False])))
