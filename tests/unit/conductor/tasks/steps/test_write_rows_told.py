# SPDX-License-Identifier: Apache-2.0
"""What operators are told of builds that are written."""

from cellsched.conductor.tasks.build import Outcome
from cellsched.conductor.tasks.steps import write_rows
from tests.unit.conductor import base
from tests.unit.conductor.tasks import leased
from tests.unit.notify import told


class TestWriteRows(leased.StepTestCase):

    def setUp(self):
        super().setUp()
        self.told = self.useFixture(told.Told('vm_state'))
        self.rows_step = write_rows.WriteRows(
            self.database, self.targets, self.wrong_clock,
            base.LEASE_S,
            self.told.notifier)

    def test_new_server_is_told(self):
        batch = self.builds(['a1', 'b1'])

        self.do(self.rows_step, batch)

        self.assertEqual(['instance.update'] * 2, self.told.events())
        self.assertEqual({build.uuid for build in batch},
                         {data['uuid'] for _, data in self.told.all()})
        for _, data in self.told.all():
            self.assertEqual(
                (None, 'building'),
                tuple(data['state_update']['nova_object.data'][name]
                      for name in ('old_state', 'state')))
            self.assertIn('zone-', data['availability_zone'])

    def test_server_of_a_cell_that_cannot_be_written_is_not_told(self):
        broken, other = batch = self.builds(['a1', 'b1'])
        self.break_cell('cell1')
        broken.cell = self.mapping('cell1')

        self.do(self.rows_step, batch)

        self.assertEqual([other.uuid],
                         [data['uuid'] for _, data in self.told.all()])

    def test_server_that_its_user_deleted_goes_in_two_words(self):
        deleted, failed = batch = self.builds(['a1', 'a2'])
        self.do(self.rows_step, batch)
        deleted.end(Outcome.DELETED)
        seen = []
        self.told.hear = lambda event: seen.append(
            (event, self.row(deleted.uuid).vm_state))

        self.undo(self.rows_step, batch)

        self.assertEqual([('instance.delete.start', 'building'),
                          ('instance.delete.end', 'deleted')], seen)
        self.assertEqual([deleted.uuid] * 2, [
            data['uuid'] for event, data in self.told.all()
            if event.startswith('instance.delete')])
        self.assertEqual({}, self.rows(failed.uuid))
