# SPDX-License-Identifier: Apache-2.0
"""The operators of extra specs."""

import hypothesis
from hypothesis import strategies as st

from cellsched import exception
from cellsched.filters import extra_specs_ops
from tests.unit import base

#: A value, a requirement, and whether one meets the other.
TABLE = [
    ('1', '1', True), ('1', '2', False), ('', '1', False), ('', '', True),
    ('3', '1', False), ('222', '2', False), ('a b', 'a b', True),
    (None, '1', False), (None, '', False), (None, 's!= a', False),
    (None, '= 0', False), (None, '<or> a', False), (None, '<in> a', False),
    ('1', '= 1', True), ('2', '= 1', True), ('1', '= 2', False),
    ('1.5', '= 1', True), ('', '= 1', False), ('abc', '= 1', False),
    ('4', '==4', False), ('==4', '==4', True),
    ('123', '== 123', True), ('123.0', '== 123', True), ('1', '== 2', False),
    ('123', '!= 123', False), ('124', '!= 123', True), ('a', '!= 1', False),
    ('4', '>= 3', True), ('3', '>= 3', True), ('2', '>= 3', False),
    ('11', '>= 3', True), ('2', '<= 3', True), ('3', '<= 3', True),
    ('4', '<= 3', False), ('-1', '<= 0', True), ('1e3', '>= 999', True),
    ('nan', '!= 1', False), ('nan', '>= 1', False), ('inf', '>= 1', True),
    ('4', '> 3', False), ('> 3', '> 3', True),
    ('123', 's== 123', True), ('1234', 's== 123', False),
    ('123', 's== 123 4', True), ('1.0', 's== 1', False),
    ('1234', 's!= 123', True), ('123', 's!= 123', False),
    ('1000', 's>= 234', False), ('234', 's>= 234', True),
    ('1234', 's<= 1000', False), ('1000', 's<= 1000', True),
    ('abc', 's< abd', True), ('abd', 's< abd', False),
    ('2', 's> 12', True), ('12', 's> 2', False),
    ('12310321', '<in> 11', False), ('12310321', '<in> 103', True),
    ('12310321', '<in> 103 <in> 9', True), ('abc', '<in> abcd', False),
    ('aes mmx aux', '<all-in> aes mmx', True),
    ('aes mmx aux', '<all-in> aes', True),
    ('aes mmx aux', '<all-in> aes sse', False), ('', '<all-in> aes', False),
    ('11', '<or> 11 <or> 12', True), ('12', '<or> 11 <or> 12', True),
    ('13', '<or> 11 <or> 12', False), ('11', '<or> 11 <or> 12 <or>', True),
    ('<or>', '<or> 11 <or> 12', False), ('1', '<or> 11 <or> 12', False),
    ('12', '<or> 11 12', False), ('11', '<or>11', False),
    *[('1', operator, False)
      for operator in ('=', '==', '!=', '>=', '<=', 's==', 's!=', 's<', 's<=',
                       's>', 's>=', '<in>', '<all-in>', '<or>')],
    *[(operator, operator, False)
      for operator in ('=', '==', '>=', 's==', '<in>', '<all-in>', '<or>')],
]


def match(value, requirement):
    return extra_specs_ops.matcher(requirement, 'extra_specs.size')(value)


class TestMatch(base.TestCase):

    def test_each_operator_has_its_verdicts(self):
        for value, requirement, meets in TABLE:
            with self.subTest(value=value, requirement=requirement):
                self.assertIs(meets, match(value, requirement))

    def test_number_is_required_after_a_numeric_operator(self):
        for requirement in ('= abc', '== nan', '>= 1,5', '!= 0x10', '<= -'):
            for value in ('1', None):
                error = self.assertRaises(
                    exception.InvalidField, match, value, requirement)
                self.assertIn('extra_specs.size', str(error))
                self.assertIn('a number', str(error))

    def test_long_requirement_is_refused(self):
        longest = 's== ' + 'a' * (extra_specs_ops.LENGTH_MAX - 4)

        self.assertTrue(match(longest[4:], longest))
        for text in (longest + 'a', '<or> 1 ' * 100_000):
            error = self.assertRaises(
                exception.InvalidField, match, 'a', text)
            self.assertIn('1024 characters', str(error))
            self.assertLess(len(str(error)), 200)

    def test_pattern_is_a_text(self):
        self.assertFalse(match('aaa', '<in> a+'))
        self.assertTrue(match('(a+)+', '<in> (a+)+'))

    @hypothesis.given(
        value=st.none() | st.text(max_size=9), requirement=st.text(
            st.sampled_from('=!<>s 1aornli-\t\x1c'), max_size=12))
    def test_any_text_has_a_verdict_or_names_its_field(
            self, value, requirement):
        try:
            verdict = match(value, requirement)
        except exception.InvalidField:
            verdict = False
        self.assertIsInstance(verdict, bool)
