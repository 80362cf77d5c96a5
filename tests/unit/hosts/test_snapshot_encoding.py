# SPDX-License-Identifier: Apache-2.0
"""Columns that hold codes of values."""

import hypothesis
from hypothesis import strategies as st
import numpy as np

from cellsched.hosts import snapshot
from cellsched.testing import builders
from tests.unit import base


class TestCoding(base.TestCase):

    def test_default_has_code_zero(self):
        made = snapshot.DictionaryEncoding('x')

        self.assertEqual((['x'], 0), (made.values, made.code('x')))

    def test_equal_values_share_a_code(self):
        made = snapshot.DictionaryEncoding('')

        self.assertEqual([1, 2, 1, 0], made.encode(['b', 'a', 'b', '']))
        self.assertEqual(['', 'b', 'a'], made.values)
        self.assertEqual([2, 3], made.encode(['a', 'c']))

    def test_unused_value_has_no_code(self):
        made = snapshot.DictionaryEncoding('')

        self.assertEqual(snapshot.NONE, made.code('other'))
        self.assertEqual([''], made.values)

    def test_function_is_called_once_for_each_value(self):
        made = snapshot.DictionaryEncoding('')
        codes = np.array(made.encode(['aa', 'b'] * 50))
        asked = []

        def length(value):
            asked.append(value)
            return len(value)

        self.assertEqual([2, 1] * 50,
                         made.spread(codes, length, 'int64').tolist())
        self.assertEqual(['', 'aa', 'b'], sorted(asked))

    def test_function_is_called_only_for_values_of_the_hosts(self):
        made = snapshot.DictionaryEncoding('')
        made.encode(['a' * length for length in range(1, 100)])
        asked = []

        answers = made.spread(
            np.array([7, 3, 7]),
            lambda value: asked.append(value) or len(value), 'float64')

        self.assertEqual([7.0, 3.0, 7.0], answers.tolist())
        self.assertEqual([3, 7], sorted(map(len, asked)))

    def test_spread_over_no_hosts_is_empty(self):
        made = snapshot.DictionaryEncoding('')

        answers = made.spread(np.empty(0, 'int32'), bool, 'bool')

        self.assertEqual(([], np.dtype(bool)),
                         (answers.tolist(), answers.dtype))

    @hypothesis.given(st.lists(st.integers(0, 9)), st.data())
    def test_spread_equals_the_function_of_each_value(self, values, data):
        made = snapshot.DictionaryEncoding(0)
        codes = made.encode(values)
        some = data.draw(st.lists(st.sampled_from(codes)) if codes
                         else st.just([]))

        answers = made.spread(
            np.array(some, 'int32'), lambda value: value * 3, 'int64')

        self.assertEqual([made.values[code] * 3 for code in some],
                         answers.tolist())


class TestNumbers(base.TestCase):

    def test_least_number_of_each_value_is_known(self):
        made = snapshot.DictionaryEncoding(())
        made.encode([(builders.aggregate(x='3'), builders.aggregate(x='2')),
                     (builders.aggregate(y='1'),)])

        np.testing.assert_array_equal(
            [np.nan, 2.0, np.nan], made.numbers('x'))
        self.assertIsNone(made.numbers('z'))

    def test_numbers_are_cached(self):
        made = snapshot.DictionaryEncoding(())
        made.encode([(builders.aggregate(x='3'),)])

        self.assertIs(made.numbers('x'), made.numbers('x'))

    def test_new_value_is_reported(self):
        made = snapshot.DictionaryEncoding(())
        self.assertIsNone(made.numbers('x'))

        made.encode([(builders.aggregate(x='3'),)])

        np.testing.assert_array_equal([np.nan, 3.0], made.numbers('x'))


class TestCompact(base.TestCase):

    def test_unused_values_are_dropped(self):
        made = snapshot.DictionaryEncoding('')
        codes = np.array(made.encode(['a', 'b', 'c', 'd']), 'int32')

        before, (made, compacted) = made, made.compacted(codes[[3, 1, 3]])

        self.assertEqual(['', 'b', 'd'], made.values)
        self.assertEqual(['', 'a', 'b', 'c', 'd'], before.values)
        self.assertEqual([2, 1, 2], compacted.tolist())
        self.assertEqual(codes.dtype, compacted.dtype)
        self.assertEqual([snapshot.NONE, 1, 2],
                         [made.code(value) for value in 'abd'])
        self.assertEqual([3], made.encode(['a']))

    def test_numbers_are_of_the_new_codes(self):
        made = snapshot.DictionaryEncoding(())
        codes = np.array(made.encode([
            (builders.aggregate(x='3'),), (builders.aggregate(x='4'),)]))
        made.numbers('x')

        made, _ = made.compacted(codes[1:])

        np.testing.assert_array_equal([np.nan, 4.0], made.numbers('x'))
