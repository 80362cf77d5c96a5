# SPDX-License-Identifier: Apache-2.0
"""Tests of the pool whose connections linger."""

import contextlib
import sqlite3

import fixtures
from sqlalchemy import exc

from cellsched.db import pooling
from cellsched.testing import clock as fake_clock
from tests.unit import base


class TestLingeringPool(base.TestCase):

    def setUp(self):
        super().setUp()
        self.clock = fake_clock.FakeClock()
        self.useFixture(fixtures.MonkeyPatch(
            'cellsched.db.pooling._CLOCK', self.clock))
        self.opened = []
        self.pool = pooling.LingeringPool(
            self._open, pool_size=2, max_overflow=3, timeout=0.01,
            use_lifo=True)
        self.addCleanup(self.pool.dispose)

    def _open(self):
        self.opened.append(sqlite3.connect(':memory:'))
        return self.opened[-1]

    def use(self, number):
        """Have so many connections in use at a time."""
        with contextlib.ExitStack() as stack:
            for _ in range(number):
                stack.enter_context(
                    contextlib.closing(self.pool.connect()))

    def pass_by(self, times=1):
        """Let time pass, in which one connection is used now and then."""
        for _ in range(times):
            self.clock.advance(pooling.LINGERING_S)
            self.use(1)

    def count_open(self):
        def answers(connection):
            try:
                connection.execute('SELECT 1')
            except sqlite3.ProgrammingError:
                return False
            return True
        return sum(map(answers, self.opened))

    def test_what_a_burst_opened_serves_the_next_one(self):
        for _ in range(10):
            self.use(5)
        self.assertEqual(5, len(self.opened))
        self.assertEqual(5, self.pool.checkedin())

    def test_what_is_needed_now_and_then_stays(self):
        for _ in range(10):
            self.clock.advance(pooling.LINGERING_S / 2)
            self.use(5)
        self.assertEqual(5, len(self.opened))
        self.assertEqual(5, self.count_open())

    def test_what_is_no_longer_needed_is_closed_one_by_one(self):
        self.use(5)
        self.pass_by(2)
        self.assertEqual(4, self.count_open())
        self.pass_by(10)
        self.assertEqual(2, self.count_open())
        self.assertEqual(2, self.pool.checkedin())

    def test_it_grows_again_after_it_has_shrunk(self):
        self.use(5)
        self.pass_by(10)
        self.use(5)
        self.assertEqual(5, self.count_open())
        self.assertEqual(8, len(self.opened))

    def test_there_are_never_more_than_size_and_overflow(self):
        for times in (0, 10):
            self.pass_by(times)
            self.assertRaises(exc.TimeoutError, self.use, 6)
            self.assertEqual(5, self.count_open())
            self.assertEqual(0, self.pool.checkedout())

    def test_one_made_anew_is_of_the_same_kind(self):
        made = self.pool.recreate()
        self.addCleanup(made.dispose)
        self.assertIsInstance(made, pooling.LingeringPool)
        self.assertEqual(2, made.size())

    def test_what_is_disposed_of_is_closed(self):
        self.use(5)
        self.pool.dispose()
        self.assertEqual(0, self.count_open())
        self.use(5)
        self.assertEqual(5, self.count_open())
