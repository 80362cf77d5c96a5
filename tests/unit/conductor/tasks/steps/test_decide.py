# SPDX-License-Identifier: Apache-2.0
"""The step that decides, alone and after others."""

from cellsched.conductor.tasks.build import Build
from cellsched.conductor.tasks.steps import decide
from cellsched.conductor.tasks.steps import write_rows
from tests.unit.conductor import base
from tests.unit.conductor.tasks import leased

ME, OTHER = 'me', 'other'


class TestDecide(leased.StepTestCase):

    def step(self):
        return decide.Decide(
            self.database, self.targets, self.wrong_clock,
            base.LEASE_S)

    def decided(self, batch):
        return [self.mapped(build.uuid) for build in batch]

    def test_each_gets_the_cell_of_its_host_however_often(self):
        batch = self.builds(['a1', 'b1'])

        for _ in range(2):
            self.do(self.step(), batch)
            self.assertEqual(['cell1', 'cell2'], self.decided(batch))
            self.assertFalse(any(build.ended for build in batch))

    def test_undoing_it_takes_the_cell_away_however_often(self):
        batch = self.builds(['a1', 'b1'])
        self.undo(self.step(), batch)
        self.do(self.step(), batch)

        for _ in range(2):
            self.undo(self.step(), batch)
            self.assertEqual([None, None], self.decided(batch))

    def test_decision_of_another_is_not_overwritten(self):
        build, free = batch = self.builds(['a1', 'a1'])
        self.decide(build.uuid, 'cell2')

        self.do(self.step(), batch)

        self.assertEqual(['cell2', 'cell1'], self.decided(batch))
        self.assertEqual((True, False), (build.finished, build.deleted))
        self.assertFalse(free.ended)

    def test_decision_of_another_is_not_undone(self):
        [build] = self.builds(['a1'])
        self.decide(build.uuid, 'cell2')

        self.undo(self.step(), [build])

        self.assertEqual('cell2', self.mapped(build.uuid))

    def test_what_its_user_deleted_gets_no_cell(self):
        build, free = batch = self.builds(['a1', 'a1'])
        self.delete(build.uuid)

        self.do(self.step(), batch)

        self.assertEqual([None, 'cell1'], self.decided(batch))
        self.assertEqual((False, True), (build.finished, build.deleted))

    def test_who_lost_the_lease_decides_nothing(self):
        batch = self.builds(['a1', 'a1'])
        self.clock.advance(base.LEASE_S)
        self.lease([batch[0].uuid], OTHER)

        self.do(self.step(), batch)

        self.assertEqual([None, 'cell1'], self.decided(batch))
        self.assertEqual((True, False),
                         (batch[0].finished, batch[0].deleted))

    def test_who_decides_has_the_whole_lease_before_it(self):
        [build] = self.builds(['a1'])
        self.clock.advance(base.LEASE_S - 1)
        self.do(self.step(), [build])

        self.clock.advance(base.LEASE_S - 1)
        self.assertEqual([], self.lease([build.uuid], OTHER))
        self.clock.advance(1)
        self.assertEqual(1, len(self.lease([build.uuid], OTHER)))


class TestDecideAgain(leased.StepTestCase):
    """A conductor decided on cell2 and died; the next one goes to cell1."""

    def setUp(self):
        super().setUp()
        [earlier] = self.builds(['b1'], OTHER)
        self.uuid = earlier.uuid
        self.decide(self.uuid, 'cell2')
        write_rows.WriteRows(
            self.database, self.targets, self.wrong_clock,
            base.LEASE_S,
        ).do([earlier])
        self.clock.advance(base.LEASE_S)
        [entry] = self.lease([self.uuid], ME)
        self.build = Build(
            entry.request, entry.spec, base.USER, ME, tries=entry.tries,
            selections=[self.selection('a1')], cell=self.cells['cell1'],
            earlier=self.cells['cell2'])
        self.assertTrue(self.build.again)

    def step(self):
        return decide.Decide(
            self.database, self.targets, self.wrong_clock,
            base.LEASE_S)

    def test_nothing_is_left_in_the_earlier_cell(self):
        for _ in range(2):
            self.do(self.step(), [self.build])

            self.assertEqual('cell1', self.mapped(self.uuid))
            self.assertEqual({}, self.rows(self.uuid))
            self.assertFalse(self.build.ended)

    def test_the_same_cell_is_kept_with_what_is_in_it(self):
        self.build.cell = self.cells['cell2']

        self.do(self.step(), [self.build])

        self.assertEqual('cell2', self.mapped(self.uuid))
        self.assertEqual(['cell2'], [*self.rows(self.uuid)])
        self.assertFalse(self.build.ended)

    def test_build_fails_while_the_earlier_cell_cannot_be_asked(self):
        self.break_cell('cell2')
        self.build.earlier = self.mapping('cell2')

        self.do(self.step(), [self.build])

        self.assertEqual('cell2', self.mapped(self.uuid))
        self.assertEqual(['cell2'], [*self.rows(self.uuid)])
        self.assertTrue(self.build.reason)

    def test_undoing_it_takes_back_what_the_earlier_try_decided(self):
        for _ in range(2):
            self.undo(self.step(), [self.build])

            self.assertIsNone(self.mapped(self.uuid))

    def test_undoing_the_rows_removes_those_of_the_earlier_try(self):
        step = write_rows.WriteRows(
            self.database, self.targets, self.wrong_clock,
            base.LEASE_S)

        for _ in range(2):
            self.undo(step, [self.build])

            self.assertEqual({}, self.rows(self.uuid))

    def test_who_lost_the_lease_takes_nothing_back(self):
        self.build.owner = OTHER
        self.do(self.step(), [self.build])

        self.assertEqual('cell2', self.mapped(self.uuid))
        self.assertEqual(['cell2'], [*self.rows(self.uuid)])
        self.assertTrue(self.build.finished)
