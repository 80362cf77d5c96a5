# SPDX-License-Identifier: Apache-2.0
"""Sharing providers: create, change, delete."""

import itertools

import hypothesis
from hypothesis import strategies
import sqlalchemy as sa

from cellsched.api import providers
from cellsched.claims import validation
from cellsched.db.api import models as api_models
from cellsched.db.api import shared_providers
from cellsched.db.cell import compute_nodes
from cellsched import exception
from cellsched.objects import child_providers
from cellsched.objects import resources
from tests.unit.api import hostile
from tests.unit.api import sharing
from tests.unit import base
from tests.unit.db import samples


class TestSharing(sharing.TestCase):

    def test_provider_has_the_fields_of_its_creation(self):
        made = self.create(
            inventories={'DISK_GB': {'total': 1000, 'reserved': 10,
                                     'allocation_ratio': 2}},
            traits=['STORAGE_DISK_SSD'])

        self.assertEqual(providers.ProviderRecord(
            uuid=made.uuid, name='pool', kind='sharing', parent=None,
            root=made.uuid, host=None, cell=None, aggregate='racks',
            traits=frozenset({'STORAGE_DISK_SSD'}),
            inventories={'DISK_GB': providers.ClassUsage(
                resources.Inventory(1000, 10, 2), 0)}), made)
        for name in 'pool', made.uuid:
            self.assertEqual(made, self.get(name))
        self.assertEqual({'DISK_GB': 1980}, self.capacity(made.uuid))

    def test_usage_is_shown(self):
        made = self.create()
        self.claim(made.uuid, DISK_GB=30)
        self.claim(made.uuid, DISK_GB=12)

        shown = self.get()

        self.assertEqual(2, shown.consumers)
        self.assertEqual(42, shown.inventories['DISK_GB'].used)

    def test_repeated_creation_is_idempotent(self):
        made = self.create()

        self.assertEqual(made, self.create())
        self.assertEqual(['pool'], self.named())

    def test_name_of_another_provider_is_refused(self):
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

    def test_only_given_fields_of_a_provider_change(self):
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

    def test_inventory_may_shrink_below_the_usage(self):
        made = self.create()
        self.claim(made.uuid, DISK_GB=30)

        changed = self.update(inventories={'DISK_GB': None})

        self.assertEqual((0, 30, ['DISK_GB']), (
            changed.inventories['DISK_GB'].inventory.total,
            changed.inventories['DISK_GB'].used, changed.over_capacity))

    def test_shrunk_inventory_is_over_capacity_below_the_usage(self):
        made = self.create(inventories={
            'DISK_GB': {'total': 40}, 'CUSTOM_X': {'total': 1}})
        self.claim(made.uuid, DISK_GB=30)

        for total, over in ((31, []), (30, []), (29, ['DISK_GB'])):
            self.assertEqual(over, self.update(inventories={
                'DISK_GB': {'total': total}}).over_capacity)
        self.assertRaises(
            exception.ClaimRefused, self.claim, made.uuid, DISK_GB=1)
        self.claim(made.uuid, CUSTOM_X=1)

    def test_deleted_provider_is_gone_and_has_no_capacity(self):
        made = self.create()
        self.store.release([self.claim(made.uuid, DISK_GB=1)])

        self.delete()

        self.assertEqual([], self.named())
        self.assertEqual({}, self.capacity(made.uuid))
        for call in self.get, self.delete, self.update:
            self.assertRaises(exception.ResourceProviderNotFound, call)

    def test_claimed_provider_stays(self):
        made = self.create()
        self.claim(made.uuid, DISK_GB=30)

        error = self.assertRaises(
            exception.ResourceProviderInUse, self.delete)

        self.assertEqual(('pool', 1), (error.provider, error.count))
        # Not for a moment was there nothing.
        self.assertNotIn({}, self.store.told)
        self.assertEqual({'DISK_GB': 1000}, self.capacity(made.uuid))

    def test_provider_claimed_during_its_deletion_is_unchanged(self):
        made = self.create()
        self.store.before_change = lambda: self.claim(
            made.uuid, DISK_GB=30)

        self.assertRaises(exception.ResourceProviderInUse, self.delete)

        self.assertEqual({'DISK_GB': 1000}, self.capacity(made.uuid))
        self.assertEqual(['pool'], self.named())

    def test_claim_store_has_the_last_change_of_the_row(self):
        made = self.create()
        self.store.before_change = lambda: self.update(
            inventories={'DISK_GB': {'total': 7}})

        self.update(inventories={'DISK_GB': {'total': 5}})

        self.assertEqual({'DISK_GB': 7}, self.capacity(made.uuid))

    def test_update_of_an_ever_changing_provider_ends(self):
        self.create()
        totals = itertools.count(10)

        def change():
            self.store.before_change = change
            row = self.providers._get_shared('pool')
            with self.database.writer() as connection:
                shared_providers.update(connection, row._replace(
                    inventories={'DISK_GB': resources.Inventory(
                        next(totals))}), self.clock.now())

        self.store.before_change = change

        self.assertRaises(exception.ServiceBusy, self.update,
                          inventories={'DISK_GB': {'total': 5}})

        self.store.before_change = None
        self.update(inventories={'DISK_GB': {'total': 5}})
        self.assertEqual({'DISK_GB': 5}, self.capacity(
            self.providers._get_shared('pool').uuid))

    def test_provider_deleted_during_an_update_has_no_capacity(self):
        made = self.create()
        self.store.before_change = self.delete

        self.assertRaises(
            exception.ResourceProviderNotFound, self.update,
            inventories={'DISK_GB': {'total': 5}})

        self.assertEqual({}, self.capacity(made.uuid))

    def test_provider_updated_during_its_deletion_has_no_capacity(self):
        made = self.create()
        self.store.after_change = self.update

        self.delete()

        self.assertEqual({}, self.capacity(made.uuid))

    def test_aggregate_of_a_shared_provider_stays(self):
        self.create()

        error = self.assertRaises(
            exception.AggregateInUse, self.aggregates.delete, sharing.ADMIN,
            'racks')

        self.assertIn('provider pool; delete the provider first', str(error))
        self.delete()
        self.aggregates.delete(sharing.ADMIN, 'racks')

    def test_aggregate_without_a_row_or_uuid_is_refused(self):
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

    def test_bad_fields_are_refused_without_a_change(self):
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


