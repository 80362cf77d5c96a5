# SPDX-License-Identifier: Apache-2.0
"""What fails of something that passes, tried again by who has tried it."""

import pathlib

import oslo_messaging

from cellsched.conductor.tasks import build_and_schedule
from cellsched.conductor.tasks import retries
from cellsched.db.api import build_requests
from cellsched.db import session
from tests.unit.conductor import base


class TestRetries(base.TestCase):

    def setUp(self):
        super().setUp()
        self.asked = []

    def silent(self, times):
        """Have the scheduler claim and not answer, so many times."""
        def answer(instance_uuids, **arguments):
            chosen = self.answer(instance_uuids=instance_uuids, **arguments)
            self.asked.append(instance_uuids)
            if len(self.asked) <= times:
                raise oslo_messaging.MessagingTimeout()
            return chosen

        self.scheduler.answer = answer

    def limited(self, **limits):
        return self.task(
            limits=build_and_schedule.TaskLimits(base.LEASE_S, **limits))

    def try_again(self, task, seconds):
        """Let time pass, in which the conductor lives; do what is due."""
        self.clock.advance(seconds)
        task.leases.renew()
        due = task.retries.take_due()
        for attempt in due:
            task.attempt(attempt)
        return len(due)

    def free(self, uuids):
        """Return what another conductor could take up."""
        now = self.clock.steady()
        with self.database.writer() as connection:
            return [each.request.instance_uuid
                    for each in build_requests.lease(
                        connection, uuids, 'other', now, now + base.LEASE_S)]

    def test_scheduler_that_is_silent_is_asked_again_in_the_same_try(self):
        uuids = self.accept(2)
        self.silent(times=1)
        task = self.task()

        task.run(base.USER, uuids)

        self.assertEqual([uuids, uuids], self.asked)
        for uuid in uuids:
            self.assertBuilding('cell1', uuid)
        self.assertEqual([], task.retries.take_due())

    def test_what_passes_is_tried_again_before_its_lease_has_run_out(self):
        [uuid] = self.accept()
        self.silent(times=2)
        task = self.task()

        task.run(base.USER, [uuid])
        self.assertEqual(0, self.try_again(task, 0.5))
        self.assertEqual({}, self.rows(uuid))
        self.assertEqual(1, self.try_again(task, 0.5))

        self.assertBuilding('cell1', uuid)

    def test_what_waits_for_another_try_is_nobody_elses(self):
        [uuid] = self.accept()
        self.silent(times=4)
        task = self.limited(retry_delay_s=base.LEASE_S - 1)

        task.run(base.USER, [uuid])
        for _ in range(2):
            self.try_again(task, base.LEASE_S - 1)
            self.assertEqual([], self.free([uuid]))

    def test_what_was_tried_often_enough_is_anybodys(self):
        [uuid] = self.accept()
        self.silent(times=100)
        task = self.limited(retries=2)

        task.run(base.USER, [uuid])
        self.assertEqual([1, 1, 0], [
            self.try_again(task, seconds) for seconds in (1, 2, 4)])
        self.try_again(task, base.LEASE_S)

        self.assertEqual([uuid], self.free([uuid]))

    def test_another_try_leaves_alone_what_another_conductor_has(self):
        [uuid] = self.accept()
        self.silent(times=2)
        task = self.task()
        task.run(base.USER, [uuid])
        # This one is stopped, and does not say that it lives.
        self.clock.advance(base.LEASE_S)
        self.assertEqual([uuid], self.free([uuid]))

        for attempt in task.retries.take_due():
            task.attempt(attempt)

        self.assertEqual({}, self.rows(uuid))
        self.clock.advance(base.LEASE_S - 1)
        task.leases.renew()
        self.clock.advance(1)
        self.assertEqual([uuid], self.free([uuid]))

    def test_part_of_a_batch_is_tried_again_alone(self):
        self.chosen = ['b1']
        here, there = self.accept(2)
        self.break_cell('cell2')

        def answer(instance_uuids, **arguments):
            return [[self.selection({here: 'a1', there: 'b1'}[uuid])]
                    for uuid in instance_uuids]

        self.scheduler.answer = answer
        for uuid, host in ((here, 'a1'), (there, 'b1')):
            self.claims.claim(base.claims_base.of_selection(
                uuid, self.selection(host)))
        task = self.task()

        task.run(base.USER, [here, there])

        self.assertBuilding('cell1', here)
        self.assertTrue(self.requested(there))
        self.clock.advance(1)
        [attempt] = task.retries.take_due()
        self.assertEqual([there], attempt.uuids)
        self.mend_cell('cell2')
        task.attempt(attempt)
        self.assertBuilding('cell2', there)

    def test_message_that_comes_while_the_database_is_away_is_kept(self):
        uuids = self.accept(2)
        there = pathlib.Path(
            self.database.url.removeprefix('sqlite:///'))
        gone = self.temporary_directory() / 'gone'
        away = session.Database(
            f'sqlite:///{gone}/{there.name}', 'API', clock=self.clock)
        self.addCleanup(away.close)
        task = self.task(database=away)

        task.run(base.USER, uuids)
        self.assertIn('DatabaseUnreachable', self.logs.output)
        self.assertNotIn('Traceback', self.logs.output)
        gone.symlink_to(there.parent)
        self.assertEqual(1, self.try_again(task, 1))

        for uuid in uuids:
            self.assertBuilding('cell1', uuid)

    def test_what_does_not_pass_is_not_tried_again(self):
        [uuid] = self.accept()
        task = self.task()
        self.scheduler.answer = lambda **arguments: 1 / 0

        task.run(base.USER, [uuid])

        self.assertBuried(uuid, 'an error that operators find')
        self.clock.advance(3600)
        self.assertEqual([], task.retries.take_due())

    def test_lease_that_a_conductor_has_for_a_try_is_not_anothers(self):
        """What a recoverer has claimed is built by it, and by nobody else."""
        [uuid] = self.accept()
        self.assertEqual([uuid], self.free([uuid]))

        self.task().attempt(retries.Attempt(base.USER, [uuid], 'someone'))
        self.assertEqual({}, self.rows(uuid))
        self.task().attempt(retries.Attempt(base.USER, [uuid], 'other'))

        self.assertBuilding('cell1', uuid)
