# SPDX-License-Identifier: Apache-2.0
"""Writing servers into their cells, however often."""

import sqlalchemy as sa

from cellsched.conductor.tasks.steps import find_cell
from cellsched.conductor.tasks.steps import write_rows
from cellsched.db.cell import build_casts
from cellsched.db.cell import models
from cellsched import exception
from cellsched import objects
from tests.unit.conductor import base
from tests.unit.conductor.tasks import leased


class TestWriteRows(leased.StepTestCase):

    def step(self):
        return write_rows.WriteRows(
            self.database, self.targets, self.wrong_clock,
            base.LEASE_S)

    def actions(self, cell):
        with self.targets.database(self.cells[cell]).reader() as connection:
            return connection.execute(sa.select(
                models.instance_actions.c.instance_uuid,
                models.instance_actions.c.action,
                models.instance_actions.c.request_id)).all()

    def test_times_are_by_the_clocks_of_databases(self):
        [build] = batch = self.builds(['a1'])
        build.tries = 2
        self.clock.advance(base.LEASE_S / 2)

        self.do(self.step(), batch)

        self.assertEqual(self.clock.timestamp() + base.LEASE_S,
                         self.leased_until(build))
        with self.targets.database(build.cell).reader() as connection:
            self.assertEqual(
                self.clock.timestamp(),
                build_casts.get(connection, build.uuid).cast_at)

    def test_each_is_written_into_its_cell_however_often(self):
        one, other = batch = self.builds(['a1', 'b1'])

        for _ in range(2):
            self.do(self.step(), batch)

        self.assertEqual(['cell1'], [*self.rows(one.uuid)])
        self.assertEqual(['cell2'], [*self.rows(other.uuid)])
        row = self.row(one.uuid)
        self.assertEqual(
            ('building', 'scheduling', None, 'zone-a1', 1),
            (row.vm_state, row.task_state, row.host, row.availability_zone,
             row.build_attempts))
        self.assertEqual(
            [(one.uuid, 'create', base.USER.request_id)],
            self.actions('cell1'))

    def test_properties_of_the_image_are_kept_once(self):
        [build] = self.builds(['a1'])
        build.spec.image = objects.ImageMeta(
            properties=objects.ImageMetaProps(os_distro='x'))

        for _ in range(2):
            self.do(self.step(), [build])

        table = models.instance_system_metadata
        with self.targets.database(self.cells['cell1']).reader() as connection:
            self.assertEqual(
                [(build.uuid, 'image_os_distro', 'x')],
                connection.execute(sa.select(
                    table.c.instance_uuid, table.c.key, table.c.value)).all())

    def test_undoing_it_leaves_nothing_however_often(self):
        batch = self.builds(['a1', 'b1'])
        self.undo(self.step(), batch)
        self.do(self.step(), batch)

        for _ in range(2):
            self.undo(self.step(), batch)
            self.assertEqual(
                [{}, {}], [self.rows(build.uuid) for build in batch])
            self.assertEqual([], self.actions('cell1'))

    def test_row_that_is_there_stays_as_it_is(self):
        [build] = batch = self.builds(['a1'])
        self.do(self.step(), batch)
        cell = self.targets.database(self.cells['cell1'])
        with cell.writer() as connection:
            connection.execute(sa.update(models.instances).values(
                vm_state='active', host='a1'))

        self.do(self.step(), batch)

        self.assertEqual('active', self.row(build.uuid).vm_state)

    def test_cell_that_cannot_be_reached_fails_its_builds_only(self):
        self.point('cell2', 'sqlite:////nowhere/at/all.sqlite')
        self.check_one_failing_cell(exception.DatabaseUnreachable)

    def test_cell_that_has_no_tables_fails_its_builds_only(self):
        self.point('cell2', f'sqlite:///{self.temporary_directory()}/new')
        self.check_one_failing_cell(exception.SchemaOutOfDate)

    def test_cell_that_takes_no_writes_fails_its_builds_only(self):
        self.break_cell('cell2')
        self.check_one_failing_cell(Exception)

    def check_one_failing_cell(self, kind):
        one, other, third = batch = self.builds(['a1', 'b1', 'a2'])
        for build in batch:
            build.cell = None
        self.do(find_cell.FindCell(self.database, self.claims), batch)

        self.do(self.step(), batch)

        self.assertIsInstance(other.reason, kind)
        self.assertEqual({}, self.rows(other.uuid))
        for build in (one, third):
            self.assertIsNone(build.reason)
            self.assertEqual(['cell1'], [*self.rows(build.uuid)])
