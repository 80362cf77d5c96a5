# SPDX-License-Identifier: Apache-2.0
"""Builds whose conductor died, or was too slow."""

import sqlalchemy as sa

from concurrent import futures

from cellsched.db.api import build_requests
from cellsched.db.api import models as api_models
from tests.unit.conductor import base
from tests.unit.conductor.tasks import ends


class TestRecovery(base.TestCase):

    def run_late(self, uuids, **options):
        self.clock.advance(base.LEASE_S)
        self.task(**options).run(base.USER, uuids)

    def test_build_is_finished_wherever_its_conductor_died(self):
        for place in range(ends.REQUEST_GONE):
            self.claims.release(uuid for _, uuid in self.sent())
            [uuid] = self.accept()
            self.assertRaises(ends.Death, self.task_with(
                place, ends.die).run, base.USER, [uuid])
            self.assertTrue(self.requested(uuid))

            self.run_late([uuid])

            self.assertBuilding('cell1', uuid)

    def test_build_that_goes_elsewhere_leaves_nothing_where_it_was(self):
        for place in range(ends.REQUEST_GONE):
            self.chosen = ['b1']
            [uuid] = self.accept()
            self.assertRaises(ends.Death, self.task_with(
                place, ends.die).run, base.USER, [uuid])

            self.claims.release([uuid])
            self.chosen = ['a1']
            self.run_late([uuid])

            self.assertBuilding('cell1', uuid)
            self.claims.release([uuid])

    def test_build_that_fits_nowhere_any_more_is_buried(self):
        for place in range(ends.REQUEST_GONE):
            self.chosen = ['b1']
            [uuid] = self.accept()
            self.assertRaises(ends.Death, self.task_with(
                place, ends.die).run, base.USER, [uuid])

            self.clock.advance(base.LEASE_S)
            self.task_with(1, ends.fail).run(base.USER, [uuid])

            self.assertBuried(uuid, 'holds another place')

    def test_build_waits_for_the_cell_that_may_have_it(self):
        self.chosen = ['b1']
        [uuid] = self.accept()
        self.assertRaises(ends.Death, self.task_with(
            ends.DONE.index('write rows'), ends.die).run, base.USER, [uuid])
        self.claims.release([uuid])
        self.chosen = ['a1']

        self.break_cell('cell2')
        self.run_late([uuid])
        self.run_late([uuid])
        self.assertEqual(
            (['cell2'], 'cell2', True),
            ([*self.rows(uuid)], self.mapped(uuid), self.requested(uuid)))

        self.mend_cell('cell2')
        self.run_late([uuid])
        self.assertBuilding('cell1', uuid)

    def test_burial_waits_for_cell0(self):
        self.break_cell('cell0')
        [uuid] = self.accept()
        self.task_with(0, ends.fail).run(base.USER, [uuid])
        self.assertEqual(({}, True), (self.rows(uuid), self.requested(uuid)))

        self.mend_cell('cell0')
        self.clock.advance(base.LEASE_S)
        self.task_with(0, ends.fail).run(base.USER, [uuid])

        self.assertBuried(uuid, 'holds another place')

    def test_half_a_burial_does_not_keep_a_build_from_its_cell(self):
        self.break_cell('cell0')
        [uuid] = self.accept()
        self.task_with(0, ends.fail).run(base.USER, [uuid])

        self.mend_cell('cell0')
        self.run_late([uuid])

        self.assertBuilding('cell1', uuid)

    def test_burial_without_a_cell0_waits_too(self):
        with self.database.writer() as connection:
            connection.execute(
                sa.delete(api_models.cell_mappings)
                .where(api_models.cell_mappings.c.name == 'cell0'))
        [uuid] = self.accept()

        self.task_with(0, ends.fail).run(base.USER, [uuid])

        self.assertTrue(self.requested(uuid))
        self.assertIsNone(self.holds(uuid))

    def test_slow_conductor_undoes_nothing_of_the_next_one(self):
        for place in range(ends.REQUEST_GONE):
            self.claims.release(uuid for _, uuid in self.sent())
            [uuid] = self.accept()

            def next_one_first():
                self.run_late([uuid])
                ends.fail()

            self.task_with(place, next_one_first).run(base.USER, [uuid])

            self.assertBuilding('cell1', uuid)

    def test_slow_conductor_builds_nothing_that_the_next_one_buried(self):
        late = self.task_with(1, ends.fail)
        for place in range(ends.DONE.index('write rows')):
            [uuid] = self.accept()

            def next_one_first():
                self.clock.advance(base.LEASE_S)
                late.run(base.USER, [uuid])

            self.task_with(place, next_one_first).run(base.USER, [uuid])

            self.assertEqual(
                (['cell0'], 'cell0', False),
                ([*self.rows(uuid)], self.mapped(uuid), self.requested(uuid)))
            self.assertEqual([], self.sent())

    def test_nobody_takes_up_what_is_being_undone_however_slowly(self):
        [uuid] = self.accept()
        task = self.task_with(1, lambda: (
            self.clock.advance(base.LEASE_S * 2), ends.fail()))
        taken, undone = [], []
        release = self.claims.release

        def lease():
            with self.database.writer() as connection:
                taken.append(build_requests.lease(
                    connection, [uuid], 'next', self.clock.timestamp(),
                    self.clock.timestamp() + 1))
            self.assertEqual([[uuid]], undone)

        def look(consumers):
            self.clock.advance(base.LEASE_S * 2)
            waiting.append(threads.submit(lease))
            # It waits for the transaction that this is done in.
            self.assertRaises(
                futures.TimeoutError, waiting[0].result, 0.2)
            undone.append(list(consumers))
            release(consumers)

        waiting = []
        with futures.ThreadPoolExecutor(1) as threads:
            self.claims.release = look
            task.run(base.USER, [uuid])
            waiting[0].result(60)

        # Whoever was first, it is not built, for its claim is gone.
        self.assertEqual(1, len(taken))
        self.assertIsNone(self.holds(uuid))
        self.assertEqual([], self.sent())
