# SPDX-License-Identifier: Apache-2.0
import contextlib

import fixtures
from sqlalchemy import pool
import testtools

from cellsched.db import bare
from cellsched.testing import clock as fake_clock
from tests.unit import base


class Harmless(Exception):
    pass


class Connection:
    """A connection of a driver, as far as it matters here."""

    autocommit = False
    closed = False

    def close(self):
        self.closed = True

    def rollback(self):
        pass


class TestConnections(base.TestCase):

    def setUp(self):
        super().setUp()
        self.clock = fake_clock.FakeClock()
        self.useFixture(fixtures.MonkeyPatch(
            'cellsched.db.bare._CLOCK', self.clock))
        self.opened = []
        self.pool = pool.QueuePool(
            self.open, pool_size=1, max_overflow=0, timeout=0.01)
        self.connections = bare.Connections(self.pool.connect)

    def open(self):
        self.opened.append(Connection())
        return self.opened[-1]

    def one(self):
        return self.connections.one(lambda exc: isinstance(exc, Harmless))

    def use(self, number=1, error=None):
        """Use so many at a time, and return them."""
        with contextlib.ExitStack() as stack:
            used = [stack.enter_context(self.one()).raw
                    for _ in range(number)]
            if error is not None:
                raise error
        return used

    def test_what_was_used_last_is_used_again(self):
        first, second = self.use(2)
        self.assertEqual([first], self.use())
        self.assertEqual([first], self.use())
        self.assertIsNot(first, second)
        self.assertEqual([first, second], self.opened)

    def test_statements_are_each_alone(self):
        self.assertEqual([True], [each.autocommit for each in self.use()])

    def test_connection_takes_no_place_in_the_pool(self):
        with self.one() as first, self.one():
            with contextlib.closing(self.pool.connect()) as pooled:
                self.assertIsNot(first.raw, pooled.driver_connection)
            self.assertEqual(0, self.pool.checkedout())

    def test_none_is_opened_for_who_asks_for_an_idle_one(self):
        def idle():
            return self.connections.one(lambda exc: False, idle=True)

        with testtools.ExpectedException(bare.NoneIdle), idle():
            pass
        self.assertEqual([], self.opened)
        [first] = self.use()
        with idle() as connection:
            self.assertIs(first, connection.raw)
            with testtools.ExpectedException(bare.NoneIdle), idle():
                pass
        self.assertEqual([first], self.use())
        self.assertEqual([first], self.opened)

    def test_connection_stays_after_a_harmless_error(self):
        self.assertRaises(Harmless, self.use, error=Harmless())
        self.assertEqual(self.opened, self.use())

    def test_all_that_are_idle_go_after_another_error(self):
        self.use(3)
        self.assertRaises(ValueError, self.use, error=ValueError())
        self.assertEqual([True] * 3, [each.closed for each in self.opened])
        self.use()
        self.assertEqual(4, len(self.opened))

    def test_connection_goes_where_its_user_is_interrupted(self):
        self.assertRaises(
            KeyboardInterrupt, self.use, error=KeyboardInterrupt())
        self.assertTrue(self.opened[0].closed)

    def test_connection_that_was_idle_for_long_is_used_no_more(self):
        [first] = self.use()
        self.clock.advance(bare.IDLE_S - 1)
        self.assertEqual([first], self.use())
        self.clock.advance(bare.IDLE_S)
        self.assertNotEqual([first], self.use())
        self.assertTrue(first.closed)

    def test_connection_gets_no_older_than_it_may(self):
        self.connections = bare.Connections(self.pool.connect, 100)
        [first] = self.use()
        for _ in range(3):
            self.clock.advance(33)
            self.assertEqual([first], self.use())
        self.clock.advance(1)
        self.assertNotEqual([first], self.use())
        self.assertTrue(first.closed)

    def test_connection_gets_as_old_as_it_likes_without_a_bound(self):
        [first] = self.use()
        for _ in range(1000):
            self.clock.advance(bare.IDLE_S / 2)
            self.assertEqual([first], self.use())

    def test_connection_that_broke_is_used_no_more(self):
        [first] = self.use()
        first.closed = True
        self.assertNotEqual([first], self.use())

    def test_a_few_stay_open(self):
        self.use(bare.IDLE_MAX + 3)
        self.assertEqual(
            3, sum(connection.closed for connection in self.opened))

    def test_close_closes_all_when_nobody_uses_them(self):
        self.use(2)
        with self.one() as used:
            self.connections.close()
            self.assertEqual(
                [used.raw],
                [each for each in self.opened if not each.closed])
        self.assertTrue(used.raw.closed)
        self.use()
        self.assertFalse(self.opened[-1].closed)

    def test_all_go_after_an_error_even_where_others_use_them(self):
        with self.one() as used:
            self.assertRaises(ValueError, self.use, error=ValueError())
            self.assertFalse(used.raw.closed)
        self.assertTrue(used.raw.closed)
