# SPDX-License-Identifier: Apache-2.0
"""What operators are told of builds that cannot be handed over."""

from cellsched.conductor.tasks.steps import cast
from cellsched.conductor.tasks.steps import write_rows
from tests.unit.conductor import base
from tests.unit.conductor.tasks import leased
from tests.unit.notify import told

FAILED = 'compute_task.build_instances.error'


class TestCast(leased.StepTestCase):

    def setUp(self):
        super().setUp()
        self.told = self.useFixture(told.Told('vm_state'))

    def test_what_cannot_be_handed_over_is_told(self):
        lost, other = batch = self.builds(['a1', 'b1'])
        self.do(write_rows.WriteRows(
            self.database, self.targets, self.wrong_clock,
            base.LEASE_S), batch)
        self.compute.get(self.transports.get(
            self.cells['cell1'].transport_url)).failure = (
                ValueError('no way to amqp://user:s3cret@broker'))

        self.do(cast.Cast(
            self.targets, self.compute, self.claims, self.clock, 'conductor',
            self.told.notifier), batch)

        [(event, data)] = self.told.all()
        self.assertEqual((FAILED, lost.uuid), (event, data['instance_uuid']))
        reason = data['reason']['nova_object.data']
        self.assertEqual('no way to amqp://user:****@broker',
                         reason['exception_message'])
        self.assertNotIn('s3cret', str(data))
        self.assertIsNotNone(data['request_spec'])

    def test_task_tells_of_what_it_cannot_hand_over(self):
        [uuid] = self.accept()
        self.compute.get(self.transports.get(
            self.cells['cell1'].transport_url)).failure = ValueError('no way')

        self.task(notifier=self.told.notifier).run(base.USER, [uuid])

        self.assertEqual(
            [uuid], [data['instance_uuid'] for event, data
                     in self.told.all() if event == FAILED])
