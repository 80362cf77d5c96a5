# SPDX-License-Identifier: Apache-2.0
"""Deleting build requests, and who owns the outcome then."""

from concurrent import futures

from cellsched.conductor.tasks.build import Batch
from cellsched.conductor.tasks.steps import release
from cellsched.conductor.tasks.steps import write_rows
from cellsched.db.api import build_requests
from cellsched.db.cell import instances
from cellsched import exception
from cellsched.quota import noop
from tests.unit.conductor import base
from tests.unit.conductor.tasks import leased

OTHER = 'other'


class TestRelease(leased.StepTestCase):

    def step(self):
        return release.Release(
            self.database, self.targets, noop.NoopQuotaDriver(None, None),
            self.clock)

    def write_rows(self, batch):
        self.do(write_rows.WriteRows(
            self.database, self.targets, self.wrong_clock,
            base.LEASE_S), batch)

    def rename(self, uuid, name='renamed'):
        with self.database.writer() as connection:
            build_requests.revise(
                connection, uuid, lambda request: setattr(
                    request.instance, 'display_name', name))

    def test_request_goes_and_the_build_goes_on(self):
        batch = self.builds(['a1', 'b1'])

        self.do(self.step(), batch)

        self.assertEqual(
            [False] * 2, [self.requested(build.uuid) for build in batch])
        self.assertFalse(any(build.ended for build in batch))

    def test_what_was_done_before_is_finished_and_not_deleted(self):
        batch = self.builds(['a1', 'b1'])
        self.do(self.step(), batch)

        self.do(self.step(), batch)

        self.assertEqual(
            [(True, False)] * 2,
            [(build.finished, build.deleted) for build in batch])

    def test_what_its_user_deleted_is_deleted(self):
        gone, there = batch = self.builds(['a1', 'b1'])
        self.decide(gone.uuid, 'cell1')
        self.delete(gone.uuid)

        self.do(self.step(), batch)

        self.assertEqual((False, True), (gone.finished, gone.deleted))
        self.assertFalse(there.ended)

    def test_what_somebody_else_leases_by_now_stays(self):
        batch = self.builds(['a1', 'b1'])
        self.clock.advance(base.LEASE_S)
        self.lease([batch[0].uuid], OTHER)

        self.do(self.step(), batch)

        self.assertEqual([True, False],
                         [self.requested(build.uuid) for build in batch])
        self.assertEqual((True, False),
                         (batch[0].finished, batch[0].deleted))

    def test_lease_that_ran_out_and_that_nobody_took_is_good(self):
        [build] = batch = self.builds(['a1'])
        self.clock.advance(base.LEASE_S * 2)

        self.do(self.step(), batch)

        self.assertFalse(self.requested(build.uuid))
        self.assertFalse(build.ended)

    def test_what_its_user_changed_meanwhile_is_changed_in_the_cell(self):
        changed, other = batch = self.builds(['a1', 'b1'])
        self.write_rows(batch)
        self.rename(changed.uuid)

        self.do(self.step(), batch)

        self.assertEqual('renamed', self.row(changed.uuid).display_name)
        self.assertNotEqual('renamed', self.row(other.uuid).display_name)
        for build in batch:
            self.assertFalse(self.requested(build.uuid))
            self.assertFalse(build.ended)

    def changed_where_it_cannot_be_written(self, least):
        """Release two builds, the first of which was changed meanwhile."""
        changed, _ = batch = self.builds(['a1', 'b1'])
        together = Batch(batch, least)
        for build in batch:
            build.batch = together
        self.write_rows(batch)
        self.rename(changed.uuid)
        database = self.targets.database

        def away(cell):
            if cell.id == changed.cell.id:
                raise exception.DatabaseUnreachable(
                    schema='cell', url='x', reason='away')
            return database(cell)

        self.targets.database = away
        self.do(self.step(), batch)
        return batch

    def test_what_cannot_be_changed_in_its_cell_is_tried_again(self):
        changed, other = self.changed_where_it_cannot_be_written(least=1)

        self.assertTrue(changed.to_try_again)
        self.assertTrue(self.requested(changed.uuid))
        self.assertFalse(other.ended)
        self.assertFalse(self.requested(other.uuid))

    def test_none_goes_where_too_few_of_its_batch_can_be_changed(self):
        """One that was built alone would be fewer than were asked for."""
        batch = self.changed_where_it_cannot_be_written(least=2)

        self.assertEqual(
            [(True, True)] * 2,
            [(build.to_try_again, self.requested(build.uuid))
             for build in batch])

    def test_nobody_takes_it_up_while_it_is_changed_in_its_cell(self):
        """Its user may change the row once another one has released it."""
        [build] = batch = self.builds(['a1'])
        self.write_rows(batch)
        self.rename(build.uuid)
        database, waiting = self.targets.database, []

        def take_up():
            self.lease([build.uuid], OTHER)
            with self.database.writer() as connection:
                build_requests.delete(connection, [build.uuid], OTHER)
            with database(build.cell).writer() as connection:
                instances.update(connection, build.uuid, {
                    'display_name': 'newest'}, self.clock.now())

        def slow(cell):
            if not waiting:
                self.clock.advance(base.LEASE_S * 2)
                waiting.append(threads.submit(take_up))
                # It waits for the transaction that this is done in.
                futures.wait(waiting, 0.2)
            return database(cell)

        self.targets.database = slow
        with futures.ThreadPoolExecutor(1) as threads:
            self.do(self.step(), batch)
            waiting[0].result(60)

        self.assertEqual('newest', self.row(build.uuid).display_name)

    def test_undoing_it_does_nothing(self):
        batch = self.builds(['a1'])
        self.do(self.step(), batch)

        self.undo(self.step(), batch)

        self.assertFalse(self.requested(batch[0].uuid))
