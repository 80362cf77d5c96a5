# SPDX-License-Identifier: Apache-2.0
"""Giving up what was tried for too long."""

from cellsched.conductor.tasks import build_and_schedule
from cellsched.conductor.tasks.steps import expire
from cellsched.db.api import build_requests
from cellsched import exception
from tests.unit.conductor import base
from tests.unit.conductor.tasks import leased

DEADLINE_S, ATTEMPTS = 600, 3


class TestExpire(leased.StepTestCase):

    def failed(self, waited_s, tries):
        [build] = self.builds(['a1'])
        build.tries = tries
        self.clock.advance(waited_s)

        self.do(expire.Expire(
            self.database, DEADLINE_S, ATTEMPTS), [build])

        return build.reason

    def test_build_is_given_up_when_it_is_old_and_was_tried(self):
        reason = self.failed(DEADLINE_S + 1, ATTEMPTS + 1)

        self.assertIsInstance(reason, exception.BuildDeadlineExceeded)
        self.assertEqual(
            'The build was given up after 600 seconds and 3 attempts. It did '
            'not end.', reason.format_message())

    def test_clock_that_jumps_ahead_gives_nothing_up(self):
        self.assertIsNone(self.failed(DEADLINE_S * 100, ATTEMPTS))

    def test_build_that_is_tried_often_has_its_time(self):
        self.assertIsNone(self.failed(DEADLINE_S, ATTEMPTS * 10))

    def test_build_that_never_comes_to_an_end_is_buried(self):
        task = self.task(limits=build_and_schedule.TaskLimits(
            base.LEASE_S, DEADLINE_S, ATTEMPTS))
        [uuid] = self.accept()
        self.break_cell('cell1')
        for _ in range(DEADLINE_S // base.LEASE_S + 1):
            task.run(base.USER, [uuid])
            self.assertTrue(self.requested(uuid))
            self.clock.advance(base.LEASE_S + 1)
            with self.database.reader() as connection:
                failure = build_requests.get(connection, uuid).failure
            self.assertTrue(failure)
        self.mend_cell('cell1')

        task.run(base.USER, [uuid])

        self.assertBuried(uuid, 'given up after 600 seconds')
        self.assertIn(failure, self.reason(uuid))
