# SPDX-License-Identifier: Apache-2.0
"""Instances of a request in its server group."""

from cellsched.scheduler.selection import group_members
from cellsched.testing import builders
from tests.unit import base


class TestMembers(base.TestCase):

    def members(self, request, *uuids):
        given = group_members.with_members(request, uuids)
        group = given.get('instance_group')
        return None if group is None else group.members

    def test_instances_of_the_request_are_members_of_its_group(self):
        request = builders.request(group={'members': ['a', 'b']})

        self.assertEqual(['a', 'b', 'c'], self.members(request, 'b', 'c'))
        # What the caller has stays as it is.
        self.assertEqual(['a', 'b'], request.instance_group.members)

    def test_group_may_have_no_members_yet(self):
        for members in (None, []):
            request = builders.request(group={'members': members})
            self.assertEqual(['c'], self.members(request, 'c'))

    def test_instances_that_are_to_be_spread_are_a_group(self):
        request = builders.request(hints={'spread': 'cell'})

        self.assertEqual(['a', 'b'], self.members(request, 'a', 'b'))
        self.assertIsNone(request.get('instance_group'))

    def test_request_without_a_group_has_none(self):
        request = builders.request()

        self.assertIs(request, group_members.with_members(request, ['a']))
