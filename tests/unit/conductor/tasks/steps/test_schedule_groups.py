# SPDX-License-Identifier: Apache-2.0
"""What the scheduler is told of a build's server group."""

from cellsched.conductor.tasks.steps import schedule
from cellsched.db.api import instance_groups
from cellsched import exception
from cellsched import objects
from tests.unit.conductor.tasks import leased
from tests.unit.db import samples


class TestScheduleInGroups(leased.StepTestCase):

    def setUp(self):
        super().setUp()
        group = objects.InstanceGroup(
            uuid=samples.uuids(1)[0], name='group', project_id='project',
            user_id='user', policy='anti-affinity', rules={'spread': 'az'})
        with self.database.writer() as connection:
            instance_groups.create(connection, group, samples.NOW)
            self.group = instance_groups.get(connection, group.uuid)
        self.batch = self.builds(['a1'] * 2)
        for build in self.batch:
            build.spec.instance_group = self.group
            build.spec.scheduler_hints = {
                'group': [self.group.uuid], 'other': ['x']}
        self.uuids = sorted(samples.uuids(2))
        self.add(self.uuids)

    def add(self, uuids):
        with self.database.writer() as connection:
            instance_groups.add_members(
                connection, self.group.id, uuids, samples.NOW)

    def schedule(self):
        """Schedule the batch; return the last request."""
        self.do(schedule.Schedule(
            self.database, self.scheduler, self.claims), self.batch)
        return self.scheduler.sent[-1].arguments['spec_obj']

    def test_members_are_those_of_now(self):
        group = self.schedule().instance_group

        self.assertEqual(
            (self.group.uuid, 'anti-affinity', {'spread': 'az'}, self.uuids),
            (group.uuid, group.policy, group.rules, group.members))

    def test_members_are_read_again_for_each_request(self):
        # The first answer says that only one fits, the second places it.
        answer = self.answer
        [late] = samples.uuids(1)

        def refuse(**arguments):
            self.add([late])
            self.scheduler.answer = answer
            raise exception.NoValidHost(reason='Full.', placed=1)

        self.scheduler.answer = refuse

        self.assertEqual(
            [*self.uuids, late], self.schedule().instance_group.members)

    def test_group_that_was_deleted_is_left_out(self):
        with self.database.writer() as connection:
            instance_groups.delete(connection, self.group.uuid)

        spec = self.schedule()

        self.assertIsNone(spec.instance_group)
        self.assertEqual({'other': ['x']}, spec.scheduler_hints)

    def test_request_without_a_group_stays_without(self):
        for build in self.batch:
            build.spec.instance_group = None

        spec = self.schedule()

        self.assertIsNone(spec.instance_group)
        self.assertEqual([self.group.uuid], spec.hint('group'))
