# SPDX-License-Identifier: Apache-2.0
"""The step that takes builds out of cell0 which are tried again."""

import sqlalchemy as sa

from cellsched.cells import cell0
from cellsched.conductor.tasks.steps import exhume
from cellsched.db.api import build_requests
from cellsched.db.api import models
from cellsched.db.cell import instances
from tests.unit.conductor import base
from tests.unit.conductor.tasks import leased


class TestExhume(leased.StepTestCase):

    def step(self):
        return exhume.Exhume(
            self.database, cell0.Cell0(
                self.database, self.registry(), self.targets, self.clock,
                'conductor'), base.LEASE_S)

    def buried(self, count):
        """Return builds of which the first ones were retried."""
        batch = self.builds(['a1'] * 3)
        for build in batch[:count]:
            build.request.buried = True
        with self.targets.database(self.cells['cell0']).writer() as found:
            instances.create(
                found, [build.instance for build in batch], self.clock.now())
        return batch

    def say_buried(self):
        with self.database.writer() as connection:
            connection.execute(
                sa.update(models.build_requests).values(buried=True))

    def said_buried(self, batch):
        with self.database.reader() as connection:
            return [build_requests.get(connection, build.uuid).buried
                    for build in batch]

    def lying(self, batch):
        return [bool(self.rows(build.uuid)) for build in batch]

    def test_what_was_retried_is_removed_however_often(self):
        batch = self.buried(2)

        for _ in range(2):
            self.do(self.step(), batch)
            self.assertEqual([False, False, True], self.lying(batch))
            self.assertFalse(any(build.ended for build in batch))

    def test_nobody_else_takes_it_up_for_a_lease_from_then_on(self):
        batch = self.buried(1)
        self.clock.advance(base.LEASE_S / 2)

        self.do(self.step(), batch)

        self.assertEqual(
            [base.LEASE_S, base.LEASE_S / 2, base.LEASE_S / 2],
            [self.leased_until(build) - self.clock.timestamp()
             for build in batch])

    def test_it_is_done_once(self):
        batch = self.buried(1)
        self.say_buried()

        self.do(self.step(), batch)

        self.assertEqual([False, True, True], self.said_buried(batch))

    def test_record_that_another_made_since_stays(self):
        batch = self.buried(3)
        self.clock.advance(base.LEASE_S)
        self.lease([batch[0].uuid], leased.OTHER)
        self.delete(batch[1].uuid)

        self.do(self.step(), batch)

        self.assertEqual([True, True, False], self.lying(batch))
        self.assertEqual([True, False, False],
                         [build.finished for build in batch])
        self.assertTrue(batch[1].deleted)

    def test_cell0_that_cannot_be_written_fails_the_step(self):
        batch = self.buried(2)
        self.say_buried()
        self.break_cell('cell0')

        self.assertRaises(
            sa.exc.OperationalError, self.do, self.step(), batch)

        self.mend_cell('cell0')
        self.assertEqual([True] * 3, self.lying(batch))
        self.assertEqual([True] * 3, self.said_buried(batch))