KNOWN = {'DISK_GB': resources.Inventory(100, 5, 2.0, 1, 50, 5)}


class TestInventories(base.TestCase):

    def refusal(self, changes, known=KNOWN):
        error = self.assertRaises(
            exception.InvalidField, providers.changed_inventories, known,
            changes)
        self.assertEqual('provider', error.where)
        return error

    def test_omitted_fields_stay(self):
        self.assertEqual(
            {'DISK_GB': resources.Inventory(200, 5, 2.0, 1, 50, 5)},
            providers.changed_inventories(KNOWN, {'DISK_GB': {'total': 200}}))

    def test_new_class_has_defaults(self):
        self.assertEqual(
            {**KNOWN, 'CUSTOM_X': resources.Inventory(7, reserved=7)},
            providers.changed_inventories(
                KNOWN, {'CUSTOM_X': {'total': 7, 'reserved': 7}}))

    def test_class_is_removed(self):
        self.assertEqual({}, providers.changed_inventories(
            KNOWN, {'DISK_GB': None, 'VCPU': None}))

    def test_new_class_without_a_total_is_refused(self):
        self.assertEqual(
            'VCPU.total', self.refusal({'VCPU': {'reserved': 1}}).field)

    def test_refusal_names_the_field_and_the_bound(self):
        most = resources.AMOUNT_MAX
        for field, value, bound in (
                ('total', -1, f'0 to {most}'),
                ('total', most + 1, f'0 to {most}'),
                ('total', True, f'0 to {most}'),
                ('total', '5', f'0 to {most}'),
                ('reserved', -1, f'0 to {most}'),
                ('reserved', 101, 'at most the total, 100'),
                ('min_unit', 0, f'1 to {most}'),
                ('min_unit', 51, 'at most the max_unit, 50'),
                ('max_unit', 0, f'1 to {most}'),
                ('step_size', 0, f'1 to {most}'),
                ('allocation_ratio', 0, 'above 0, at most 1000000'),
                ('allocation_ratio', 1e7, 'above 0, at most 1000000'),
                ('allocation_ratio', float('nan'), 'above 0'),
                ('allocation_ratio', True, 'above 0'),
                ('allocation_ratio', None, 'above 0')):
            error = self.refusal({'DISK_GB': {field: value}})
            self.assertEqual(f'DISK_GB.{field}', error.field)
            self.assertIn(bound, str(error))

    def test_invalid_inventory_is_refused(self):
        for changes, field in (
                ('DISK_GB', 'inventories'), (None, 'inventories'),
                ([('DISK_GB', {})], 'inventories'),
                ({'DISK_GB': 5}, 'DISK_GB'),
                ({'DISK_GB': {'size': 5}}, 'DISK_GB'),
                ({'DISK_GB': {5: 5}}, 'DISK_GB'),
                ({'disk_gb': {'total': 5}}, 'inventories'),
                ({'CUSTOM_': {'total': 5}}, 'inventories'),
                ({f'CUSTOM_{"X" * 249}': None}, 'inventories'),
                ({f'CUSTOM_{number}': {'total': 1} for number in range(1001)},
                 'number of resource classes')):
            self.assertEqual(field, self.refusal(changes).field)
        for bad in hostile.NAMES:
            if bad.__hash__ is not None:
                self.assertEqual(
                    'inventories', self.refusal({bad: {'total': 1}}).field)

    @hypothesis.given(strategies.dictionaries(
        strategies.sampled_from(('total', 'reserved', 'min_unit', 'max_unit',
                                 'step_size', 'allocation_ratio')),
        strategies.integers(-1, 2 ** 33) | strategies.floats()
        | strategies.none()))
    def test_accepted_inventory_is_valid_for_claim_stores(self, fields):
        try:
            taken = providers.changed_inventories({}, {'DISK_GB': fields})
        except exception.InvalidField:
            return

        validation.check_inventory('a', taken)
        self.assertEqual(fields['total'], taken['DISK_GB'].total)


