# SPDX-License-Identifier: Apache-2.0
"""Sharing providers: create, change, delete."""

import sqlalchemy as sa

from cellsched.api import provider_records
from cellsched.db.api import models as api_models
from cellsched import exception
from cellsched.objects import resources
from tests.unit.api import hostile
from tests.unit.api import sharing
from tests.unit.db import samples


class TestSharing(sharing.TestCase):

    def test_provider_has_what_it_was_created_with(self):
        made = self.create(
            inventories={'DISK_GB': {'total': 1000, 'reserved': 10,
                                     'allocation_ratio': 2}},
            traits=['STORAGE_DISK_SSD'])

        self.assertEqual(provider_records.ProviderRecord(
            uuid=made.uuid, name='pool', kind='sharing', parent=None,
            root=made.uuid, host=None, cell=None, aggregate='racks',
            traits=frozenset({'STORAGE_DISK_SSD'}),
            inventories={'DISK_GB': provider_records.ClassUsage(
                resources.Inventory(1000, 10, 2), 0)}), made)
        for name in 'pool', made.uuid:
            self.assertEqual(made, self.get(name))
        self.assertEqual({'DISK_GB': 1980}, self.capacity(made.uuid))

    def test_what_is_taken_is_shown(self):
        made = self.create()
        self.claim(made.uuid, DISK_GB=30)
        self.claim(made.uuid, DISK_GB=12)

        shown = self.get()

        self.assertEqual(2, shown.consumers)
        self.assertEqual(42, shown.inventories['DISK_GB'].used)

    def test_creation_that_is_repeated_changes_nothing(self):
        made = self.create()

        self.assertEqual(made, self.create())
        self.assertEqual(['pool'], self.named())

    def test_name_is_taken_by_what_is_not_the_same(self):
        self.create()
        self.create('other')
        self.aggregates.create(sharing.ADMIN, 'more')

        for call in (lambda: self.create(inventories={}),
                     lambda: self.create(traits=['CUSTOM_X']),
                     lambda: self.providers.create(
                         sharing.ADMIN, 'pool', 'more', sharing.DISK),
                     lambda: self.update('other', new_name='pool',
                                         inventories={'DISK_GB': None})):
            self.assertRaises(exception.ResourceProviderExists, call)
        self.assertEqual(1000, self.get('other').inventories[
            'DISK_GB'].inventory.total)

    def test_what_is_changed_is_changed_and_the_rest_stays(self):
        made = self.create(traits=['CUSTOM_A', 'CUSTOM_B'])
        self.aggregates.create(sharing.ADMIN, 'more')

        changed = self.update(
            inventories={'DISK_GB': {'reserved': 5},
                         'CUSTOM_X': {'total': 3}},
            add_traits=['CUSTOM_C'], remove_traits=['CUSTOM_A', 'CUSTOM_D'])

        self.assertEqual(
            ({'CUSTOM_B', 'CUSTOM_C'}, 'racks', made.uuid),
            (changed.traits, changed.aggregate, changed.uuid))
        self.assertEqual({'DISK_GB': 995, 'CUSTOM_X': 3},
                         self.capacity(made.uuid))
        moved = self.update(new_name='new', aggregate='more',
                            inventories={'DISK_GB': None})
        self.assertEqual(('new', 'more'), (moved.name, moved.aggregate))
        self.assertEqual({'CUSTOM_X': 3}, self.capacity(made.uuid))
        self.assertEqual(['new'], self.named())

    def test_inventory_may_shrink_below_what_is_taken(self):
        made = self.create()
        self.claim(made.uuid, DISK_GB=30)

        changed = self.update(inventories={'DISK_GB': None})

        self.assertEqual((0, 30, ['DISK_GB']), (
            changed.inventories['DISK_GB'].inventory.total,
            changed.inventories['DISK_GB'].used, changed.over_capacity))

    def test_inventory_that_shrank_is_over_until_as_much_is_there(self):
        made = self.create(inventories={
            'DISK_GB': {'total': 40}, 'CUSTOM_X': {'total': 1}})
        self.claim(made.uuid, DISK_GB=30)

        for total, over in ((31, []), (30, []), (29, ['DISK_GB'])):
            self.assertEqual(over, self.update(inventories={
                'DISK_GB': {'total': total}}).over_capacity)
        self.assertRaises(
            exception.ClaimRefused, self.claim, made.uuid, DISK_GB=1)
        self.claim(made.uuid, CUSTOM_X=1)

    def test_deleted_provider_is_gone_and_has_nothing(self):
        made = self.create()
        self.store.release([self.claim(made.uuid, DISK_GB=1)])

        self.delete()

        self.assertEqual([], self.named())
        self.assertEqual({}, self.capacity(made.uuid))
        for call in self.get, self.delete, self.update:
            self.assertRaises(exception.ResourceProviderNotFound, call)

    def test_provider_of_which_something_is_held_stays(self):
        made = self.create()
        self.claim(made.uuid, DISK_GB=30)

        error = self.assertRaises(
            exception.ResourceProviderInUse, self.delete)

        self.assertEqual(('pool', 1), (error.provider, error.count))
        # Not for a moment was there nothing.
        self.assertNotIn({}, self.store.told)
        self.assertEqual({'DISK_GB': 1000}, self.capacity(made.uuid))

    def test_provider_that_is_taken_meanwhile_stays_as_it_was(self):
        made = self.create()
        self.store.before_change = lambda: self.claim(
            made.uuid, DISK_GB=30)

        self.assertRaises(exception.ResourceProviderInUse, self.delete)

        self.assertEqual({'DISK_GB': 1000}, self.capacity(made.uuid))
        self.assertEqual(['pool'], self.named())

    def test_last_change_of_the_row_is_what_the_store_has(self):
        made = self.create()
        self.store.before_change = lambda: self.update(
            inventories={'DISK_GB': {'total': 7}})

        self.update(inventories={'DISK_GB': {'total': 5}})

        self.assertEqual({'DISK_GB': 7}, self.capacity(made.uuid))

    def test_provider_that_went_meanwhile_has_nothing(self):
        made = self.create()
        self.store.before_change = self.delete

        self.assertRaises(
            exception.ResourceProviderNotFound, self.update,
            inventories={'DISK_GB': {'total': 5}})

        self.assertEqual({}, self.capacity(made.uuid))

    def test_deleted_provider_has_nothing_that_a_change_gave_back(self):
        made = self.create()
        self.store.after_change = self.update

        self.delete()

        self.assertEqual({}, self.capacity(made.uuid))

    def test_aggregate_whose_hosts_share_one_stays(self):
        self.create()

        error = self.assertRaises(
            exception.AggregateInUse, self.aggregates.delete, sharing.ADMIN,
            'racks')

        self.assertIn('provider pool; that has to go first', str(error))
        self.delete()
        self.aggregates.delete(sharing.ADMIN, 'racks')

    def test_aggregate_has_to_be_there_and_have_a_uuid(self):
        self.create()
        for aggregate in 'none', '99':
            for call in (
                    lambda: self.providers.create(
                        sharing.ADMIN, 'new', aggregate, sharing.DISK),
                    lambda: self.update(aggregate=aggregate)):
                self.assertRaises(exception.AggregateNotFound, call)
        self.write(self.database, lambda connection: connection.execute(
            sa.update(api_models.aggregates).values(uuid=None)))
        error = self.assertRaises(
            exception.InvalidField, self.create, 'new')
        self.assertEqual('aggregate', error.field)

    def test_bad_fields_are_refused_and_change_nothing(self):
        made = self.create()
        [uuid] = samples.uuids(1)
        for bad in *hostile.NAMES, uuid:
            for call in (lambda: self.create(bad),
                         lambda: self.update(
                             new_name='' if bad is None else bad)):
                self.assertEqual('name', self.assertRaises(
                    exception.InvalidField, call).field)
        for call, field in (
                (lambda: self.create('new', {'DISK_GB': {}}),
                 'DISK_GB.total'),
                (lambda: self.create('new', traits=['SSD']), 'traits'),
                (lambda: self.providers.create(
                    sharing.ADMIN, 'new', '', sharing.DISK),
                 'aggregate'),
                (lambda: self.update(new_name='new', inventories={
                    'DISK_GB': {'total': -1}}), 'DISK_GB.total'),
                (lambda: self.update(add_traits=['CUSTOM_X'],
                                     remove_traits=['x']), 'traits'),
                (lambda: self.get(''), 'name'),
                (lambda: self.delete(''), 'name'),
                (lambda: self.named(kind='pool'), 'kind')):
            self.assertEqual(field, self.assertRaises(
                exception.InvalidField, call).field)
        self.assertEqual([made],
                         self.providers.list(sharing.ADMIN).providers)
