# SPDX-License-Identifier: Apache-2.0
"""The clock of a database server, as a process knows it."""

from cellsched.db import server_clock
from cellsched.testing import clock
from tests.unit import base

#: By how much the server is ahead of the process.
AHEAD_S = 600.0


class Server:
    """A connection to a server that has a clock, and counts questions."""

    def __init__(self, own, delay_s=0.0):
        self.clock = own
        self.ahead_s = AHEAD_S
        self.delay_s = delay_s
        self.questions = 0
        self.dialect = self
        self.name = 'postgresql'

    def exec_driver_sql(self, query):
        self.questions += 1
        self.clock.advance(self.delay_s / 2)
        said = self.clock.timestamp() + self.ahead_s
        self.clock.advance(self.delay_s / 2)
        return Answer(said)

    def rollback(self):
        pass


class Answer:

    def __init__(self, said):
        self.said = said

    def scalar_one(self):
        return self.said


class TestServerClock(base.TestCase):

    def setUp(self):
        super().setUp()
        self.own = clock.FakeClock()
        self.clock = server_clock.ServerClock(self.own)

    def test_nothing_is_known_before_the_server_was_asked(self):
        self.assertIsNone(self.clock.timestamp())

    def test_time_is_the_servers_and_goes_on(self):
        self.clock.ask(Server(self.own))
        self.own.advance(5)

        self.assertAlmostEqual(
            self.own.timestamp() + AHEAD_S, self.clock.timestamp(), 3)

    def test_time_on_the_way_is_halved(self):
        self.clock.ask(Server(self.own, delay_s=4.0))

        self.assertAlmostEqual(
            self.own.timestamp() + AHEAD_S, self.clock.timestamp(), 3)

    def test_server_is_asked_again_when_it_was_not_for_long(self):
        server = Server(self.own)
        for _ in range(3):
            self.clock.ask(server)
        self.assertEqual(1, server.questions)
        server.ahead_s = -AHEAD_S
        self.own.advance(server_clock.SPACING_S)

        self.clock.ask(server)

        self.assertEqual(2, server.questions)
        self.assertAlmostEqual(
            self.own.timestamp() - AHEAD_S, self.clock.timestamp(), 3)
