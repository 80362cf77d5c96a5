# SPDX-License-Identifier: Apache-2.0
"""Which aggregates hosts are in."""

from uuid import UUID

from cellsched.db.api import aggregates
from cellsched.host_manager import aggregate_groups
from cellsched import objects
from tests.unit import base


def row_of(number, *hosts, **metadata):
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

    def test_host_has_its_aggregates_ordered_by_id(self):
        self.apply(row_of(9, 'a', 'b'), row_of(2, 'b', key='x'))

        self.assertEqual(['name9'], self.names('a'))
        self.assertEqual(['name2', 'name9'], self.names('b'))
        self.assertEqual([], self.names('c'))
        self.assertEqual(('uuid2', {'key': 'x'}), (
            self.grouping.group('b')[0].uuid,
            self.grouping.group('b')[0].metadata))

    def test_hosts_of_the_same_aggregates_share_a_group(self):
        self.apply(row_of(1, 'a', 'b'), row_of(2, 'a', 'b', 'c'))

        self.assertIs(self.grouping.group('a'), self.grouping.group('b'))
        self.assertNotEqual(self.grouping.group('a'),
                            self.grouping.group('c'))

    def test_hosts_of_changed_aggregates_are_returned(self):
        self.assertEqual({'a', 'b', 'c'}, self.apply(
            row_of(1, 'a', 'b'), row_of(2, 'c')))

        self.assertEqual({'a', 'b', 'd'},
                         self.apply(row_of(1, 'b', 'd'), ids={1, 2}))
        self.assertEqual([[], ['name1'], ['name2'], ['name1']],
                         [self.names(host) for host in 'abcd'])

    def update(self, number, *hosts, uuid=None, **metadata):
        return self.grouping.tell(objects.Aggregate(
            id=number, uuid=uuid or str(UUID(int=number)),
            name=f'told{number}', hosts=list(hosts), metadata=metadata))

    def test_aggregate_of_a_caller_adds_to_read_aggregates(self):
        self.apply(row_of(1, 'a', availability_zone='north'))

        self.assertEqual({'a', 'b'}, self.update(
            1, 'a', 'b', availability_zone='south'))

        self.assertEqual(['name1', 'told1'], self.names('a'))
        self.assertEqual(['north', 'south'],
                         [self.grouping.zone(host) for host in 'ab'])
        self.apply(ids=())
        self.assertEqual([['told1']] * 2, [self.names(host) for host in 'ab'])

    def test_second_update_of_a_caller_replaces_the_first(self):
        self.update(1, 'a', 'b')

        self.assertEqual({'a', 'b', 'c'}, self.update(1, 'b', 'c'))

        self.assertEqual([[], ['told1'], ['told1']],
                         [self.names(host) for host in 'abc'])

    def test_values_of_the_database_take_precedence(self):
        uuid = str(UUID(int=7))
        self.apply(aggregates.AggregateRow(1, uuid, 'own', {}, ['a']))

        self.assertEqual(set(), self.update(5, 'b', uuid=uuid))

        self.assertEqual([['own'], []], [self.names(host) for host in 'ab'])

    def test_deleted_aggregate_of_a_caller_is_removed(self):
        self.apply(row_of(1, 'a'))
        self.update(1, 'a')

        self.assertEqual({'a'}, self.grouping.forget(1))
        self.assertEqual(set(), self.grouping.forget(1))

        self.assertEqual(['name1'], self.names('a'))

    def test_every_argument_is_optional(self):
        self.grouping.tell(objects.Aggregate(id=1))

        self.assertEqual([], self.names('a'))

    def test_removed_aggregate_is_removed_from_its_hosts(self):
        self.apply(row_of(1, 'a', 'b'), row_of(2, 'b'))

        self.assertEqual({'a', 'b'}, self.apply(ids={2}))

        self.assertEqual([[], ['name2']],
                         [self.names(host) for host in 'ab'])

    def test_empty_change_touches_no_host(self):
        self.apply(row_of(1, 'a'))

        self.assertEqual(set(), self.grouping.apply(
            aggregates.AggregateChanges((), False, [], None)))
        self.assertEqual(['name1'], self.names('a'))

    def test_zone_comes_from_the_oldest_aggregate_with_a_zone(self):
        self.apply(row_of(3, 'a', availability_zone='late'),
                   row_of(2, 'a', 'b', availability_zone='early'),
                   row_of(1, 'a', 'c', availability_zone=''))

        self.assertEqual(['early', 'early', 'nova', 'nova'],
                         [self.grouping.zone(host) for host in 'abcd'])
