# SPDX-License-Identifier: Apache-2.0
"""Choices of the last minute."""

from cellsched.claims import base as claims
from cellsched.host_manager import host_reader
from cellsched.testing import builders
from tests.unit import base


def choice(node='n', at=0.0, mark=1, held=None):
    return host_reader.RecentChoice(node, at, mark, held or {})


class TestRecentChoices(base.TestCase):

    def test_choice_counts_for_its_time(self):
        recent = host_reader.RecentChoices(60.0)
        recent.add([choice('a', 0.0), choice('b', 30.0)])

        def nodes(now):
            return [each.node for each in recent.current(now)]

        self.assertEqual(['a', 'b'], nodes(60.0))
        self.assertEqual(['b'], nodes(60.1))
        self.assertEqual([], nodes(90.1))


class TestCountBuilds(base.TestCase):

    def setUp(self):
        super().setUp()
        self.table = builders.table(num_io_ops=[3, 0])
        self.one, self.two = self.table['uuid']

    def builds(self, choices, **marks):
        host_reader.count_builds(self.table, choices, {
            self.one: marks.get('one'), self.two: marks.get('two')})
        return self.table['num_io_ops'].tolist()

    def test_recent_choices_are_added_to_reported_builds(self):
        self.assertEqual([5, 1], self.builds(
            [choice(self.one, mark=None), choice(self.one, mark=None),
             choice(self.two, mark=7)], two=7))

    def test_choices_before_the_last_report_are_not_added(self):
        self.assertEqual([3, 0], self.builds(
            [choice(self.one, mark=7), choice('gone', mark=None)], one=8))


class TestWithHeld(base.TestCase):

    def usage(self, provider, consumers=1, **used):
        return claims.Usage(provider, {'VCPU': 8}, used, consumers)

    def test_unclaimed_usage_counts(self):
        found = host_reader.with_held(
            [self.usage('a', VCPU=1), self.usage('b', VCPU=2)],
            [choice(held={'a': {'VCPU': 2, 'VGPU': 1}}),
             choice(held={'a': {'VCPU': 1}, 'c': {'VCPU': 1}}), choice()])

        self.assertEqual(
            [('a', {'VCPU': 4, 'VGPU': 1}, 3), ('b', {'VCPU': 2}, 1)],
            [(each.provider, dict(each.used), each.consumers)
             for each in found])
