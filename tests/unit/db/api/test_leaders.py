# SPDX-License-Identifier: Apache-2.0
"""Queries for leases of what one of several services does for all."""

import sqlalchemy as sa

from cellsched.db.api import leaders
from cellsched.db.api import models
from tests.unit.db.api import base
from tests.unit import racing

LEASE_S = 60.0


class TestElect(base.TestCase):

    def elect(self, candidate, now, task='task'):
        return self.write(leaders.elect, task, candidate, now, now + LEASE_S)

    def kept(self):
        return self.read(lambda connection: [*map(tuple, connection.execute(
            sa.select(models.leaders.c.owner,
                      models.leaders.c.expires_at)))])

    def test_first_that_asks_leads(self):
        self.assertTrue(self.elect('a', 0.0))

        self.assertFalse(self.elect('b', 1.0))
        self.assertEqual([('a', 60.0)], self.kept())

    def test_who_leads_goes_on_to_lead(self):
        self.elect('a', 0.0)

        self.assertTrue(self.elect('a', 50.0))

        self.assertFalse(self.elect('b', 109.0))

    def test_another_one_leads_when_the_lease_ended(self):
        self.elect('a', 0.0)

        self.assertTrue(self.elect('b', 60.0))

        self.assertFalse(self.elect('a', 61.0))
        self.assertEqual([('b', 120.0)], self.kept())

    def test_tasks_have_leaders_of_their_own(self):
        self.elect('a', 0.0)

        self.assertTrue(self.elect('b', 0.0, 'other'))

    def test_one_of_several_is_elected_at_a_time(self):
        for now in (0.0, 100.0, 200.0):
            outcomes = racing.race(*[
                lambda name=name, now=now: self.elect(name, now)
                for name in (f'{number}-{now}' for number in range(8))])

            self.assertEqual([False] * 7 + [True], sorted(outcomes))
