# SPDX-License-Identifier: Apache-2.0
"""Reading hosts for one request."""

import sqlalchemy as sa

from cellsched.claims import base as claims
from cellsched.db.api import aggregates
from cellsched.db.api import models
from cellsched.db.api import shared_providers
from cellsched.host_manager import host_reader
from cellsched import objects
from tests.unit.db import samples
from tests.unit.hosts import loading
from tests.unit.hosts import world

FACTS = ('host', 'nodename', 'uuid', 'last_seen_up', 'vcpus_total',
         'unreserved_ram_mb', 'num_instances', 'available:VCPU',
         'available:VGPU@1')

CODED = ('cell', 'availability_zone', 'traits', 'children', 'child_uuids',
         'sharing', 'units')


class TestHostReader(loading.LoaderTestCase):

    def setUp(self):
        super().setUp()
        self.world.add_host('cell1', 'a2', 'n1', 'n2', vcpus=2)
        self.world.add_host('cell2', 'b2', children={
            'gpu': ({'VGPU': claims.Inventory(4)}, ['CUSTOM_A'])})
        with self.world.database.writer() as connection:
            self.pool = samples.uuids(1)[0]
            aggregates.create(
                connection, self.pool, 'pool', ['a1', 'b2', 'gone'],
                {'availability_zone': 'east'}, samples.NOW)
            self.shared = shared_providers.SharedProvider(
                samples.uuids(1)[0], 'disk', self.pool, frozenset(),
                {'DISK_GB': claims.Inventory(50)})
            shared_providers.create(connection, self.shared, samples.NOW)
        self.world.claims.set_inventory(
            self.shared.uuid, self.shared.inventories)
        self.world.claim('b2', 3)
        self.reader = self.world.loader(kind=host_reader.HostReader)
        self.refresh()

    def read(self, *nodes, names=(), scope=None):
        return self.reader.read(world.CONTEXT, scope or (
            host_reader.HostScope(
                frozenset(self.world.providers[node] for node in nodes),
                frozenset(names))), self.reader.sharing())

    def facts(self, table, row):
        return [*(table[name][row] for name in FACTS if name in table), *(
            table.encoding(name).values[table[name][row]] for name in CODED)]

    def assertAsLoaded(self, table):
        """Check that hosts are what a loader has of them."""
        loaded = self.loader.table
        for row, uuid in enumerate(table['uuid']):
            self.assertEqual(
                self.facts(loaded, loaded.row(uuid)),
                self.facts(table, row))
        self.assertEqual(loaded.sharing, table.sharing)

    def test_hosts_equal_the_hosts_of_the_loader(self):
        reading = self.read('a1', 'n2', 'b2')

        self.assertEqual(['a1', 'n2', 'b2'], list(reading.table['nodename']))
        self.assertAsLoaded(reading.table)
        self.assertEqual(4, reading.table['available:VGPU@1'][2])

    def test_all_hosts_equal_the_table_of_the_loader(self):
        reading = self.read(scope=host_reader.EVERYTHING)

        self.assertEqual(5, len(reading.table))
        self.assertAsLoaded(reading.table)

    def test_named_host_is_read_with_all_nodes(self):
        reading = self.read('b1', names=['A2', 'nowhere'])

        self.assertEqual(
            ['n1', 'n2', 'b1'], list(reading.table['nodename']))

    def test_empty_read_returns_no_hosts(self):
        self.assertEqual(0, len(self.read().table))

    def test_unmapped_host_is_not_read(self):
        with self.world.database.writer() as connection:
            connection.execute(sa.delete(models.host_mappings).where(
                models.host_mappings.c.host == 'a1'))

        self.assertEqual(['b1'], list(self.read('a1', 'b1').table['host']))

    def test_unmapped_host_is_mapped(self):
        self.world.add_host('cell1', 'a3')

        self.assertEqual(['a3'], list(self.read('a3').table['host']))

        self.assertEqual({'a3': 'cell1'}, self.world.mapped('a3'))

    def test_host_of_another_cell_is_not_read(self):
        self.world.add_host('cell2', 'a1', vcpus=16)

        found = self.read('a1', names=['a1']).table

        self.assertEqual([8], found['vcpus_total'].tolist())

    def test_failing_cell_is_silent_and_other_cells_are_read(self):
        def fail():
            raise ValueError('no such cell')

        self.world.targets.behaviour['cell2'] = fail

        reading = self.read('a1', 'b1')

        self.assertEqual(['a1'], list(reading.table['host']))
        self.assertEqual([self.world.cells['cell2'].identity],
                         reading.silent)
        self.assertIn('fails the query HostReader.read: ValueError',
                      self.logs.output)

    def test_heartbeats_are_read_of_all_hosts(self):
        table = self.reader.beats(world.CONTEXT)

        loaded = self.loader.table
        self.assertEqual(set(loaded['uuid']), set(table['uuid']))
        for row, uuid in enumerate(table['uuid']):
            for name in ('last_seen_up', 'service_disabled'):
                self.assertEqual(
                    loaded[name][loaded.row(uuid)], table[name][row])

    def test_aggregates_from_callers_count(self):
        self.reader.tell_aggregates([objects.Aggregate(
            id=1, uuid=samples.uuids(1)[0], name='told', hosts=['b1'],
            metadata={'availability_zone': 'moon'})])

        def zone():
            table = self.read('b1').table
            return table.encoding('availability_zone').values[
                table['availability_zone'][0]]

        self.assertEqual('moon', zone())
        self.assertEqual(
            ['b1'], self.reader.hosts_kept_for('avail', 'moon', 9))
        self.reader.forget_aggregate(1)
        self.assertEqual('nova', zone())
        self.assertEqual(
            ['a1', 'b2'], self.reader.hosts_kept_for('avail', 'east', 2))
