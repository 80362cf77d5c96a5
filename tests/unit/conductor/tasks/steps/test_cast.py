# SPDX-License-Identifier: Apache-2.0
"""The step that hands builds to compute hosts."""

from amqp import exceptions as amqp_exc
import oslo_messaging
import sqlalchemy as sa

from cellsched.conductor.tasks.steps import cast
from cellsched.conductor.tasks.steps import find_cell
from cellsched.conductor.tasks.steps import write_rows
from cellsched.db.cell import models
from cellsched import exception
from cellsched.notify import task_notifier
from tests.unit.conductor import base
from tests.unit.conductor.tasks import leased


class TestCast(leased.StepTestCase):

    def setUp(self):
        super().setUp()
        self.batch = self.builds(['a1', 'b1', 'a2'])
        self.a1, self.b1, self.a2 = self.batch
        for build in self.batch:
            self.claims.claim(base.claims_base.of_selection(
                build.uuid, build.selections[0]))
        self.do(write_rows.WriteRows(
            self.database, self.targets, self.wrong_clock,
            base.LEASE_S), self.batch)

    def step(self):
        return cast.Cast(
            self.targets, self.compute, self.claims, self.clock, 'conductor',
            task_notifier.TaskNotifier())

    def client(self, cell):
        return self.compute.get(
            self.transports.get(self.cells[cell].transport_url))

    def test_agent_is_told_on_the_transport_of_its_cell(self):
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

    def test_what_a_broker_does_not_take_waits_in_its_cell(self):
        self.assert_waits_after(oslo_messaging.MessageDeliveryFailure(
            'to amqp://user:secret@broker'))

    def test_what_a_broker_refuses_waits_in_its_cell(self):
        self.assert_waits_after(amqp_exc.AccessRefused(
            'to amqp://user:secret@broker'))

    def assert_waits_after(self, failure):
        self.client('cell1').failure = failure

        self.do(self.step(), self.batch)

        [line] = [line for line in self.logs.output.splitlines()
                  if 'cannot be told' in line]
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

    def test_what_cannot_be_sent_by_any_broker_ends_in_error(self):
        self.client('cell1').failure = exception.VersionNotSendable(
            topic='compute', version='6.0', cap='5.0')

        self.do(self.step(), self.batch)

        self.assertInError(self.a1, 'cell1')
        self.assertInError(self.a2, 'cell1')
        self.assertSent(self.b1)

    def test_cell_without_a_transport_does_not_keep_the_others(self):
        self.a1.cell = self.a2.cell = self.cells['cell1'].obj_clone()
        self.a1.cell.transport_url = 'bogus://'
        self.a2.cell.transport_url = 'bogus://'

        self.do(self.step(), self.batch)

        self.assertInError(self.a1, 'cell1')
        self.assertInError(self.a2, 'cell1')
        self.assertSent(self.b1)

    def test_cell_that_cannot_be_told_either_does_not_keep_the_others(self):
        self.client('cell1').failure = ValueError()
        self.break_cell('cell1')
        for build in self.batch:
            build.cell = None
        self.do(find_cell.FindCell(self.database, self.claims), self.batch)

        self.do(self.step(), self.batch)

        self.assertSent(self.b1)
        # It is as it was: nobody knows better.
        self.assertEqual('building', self.row(self.a1.uuid).vm_state)
        self.assertEqual('a1', self.holds(self.a1.uuid))

    def test_build_that_was_begun_all_the_same_is_let_alone(self):
        self.client('cell1').failure = ValueError()
        cell = self.targets.database(self.cells['cell1'])
        with cell.writer() as connection:
            connection.execute(
                sa.update(models.instances)
                .where(models.instances.c.uuid == self.a1.uuid)
                .values(host='a1', task_state='spawning'))

        self.do(self.step(), self.batch)

        self.assertEqual('building', self.row(self.a1.uuid).vm_state)
        self.assertEqual('a1', self.holds(self.a1.uuid))
        self.assertInError(self.a2, 'cell1')

    def test_build_that_its_host_handed_on_is_let_alone(self):
        self.client('cell1').failure = ValueError()
        with self.targets.database(self.cells['cell1']).writer() as connection:
            connection.execute(
                sa.update(models.instances)
                .where(models.instances.c.uuid == self.a1.uuid)
                .values(host=None, task_state=None))

        self.do(self.step(), self.batch)

        self.assertEqual('building', self.row(self.a1.uuid).vm_state)
        self.assertEqual('a1', self.holds(self.a1.uuid))
        self.assertInError(self.a2, 'cell1')

    def test_undoing_it_does_nothing(self):
        self.do(self.step(), self.batch)

        self.undo(self.step(), self.batch)

        self.assertSent(*self.batch)
