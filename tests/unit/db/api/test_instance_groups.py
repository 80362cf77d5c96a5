# SPDX-License-Identifier: Apache-2.0
"""Queries for server groups."""

import sqlalchemy as sa

from cellsched.db.api import instance_groups
from cellsched.db.api import models
from cellsched import exception
from cellsched import objects
from tests.unit.db.api import base
from tests.unit.db import samples


class TestInstanceGroups(base.TestCase):

    def create(self, name='group', **fields):
        group = objects.InstanceGroup(**{
            'uuid': samples.uuids(1)[0], 'name': name,
            'project_id': 'project', 'user_id': 'user', 'policy': None,
            'rules': {}, **fields})
        self.write(instance_groups.create, group, samples.NOW)
        return self.get(group.uuid)

    def get(self, uuid, *args, **kwargs):
        return self.read(instance_groups.get, uuid, *args, **kwargs)

    def add(self, group, uuids):
        return self.write(instance_groups.add_members, group.id, uuids,
                          samples.NOW)

    def test_group_is_stored_as_created(self):
        made = self.create(policy='anti-affinity', rules={
            'max_server_per_host': 2, 'spread': 'az', 'max_skew': 3})

        self.assertEqual(
            (1, 'group', 'project', 'user', 'anti-affinity',
             ['anti-affinity'], [], []),
            tuple(made.get(name) for name in (
                'id', 'name', 'project_id', 'user_id', 'policy', 'policies',
                'members', 'hosts')))
        self.assertEqual(
            {'max_server_per_host': 2, 'spread': 'az', 'max_skew': 3},
            made.rules)

    def test_group_may_have_no_policy(self):
        made = self.create(rules={'spread': 'cell'})

        self.assertEqual((None, [], {'spread': 'cell'}),
                         (made.policy, made.policies, made.rules))

    def test_unreadable_rules_do_not_hide_other_groups(self):
        broken, whole = self.create(policy='anti-affinity'), self.create()
        table = models.instance_group_policy
        for text in ('nonsense', '[1]', '{"max_server_per_host": "x"}', '7'):
            self.execute(
                sa.update(table).where(table.c.group_id == broken.id)
                .values(rules=text))

            self.assertEqual(
                [whole.uuid, broken.uuid],
                [each.uuid for each in self.read(instance_groups.list_all)])
            found = self.get(broken.uuid)
            self.assertEqual(('anti-affinity', {}),
                             (found.policy, found.rules), text)
        self.assertIn(broken.uuid, self.logs.output)

    def test_unreadable_rules_are_logged_once(self):
        group = self.create(policy='anti-affinity')
        conditions = self.database.conditions
        text = (f'The rules of server group {group.uuid} cannot be read and '
                'are ignored')
        for rules, unreadable in ('[', True), ('{', True), ('{}', False):
            self.execute(
                sa.update(models.instance_group_policy).values(rules=rules))
            self.read(instance_groups.find, group.uuid, conditions=conditions)
            self.assertEqual(unreadable, text in conditions)
        self.assertEqual(1, self.logs.output.count(text))

    def test_members_are_stored_once_in_order(self):
        group, other = self.create(), self.create()
        one, two, three = sorted(samples.uuids(3))

        self.assertEqual({two, three}, self.add(group, [three, two, three]))
        self.assertEqual({one}, self.add(group, [two, one]))
        self.assertEqual({one}, self.add(other, [one]))
        self.assertEqual(set(), self.add(other, []))

        self.assertEqual([two, three, one], self.get(group.uuid).members)
        self.assertEqual([one], self.get(other.uuid).members)

    def test_removed_members_leave_every_group(self):
        group, other = self.create(), self.create()
        uuids = sorted(samples.uuids(3))
        self.add(group, uuids)
        self.add(other, uuids)

        self.write(instance_groups.remove_members, uuids[:2])
        self.write(instance_groups.remove_members, uuids[:1])
        self.write(instance_groups.remove_members, [])

        for each in group, other:
            self.assertEqual(uuids[2:], self.get(each.uuid).members)

    def test_group_of_another_project_is_not_found(self):
        made = self.create()

        self.assertEqual('group', self.get(made.uuid, 'project').name)
        for query in instance_groups.get, instance_groups.delete:
            for uuid, project in ((made.uuid, 'other'), (made.uuid, ''),
                                  ('unknown', 'project'), ('unknown', None)):
                error = self.assertRaises(
                    exception.InstanceGroupNotFound, self.write, query, uuid,
                    project)

                self.assertEqual(uuid, error.uuid)
        self.assertIsNone(self.read(instance_groups.find, 'unknown'))

    def test_groups_are_listed_by_project_the_newest_first(self):
        for name, project in (('a', 'project'), ('b', 'other'),
                              ('c', 'project'), ('d', 'project')):
            self.create(name, project_id=project)

        for project, limit, names in (
                ('project', None, 'dca'), ('project', 2, 'dc'),
                (None, None, 'dcba'), ('none', None, ''),
                ('project', 0, '')):
            self.assertEqual(
                list(names), [each.name for each in self.read(
                    instance_groups.list_all, project, limit)])

    def test_deleted_group_is_deleted_with_its_members_and_policy(self):
        group, other = self.create(policy='affinity'), self.create()
        [uuid] = samples.uuids(1)
        for each in group, other:
            self.add(each, [uuid])

        self.write(instance_groups.delete, group.uuid)

        self.assertIsNone(self.read(instance_groups.find, group.uuid))
        self.assertEqual([uuid], self.get(other.uuid).members)
        for table in (models.instance_groups, models.instance_group_member,
                      models.instance_group_policy):
            self.assertEqual(1, self.read(
                lambda connection: connection.scalar(
                    sa.select(sa.func.count()).select_from(table))))

    def test_locked_read_returns_the_same_group(self):
        made = self.create()

        self.assertEqual(made.uuid, self.write(
            instance_groups.get, made.uuid, lock=True).uuid)
