# SPDX-License-Identifier: Apache-2.0
"""Which aggregates hosts are in."""

from cellsched.db.api import aggregates
from cellsched.hosts import grouping
from tests.unit import base


def said(number, *hosts, **metadata):
    return aggregates.Aggregate(
        number, f'uuid{number}', f'name{number}', metadata, list(hosts))


class TestGrouping(base.TestCase):

    def setUp(self):
        super().setUp()
        self.grouping = grouping.Grouping('nova')

    def apply(self, *changed, ids=None):
        return self.grouping.apply(aggregates.Changes(
            (), False, changed, frozenset(
                {each.id for each in changed} if ids is None else ids)))

    def names(self, host):
        return [each.name for each in self.grouping.group(host)]

    def test_host_has_its_aggregates_by_their_ids(self):
        self.apply(said(9, 'a', 'b'), said(2, 'b', key='x'))

        self.assertEqual(['name9'], self.names('a'))
        self.assertEqual(['name2', 'name9'], self.names('b'))
        self.assertEqual([], self.names('c'))
        self.assertEqual(('uuid2', {'key': 'x'}), (
            self.grouping.group('b')[0].uuid,
            self.grouping.group('b')[0].metadata))

    def test_hosts_of_the_same_aggregates_share_them(self):
        self.apply(said(1, 'a', 'b'), said(2, 'a', 'b', 'c'))

        self.assertIs(self.grouping.group('a'), self.grouping.group('b'))
        self.assertNotEqual(self.grouping.group('a'),
                            self.grouping.group('c'))

    def test_touched_are_those_whose_aggregates_changed(self):
        self.assertEqual({'a', 'b', 'c'}, self.apply(
            said(1, 'a', 'b'), said(2, 'c')))

        self.assertEqual({'a', 'b', 'd'},
                         self.apply(said(1, 'b', 'd'), ids={1, 2}))
        self.assertEqual([[], ['name1'], ['name2'], ['name1']],
                         [self.names(host) for host in 'abcd'])

    def test_aggregate_that_goes_leaves_its_hosts(self):
        self.apply(said(1, 'a', 'b'), said(2, 'b'))

        self.assertEqual({'a', 'b'}, self.apply(ids={2}))

        self.assertEqual([[], ['name2']],
                         [self.names(host) for host in 'ab'])

    def test_nothing_changed_is_nothing_touched(self):
        self.apply(said(1, 'a'))

        self.assertEqual(set(), self.grouping.apply(
            aggregates.Changes((), False, [], None)))
        self.assertEqual(['name1'], self.names('a'))

    def test_zone_is_that_of_the_oldest_aggregate_that_says_one(self):
        self.apply(said(3, 'a', availability_zone='late'),
                   said(2, 'a', 'b', availability_zone='early'),
                   said(1, 'a', 'c', availability_zone=''))

        self.assertEqual(['early', 'early', 'nova', 'nova'],
                         [self.grouping.zone(host) for host in 'abcd'])
