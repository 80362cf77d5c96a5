# SPDX-License-Identifier: Apache-2.0
"""Asking the scheduler, once for a batch."""

from cellsched.conductor.tasks.build import Batch
from cellsched.conductor.tasks.steps import schedule
from cellsched import exception
from tests.unit.conductor import base
from tests.unit.conductor.tasks import leased


class TestSchedule(leased.StepTestCase):

    def setUp(self):
        super().setUp()
        self.batch = self.builds(['a1'] * 3)

    def step(self, min_count=1):
        batch = Batch(self.batch, min_count)
        for build in self.batch:
            build.batch = batch
        return schedule.Schedule(self.database, self.scheduler, self.claims)

    def held(self):
        return [self.holds(build.uuid) for build in self.batch]

    def test_batch_is_asked_for_once_and_in_order(self):
        self.do(self.step(), self.batch)

        [sent] = self.scheduler.sent
        self.assertEqual(
            [build.uuid for build in self.batch],
            sent.arguments['instance_uuids'])
        self.assertEqual(3, sent.arguments['spec_obj'].num_instances)
        self.assertTrue(sent.arguments['return_objects'])
        self.assertTrue(sent.arguments['return_alternates'])
        self.assertEqual(
            [['a1', 'a2']] * 3,
            [[each.service_host for each in build.selections]
             for build in self.batch])

    def test_doing_it_twice_is_doing_it_once(self):
        for _ in range(2):
            self.do(self.step(), self.batch)

        self.assertEqual(['a1'] * 3, self.held())
        [usage] = self.claims.usages(
            providers=[self.providers['a1']]).usages
        self.assertEqual(3, usage.used['VCPU'])

    def test_undoing_it_gives_everything_back_however_often(self):
        step = self.step()
        self.undo(step, self.batch)
        self.do(step, self.batch)

        for _ in range(2):
            self.undo(step, self.batch)
            self.assertEqual([None] * 3, self.held())

    def test_none_is_placed_where_the_least_number_does_not_fit(self):
        self.batch += self.builds(['a1'] * 2)

        self.do(self.step(min_count=5), self.batch)

        self.assertEqual([None] * 5, self.held())
        self.assertEqual(1, len(self.scheduler.sent))
        for build in self.batch:
            self.assertIsInstance(build.reason, exception.NoValidHost)

    def test_as_many_are_placed_as_fit_where_that_is_enough(self):
        self.batch += self.builds(['a1'] * 2)

        self.do(self.step(min_count=4), self.batch)

        self.assertEqual(['a1'] * 4 + [None], self.held())
        self.assertEqual([False] * 4 + [True],
                         [build.ended for build in self.batch])
        self.assertEqual(
            4, self.scheduler.sent[1].arguments['spec_obj'].num_instances)

    def test_fewer_are_placed_where_room_is_lost_between_the_calls(self):
        self.batch += self.builds(['a1'] * 2)
        thief = self.builds(['a1'])[0]

        def answer(**arguments):
            if len(self.scheduler.sent) == 2:
                self.claims.claim(base.claims_base.of_selection(
                    thief.uuid, thief.selections[0]))
            return self.answer(**arguments)

        self.scheduler.answer = answer
        self.do(self.step(min_count=3), self.batch)

        self.assertEqual(['a1'] * 3 + [None] * 2, self.held())
        self.assertEqual([False] * 3 + [True] * 2,
                         [build.ended for build in self.batch])
        self.assertEqual(3, len(self.scheduler.sent))

    def test_none_is_placed_where_too_much_is_lost_between_the_calls(self):
        self.batch += self.builds(['a1'] * 2)
        thief = self.builds(['a1'])[0]

        def answer(**arguments):
            if len(self.scheduler.sent) == 2:
                self.claims.claim(base.claims_base.of_selection(
                    thief.uuid, thief.selections[0]))
            return self.answer(**arguments)

        self.scheduler.answer = answer
        self.do(self.step(min_count=4), self.batch)

        self.assertEqual([None] * 5, self.held())
        self.assertTrue(all(build.reason for build in self.batch))

    def test_refusal_that_counts_nothing_fails_all(self):
        def answer(**arguments):
            raise exception.NoValidHost(reason='From elsewhere.')

        self.scheduler.answer = answer
        self.do(self.step(), self.batch)

        self.assertTrue(all(build.reason for build in self.batch))
