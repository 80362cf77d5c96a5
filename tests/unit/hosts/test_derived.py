# SPDX-License-Identifier: Apache-2.0
import hypothesis
from hypothesis import strategies as st
import numpy as np

from cellsched.hosts import derived
from tests.unit import base


class TestDerived(base.TestCase):

    def setUp(self):
        super().setUp()
        self.values = np.arange(10.0)
        #: The rows that were made, or None for all of them.
        self.made = []
        self.derived = derived.Derived()

    def get(self, key='key'):
        return self.derived.get(key, self.make)

    def make(self, rows):
        self.made.append(None if rows is None else rows.tolist())
        return 2 * (self.values if rows is None else self.values[rows])

    def change(self, row, value):
        self.values[row] = value
        self.derived.change(row)

    def test_column_is_made_once(self):
        self.assertIs(self.get(), self.get())
        self.assertEqual([None], self.made)
        self.assertEqual(2 * self.values.sum(), self.get().sum())

    def test_what_changed_is_made_anew(self):
        before = self.get()
        self.change(3, 50)
        self.change(1, 7)
        self.change(3, 60)
        self.assertIs(before, self.get())
        self.assertEqual((2 * self.values).tolist(), before.tolist())
        self.get()
        self.assertEqual([None, [1, 3]], self.made)

    def test_all_is_made_anew_where_much_changed(self):
        self.values = np.arange(1000.0)
        self.get()
        for row in range(derived.MENDED_MAX + 1):
            self.change(row, -1)
        self.assertEqual((2 * self.values).tolist(), self.get().tolist())
        self.assertEqual([None, None], self.made)

    def test_what_was_forgotten_is_made_anew(self):
        before = self.get()
        self.values[0] = 9
        self.derived.clear()
        self.assertIsNone(self.derived.name(before))
        self.assertEqual(18, self.get()[0])

    def test_column_has_its_name_while_it_is_kept(self):
        self.assertEqual('key', self.derived.name(self.get()))
        self.assertIsNone(self.derived.name(self.get().copy()))

    def test_column_cannot_be_written(self):
        self.assertRaises(ValueError, self.get().__setitem__, 0, 1.0)

    def test_what_is_a_part_of_something_else_is_copied(self):
        made = self.derived.get('key', lambda rows: self.values[:5])
        self.values[0] = 99
        self.assertEqual(0, made[0])

    def test_what_was_not_asked_for_goes_where_there_are_too_many(self):
        first, second, *_ = [
            self.get(key) for key in range(derived.KEPT_MAX)]
        self.assertIs(first, self.get(0))
        self.get(derived.KEPT_MAX)
        self.assertIsNone(self.derived.name(second))
        self.assertIs(first, self.get(0))
        self.assertIsNot(second, self.get(1))
        self.assertEqual(derived.KEPT_MAX, len(self.derived._kept))
        self.assertEqual(derived.KEPT_MAX, len(self.derived._keys))

    @hypothesis.given(st.lists(st.tuples(
        st.integers(0, 9), st.integers(-5, 15), st.booleans()), max_size=30))
    def test_ends_are_those_of_what_it_is_now(self, changes):
        derived_ = derived.Derived()
        values = np.arange(10.0)
        for row, value, look in changes:
            values[row] = value
            derived_.change(row)
            if look:
                column = derived_.get('key', lambda rows: (
                    values.copy() if rows is None else values[rows]))
                self.assertEqual(values.tolist(), column.tolist())
                self.assertEqual((values.min(), values.max()),
                                 derived_.ends('key'))
