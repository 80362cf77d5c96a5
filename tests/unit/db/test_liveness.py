# SPDX-License-Identifier: Apache-2.0
import contextlib
import os

import sqlalchemy as sa
from sqlalchemy import pool

from cellsched.db import liveness
from cellsched.testing import clock
from tests.unit import base


class TestListen(base.TestCase):

    def setUp(self):
        super().setUp()
        self.clock = clock.FakeClock()
        self.engine = sa.create_engine(
            f'sqlite:///{self.temporary_directory()}/test.db',
            poolclass=pool.QueuePool, pool_use_lifo=True)
        self.addCleanup(self.engine.dispose)
        liveness.listen(self.engine, self.clock)

    def use(self, number=1):
        """Return the driver's connections of so many that work at a time."""
        with contextlib.ExitStack() as stack:
            connections = [stack.enter_context(self.engine.connect())
                           for _ in range(number)]
            for each in connections:
                each.execute(sa.text('SELECT 1'))
            return [each.connection.driver_connection for each in connections]

    def test_connection_that_works_is_used_again(self):
        first = self.use()

        self.clock.advance(liveness.TRUSTED_S)

        self.assertEqual(first, self.use())

    def test_connection_that_was_lost_while_idle_is_replaced(self):
        first, = self.use()
        first.close()
        self.clock.advance(liveness.TRUSTED_S)

        self.assertNotEqual([first], self.use())

    def test_connection_that_was_just_used_is_not_asked(self):
        first, = self.use()
        first.close()
        self.clock.advance(liveness.TRUSTED_S / 2)

        self.assertRaises(sa.exc.ProgrammingError, self.use)

    def test_connections_older_than_a_lost_one_are_replaced_with_it(self):
        first = self.use(3)
        first[0].close()
        self.clock.advance(liveness.TRUSTED_S)

        self.assertEqual(set(), set(first) & set(self.use(3)))

    def test_connection_of_the_process_before_a_fork_is_replaced(self):
        first = self.use()
        pid = os.getpid()
        self.patch(os, 'getpid', lambda: pid + 1)

        self.assertNotEqual(first, self.use())