class TestTraits(base.TestCase):

    def test_standard_and_custom_names_are_taken(self):
        names = ['STORAGE_DISK_SSD', 'CUSTOM_POOL_1', f'CUSTOM_{"X" * 248}']

        self.assertEqual(frozenset(names), providers.check_traits(
            'traits', [*names, names[0]]))

    def test_unknown_traits_are_refused(self):
        for bad in ('STORAGE_DISK_SSD', None, 5, ['SSD'], ['custom_x'],
                    ['CUSTOM_'], [f'CUSTOM_{"X" * 249}'], [5],
                    ['CUSTOM_X\n'], ['CUSTOM_X'] * 1001):
            error = self.assertRaises(
                exception.InvalidField, providers.check_traits,
                'traits', bad)
            self.assertIn('traits', error.field)


class TestReading(sharing.TestCase):

    def setUp(self):
        super().setUp()
        self.west, self.east = self.add_cell('west'), self.add_cell('east')
        self.nodes = {name: self.add_node(cell, name) for cell, name in (
            (self.west, 'w1'), (self.east, 'e2'), (self.east, 'e1'))}
        self.create()

    def add_node(self, cell, name, **values):
        [uuid] = samples.uuids(1)
        database = self.targets.database(cell)
        uuid = self.write(
            database, compute_nodes.save, uuid, f'host-{name}', name,
            {**samples.NODE, 'traits': '["HW_CPU_X86_VMX"]', **values},
            database.now())
        self.store.set_inventory(uuid, {
            'VCPU': resources.Inventory(8, allocation_ratio=4.0)})
        return uuid

    def take_down(self, cell):
        samples.set_cell_url(self.database, cell.name)
        self.cells.refresh()

    def test_providers_are_listed_by_cell_and_name(self):
        self.assertEqual(['e1', 'e2', 'w1', 'pool'], self.named())

    def test_kinds_are_listed_apart(self):
        self.assertEqual(['e1', 'e2', 'w1'], self.named(kind='root'))
        self.assertEqual(['pool'], self.named(kind='sharing'))
        self.assertEqual([], self.named(kind='child'))

    def test_node_is_a_root(self):
        self.claim(self.nodes['e1'], VCPU=3)

        for name in 'e1', self.nodes['e1']:
            self.assertEqual(providers.ProviderRecord(
                uuid=self.nodes['e1'], name='e1', kind='root', parent=None,
                root=self.nodes['e1'], host='host-e1', cell='east',
                aggregate=None, traits=frozenset({'HW_CPU_X86_VMX'}),
                inventories={'VCPU': providers.ClassUsage(
                    resources.Inventory(8, allocation_ratio=4.0), 3)},
                consumers=1), self.get(name))

    def test_children_follow_the_node(self):
        gpu, part = (child_providers.Child(
            uuid, name, None, frozenset({'CUSTOM_GPU'}))
            for uuid, name in zip(samples.uuids(2), ('gpu', 'part')))
        part = part._replace(parent=gpu.uuid)
        node = self.add_node(
            self.east, 'e1a', providers=child_providers.dump([gpu, part]))
        self.store.set_inventory(gpu.uuid, {'VGPU': resources.Inventory(4)})
        self.claim(gpu.uuid, VGPU=1)

        self.assertEqual(['e1', 'e1a', 'gpu', 'part', 'e2', 'w1', 'pool'],
                         self.named())
        self.assertEqual(['gpu', 'part'], self.named(kind='child'))
        self.assertEqual(providers.ProviderRecord(
            uuid=gpu.uuid, name='gpu', kind='child', parent=node, root=node,
            host='host-e1a', cell='east', aggregate=None,
            traits=frozenset({'CUSTOM_GPU'}),
            inventories={'VGPU': providers.ClassUsage(
                resources.Inventory(4), 1)}, consumers=1), self.get('gpu'))
        self.assertEqual((gpu.uuid, node), (
            self.get(part.uuid).parent, self.get(part.uuid).root))

    def test_node_unknown_to_the_store_has_no_inventories(self):
        database = self.targets.database(self.east)
        self.write(database, compute_nodes.save, samples.uuids(1)[0], 'new',
                   'new', samples.NODE, database.now())

        self.assertEqual({}, self.get('new').inventories)

    def test_down_cells_are_named(self):
        self.take_down(self.east)

        page = self.providers.list(sharing.ADMIN)

        self.assertEqual(['east'], page.down_cells)
        self.assertEqual(['w1', 'pool'],
                         [each.name for each in page.providers])

    def test_provider_of_a_down_cell_is_not_reported_missing(self):
        self.take_down(self.east)

        self.assertEqual('w1', self.get('w1').name)
        error = self.assertRaises(exception.CellsDown, self.get, 'e1')
        self.assertEqual('east', error.cells)
        self.assertRaises(
            exception.ResourceProviderNotFound, self.delete, 'e1')

    def test_ambiguous_name_is_refused_with_the_uuids(self):
        other = self.add_node(self.west, 'e1')

        error = self.assertRaises(exception.InvalidField, self.get, 'e1')

        for uuid in other, self.nodes['e1']:
            self.assertIn(uuid, str(error))
            self.assertEqual(uuid, self.get(uuid).uuid)

    def test_sharing_provider_is_shown_while_cells_are_down(self):
        self.take_down(self.east)

        self.assertEqual('sharing', self.get('pool').kind)
        self.assertEqual([], self.providers.list(
            sharing.ADMIN, kind='sharing').down_cells)

    def test_listing_of_many_providers_calls_the_store_once(self):
        for number in range(20):
            self.add_node(self.west, f'more{number}')
            self.create(f'pool{number}')
        self.store.calls = 1

        self.assertEqual(44, len(self.named()))

    def test_row_without_its_aggregate_is_listed(self):
        self.write(self.database, lambda connection: connection.execute(
            sa.delete(api_models.aggregates)))
        [shared] = self.read(self.database, shared_providers.list_all,
                             self.database.conditions)

        self.assertEqual(shared.aggregate_uuid, self.get('pool').aggregate)


