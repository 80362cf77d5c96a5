# SPDX-License-Identifier: Apache-2.0
"""Resource providers: list and get."""

import sqlalchemy as sa

from cellsched.api import provider_records
from cellsched.db.api import models as api_models
from cellsched.db.api import shared_providers
from cellsched.db.cell import compute_nodes
from cellsched import exception
from cellsched.objects import child_providers
from cellsched.objects import resources
from tests.unit.api import sharing
from tests.unit.db import samples


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
        table = api_models.cell_mappings
        self.write(self.database, lambda connection: connection.execute(
            sa.update(table).where(table.c.id == cell.id).values(
                database_connection=f'sqlite:///{self.id()}/gone.sqlite')))
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
            self.assertEqual(provider_records.ProviderRecord(
                uuid=self.nodes['e1'], name='e1', kind='root', parent=None,
                root=self.nodes['e1'], host='host-e1', cell='east',
                aggregate=None, traits=frozenset({'HW_CPU_X86_VMX'}),
                inventories={'VCPU': provider_records.ClassUsage(
                    resources.Inventory(8, allocation_ratio=4.0), 3)},
                consumers=1), self.get(name))

    def test_children_come_after_their_node(self):
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
        self.assertEqual(provider_records.ProviderRecord(
            uuid=gpu.uuid, name='gpu', kind='child', parent=node, root=node,
            host='host-e1a', cell='east', aggregate=None,
            traits=frozenset({'CUSTOM_GPU'}),
            inventories={'VGPU': provider_records.ClassUsage(
                resources.Inventory(4), 1)}, consumers=1), self.get('gpu'))
        self.assertEqual((gpu.uuid, node), (
            self.get(part.uuid).parent, self.get(part.uuid).root))

    def test_node_that_the_store_never_heard_of_has_nothing(self):
        database = self.targets.database(self.east)
        self.write(database, compute_nodes.save, samples.uuids(1)[0], 'new',
                   'new', samples.NODE, database.now())

        self.assertEqual({}, self.get('new').inventories)

    def test_cells_that_are_down_are_named(self):
        self.take_down(self.east)

        page = self.providers.list(sharing.ADMIN)

        self.assertEqual(['east'], page.down_cells)
        self.assertEqual(['w1', 'pool'],
                         [each.name for each in page.providers])

    def test_what_may_be_in_a_cell_that_is_down_is_not_said_to_be_missing(
            self):
        self.take_down(self.east)

        self.assertEqual('w1', self.get('w1').name)
        error = self.assertRaises(exception.CellsDown, self.get, 'e1')
        self.assertEqual('east', error.cells)
        self.assertRaises(
            exception.ResourceProviderNotFound, self.delete, 'e1')

    def test_name_that_several_have_is_refused_with_their_uuids(self):
        other = self.add_node(self.west, 'e1')

        error = self.assertRaises(exception.InvalidField, self.get, 'e1')

        for uuid in other, self.nodes['e1']:
            self.assertIn(uuid, str(error))
            self.assertEqual(uuid, self.get(uuid).uuid)

    def test_sharing_provider_is_shown_whatever_cells_are_down(self):
        self.take_down(self.east)

        self.assertEqual('sharing', self.get('pool').kind)
        self.assertEqual([], self.providers.list(
            sharing.ADMIN, kind='sharing').down_cells)

    def test_store_is_asked_as_often_for_many_as_for_one(self):
        for number in range(20):
            self.add_node(self.west, f'more{number}')
            self.create(f'pool{number}')
        self.store.calls = 1

        self.assertEqual(44, len(self.named()))

    def test_row_that_lost_its_aggregate_is_listed(self):
        self.write(self.database, lambda connection: connection.execute(
            sa.delete(api_models.aggregates)))
        [shared] = self.read(self.database, shared_providers.list_all)

        self.assertEqual(shared.aggregate_uuid, self.get('pool').aggregate)
