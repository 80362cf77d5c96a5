# SPDX-License-Identifier: Apache-2.0
"""Conditions are logged when they begin and when they end."""

import logging

from cellsched import exception
from cellsched.observability import conditions
from cellsched.testing import clock
from tests.unit import base

CELL = 'Cell a does not answer'


class TestConditions(base.TestCase):

    def setUp(self):
        super().setUp()
        self.clock = clock.FakeClock()
        self.lines = []
        logger = logging.Logger(self.id())
        handler = logging.Handler()
        handler.emit = lambda record: self.lines.append(
            (record.levelname, record.getMessage(), bool(record.exc_info)))
        logger.addHandler(handler)
        self.conditions = conditions.Conditions(logger, self.clock.monotonic)

    def test_condition_is_logged_once_and_its_end_with_the_count(self):
        for _ in range(216):
            self.conditions.occur(CELL, 'it took too long')
            self.clock.advance(0.5)
        self.assertIn(CELL, self.conditions)
        self.conditions.end(CELL)
        self.conditions.end(CELL)

        self.assertEqual(
            [('WARNING', f'{CELL}: it took too long', False),
             ('INFO', f'{CELL}: this has ended after 108 s; it occurred 216 '
              'times', False)], self.lines)
        self.assertNotIn(CELL, self.conditions)

    def test_recurring_condition_is_logged_again(self):
        for _ in range(2):
            self.conditions.occur(CELL)
            self.conditions.end(CELL)

        self.assertEqual(4, len(self.lines))
        self.assertEqual([CELL] * 2, [text for _, text, _ in self.lines[::2]])

    def test_errors_are_logged_by_their_kinds(self):
        for exc in (OSError('a'), OSError('b'), ValueError('c'),
                    OSError('d'), ValueError('e')):
            self.conditions.occur(CELL, exc, logging.ERROR, traceback=True)

        self.assertEqual(
            [('ERROR', f'{CELL}: OSError: a', True),
             ('ERROR', f'{CELL}: ValueError: c', True)], self.lines)

    def test_logged_kinds_of_errors_are_bounded(self):
        for number in range(100):
            self.conditions.occur(CELL, type(f'E{number}', (Exception,), {})())

        self.assertLess(len(self.lines), 10)

    def test_passwords_are_masked(self):
        url = 'postgresql://user:secret@host/name'
        self.conditions.occur('a', exception.CellUnreachable(
            cell='a', reason=url))
        self.conditions.occur('b', url)

        self.assertNotIn('secret', str(self.lines))

    def test_conditions_missing_from_the_replacement_end(self):
        self.conditions.replace({'a': 'x', 'b': 'x'})
        self.conditions.replace({'b': 'x', 'c': 'x'})

        self.assertEqual(
            ['a: x', 'b: x', 'a: this has ended after 0 s; it occurred 1 '
             'times', 'c: x'], [text for _, text, _ in self.lines])
        self.conditions.replace({})
        self.assertIn('b: this has ended after 0 s; it occurred 2 times',
                      [text for _, text, _ in self.lines])

    def test_conditions_of_other_subjects_do_not_end(self):
        self.conditions.replace({'a': 'x', 'b': 'x'})
        self.conditions.replace({'c': 'x'}, among={'b', 'c'})

        self.assertIn('a', self.conditions)
        self.assertNotIn('b', self.conditions)
