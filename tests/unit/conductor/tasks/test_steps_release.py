# SPDX-License-Identifier: Apache-2.0
"""Deleting build requests, and who owns the outcome then."""

from concurrent import futures

from amqp import exceptions as amqp_exc
from oslo_config import cfg
import oslo_messaging
import sqlalchemy as sa

from cellsched.conductor.tasks.saga import Batch
from cellsched.conductor.tasks import steps
from cellsched.db.api import build_requests
from cellsched.db.cell import instances
from cellsched.db.cell import models
from cellsched import exception
from cellsched.notify import notifiers
from cellsched.quota import noop
from tests.unit.conductor import base
from tests.unit.notify import recorder

OTHER = 'other'


class TestRelease(base.StepTestCase):

    def step(self):
        return steps.Release(
            self.database, self.targets, noop.NoopQuotaDriver(None, None),
            self.clock)

    def write_rows(self, batch):
        self.do(steps.WriteRows(
            self.database, self.targets, self.wrong_clock,
            base.LEASE_S), batch)

    def rename(self, uuid, name='renamed'):
        with self.database.writer() as connection:
            build_requests.revise(
                connection, uuid, lambda request: setattr(
                    request.instance, 'display_name', name))

    def test_request_is_deleted_and_the_build_continues(self):
        batch = self.builds(['a1', 'b1'])

        self.do(self.step(), batch)

        self.assertEqual(
            [False] * 2, [self.requested(build.uuid) for build in batch])
        self.assertFalse(any(build.ended for build in batch))

    def test_finished_build_is_completed_and_not_deleted(self):
        batch = self.builds(['a1', 'b1'])
        self.do(self.step(), batch)

        self.do(self.step(), batch)

        self.assertEqual(
            [(True, False)] * 2,
            [(build.finished, build.deleted) for build in batch])

    def test_server_deleted_by_its_user_is_deleted(self):
        gone, there = batch = self.builds(['a1', 'b1'])
        self.decide(gone.uuid, 'cell1')
        self.delete(gone.uuid)

        self.do(self.step(), batch)

        self.assertEqual((False, True), (gone.finished, gone.deleted))
        self.assertFalse(there.ended)

    def test_request_leased_by_another_conductor_stays(self):
        batch = self.builds(['a1', 'b1'])
        self.clock.advance(base.LEASE_S)
        self.lease([batch[0].uuid], OTHER)

        self.do(self.step(), batch)

        self.assertEqual([True, False],
                         [self.requested(build.uuid) for build in batch])
        self.assertEqual((True, False),
                         (batch[0].finished, batch[0].deleted))

    def test_expired_lease_without_a_new_owner_is_valid(self):
        [build] = batch = self.builds(['a1'])
        self.clock.advance(base.LEASE_S * 2)

        self.do(self.step(), batch)

        self.assertFalse(self.requested(build.uuid))
        self.assertFalse(build.ended)

    def test_concurrent_change_is_applied_in_the_cell(self):
        changed, other = batch = self.builds(['a1', 'b1'])
        self.write_rows(batch)
        self.rename(changed.uuid)

        self.do(self.step(), batch)

        self.assertEqual('renamed', self.row(changed.uuid).display_name)
        self.assertNotEqual('renamed', self.row(other.uuid).display_name)
        for build in batch:
            self.assertFalse(self.requested(build.uuid))
            self.assertFalse(build.ended)

    def release_with_failed_change(self, least):
        """Release two builds, the first of which was changed meanwhile."""
        changed, _ = batch = self.builds(['a1', 'b1'])
        together = Batch(batch, least)
        for build in batch:
            build.batch = together
        self.write_rows(batch)
        self.rename(changed.uuid)
        database = self.targets.database

        def away(cell):
            if cell.id == changed.cell.id:
                raise exception.DatabaseUnreachable(
                    schema='cell', url='x', reason='away')
            return database(cell)

        self.targets.database = away
        self.do(self.step(), batch)
        return batch

    def test_failed_change_in_the_cell_is_retried(self):
        changed, other = self.release_with_failed_change(least=1)

        self.assertTrue(changed.to_retry)
        self.assertTrue(self.requested(changed.uuid))
        self.assertFalse(other.ended)
        self.assertFalse(self.requested(other.uuid))

    def test_failed_change_keeps_the_requests_of_a_whole_batch(self):
        """One that was built alone would be fewer than were asked for."""
        batch = self.release_with_failed_change(least=2)

        self.assertEqual(
            [(True, True)] * 2,
            [(build.to_retry, self.requested(build.uuid))
             for build in batch])

    def test_request_is_leased_during_the_change_in_its_cell(self):
        """Its user may change the row once another one has released it."""
        [build] = batch = self.builds(['a1'])
        self.write_rows(batch)
        self.rename(build.uuid)
        database, waiting = self.targets.database, []

        def take_up():
            self.lease([build.uuid], OTHER)
            with self.database.writer() as connection:
                build_requests.delete(connection, [build.uuid], OTHER)
            with database(build.cell).writer() as connection:
                instances.update(connection, build.uuid, {
                    'display_name': 'newest'}, self.clock.now())

        def slow(cell):
            if not waiting:
                self.clock.advance(base.LEASE_S * 2)
                waiting.append(threads.submit(take_up))
                # It waits for the transaction that this is done in.
                futures.wait(waiting, 0.2)
            return database(cell)

        self.targets.database = slow
        with futures.ThreadPoolExecutor(1) as threads:
            self.do(self.step(), batch)
            waiting[0].result(60)

        self.assertEqual('newest', self.row(build.uuid).display_name)

    def test_undo_does_not_restore_the_request(self):
        batch = self.builds(['a1'])
        self.do(self.step(), batch)

        self.undo(self.step(), batch)

        self.assertFalse(self.requested(batch[0].uuid))


