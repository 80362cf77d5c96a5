# SPDX-License-Identifier: Apache-2.0
"""Queries for host aggregates."""

import itertools

from cellsched.db.api import aggregates
from cellsched import exception
from tests.unit.db.api import base
from tests.unit.db.api import following
from tests.unit.db import meanwhile
from tests.unit.db import recording


class TestAggregates(following.Writing, base.TestCase):

    def zones(self):
        return self.read(aggregates.values_by_host, 'availability_zone',
                         ['a', 'b', 'c'])

    def test_id_precedes_a_name_equal_to_an_id(self):
        first, second = self.create('2', []), self.create('7', [])
        self.assertEqual((1, 2), (first, second))

        for name, number in ('1', first), ('2', second), ('7', second):
            self.assertEqual(number, self.read(aggregates.get, name).id)

    def test_hosts_without_the_key_have_no_zone(self):
        self.create('one', ['a'])
        self.create('two', [], availability_zone='east')

        self.assertEqual({}, self.zones())

    def test_host_has_the_metadata_of_all_its_aggregates(self):
        self.create('new', ['a', 'b'], availability_zone='east')
        self.create('old', ['b', 'c'], availability_zone='west')

        self.assertEqual(
            {'a': {'east'}, 'b': {'east', 'west'}, 'c': {'west'}},
            self.zones())

    def test_aggregates_of_named_hosts_list_only_named_hosts(self):
        one = self.create('one', ['a', 'b'], ssd='true')
        two = self.create('two', ['b', 'c'])
        self.create('three', ['c'])

        found = self.read(aggregates.of_hosts, ['b', 'a', 'x'])

        self.assertEqual(
            [(one, 'one', {'ssd': 'true'}, ['a', 'b']),
             (two, 'two', {}, ['b'])],
            [(each.id, each.name, each.metadata, sorted(each.hosts))
             for each in found])
        self.assertEqual([], self.read(aggregates.of_hosts, []))

    def test_hosts_are_found_by_the_metadata_of_aggregates(self):
        self.create('one', ['b', 'a'], filter_x1='p', other='q')
        self.create('two', ['c', 'a'], filter_x='p')
        self.create('three', ['d'], filter_x='q', filterax='p')

        self.assertEqual(['a', 'b', 'c'], self.read(
            aggregates.hosts_kept_for, 'filter_x', 'p', 9))
        self.assertEqual(['a', 'b'], self.read(
            aggregates.hosts_kept_for, 'filter_x', 'p', 2))

    def test_name_is_taken_once(self):
        self.create('one', [])

        error = self.assertRaises(
            exception.AggregateExists, self.create, 'one', [])
        self.assertIn('the name one already', str(error))

    def test_aggregate_is_found_by_its_name(self):
        self.create('one', ['a'], ssd='true')
        number = self.create('two', ['c', 'b'], ssd='false', gpu='true')

        found = self.read(aggregates.get, 'two')

        self.assertEqual(
            (number, 'two', {'ssd': 'false', 'gpu': 'true'}, {'b', 'c'}),
            (found.id, found.name, found.metadata, set(found.hosts)))
        self.assertEqual(36, len(found.uuid))
        self.assertEqual(
            ['one', 'two'],
            [each.name for each in self.read(aggregates.list_all)])
        self.assertRaises(
            exception.AggregateNotFound, self.read, aggregates.get, 'three')

    def test_metadata_is_changed_key_by_key(self):
        number = self.create('one', [], a='1', b='2', c='3')

        self.set_metadata(number, {'a': None, 'b': '4', 'd': '5', 'e': None})

        self.assertEqual({'b': '4', 'c': '3', 'd': '5'},
                         self.read(aggregates.get, 'one').metadata)

    def test_hosts_are_added_and_removed(self):
        number = self.create('one', ['a', 'b'])
        self.create('two', ['a', 'b'])

        self.add_hosts(number, ['b', 'c', 'c'])
        self.remove_hosts(number, ['a', 'd'])

        self.assertEqual({'b', 'c'},
                         set(self.read(aggregates.get, 'one').hosts))
        self.assertEqual({'a', 'b'},
                         set(self.read(aggregates.get, 'two').hosts))

    def test_deleted_aggregate_is_deleted_with_its_hosts_and_metadata(self):
        number = self.create('one', ['a'], availability_zone='east')

        self.delete(number)

        self.assertEqual([], self.read(aggregates.list_all))
        self.assertEqual({}, self.zones())

    def test_unknown_aggregate_is_an_error(self):
        for change, *arguments in (
                (self.set_metadata, {'a': '1'}), (self.add_hosts, ['a']),
                (self.remove_hosts, ['a']), (self.delete,)):
            error = self.assertRaises(
                exception.AggregateNotFound, change, 7, *arguments)
            self.assertEqual('There is no aggregate 7.', str(error))


