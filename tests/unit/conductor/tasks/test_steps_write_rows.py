# SPDX-License-Identifier: Apache-2.0
"""Writing servers into their cells, however often."""

from concurrent import futures
import threading

import sqlalchemy as sa

from cellsched.conductor.tasks.saga import Build
from cellsched.conductor.tasks.saga import Outcome
from cellsched.conductor.tasks import steps
from cellsched.db.cell import build_casts
from cellsched.db.cell import instances
from cellsched.db.cell import models
from cellsched import exception
from cellsched import objects
from tests.unit.conductor import base
from tests.unit.notify import recorder


class TestWriteRows(base.StepTestCase):

    def step(self):
        return steps.WriteRows(
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

    def test_repeated_step_writes_a_single_row(self):
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

    def test_repeated_undo_removes_all_rows(self):
        batch = self.builds(['a1', 'b1'])
        self.undo(self.step(), batch)
        self.do(self.step(), batch)

        for _ in range(2):
            self.undo(self.step(), batch)
            self.assertEqual(
                [{}, {}], [self.rows(build.uuid) for build in batch])
            self.assertEqual([], self.actions('cell1'))

    def test_existing_row_is_unchanged(self):
        [build] = batch = self.builds(['a1'])
        self.do(self.step(), batch)
        cell = self.targets.database(self.cells['cell1'])
        with cell.writer() as connection:
            connection.execute(sa.update(models.instances).values(
                vm_state='active', host='a1'))

        self.do(self.step(), batch)

        self.assertEqual('active', self.row(build.uuid).vm_state)

    def test_unreachable_cell_fails_its_own_builds_only(self):
        self.point('cell2', 'sqlite:////nowhere/at/all.sqlite')
        self.check_failing_cell(exception.DatabaseUnreachable)

    def test_cell_without_tables_fails_its_own_builds_only(self):
        self.point('cell2', f'sqlite:///{self.temporary_directory()}/new')
        self.check_failing_cell(exception.SchemaOutOfDate)

    def test_read_only_cell_fails_its_own_builds_only(self):
        self.break_cell('cell2')
        self.check_failing_cell(Exception)

    def check_failing_cell(self, kind):
        one, other, third = batch = self.builds(['a1', 'b1', 'a2'])
        for build in batch:
            build.cell = None
        self.do(steps.FindCell(self.database, self.claims), batch)

        self.do(self.step(), batch)

        self.assertIsInstance(other.reason, kind)
        self.assertEqual({}, self.rows(other.uuid))
        for build in (one, third):
            self.assertIsNone(build.reason)
            self.assertEqual(['cell1'], [*self.rows(build.uuid)])


ME, OTHER = base.ME, base.OTHER


class TestWriteRowsAgain(base.StepTestCase):
    """A conductor wrote a build and died; the next one has leased it."""

    def setUp(self):
        super().setUp()
        [earlier] = self.builds(['a1'], OTHER)
        self.uuid = earlier.uuid
        self.step().do([earlier])
        self.clock.advance(base.LEASE_S)
        [entry] = self.lease([self.uuid], ME)
        self.build = Build(
            entry.request, entry.spec, base.USER, ME, tries=entry.tries,
            selections=[self.selection('a2')], cell=self.cells['cell1'],
            earlier=self.cells['cell1'])
        self.assertTrue(self.build.again)

    def step(self):
        return steps.WriteRows(
            self.database, self.targets, self.clock, base.LEASE_S)

    def test_repeated_write_renews_the_lease(self):
        self.clock.advance(base.LEASE_S - 1)
        self.do(self.step(), [self.build])

        self.clock.advance(base.LEASE_S - 1)
        self.assertEqual([], self.lease([self.uuid], OTHER))
        self.clock.advance(1)
        self.assertEqual(1, len(self.lease([self.uuid], OTHER)))

    def test_row_has_the_zone_of_the_new_host(self):
        self.do(self.step(), [self.build])

        self.assertEqual('zone-a2', self.row(self.uuid).availability_zone)

    def test_conductor_without_the_lease_does_not_write(self):
        self.clock.advance(base.LEASE_S)
        self.lease([self.uuid], OTHER)

        self.do(self.step(), [self.build])

        self.assertEqual((True, False, None), (
            self.build.finished, self.build.deleted, self.build.reason))
        self.assertEqual('zone-a1', self.row(self.uuid).availability_zone)

    def test_deleted_server_is_not_written(self):
        self.delete(self.uuid)

        self.do(self.step(), [self.build])

        self.assertTrue(self.build.deleted)
        self.assertEqual('zone-a1', self.row(self.uuid).availability_zone)

    def test_deleted_row_stays(self):
        """A deletion of an interrupted build can come before its request."""
        with self.targets.database(self.cells['cell1']).writer() as cell:
            instances.delete(cell, self.uuid, self.clock.now())

        self.do(self.step(), [self.build])

        row = self.row(self.uuid)
        self.assertEqual(
            ('deleted', 'zone-a1'), (row.vm_state, row.availability_zone))
        with self.targets.database(self.cells['cell1']).reader() as cell:
            self.assertIsNone(build_casts.get(cell, self.uuid))

    def test_request_is_leased_during_the_write(self):
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


DEADLINE_S = 600


class TestWriteRowsTogether(base.StepTestCase):

    def write_together(self, batches, write):
        """Write batches, of which all but the first wait for the first.

        :param write: takes the cell, and returns its database
        :returns: the number of writes
        """
        step = steps.WriteRows(
            self.database, self.targets, self.clock, base.LEASE_S)
        begun, go_on, times = threading.Event(), threading.Event(), []

        def slow(cell):
            times.append(cell.name)
            begun.set()
            go_on.wait(DEADLINE_S)
            return write(cell)

        self.targets.database = slow
        with futures.ThreadPoolExecutor(4) as threads:
            self.addCleanup(go_on.set)
            first = threads.submit(step.do, batches[0])
            begun.wait(DEADLINE_S)
            others = [threads.submit(step.do, batch) for batch in batches[1:]]
            [waiting] = step._waiting.values()
            while len(waiting._waiting) + len(times) < 4:
                futures.wait(others, 0.001)
            go_on.set()
            futures.wait([first, *others], DEADLINE_S)
        return len(times)

    def test_builds_for_a_cell_are_written_together(self):
        batches = [self.builds(['a1']) for _ in range(4)]

        self.assertEqual(
            2, self.write_together(batches, self.targets.database))

        for [build] in batches:
            self.assertIsNone(build.reason)
            self.assertEqual(['cell1'], [*self.rows(build.uuid)])

    def test_builds_failed_together_have_separate_errors(self):
        batches = [self.builds(['a1']) for _ in range(4)]
        gone = exception.DatabaseUnreachable(
            schema='cell1', url='there', reason='gone')

        def fail(cell):
            raise gone

        self.assertEqual(2, self.write_together(batches, fail))

        reasons = [build.reason for [build] in batches]
        self.assertEqual({exception.DatabaseUnreachable},
                         set(map(type, reasons)))
        self.assertEqual(4, len(set(map(id, reasons))))


class TestWriteRowsNotifications(base.StepTestCase):

    def setUp(self):
        super().setUp()
        self.told = self.useFixture(recorder.NotificationRecorder('vm_state'))
        self.rows_step = steps.WriteRows(
            self.database, self.targets, self.wrong_clock,
            base.LEASE_S,
            self.told.notifier)

    def test_new_server_is_notified(self):
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

    def test_server_of_an_unwritable_cell_is_not_notified(self):
        broken, other = batch = self.builds(['a1', 'b1'])
        self.break_cell('cell1')
        broken.cell = self.mapping('cell1')

        self.do(self.rows_step, batch)

        self.assertEqual([other.uuid],
                         [data['uuid'] for _, data in self.told.all()])

    def test_deleted_server_has_a_start_and_an_end_notification(self):
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
