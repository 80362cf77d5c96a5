# SPDX-License-Identifier: Apache-2.0
"""Servers are scheduled by the policy of their group."""

from cellsched import exception
from cellsched.rpc import scheduler
from tests.functional import base


class Recording(scheduler.SchedulerAPI):
    """A scheduler's client that records the groups of requests."""

    def __init__(self, transport):
        super().__init__(transport)
        self.groups = []

    def select_destinations(self, context, spec_obj, *args, **kwargs):
        self.groups.append(spec_obj.instance_group)
        return super().select_destinations(context, spec_obj, *args, **kwargs)


class TestServerGroups(base.TestCase):

    def setUp(self):
        super().setUp()
        self.deploy({'cell1': ['a1', 'a2'], 'cell2': ['b1']})
        self.groups = self.world.api.server_groups
        self.group = self.groups.create(
            base.USER, 'quorum', 'anti-affinity', {'max_server_per_host': 2})
        self.recording = Recording(self.world.api.parts.transports.get())

    def hints(self):
        return {'group': [self.group.uuid]}

    def accept(self):
        """Accept a server that no conductor hears of."""
        [uuid] = self.unheard().servers.create(
            base.USER, 'member', 'small', hints=self.hints())
        return uuid

    def build(self, *uuids):
        """Build servers; return their group as the scheduler is told it."""
        self.task(scheduler=self.recording).run(base.USER, uuids)
        for found in self.settled(uuids):
            self.assertEqual('ACTIVE', found.status, found.reason)
        return self.recording.groups[-1]

    def members(self):
        return self.groups.get(base.USER, self.group.uuid).members

    def test_scheduler_gets_the_members_of_the_group(self):
        one, two = self.accept(), self.accept()

        group = self.build(one)
        self.assertEqual(
            (self.group.uuid, 'anti-affinity', {'max_server_per_host': 2}),
            (group.uuid, group.policy, group.rules))
        self.assertEqual([one, two], group.members)

        self.delete(one)
        three = self.accept()
        self.assertEqual([two, three], self.build(two).members)

    def test_members_are_accepted_servers_until_deleted(self):
        found = self.built(hints=self.hints(), min_count=2)
        [buried] = self.built(hints=self.hints(), flavor='huge')

        uuids = [*sorted(each.uuid for each in found), buried.uuid]
        self.assertEqual({'ACTIVE'}, {each.status for each in found})
        self.assertEqual('ERROR', buried.status)
        self.assertEqual(uuids, self.members())
        for uuid in uuids:
            self.delete(uuid)
        self.assertEqual([], self.members())

    def test_deleted_group_does_not_stop_a_build(self):
        uuid = self.accept()

        self.groups.delete(base.USER, self.group.uuid)

        self.assertIsNone(self.build(uuid))
        self.assertRaises(
            exception.InstanceGroupNotFound, self.create, hints=self.hints())
