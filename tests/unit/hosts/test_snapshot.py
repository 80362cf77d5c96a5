# SPDX-License-Identifier: Apache-2.0
"""The least and the greatest of columns."""

import math

import numpy as np

from cellsched.hosts import snapshot
from tests.unit import base


class TestExtremaOf(base.TestCase):

    def test_value_that_is_no_number_makes_extrema_none(self):
        least, most = snapshot.extrema_of(np.array([1.0, math.nan]))

        self.assertTrue(math.isnan(least) and math.isnan(most))

    def test_empty_column_has_extrema_that_every_value_is_beyond(self):
        self.assertEqual(
            (math.inf, -math.inf), snapshot.extrema_of(np.empty(0)))

    def test_extrema_of_truth_values_are_numbers(self):
        self.assertEqual(
            (0.0, 1.0), snapshot.extrema_of(np.array([True, False])))
