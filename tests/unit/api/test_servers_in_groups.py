# SPDX-License-Identifier: Apache-2.0
"""Servers that join and leave server groups."""


from cellsched.api import authorization
from cellsched.api import server_groups
from cellsched.api import validation
from cellsched import context
from cellsched.db.api import build_requests
from cellsched.db.api import models
from cellsched import exception
from tests.unit.api import test_servers

OTHER = context.member('other', 'other')


class TestServersInGroups(test_servers.ServersTestCase):

    def setUp(self):
        super().setUp()
        self.groups = server_groups.ServerGroups(
            authorization.LocalOperator(), self.database, self.clock, 10)
        self.group = self.groups.create(
            self.context, 'group', 'anti-affinity',
            {'max_server_per_host': 2})

    def join(self, group=None, **wishes):
        return self.create(
            hints={'group': [group or self.group.uuid]}, **wishes)

    def members(self):
        return self.groups.get(self.context, self.group.uuid).members

    def test_accepted_servers_are_members(self):
        one = self.join()
        several = self.join(min_count=2, max_count=3)
        self.create()

        self.assertEqual([*one, *sorted(several)], self.members())

    def test_spec_has_the_constant_fields_of_the_group(self):
        self.join()
        uuids = self.join(min_count=2)

        for leased in self.write(
                self.database, build_requests.lease, uuids, 'me', 0, 1):
            group = leased.spec.instance_group
            self.assertEqual(
                (self.group.uuid, 'anti-affinity',
                 {'max_server_per_host': 2}, []),
                (group.uuid, group.policy, group.rules, group.members))
            self.assertEqual(
                [self.group.uuid], leased.spec.hint('group'))

    def test_spec_of_a_server_without_a_group_has_no_group(self):
        [leased] = self.write(
            self.database, build_requests.lease, self.create(), 'me', 0, 1)

        self.assertIsNone(leased.spec.instance_group)

    def test_foreign_and_unknown_groups_are_refused_alike(self):
        foreign = self.groups.create(OTHER, 'foreign', 'affinity')
        for user in (self.context, context.RequestContext(
                user_id='user', project_id='project', is_admin=True)):
            for uuid in foreign.uuid, 'unknown':
                error = self.assertRaises(
                    exception.InstanceGroupNotFound, self.servers.create,
                    user, 'web', 'small', hints={'group': [uuid]})
                self.assertEqual(
                    f'There is no server group {uuid}.', str(error))
        self.assertEqual([0, 0, 0], self.written())
        self.assertEqual([], self.conductor.sent)

    def test_members_are_bounded(self):
        self.servers._bounds = validation.ServerBounds(10, 5, frozenset, 3)
        first = self.join(min_count=2)

        error = self.assertRaises(
            exception.InvalidField, self.join, min_count=2)

        self.assertEqual('hints.group', error.field)
        self.assertIn('2 of at most 3', str(error))
        self.assertEqual(sorted(first), self.members())
        self.assertEqual([2, 2, 2], self.written())
        self.join()
        self.assertRaises(exception.InvalidField, self.join)

    def test_deleted_servers_leave_their_group(self):
        unbuilt, built, kept = sorted(self.join(min_count=3))
        self.put(built, self.cell)

        for uuid in unbuilt, built:
            self.servers.delete(self.context, uuid)

        self.assertEqual([kept], self.members())

    def test_refused_servers_do_not_join(self):
        self.servers._new_uuid = lambda: 'same'
        self.join()
        self.servers._new_uuid = iter(['batch', 'new', 'same']).__next__

        self.assertRaises(
            exception.ConstraintViolated, self.join, min_count=2)

        self.assertEqual(['same'], self.members())
        self.assertEqual([1], self.rows(models.build_requests))

    def test_server_of_a_deleted_group_is_deleted(self):
        [uuid] = self.join()

        self.groups.delete(self.context, self.group.uuid)
        self.servers.delete(self.context, uuid)

        self.assertEqual([0], self.rows(models.instance_group_member))
