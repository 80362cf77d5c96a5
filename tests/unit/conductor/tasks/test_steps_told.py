# SPDX-License-Identifier: Apache-2.0
"""What operators are told of builds in their cells."""

from cellsched.conductor.tasks import build_instances
from cellsched.conductor.tasks import steps
from cellsched.db.cell import instances
from cellsched import objects
from tests.unit.conductor import base
from tests.unit.conductor.tasks import leased
from tests.unit.db import samples
from tests.unit.notify import told

FAILED = 'compute_task.build_instances.error'


class TestSteps(leased.StepTestCase):

    def setUp(self):
        super().setUp()
        self.told = self.useFixture(told.Told('vm_state'))
        self.rows_step = steps.WriteRows(
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
        deleted.deleted = True
        seen = []
        self.told.hear = lambda event: seen.append(
            (event, self.row(deleted.uuid).vm_state))

        self.undo(self.rows_step, batch)

        self.assertEqual([('instance.delete.start', 'building'),
                          ('instance.delete.end', 'deleted')], seen)
        self.assertEqual({}, self.rows(failed.uuid))

    def test_what_cannot_be_handed_over_is_told(self):
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


class TestBuildInstances(base.TestCase):

    def setUp(self):
        super().setUp()
        self.told = self.useFixture(told.Told())
        self.cell = self.targets.database(self.cells['cell1'])
        self.task = build_instances.BuildInstances(
            self.cell, self.compute.get('cell1'), self.claims, self.clock,
            'conductor', 3, self.told.notifier)
        [self.uuid] = samples.uuids(1)
        with self.cell.writer() as connection:
            instances.create(connection, [samples.instance(
                self.uuid, build_attempts=1, task_state=None)],
                self.clock.now())

    def try_next(self, *hosts):
        self.task.run(
            base.USER, [samples.instance(self.uuid)],
            {'retry': {'num_attempts': 1, 'hosts': []}},
            objects.RequestSpec(), [[self.selection(host) for host in hosts]])

    def test_build_without_alternates_is_told_once(self):
        for _ in range(2):
            self.try_next()

        [(event, data)] = self.told.all()
        self.assertEqual((FAILED, self.uuid), (event, data['instance_uuid']))
        self.assertEqual(
            'MaxRetriesExceeded',
            data['reason']['nova_object.data']['exception'])

    def test_build_that_goes_on_is_not_told(self):
        self.try_next('a1')

        self.assertEqual([], self.told.events())
