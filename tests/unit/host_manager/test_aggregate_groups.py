# SPDX-License-Identifier: Apache-2.0
"""Which aggregates hosts are in."""

from uuid import UUID

from cellsched.db.api import aggregates
from cellsched.host_manager import aggregate_groups
from cellsched import objects
from tests.unit import base


def said(number, *hosts, **metadata):
    return aggregates.AggregateRow(
        number, f'uuid{number}', f'name{number}', metadata, list(hosts))


class TestGrouping(base.TestCase):

    def setUp(self):
        super().setUp()
        self.grouping = aggregate_groups.AggregateGroups('nova')

    def apply(self, *changed, ids=None):
        return self.grouping.apply(aggregates.AggregateChanges(
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

    def test_hosts_of_changed_aggregates_are_returned(self):
        self.assertEqual({'a', 'b', 'c'}, self.apply(
            said(1, 'a', 'b'), said(2, 'c')))

        self.assertEqual({'a', 'b', 'd'},
                         self.apply(said(1, 'b', 'd'), ids={1, 2}))
        self.assertEqual([[], ['name1'], ['name2'], ['name1']],
                         [self.names(host) for host in 'abcd'])

    def tell(self, number, *hosts, uuid=None, **metadata):
        return self.grouping.tell(objects.Aggregate(
            id=number, uuid=uuid or str(UUID(int=number)),
            name=f'told{number}', hosts=list(hosts), metadata=metadata))

    def test_aggregate_that_a_caller_tells_of_stays_beside_the_others(self):
        self.apply(said(1, 'a', availability_zone='north'))

        self.assertEqual({'a', 'b'}, self.tell(
            1, 'a', 'b', availability_zone='south'))

        self.assertEqual(['name1', 'told1'], self.names('a'))
        self.assertEqual(['north', 'south'],
                         [self.grouping.zone(host) for host in 'ab'])
        self.apply(ids=())
        self.assertEqual([['told1']] * 2, [self.names(host) for host in 'ab'])

    def test_aggregate_that_a_caller_tells_again_is_another_one(self):
        self.tell(1, 'a', 'b')

        self.assertEqual({'a', 'b', 'c'}, self.tell(1, 'b', 'c'))

        self.assertEqual([[], ['told1'], ['told1']],
                         [self.names(host) for host in 'abc'])

    def test_values_of_the_database_take_precedence(self):
        uuid = str(UUID(int=7))
        self.apply(aggregates.AggregateRow(1, uuid, 'own', {}, ['a']))

        self.assertEqual(set(), self.tell(5, 'b', uuid=uuid))

        self.assertEqual([['own'], []], [self.names(host) for host in 'ab'])

    def test_aggregate_that_a_caller_takes_back_is_gone(self):
        self.apply(said(1, 'a'))
        self.tell(1, 'a')

        self.assertEqual({'a'}, self.grouping.forget(1))
        self.assertEqual(set(), self.grouping.forget(1))

        self.assertEqual(['name1'], self.names('a'))

    def test_every_argument_is_optional(self):
        self.grouping.tell(objects.Aggregate(id=1))

        self.assertEqual([], self.names('a'))

    def test_aggregate_that_goes_leaves_its_hosts(self):
        self.apply(said(1, 'a', 'b'), said(2, 'b'))

        self.assertEqual({'a', 'b'}, self.apply(ids={2}))

        self.assertEqual([[], ['name2']],
                         [self.names(host) for host in 'ab'])

    def test_nothing_changed_is_nothing_touched(self):
        self.apply(said(1, 'a'))

        self.assertEqual(set(), self.grouping.apply(
            aggregates.AggregateChanges((), False, [], None)))
        self.assertEqual(['name1'], self.names('a'))

    def test_zone_is_that_of_the_oldest_aggregate_that_says_one(self):
        self.apply(said(3, 'a', availability_zone='late'),
                   said(2, 'a', 'b', availability_zone='early'),
                   said(1, 'a', 'c', availability_zone=''))

        self.assertEqual(['early', 'early', 'nova', 'nova'],
                         [self.grouping.zone(host) for host in 'abcd'])
