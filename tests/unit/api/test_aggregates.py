# SPDX-License-Identifier: Apache-2.0
"""Aggregates: create, get, list, change, delete."""

from cellsched.api import aggregates
from cellsched.api import authorization
from cellsched.api import validation
from cellsched import context
from cellsched.db.api import host_mappings
from cellsched.db.cell import instances
from cellsched import exception
from tests.unit.api import hostile
from tests.unit.cells import base
from tests.unit.db import samples

ADMIN = context.admin()


class TestAggregates(base.TestCase):

    def setUp(self):
        super().setUp()
        self.aggregates = aggregates.Aggregates(
            authorization.LocalOperator(), self.database, self.targets,
            self.clock, 'nova')
        cell = self.cell = self.add_cell('cell1')
        with self.database.writer() as connection:
            host_mappings.create_missing(
                connection, ['a', 'b', 'c'], cell.id, samples.NOW)

    def hosts(self, name):
        return set(self.aggregates.get(ADMIN, name).hosts)

    def test_zone_of_a_host_with_servers_is_fixed(self):
        self.write(self.targets.database(self.cell), instances.create, [
            samples.instance('server', host='a')], samples.NOW)
        self.aggregates.create(ADMIN, 'east', {'availability_zone': 'east'})
        self.aggregates.create(ADMIN, 'plain')
        self.aggregates.create(ADMIN, 'same', {'availability_zone': 'nova'})
        change = {name: getattr(self.aggregates, name) for name in (
            'add_hosts', 'remove_hosts', 'set_metadata', 'delete')}

        def refused(before, after, name, *args):
            error = self.assertRaises(
                exception.ZoneInUse, change[name], ADMIN, *args)
            self.assertEqual(('a', before, after, 1), tuple(
                error.kwargs[key] for key in
                ('host', 'before', 'after', 'count')))
            self.assertEqual(409, error.code)

        refused('nova', 'east', 'add_hosts', 'east', ['b', 'a'])
        self.assertEqual(set(), self.hosts('east'))
        for name in 'plain', 'same':
            change['add_hosts'](ADMIN, name, ['a'])
        change['set_metadata'](ADMIN, 'plain', {'ssd': 'true'})
        change['remove_hosts'](ADMIN, 'same', ['a'])
        refused('nova', 'west', 'set_metadata', 'plain',
                {'availability_zone': 'west'})
        self.write(self.targets.database(self.cell), instances.delete,
                   'server', samples.NOW)
        change['set_metadata'](ADMIN, 'plain', {'availability_zone': 'west'})
        self.write(self.targets.database(self.cell), instances.create, [
            samples.instance('other', host='a')], samples.NOW)
        for name, *args in (
                ('set_metadata', 'plain', {'availability_zone': None}),
                ('remove_hosts', 'plain', ['a']), ('delete', 'plain')):
            refused('west', 'nova', name, *args)
        change['add_hosts'](ADMIN, 'plain', ['b'])
        change['remove_hosts'](ADMIN, 'plain', ['b'])
        self.assertEqual({'a'}, self.hosts('plain'))

    def test_aggregate_is_found_by_id_and_by_name(self):
        self.aggregates.create(ADMIN, 'other')
        made = self.aggregates.create(ADMIN, 'fast', {'ssd': 'true'})

        for name in 'fast', str(made.id):
            self.assertEqual(made, self.aggregates.get(ADMIN, name))
        self.assertEqual(({'ssd': 'true'}, []), (made.metadata, made.hosts))
        self.assertEqual(['other', 'fast'], [
            each.name for each in self.aggregates.list_all(ADMIN)])

    def test_number_is_no_name(self):
        self.aggregates.create(ADMIN, 'first')
        for name in '1', '7', '007':
            error = self.assertRaises(
                exception.InvalidField, self.aggregates.create, ADMIN, name)
            self.assertIn('is a number', str(error))
        self.aggregates.create(ADMIN, '1.0')

    def test_id_in_another_notation_is_unknown(self):
        made = self.aggregates.create(ADMIN, 'fast')

        for name in (f'0{made.id}', f' {made.id}', '\u0661', '\u00b9',
                     '9' * 200, '-1'):
            self.assertRaises(
                exception.AggregateNotFound, self.aggregates.get, ADMIN,
                name)

    def test_name_is_taken_once(self):
        self.aggregates.create(ADMIN, 'fast')

        self.assertRaises(
            exception.AggregateExists, self.aggregates.create, ADMIN,
            'fast')

    def test_metadata_is_changed_key_by_key(self):
        self.aggregates.create(ADMIN, 'fast', {'ssd': 'true', 'gpu': 'true'})

        changed = self.aggregates.set_metadata(
            ADMIN, 'fast', {'ssd': None, 'arm': 'no'})

        self.assertEqual({'gpu': 'true', 'arm': 'no'}, changed.metadata)
        self.assertEqual(changed, self.aggregates.get(ADMIN, 'fast'))

    def test_hosts_come_and_go(self):
        self.aggregates.create(ADMIN, 'fast')

        self.aggregates.add_hosts(ADMIN, 'fast', ['a', 'b'])
        self.aggregates.add_hosts(ADMIN, 'fast', ['b', 'c'])
        self.assertEqual({'a', 'b', 'c'}, self.hosts('fast'))

        self.aggregates.remove_hosts(ADMIN, 'fast', ['a', 'c'])
        self.assertEqual({'b'}, self.hosts('fast'))

    def test_unmapped_host_is_refused(self):
        self.aggregates.create(ADMIN, 'fast')

        error = self.assertRaises(
            exception.HostMappingNotFound, self.aggregates.add_hosts, ADMIN,
            'fast',
            ['a', 'nowhere'])

        self.assertEqual('nowhere', error.host)
        self.assertEqual(set(), self.hosts('fast'))

    def test_removal_of_a_foreign_host_is_refused(self):
        self.aggregates.create(ADMIN, 'fast')
        self.aggregates.add_hosts(ADMIN, 'fast', ['a'])

        error = self.assertRaises(
            exception.AggregateHostNotFound, self.aggregates.remove_hosts,
            ADMIN,
            'fast', ['a', 'b'])

        self.assertEqual("Host 'b' is not in aggregate fast.", str(error))
        self.assertEqual({'a'}, self.hosts('fast'))

    def test_second_zone_of_a_host_is_refused(self):
        self.aggregates.create(ADMIN, 'east', {'availability_zone': 'east'})
        self.aggregates.create(ADMIN, 'more', {'availability_zone': 'east'})
        self.aggregates.create(ADMIN, 'west', {'availability_zone': 'west'})
        self.aggregates.create(ADMIN, 'fast')
        self.aggregates.add_hosts(ADMIN, 'fast', ['a', 'b'])
        self.aggregates.add_hosts(ADMIN, 'east', ['a'])
        self.aggregates.add_hosts(ADMIN, 'more', ['a'])

        for change in (
                lambda: self.aggregates.add_hosts(ADMIN, 'west', ['b', 'a']),
                lambda: self.aggregates.set_metadata(
                    ADMIN, 'fast', {'availability_zone': 'west'})):
            error = self.assertRaises(exception.HostInOtherZone, change)
            self.assertEqual(('a', 'east'), (error.host, error.zone))
        self.assertEqual(set(), self.hosts('west'))
        self.assertEqual({}, self.aggregates.get(ADMIN, 'fast').metadata)

        self.aggregates.add_hosts(ADMIN, 'west', ['b'])

    def test_zone_of_a_single_aggregate_can_change(self):
        self.aggregates.create(ADMIN, 'east', {'availability_zone': 'east'})
        self.aggregates.add_hosts(ADMIN, 'east', ['a'])

        self.aggregates.set_metadata(
            ADMIN, 'east', {'availability_zone': 'west'})

        self.assertEqual({'availability_zone': 'west'},
                         self.aggregates.get(ADMIN, 'east').metadata)

    def test_deleted_aggregate_is_gone(self):
        self.aggregates.create(ADMIN, 'fast', {'ssd': 'true'})
        self.aggregates.add_hosts(ADMIN, 'fast', ['a'])

        self.aggregates.delete(ADMIN, 'fast')

        self.assertEqual([], self.aggregates.list_all(ADMIN))
        for call in (lambda name: self.aggregates.delete(ADMIN, name),
                     lambda name: self.aggregates.get(ADMIN, name),
                     lambda name: self.aggregates.add_hosts(
                         ADMIN, name, ['a']),
                     lambda name: self.aggregates.remove_hosts(
                         ADMIN, name, ['a']),
                     lambda name: self.aggregates.set_metadata(
                         ADMIN, name, {})):
            self.assertRaises(exception.AggregateNotFound, call, 'fast')

    def test_bad_names_are_refused(self):
        self.aggregates.create(ADMIN, 'fast')
        for bad in hostile.NAMES:
            for field, call in (
                ('name', lambda: self.aggregates.create(ADMIN, bad)),
                ('name', lambda: self.aggregates.get(ADMIN, bad)),
                ('name', lambda: self.aggregates.delete(ADMIN, bad)),
                ('name', lambda: self.aggregates.add_hosts(ADMIN, bad, ['a'])),
                ('hosts[0]', lambda: self.aggregates.add_hosts(
                    ADMIN, 'fast', [bad])),
                ('hosts[0]', lambda: self.aggregates.remove_hosts(
                    ADMIN, 'fast', [bad])),
                ('metadata.k', lambda: self.aggregates.create(
                    ADMIN, 'new', {'k': bad})),
            ):
                error = self.assertRaises(exception.InvalidField, call)
                self.assertEqual(field, error.field)
            if bad.__hash__ is not None:
                error = self.assertRaises(
                    exception.InvalidField, self.aggregates.set_metadata,
                    ADMIN, 'fast', {bad: 'x'})
                self.assertEqual('metadata', error.field)
        self.assertEqual(
            ['fast'], [each.name for each in self.aggregates.list_all(ADMIN)])

    def test_bad_host_lists_and_metadata_are_refused(self):
        self.aggregates.create(ADMIN, 'fast')
        many = validation.NAMES_MAX + 1
        for bad in 'a', None, 5, {'a'}, [], ['a'] * many:
            self.assertRaises(
                exception.InvalidField, self.aggregates.add_hosts, ADMIN,
                'fast', bad)
        for bad in ('a', 5, ['a'], dict.fromkeys(map(str, range(many))),
                    {'availability_zone': 'zone:host'}):
            self.assertRaises(
                exception.InvalidField, self.aggregates.set_metadata, ADMIN,
                'fast', bad)
