# SPDX-License-Identifier: Apache-2.0
"""The least and the greatest of columns."""

import math

import hypothesis
from hypothesis import strategies as st
import numpy as np

from cellsched.hosts import snapshot
from tests.unit import base


class TestExtrema(base.TestCase):

    def test_nan_makes_both_extrema_nan(self):
        column = np.array([1.0, math.nan])

        self.assertTrue(math.isnan(snapshot.least_of(column)))
        self.assertTrue(math.isnan(snapshot.most_of(column)))

    def test_extrema_of_an_empty_column_are_infinite(self):
        column = np.empty(0)

        self.assertEqual((math.inf, -math.inf), (
            snapshot.least_of(column), snapshot.most_of(column)))

    def test_extrema_of_truth_values_are_numbers(self):
        column = np.array([True, False])

        self.assertEqual((0.0, 1.0), (
            snapshot.least_of(column), snapshot.most_of(column)))


class TestRowIndex(base.TestCase):

    @hypothesis.settings(max_examples=30)
    @hypothesis.given(st.lists(st.tuples(
        st.booleans(), st.sets(st.integers(0, 60), max_size=30))))
    def test_finds_rows_after_any_changes(self, steps):
        uuids, found = [], snapshot.RowIndex(np.empty(0, object))
        for adds, numbers in steps:
            names = {f'node{number}' for number in numbers}
            before, rows = found.frozen(), list(uuids)
            if adds:
                uuids += sorted(names - {*uuids})
                found.add(np.array(uuids, object), len(uuids))
            else:
                stay = np.array([each not in names for each in uuids], bool)
                uuids = [each for each in uuids if each not in names]
                found = found.without(stay, np.array(uuids, object))
            self.assertEqual(
                {uuid: row for row, uuid in enumerate(uuids)}, dict(found))
            self.assertEqual(
                {uuid: row for row, uuid in enumerate(rows)}, dict(before))
            self.assertNotIn('node99', found)
            self.assertEqual([each in rows for each in uuids],
                             [each in before for each in uuids])

    def test_unknown_uuid_is_named(self):
        self.assertRaisesRegex(
            KeyError, 'gone', snapshot.RowIndex(
                np.empty(0, object)).__getitem__, 'gone')
