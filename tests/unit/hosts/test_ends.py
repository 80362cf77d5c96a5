# SPDX-License-Identifier: Apache-2.0
"""The least and the greatest of columns."""

import math
import random

import numpy as np

from cellsched.hosts import ends
from tests.unit import base


class TestEnds(base.TestCase):

    def test_ends_hold_whatever_changes(self):
        dice, found = random.Random(1), ends.Ends()
        column = np.array([3.0, 1.0, 4.0, 1.0])
        for _ in range(500):
            self.assertEqual(
                (column.min(), column.max()),
                (found.least('a', column), found.most('a', column)))
            for _ in range(dice.randrange(3)):
                place, value = dice.randrange(4), float(dice.randrange(6))
                found.change('a', column[place], value)
                column[place] = value

    def test_what_is_known_is_not_looked_for_again(self):
        found, column = ends.Ends(), np.array([1.0, 3.0])
        found.least('a', column), found.most('a', column)
        other = np.array([-9.0, 9.0])
        found.change('a', 2.0, 1.5)

        self.assertEqual((1.0, 3.0), (
            found.least('a', other), found.most('a', other)))
        self.assertEqual((-9.0, 9.0), (
            found.least('b', other), found.most('b', other)))

        found.clear()
        self.assertEqual((-9.0, 9.0), (
            found.least('a', other), found.most('a', other)))

    def test_end_stays_while_some_are_there(self):
        found, column = ends.Ends(), np.array([7.0, 1.0, 7.0, 1.0, 7.0])
        found.least('a', column), found.most('a', column)
        other = np.array([-9.0, 9.0])

        found.change('a', 7.0, 2.0)
        found.change('a', 7.0, 2.0)
        found.change('a', 2.0, 7.0)
        found.change('a', 1.0, 2.0)
        self.assertEqual((1.0, 7.0), (
            found.least('a', other), found.most('a', other)))

        for _ in range(2):
            found.change('a', 7.0, 3.0)
        found.change('a', 1.0, 3.0)
        self.assertEqual((-9.0, 9.0), (
            found.least('a', other), found.most('a', other)))

    def test_what_is_no_number_is_forgotten_with_any_change(self):
        found, column = ends.Ends(), np.array([1.0, math.nan])
        self.assertTrue(math.isnan(found.most('a', column)))
        found.change('a', math.nan, 2.0)
        self.assertEqual(2.0, found.most('a', np.array([1.0, 2.0])))

    def test_whole_numbers_beyond_what_a_float_tells_apart(self):
        found, column = ends.Ends(), np.array([2 ** 53 + 1, 5])
        found.most('a', column)
        found.change('a', 2 ** 53 + 1, 4)
        self.assertEqual(5.0, found.most('a', np.array([4, 5])))

    def test_empty_column_has_ends_that_every_value_is_beyond(self):
        found = ends.Ends()

        self.assertEqual((math.inf, -math.inf), (
            found.least('a', np.empty(0)), found.most('a', np.empty(0))))
