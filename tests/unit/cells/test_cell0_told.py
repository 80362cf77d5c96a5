# SPDX-License-Identifier: Apache-2.0
"""What operators are told of burials, and when."""

from cellsched.cells import cell0
from cellsched.db.api import build_requests
from cellsched.db.api import instance_mappings
from cellsched.db.cell import instances
from cellsched import exception
from cellsched import objects
from tests.unit.cells import base
from tests.unit.db import samples
from tests.unit.notify import recorder
from tests.unit.notify import wire

REASON = exception.NoValidHost(reason='There are none.')

EVENT = 'compute_task.build_instances.error'


class TestTold(base.TestCase):

    def setUp(self):
        super().setUp()
        self.grave = self.targets.database(self.add_cell0())
        #: Is called when something is told.
        self.hear = lambda: None
        self.told = self.useFixture(recorder.NotificationRecorder(
            hear=lambda event: self.hear()))
        self.cell0 = cell0.Cell0(
            self.database, self.cells, self.targets, self.clock, 'conductor',
            self.told.notifier)

    def accept(self, count):
        return samples.accept(self.database, samples.uuids(count))

    def bury(self, made, specs=None):
        return self.cell0.bury(self.context, made, REASON, specs=specs)

    def requested(self, uuid):
        return self.read(self.database, build_requests.get, uuid) is not None

    def lies(self, uuid):
        return self.read(self.grave, instances.get, uuid) is not None

    def test_each_is_told_with_its_request_and_the_reason(self):
        made = self.accept(2)
        one, other = (each.uuid for each in made)

        self.bury(made, {one: wire.request(instance_uuid=one)})

        [(event, first), (_, second)] = self.told.all()
        self.assertEqual(EVENT, event)
        self.assertEqual((one, one, other, None), (
            first['instance_uuid'],
            first['request_spec']['nova_object.data']['instance_uuid'],
            second['instance_uuid'], second['request_spec']))
        for each in first, second:
            self.assertEqual('error', each['state'])
            self.assertIn('There are none.', each['reason'][
                'nova_object.data']['exception_message'])

    def test_it_is_told_between_the_row_and_the_end_of_the_request(self):
        [made] = self.accept(1)
        seen = []
        self.hear = lambda: seen.append(
            (self.lies(made.uuid), self.requested(made.uuid)))

        self.bury([made])

        self.assertEqual([(True, True)], seen)
        self.assertFalse(self.requested(made.uuid))

    def test_what_could_not_be_told_is_told_when_it_is_done_again(self):
        class Killed(BaseException):
            """Nobody catches it, as nobody outlives its process."""

        def die():
            raise Killed()

        made = self.accept(1)
        self.hear = die
        self.assertRaises(Killed, self.bury, made)
        self.hear = lambda: None

        self.assertEqual({made[0].uuid}, self.bury(made))

        self.assertEqual([EVENT] * 2, self.told.events())
        self.assertFalse(self.requested(made[0].uuid))

    def test_what_is_not_buried_is_not_told(self):
        made = self.accept(1)
        self.write(self.database, build_requests.delete, [made[0].uuid])
        self.write(self.database, instance_mappings.mark_deleted,
                   [made[0].uuid], samples.NOW)

        self.assertEqual(set(), self.bury(made))

        self.assertEqual([], self.told.events())

    def test_burial_goes_on_when_it_cannot_be_told(self):
        def fail():
            raise ValueError('no')

        made = self.accept(1)
        self.hear = fail

        self.assertEqual({made[0].uuid}, self.bury(made, {
            made[0].uuid: objects.RequestSpec()}))

        self.assertFalse(self.requested(made[0].uuid))
