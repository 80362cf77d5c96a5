# SPDX-License-Identifier: Apache-2.0
"""Server groups: create, get, list, delete."""

from cellsched.api import authorization
from cellsched.api import server_groups
from cellsched import context
from cellsched.db.api import instance_groups
from cellsched import exception
from cellsched.objects import requests
from cellsched.testing import clock
from cellsched.testing import databases
from tests.unit.api import hostile
from tests.unit import base
from tests.unit.db import samples

USER = context.member('user', 'project')
OTHER = context.member('other', 'other')


class TestServerGroups(base.TestCase):

    def setUp(self):
        super().setUp()
        self.database = self.useFixture(databases.APIDatabase()).database
        self.groups = server_groups.ServerGroups(
            authorization.LocalOperator(), self.database, clock.FakeClock(), 5)

    def create(self, policy='affinity', rules=None, name='group', user=USER):
        return self.groups.create(user, name, policy, rules)

    def assertRefused(self, field, *args, **kwargs):
        error = self.assertRaises(
            exception.InvalidField, self.create, *args, **kwargs)
        self.assertEqual(('server group', field), (error.where, error.field))
        self.assertTrue(str(error).isprintable())
        self.assertLess(len(str(error)), 250)
        self.assertEqual([], self.groups.list_all(context.admin()))

    def test_group_has_the_requested_fields(self):
        rules = {'max_server_per_host': 2, 'spread': 'az', 'max_skew': 1}

        made = self.create('anti-affinity', rules, 'web')

        found = self.groups.get(USER, made.uuid)
        for each in made, found:
            self.assertEqual(
                ('web', 'anti-affinity', rules, [], 'project', 'user'),
                (each.name, each.policy, each.rules, each.members,
                 each.project_id, each.user_id))

    def test_uuid_in_capitals_is_the_same_group(self):
        made = self.create()

        self.assertEqual(
            made.uuid, self.groups.get(USER, made.uuid.upper()).uuid)
        self.groups.delete(USER, made.uuid.upper())

        self.assertEqual([], self.groups.list_all(USER))

    def test_spread_rules_are_accepted_with_and_without_a_policy(self):
        for policy in (*requests.POLICIES, None):
            for spread in requests.SPREADS:
                made = self.create(policy, {'spread': spread, 'max_skew': 2})

                self.assertEqual(
                    (policy, {'spread': spread, 'max_skew': 2}),
                    (made.policy, made.rules))
        self.assertEqual({}, self.create('soft-affinity').rules)

    def test_bad_policies_are_refused(self):
        for bad in (*hostile.NAMES, 'Affinity', 'legacy'):
            self.assertRefused('policy', bad)
        self.assertRefused('policy', None, {})

    def test_bad_rules_are_refused(self):
        for bad in ('x', 5, ['spread'], [('spread', 'az')], True):
            self.assertRefused('rules', rules=bad)
        for bad in (*hostile.NAMES, 'Spread', '_rules'):
            if bad.__hash__:
                self.assertRefused('rules', rules={bad: 1})
        for bad in (*hostile.NAMES, 'rack', 'AZ'):
            self.assertRefused('rules.spread', rules={'spread': bad})

    def test_numbers_in_rules_have_bounds(self):
        for name, (least, most) in requests.BOUNDS.items():
            for value in least, most:
                made = self.create(
                    'anti-affinity', {'spread': 'az', name: value})
                self.assertEqual(value, made.rules[name])
                self.groups.delete(USER, made.uuid)
            for bad in (least - 1, most + 1, 10 ** 5000, str(least), 1.0,
                        float('nan'), True, None, [1]):
                self.assertRefused(f'rules.{name}', 'anti-affinity', {
                    'spread': 'az', name: bad})

    def test_rules_without_their_policy_or_spread_are_refused(self):
        for policy in ('affinity', 'soft-affinity', 'soft-anti-affinity'):
            self.assertRefused('rules.max_server_per_host', policy,
                               {'max_server_per_host': 1})
        self.assertRefused('rules.max_server_per_host', None,
                           {'max_server_per_host': 1, 'spread': 'az'})
        self.assertRefused('rules.max_skew', rules={'max_skew': 1})

    def test_bad_names_are_refused(self):
        for bad in hostile.NAMES:
            self.assertRefused('name', name=bad)
            for ask in self.groups.get, self.groups.delete:
                error = self.assertRaises(
                    exception.InvalidField, ask, USER, bad)
                self.assertEqual('id', error.field)

    def test_foreign_group_is_not_found(self):
        made = self.create()

        for ask in self.groups.get, self.groups.delete:
            for user, uuid in ((OTHER, made.uuid), (USER, 'unknown'),
                               (context.RequestContext(), made.uuid)):
                error = self.assertRaises(
                    exception.InstanceGroupNotFound, ask, user, uuid)
                self.assertEqual(
                    f'There is no server group {uuid}.', str(error))
        self.assertEqual([], self.groups.list_all(OTHER))
        self.assertEqual(
            made.uuid, self.groups.get(context.admin(), made.uuid).uuid)
        self.groups.delete(context.admin(), made.uuid)

    def test_get_returns_the_members(self):
        made = self.create()
        uuids = sorted(samples.uuids(2))
        with self.database.writer() as connection:
            instance_groups.add_members(
                connection, made.id, uuids, samples.NOW)

        self.assertEqual(uuids, self.groups.get(USER, made.uuid).members)
        [listed] = self.groups.list_all(USER)
        self.assertFalse(listed.obj_attr_is_set('members'))

    def test_list_is_bounded(self):
        for name in 'abcdefg':
            self.create(name=name, user=OTHER if name == 'b' else USER)

        for user, limit, names in (
                (USER, None, 'gfedc'), (USER, 2, 'gf'), (USER, 0, ''),
                (OTHER, None, 'b'), (context.admin(), 5, 'gfedc')):
            self.assertEqual(list(names), [
                each.name for each in self.groups.list_all(user, limit)])
        for bad in (-1, 6, '1', True, 1.0):
            error = self.assertRaises(
                exception.InvalidField, self.groups.list_all, USER, bad)
            self.assertEqual('limit', error.field)

    def test_deleted_group_is_gone(self):
        made = self.create()

        self.groups.delete(USER, made.uuid)

        self.assertRaises(
            exception.InstanceGroupNotFound, self.groups.get, USER, made.uuid)
        self.assertEqual([], self.groups.list_all(USER))
