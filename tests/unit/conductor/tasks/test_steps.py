# SPDX-License-Identifier: Apache-2.0
"""The steps, one by one: done twice, undone twice, undone without."""

import sqlalchemy as sa

from cellsched.claims import base as claims_base
from cellsched.conductor.tasks import deciding
from cellsched.conductor.tasks import saga as tasks
from cellsched.conductor.tasks import steps
from cellsched.db.api import build_requests
from cellsched.db.cell import build_casts
from cellsched.db.cell import models
from cellsched import exception
from cellsched import objects
from cellsched.quota import noop
from tests.unit.conductor import base
from tests.unit.conductor.tasks import leased
from tests.unit.db import samples

OTHER = 'other'


class TestSchedule(leased.StepTestCase):

    def setUp(self):
        super().setUp()
        self.batch = self.builds(['a1'] * 3)

    def step(self, min_count=1):
        batch = tasks.Batch(self.batch, min_count)
        for build in self.batch:
            build.batch = batch
        return deciding.Schedule(self.database, self.scheduler, self.claims)

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
            self.assertIsInstance(build.failed, exception.NoValidHost)

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
        self.assertTrue(all(build.failed for build in self.batch))

    def test_refusal_that_counts_nothing_fails_all(self):
        def answer(**arguments):
            raise exception.NoValidHost(reason='From elsewhere.')

        self.scheduler.answer = answer
        self.do(self.step(), self.batch)

        self.assertTrue(all(build.failed for build in self.batch))


class TestFindCell(leased.StepTestCase):

    def test_cell_is_that_of_the_host_and_not_of_the_selection(self):
        batch = self.builds(['a1', 'b1'])
        for build in batch:
            build.cell = None
        step = deciding.FindCell(self.database, self.claims)

        for _ in range(2):
            self.do(step, batch)
            self.assertEqual(['cell1', 'cell2'],
                             [build.cell.name for build in batch])

    def find(self, *hosts):
        """Have one build's hosts looked up, beside another one's."""
        for host in {*hosts} - self.providers.keys():
            self.providers[host] = samples.uuids(1)[0]
            self.claims.set_inventory(self.providers[host], {
                name: claims_base.Inventory(4 * amount)
                for name, amount in base.SIZE.items()})
        build, other = self.builds(['a1', 'a1'])
        build.selections = [self.selection(host) for host in hosts]
        build.cell = None
        self.claims.release([build.uuid])
        self.claims.claim(claims_base.of_selection(
            build.uuid, build.selections[0]))

        self.do(deciding.FindCell(self.database, self.claims), [build, other])

        self.assertIsNone(other.failed)
        self.assertEqual('cell1', other.cell.name)
        return build

    def fill(self, host):
        self.claims.claim([claims_base.Claim(
            samples.uuids(1)[0], self.providers[host], {'VCPU': 4})])

    def test_alternate_is_claimed_in_place_of_a_host_that_left(self):
        build = self.find('x9', 'a2', 'a3')

        self.assertIsNone(build.failed)
        self.assertEqual(
            ('cell1', ['a2', 'a3'], 'a2'),
            (build.cell.name,
             [each.service_host for each in build.selections],
             self.holds(build.uuid)))

    def test_alternates_that_left_or_are_full_are_passed_over(self):
        self.fill('a2')

        build = self.find('x9', 'x8', 'a2', 'x7', 'a3')

        self.assertEqual(
            (['a3'], 'a3'),
            ([each.service_host for each in build.selections],
             self.holds(build.uuid)))

    def test_build_whose_hosts_all_left_is_put_off(self):
        self.fill('a2')
        for hosts in (['x9'], ['x9', 'x8'], ['x9', 'a2']):
            build = self.find(*hosts)

            self.assertIsInstance(
                build.failed, exception.HostMappingNotFound)
            self.assertEqual(('x9', True, None), (
                build.failed.host, build.later, self.holds(build.uuid)))


class TestWriteRows(leased.StepTestCase):

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
        self.do(deciding.FindCell(self.database, self.claims), batch)

        self.do(self.step(), batch)

        self.assertIsInstance(other.failed, kind)
        self.assertEqual({}, self.rows(other.uuid))
        for build in (one, third):
            self.assertIsNone(build.failed)
            self.assertEqual(['cell1'], [*self.rows(build.uuid)])


class TestRelease(leased.StepTestCase):

    def step(self):
        return steps.Release(
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
        self.do(steps.WriteRows(
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
