# SPDX-License-Identifier: Apache-2.0
"""Servers of databases say what time it is."""

from cellsched import clock
from cellsched.db.cell import models
from cellsched.db import session
from cellsched.testing import clock as clocks
from tests.integration.db import base

AHEAD_S = 600.0

#: What passes between two readings of clocks, on a machine that is busy.
TAKES_S = 30.0


class TestTime(base.CellTestCase):

    def open(self, ahead_s):
        """Open the database as a process does whose clock is wrong."""
        database = session.Database(
            self.database.url, 'cell', clock=clocks.WrongClock(ahead_s))
        self.addCleanup(database.close)
        return database

    def test_processes_with_wrong_clocks_agree_on_the_time(self):
        right = clock.Clock().timestamp()

        for ahead_s in (0.0, AHEAD_S, -AHEAD_S):
            said = self.open(ahead_s).timestamp()
            self.assertLess(abs(said - right), TAKES_S, ahead_s)

    def test_time_is_without_a_time_zone(self):
        right = clock.Clock().now()

        said = self.open(AHEAD_S).now()

        self.assertIsNone(said.tzinfo)
        self.assertLess(abs((said - right).total_seconds()), TAKES_S)

    def test_zone_of_the_session_does_not_change_the_time(self):
        database = session.Database(
            self.database.url, 'cell',
            {'connection_parameters': self.in_zone}, clock=clock.Clock())
        self.addCleanup(database.close)

        said = database.timestamp()

        self.assertLess(abs(said - clock.Clock().timestamp()), TAKES_S)

    in_zone = 'options=-c%20timezone%3DAsia/Kolkata'

    def test_transaction_begins_after_the_query_of_the_clock(self):
        database = self.open(AHEAD_S)
        lane = models.FEED.lane('host')

        with database.writer() as connection:
            models.FEED.move(connection, 'host')
            moved = models.FEED.position(connection, lane)
            with self.database.reader() as other:
                self.assertEqual(moved - 1, models.FEED.position(other, lane))


class TestTimeOnMariaDB(base.OnMariaDB, TestTime):

    in_zone = 'init_command=SET%20time_zone%3D%27%2B05%3A30%27'