class TestKilled(sharing.TestCase):
    """The process may end anywhere; what is done again is done then."""

    def killed_everywhere(self, call):
        """Yield after each moment where the call is killed, if it is."""
        for calls in range(20):
            self.store.calls = calls
            try:
                call()
            except sharing.Killed:
                self.store.calls = None
                yield calls
                continue
            finally:
                self.store.calls = None
            self.assertLess(0, calls)
            return
        self.fail('it never comes to an end')

    def test_creation_is_finished_by_being_repeated(self):
        for _ in self.killed_everywhere(self.create):
            made = self.create()
            self.assertEqual({'DISK_GB': 1000}, self.capacity(made.uuid))
            self.delete()

    def test_change_is_finished_by_being_repeated(self):
        made = self.create()
        values = iter(range(2000, 3000))
        for _ in self.killed_everywhere(lambda: self.update(
                inventories={'DISK_GB': {'total': next(values)}})):
            value = next(values)
            self.update(inventories={'DISK_GB': {'total': value}})
            self.assertEqual({'DISK_GB': value}, self.capacity(made.uuid))

    def test_change_of_the_name_can_be_repeated_by_the_old_name(self):
        made = self.create()
        for _ in self.killed_everywhere(lambda: self.update(
                new_name='new', inventories={'DISK_GB': {'total': 5}})):
            if self.named() == ['new']:
                # All was done, and only the answer was lost.
                self.assertEqual({'DISK_GB': 5}, self.capacity(made.uuid))
                self.update('new', new_name='pool')
            self.update(inventories={'DISK_GB': {'total': 1000}})

    def test_deletion_is_finished_by_being_repeated(self):
        self.create()
        for _ in self.killed_everywhere(self.delete):
            if self.named():
                self.delete()
            self.assertEqual([], self.named())
            made = self.create()
        self.assertEqual({}, self.capacity(made.uuid))

    def test_killed_deletion_is_reverted_by_a_change(self):
        made = self.create()
        for _ in self.killed_everywhere(self.delete):
            if not self.named():
                made = self.create()
            self.update()
            self.assertEqual({'DISK_GB': 1000}, self.capacity(made.uuid))

    def test_refused_deletion_is_taken_back_by_being_repeated(self):
        made = self.create()
        self.store.before_change = lambda: self.claim(made.uuid, DISK_GB=1)
        self.store.calls = 2
        self.assertRaises(sharing.Killed, self.delete)
        self.store.calls = None

        self.assertRaises(exception.ResourceProviderInUse, self.delete)

        self.assertEqual({'DISK_GB': 1000}, self.capacity(made.uuid))
