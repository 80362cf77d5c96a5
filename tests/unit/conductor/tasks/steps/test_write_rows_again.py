# SPDX-License-Identifier: Apache-2.0
"""Builds that an earlier try may have written, and that are written again."""

from concurrent import futures

from cellsched.conductor.tasks import build
from cellsched.conductor.tasks.steps import write_rows
from tests.unit.conductor import base
from tests.unit.conductor.tasks import leased

ME, OTHER = leased.ME, leased.OTHER


class TestWriteRowsAgain(leased.StepTestCase):
    """A conductor wrote a build and died; the next one has leased it."""

    def setUp(self):
        super().setUp()
        [earlier] = self.builds(['a1'], OTHER)
        self.uuid = earlier.uuid
        self.step().do([earlier])
        self.clock.advance(base.LEASE_S)
        [entry] = self.lease([self.uuid], ME)
        self.build = build.Build(
            entry.request, entry.spec, base.USER, ME, tries=entry.tries,
            selections=[self.selection('a2')], cell=self.cells['cell1'],
            earlier=self.cells['cell1'])
        self.assertTrue(self.build.again)

    def step(self):
        return write_rows.WriteRows(
            self.database, self.targets, self.clock, base.LEASE_S)

    def test_who_writes_again_has_the_whole_lease_before_it(self):
        self.clock.advance(base.LEASE_S - 1)
        self.do(self.step(), [self.build])

        self.clock.advance(base.LEASE_S - 1)
        self.assertEqual([], self.lease([self.uuid], OTHER))
        self.clock.advance(1)
        self.assertEqual(1, len(self.lease([self.uuid], OTHER)))

    def test_row_is_that_of_the_new_host(self):
        self.do(self.step(), [self.build])

        self.assertEqual('zone-a2', self.row(self.uuid).availability_zone)

    def test_who_lost_the_lease_writes_nothing(self):
        self.clock.advance(base.LEASE_S)
        self.lease([self.uuid], OTHER)

        self.do(self.step(), [self.build])

        self.assertEqual((True, False, None), (
            self.build.finished, self.build.deleted, self.build.reason))
        self.assertEqual('zone-a1', self.row(self.uuid).availability_zone)

    def test_what_its_user_deleted_is_not_written(self):
        self.delete(self.uuid)

        self.do(self.step(), [self.build])

        self.assertTrue(self.build.deleted)
        self.assertEqual('zone-a1', self.row(self.uuid).availability_zone)

    def test_nobody_takes_it_up_while_it_is_written(self):
        """Else it could be of another one, and handed over already."""
        waiting, written = [], []
        database = self.targets.database

        def lease():
            self.lease([self.uuid], OTHER)
            written.append(self.row(self.uuid).availability_zone)

        def slow(cell):
            if not waiting:
                self.clock.advance(base.LEASE_S * 2)
                waiting.append(threads.submit(lease))
                # It waits for the transaction that this is done in.
                futures.wait(waiting, 0.2)
            return database(cell)

        self.targets.database = slow
        with futures.ThreadPoolExecutor(1) as threads:
            self.do(self.step(), [self.build])
            waiting[0].result(60)

        self.assertEqual(['zone-a2'], written)