class TestCast(base.StepTestCase):

    def setUp(self):
        super().setUp()
        self.batch = self.builds(['a1', 'b1', 'a2'])
        self.a1, self.b1, self.a2 = self.batch
        for build in self.batch:
            self.claims.claim(base.claims_base.of_selection(
                build.uuid, build.selections[0]))
        self.do(steps.WriteRows(
            self.database, self.targets, self.wrong_clock,
            base.LEASE_S), self.batch)

    def step(self):
        return steps.Cast(
            self.targets, self.compute, self.claims, self.clock, 'conductor',
            notifiers.TaskNotifier())

    def client(self, cell):
        return self.compute.get(
            self.transports.get(self.cells[cell].transport_url))

    def test_cast_uses_the_transport_of_the_cell(self):
        self.a1.selections.append(self.selection('a3'))

        self.do(self.step(), self.batch)

        first, second = self.client('cell1').sent
        [third] = self.client('cell2').sent
        self.assertEqual(['a1', 'a2', 'b1'],
                         [first.host, second.host, third.host])
        arguments = first.arguments
        self.assertEqual(self.a1.uuid, arguments['instance'].uuid)
        self.assertEqual('node-a1', arguments['node'])
        self.assertEqual(
            {'retry': {'num_attempts': 1, 'hosts': [['a1', 'node-a1']]},
             'limits': {}}, arguments['filter_properties'])
        self.assertEqual(
            ['a3'], [each.service_host for each in arguments['host_list']])
        self.assertEqual(self.cells['cell1'].uuid, first.context.cell.uuid)
        self.assertEqual(base.USER.request_id, first.context.request_id)

    def assertInError(self, build, cell):
        self.assertEqual('error', self.rows(build.uuid)[cell].vm_state)
        self.assertIsNone(self.holds(build.uuid))
        self.assertTrue(build.finished)

    def assertSent(self, *builds):
        self.assertEqual(
            {build.uuid for build in builds},
            {each for _, each in self.sent()})
        for build in builds:
            self.assertFalse(build.ended)
            self.assertEqual('building', self.row(build.uuid).vm_state)
            self.assertIsNotNone(self.holds(build.uuid))

    def test_timed_out_cast_waits_in_its_cell(self):
        self.assert_waits_after(oslo_messaging.MessageDeliveryFailure(
            'to amqp://user:secret@broker'))

    def test_cast_refused_by_the_broker_waits_in_its_cell(self):
        self.assert_waits_after(amqp_exc.AccessRefused(
            'to amqp://user:secret@broker'))

    def test_cast_with_an_invalid_option_waits_in_its_cell(self):
        self.assert_waits_after(cfg.RequiredOptError('lock_path'))

    def assert_waits_after(self, failure):
        self.client('cell1').failure = failure

        self.do(self.step(), self.batch)

        [line] = [line for line in self.logs.output.splitlines()
                  if 'Could not cast to the hosts' in line]
        self.assertIn(type(failure).__name__, line)
        self.assertNotIn('secret', self.logs.output)
        self.assertNotIn('Traceback', self.logs.output)
        for build in self.a1, self.a2:
            self.assertEqual(
                ('building', 'scheduling'),
                (self.row(build.uuid).vm_state,
                 self.row(build.uuid).task_state))
            self.assertIsNotNone(self.holds(build.uuid))
        self.assertEqual([self.b1.uuid], [uuid for _, uuid in self.sent()])

    def test_unsendable_cast_ends_in_error(self):
        self.client('cell1').failure = exception.VersionNotSendable(
            topic='compute', version='6.0', cap='5.0')

        self.do(self.step(), self.batch)

        self.assertInError(self.a1, 'cell1')
        self.assertInError(self.a2, 'cell1')
        self.assertSent(self.b1)

    def test_cell_without_a_transport_does_not_block_other_cells(self):
        self.a1.cell = self.a2.cell = self.cells['cell1'].obj_clone()
        self.a1.cell.transport_url = 'bogus://'
        self.a2.cell.transport_url = 'bogus://'

        self.do(self.step(), self.batch)

        self.assertInError(self.a1, 'cell1')
        self.assertInError(self.a2, 'cell1')
        self.assertSent(self.b1)

    def test_unreachable_cell_does_not_block_other_cells(self):
        self.client('cell1').failure = ValueError()
        self.break_cell('cell1')
        for build in self.batch:
            build.cell = None
        self.do(steps.FindCell(self.database, self.claims), self.batch)

        self.do(self.step(), self.batch)

        self.assertSent(self.b1)
        # It is as it was: nobody knows better.
        self.assertEqual('building', self.row(self.a1.uuid).vm_state)
        self.assertEqual('a1', self.holds(self.a1.uuid))

    def test_build_begun_in_spite_of_a_failed_cast_continues(self):
        self.check_continues(host='a1', task_state='spawning')

    def test_build_rescheduled_in_spite_of_a_failed_cast_continues(self):
        self.check_continues(host=None, task_state=None)

    def check_continues(self, **values):
        """Check a build with a failed cast whose row has these values."""
        self.client('cell1').failure = ValueError()
        with self.targets.database(self.cells['cell1']).writer() as connection:
            connection.execute(
                sa.update(models.instances)
                .where(models.instances.c.uuid == self.a1.uuid)
                .values(**values))

        self.do(self.step(), self.batch)

        self.assertEqual('building', self.row(self.a1.uuid).vm_state)
        self.assertEqual('a1', self.holds(self.a1.uuid))
        self.assertInError(self.a2, 'cell1')

    def test_undo_does_not_revert_the_cast(self):
        self.do(self.step(), self.batch)

        self.undo(self.step(), self.batch)

        self.assertSent(*self.batch)


