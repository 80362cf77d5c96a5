# SPDX-License-Identifier: Apache-2.0
"""Queries for sharing providers: what the hosts of an aggregate share."""

from cellsched.db.api import aggregates
from cellsched.db.api import shared_providers
from cellsched import exception
from cellsched.objects import resources
from tests.unit.db.api import base
from tests.unit.db import samples
from tests.unit import racing


class TestSharedProviders(base.TestCase):

    def setUp(self):
        super().setUp()
        self.east, self.west = samples.uuids(2)
        self.numbers = {
            uuid: self.write(aggregates.create, uuid, name, [], {},
                             samples.NOW)
            for uuid, name in ((self.east, 'east'), (self.west, 'west'))}

    def pool(self, name='pool', **changes):
        return shared_providers.SharedProvider(
            samples.uuids(1)[0], name, self.east, frozenset({'A', 'B'}), {
                'DISK_GB': resources.Inventory(
                    1000, 10, 1.5, 2, 100, 2)})._replace(**changes)

    def create(self, *providers):
        for provider in providers:
            self.write(shared_providers.create, provider, samples.NOW)

    def update(self, provider):
        self.write(shared_providers.update, provider, samples.LATER)

    def listed(self):
        return self.read(shared_providers.list_all,
                         self.database.conditions)

    def test_provider_is_found_by_uuid_and_by_name(self):
        pool, other = self.pool(), self.pool('other')
        self.create(pool, other)

        for name in pool.uuid, 'pool':
            self.assertEqual(pool, self.read(shared_providers.get, name))
        self.assertEqual([other, pool], self.listed())

    def test_unreadable_provider_keeps_no_other(self):
        pool, other = self.pool(), self.pool('other')
        self.create(pool, other)
        table = shared_providers.models.shared_providers
        for values in ({'traits': 'junk'}, {'inventories': '[]'},
                       {'inventories': '{"DISK_GB": {"new": 1}}'},
                       {'inventories': '{"DISK_GB": {"total": "x"}}'}):
            with self.subTest(values=values):
                def spoil(connection):
                    connection.execute(table.update().where(
                        table.c.uuid == pool.uuid).values(**values))

                self.write(spoil)

                self.assertEqual([other], self.listed())
                self.assertIn("provider 'pool'", self.logs.output)
                error = self.assertRaises(
                    exception.DatabaseError, self.read,
                    shared_providers.get, 'pool')
                self.assertIn('pool', str(error))

    def test_unreadable_provider_is_logged_once(self):
        pool = self.pool()
        self.create(pool)
        table = shared_providers.models.shared_providers
        text = f'Sharing provider {pool.uuid} is left out'
        for traits, unreadable in ('{', True), ('[', True), ('[]', False):
            self.execute(table.update().values(traits=traits))
            self.listed()
            self.assertEqual(unreadable, text in self.database.conditions)
        self.assertEqual(1, self.logs.output.count(text))

    def test_uuid_precedes_a_name_equal_to_a_uuid(self):
        pool = self.pool()
        self.create(self.pool(pool.uuid), pool)

        self.assertEqual(pool, self.read(shared_providers.get, pool.uuid))

    def test_provider_has_its_changed_fields(self):
        pool, other = self.pool(), self.pool('other')
        self.create(pool, other)
        changed = pool._replace(
            name='new', aggregate_uuid=self.west, traits=frozenset(),
            inventories={})

        self.update(changed)

        self.assertEqual([changed, other], self.listed())

    def test_deleted_provider_is_not_listed(self):
        pool, other = self.pool(), self.pool('other')
        self.create(pool, other)

        self.write(shared_providers.delete, pool.uuid)

        self.assertEqual([other], self.listed())

    def test_name_and_uuid_are_taken_once(self):
        pool, other = self.pool(), self.pool('other')
        self.create(pool, other)

        for change in (
                lambda: self.create(self.pool()),
                lambda: self.create(self.pool('new', uuid=pool.uuid)),
                lambda: self.update(other._replace(name='pool'))):
            self.assertRaises(exception.ResourceProviderExists, change)
        self.assertEqual([other, pool], self.listed())

    def test_unknown_provider_is_an_error(self):
        for call in (
                lambda: self.read(shared_providers.get, 'pool'),
                lambda: self.update(self.pool()),
                lambda: self.write(shared_providers.delete, 'pool')):
            self.assertRaises(exception.ResourceProviderNotFound, call)

    def test_unknown_aggregate_is_an_error(self):
        pool = self.pool()
        self.create(pool)
        nowhere = samples.uuids(1)[0]

        for call in (
                lambda: self.create(
                    self.pool('new', aggregate_uuid=nowhere)),
                lambda: self.update(pool._replace(aggregate_uuid=nowhere))):
            error = self.assertRaises(exception.AggregateNotFound, call)
            self.assertEqual(nowhere, error.aggregate)
        self.assertEqual([pool], self.listed())

    def test_aggregate_of_a_shared_provider_stays(self):
        pool = self.pool()
        self.create(pool)

        error = self.assertRaises(
            exception.AggregateInUse, self.write, aggregates.delete,
            self.numbers[self.east], samples.LATER)

        self.assertEqual(('east', 'pool'), (error.aggregate, error.provider))
        self.assertEqual(2, len(self.read(aggregates.list_all)))
        self.write(aggregates.delete, self.numbers[self.west], samples.LATER)
        self.write(shared_providers.delete, pool.uuid)
        self.write(aggregates.delete, self.numbers[self.east], samples.LATER)

    def test_provider_and_end_of_its_aggregate_exclude_each_other(self):
        outcomes = racing.race(
            lambda: self.write(aggregates.delete, self.numbers[self.east],
                               samples.LATER),
            *[lambda name=name: self.create(self.pool(name))
              for name in ('a', 'b', 'c')])

        there = {each.uuid for each in self.read(aggregates.list_all)}
        shared = {each.aggregate_uuid for each in self.listed()}
        self.assertLessEqual(shared, there)
        self.assertEqual(
            {exception.AggregateInUse} if shared
            else {exception.AggregateNotFound},
            {type(each) for each in outcomes if each is not None})

    def test_each_change_changes_the_fingerprint(self):
        pool = self.pool()
        seen = [self.read(shared_providers.fingerprint)]
        for change in (
                lambda: self.create(pool),
                lambda: self.update(pool._replace(name='new')),
                lambda: self.update(pool._replace(traits=frozenset())),
                lambda: self.write(shared_providers.delete, pool.uuid),
                lambda: self.create(pool)):
            change()
            seen.append(self.read(shared_providers.fingerprint))
            self.assertEqual(
                seen[-1], self.read(shared_providers.fingerprint))

        self.assertEqual(len(seen), len(set(seen)))