class TestChanges(following.Tests, base.TestCase):

    def setUp(self):
        super().setUp()
        self.follower = following.Follower(self.database)

    def poll(self):
        """Return names of what changed, and how many there are."""
        changes = self.follower.poll()
        return ([each.name for each in changes.aggregates],
                changes.ids if changes.ids is None else len(changes.ids))

    def test_each_write_is_a_change_of_its_aggregate(self):
        self.create('one', ['a'])
        number = self.create('two', [], ssd='true')
        self.assertEqual((['one', 'two'], 2), self.poll())

        for change, *arguments in (
                (self.set_metadata, {'ssd': None}), (self.add_hosts, ['a']),
                (self.remove_hosts, ['a'])):
            change(number, *arguments)
            self.assertEqual((['two'], 2), self.poll())
        self.create('three', [])
        self.assertEqual((['three'], 3), self.poll())

    def test_deleted_aggregate_is_missing_from_the_ids(self):
        number = self.create('one', [])
        other = self.create('two', [])
        self.poll()

        self.delete(number)

        changes = self.follower.poll()
        self.assertFalse(changes.complete)
        self.assertEqual([], changes.aggregates)
        self.assertEqual({other}, changes.ids)

    def test_token_of_another_database_returns_all_aggregates(self):
        self.create('one', ['a'], ssd='true')
        everything = self.read(aggregates.changes)

        self.assertTrue(everything.complete)
        self.assertEqual(everything, self.read(
            aggregates.changes, (everything.token[0] + 1,)))
        self.assertEqual(everything, self.read(aggregates.changes, (0, 0)))

    def test_empty_tables_give_an_empty_result(self):
        self.assertEqual(([], 0), self.poll())
        self.assertEqual(([], None), self.poll())

    def test_poll_without_a_change_reads_the_lane_only(self):
        self.create('one', ['a'], ssd='true')
        self.poll()

        with recording.recorded(self.database) as statements:
            self.assertEqual(([], None), self.poll())

        self.assertEqual(1, len(statements))
        self.assertIn('aggregate_lanes', statements[0][0])

    def test_statements_do_not_grow_with_the_aggregates(self):
        self.poll()
        for number in range(30):
            self.create(f'many{number}', ['a', 'b'], ssd='true')

        with recording.recorded(self.database) as statements:
            names, count = self.poll()

        self.assertEqual((30, 30), (len(names), count))
        self.assertEqual(4, len(statements))


class TestConcurrentChanges(following.Writing, base.TestCase):

    def test_follower_misses_no_change_made_between_its_statements(self):
        numbers = itertools.count()
        one = self.create('one', ['a'])

        def change():
            number = str(next(numbers))
            self.set_metadata(one, {'number': number})
            self.delete(self.create(f'{number} goes', []))
            self.create(f'{number} stays', ['b'])

        follower = following.Follower(self.database)
        for _ in range(3):
            with meanwhile.between_statements(self.database, change):
                follower.poll()
            follower.poll()
            newcomer = following.Follower(self.database)
            newcomer.poll()
            self.assertEqual(newcomer.aggregates, follower.aggregates)