class Quotas(noop.NoopQuotaDriver):
    """Refuses a build; what is asked is in ``asked``."""

    def __init__(self, refused):
        self.refused = refused
        self.asked = []

    def admit_all(self, connection, batches):
        self.asked = list(batches)
        return {build.uuid: exception.OverQuota(
            overs='instances', req='1', used='9', allowed='9')
            for batch in self.asked for build in batch.builds
            if build.uuid == self.refused}


class TestReleaseQuota(base.StepTestCase):

    def test_each_batch_is_checked_with_its_own_demand(self):
        first, second = self.builds(['a1', 'a2']), self.builds(['b1'])
        for batch, least in ((first, 2), (second, 1)):
            batch_ = Batch(batch, least)
            for build in batch:
                build.batch = batch_
        quotas = Quotas(first[1].uuid)

        steps.Release(
            self.database, self.targets, quotas, self.clock,
        ).do([*first, *second])

        self.assertEqual(
            [('project', 'user', [build.uuid for build in first], 2),
             ('project', 'user', [build.uuid for build in second], 1)],
            [(batch.project_id, batch.user_id,
              [build.uuid for build in batch.builds], batch.min_count)
             for batch in quotas.asked])
        size = first[0].instance
        self.assertEqual({(size.vcpus, size.memory_mb)}, {
            (build.vcpus, build.memory_mb)
            for batch in quotas.asked for build in batch.builds})
        self.assertIsInstance(first[1].reason, exception.OverQuota)
        self.assertEqual(
            [False, True, False],
            [self.requested(build.uuid) for build in [*first, *second]])


FAILED = 'compute_task.build_instances.error'


class TestCastNotifications(base.StepTestCase):

    def setUp(self):
        super().setUp()
        self.told = self.useFixture(recorder.NotificationRecorder('vm_state'))

    def test_failed_handover_is_reported(self):
        lost, other = batch = self.builds(['a1', 'b1'])
        self.do(steps.WriteRows(
            self.database, self.targets, self.wrong_clock,
            base.LEASE_S), batch)
        self.compute.get(self.transports.get(
            self.cells['cell1'].transport_url)).failure = (
                ValueError('no way to amqp://user:s3cret@broker'))

        self.do(steps.Cast(
            self.targets, self.compute, self.claims, self.clock, 'conductor',
            self.told.notifier), batch)

        [(event, data)] = self.told.all()
        self.assertEqual((FAILED, lost.uuid), (event, data['instance_uuid']))
        reason = data['reason']['nova_object.data']
        self.assertEqual('no way to amqp://user:****@broker',
                         reason['exception_message'])
        self.assertNotIn('s3cret', str(data))
        self.assertIsNotNone(data['request_spec'])

    def test_task_reports_a_failed_handover(self):
        [uuid] = self.accept()
        self.compute.get(self.transports.get(
            self.cells['cell1'].transport_url)).failure = ValueError('no way')

        self.task(notifier=self.told.notifier).run(base.USER, [uuid])

        self.assertEqual(
            [uuid], [data['instance_uuid'] for event, data
                     in self.told.all() if event == FAILED])
