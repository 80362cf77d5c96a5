# SPDX-License-Identifier: Apache-2.0
"""Deleting build requests, and who owns the outcome then."""

from cellsched.conductor.tasks.steps import release
from cellsched.conductor.tasks.steps import write_rows
from cellsched.db.api import build_requests
from cellsched.quota import noop
from tests.unit.conductor import base
from tests.unit.conductor.tasks import leased

OTHER = 'other'


class TestRelease(leased.StepTestCase):

    def step(self):
        return release.Release(
            self.database, self.targets, noop.NoopQuotaDriver(None, None),
            self.clock)

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
        self.do(write_rows.WriteRows(
            self.database, self.targets, self.wrong_clock,
            base.LEASE_S), batch)
        with self.database.writer() as connection:
            build_requests.revise(
                connection, changed.uuid,
                lambda request: setattr(
                    request.instance, 'display_name', 'renamed'))

        self.do(self.step(), batch)

        self.assertEqual('renamed', self.row(changed.uuid).display_name)
        self.assertNotEqual('renamed', self.row(other.uuid).display_name)
        for build in batch:
            self.assertFalse(self.requested(build.uuid))
            self.assertFalse(build.ended)

    def test_undoing_it_does_nothing(self):
        batch = self.builds(['a1'])
        self.do(self.step(), batch)

        self.undo(self.step(), batch)

        self.assertFalse(self.requested(batch[0].uuid))
