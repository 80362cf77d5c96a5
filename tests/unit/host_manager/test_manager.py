# SPDX-License-Identifier: Apache-2.0
"""Filling the host table from the cells."""

import dataclasses

import sqlalchemy as sa

from cellsched.db.api import aggregates
from cellsched.db.cell import models
from cellsched.db.cell import services
from cellsched.hosts import columns
from tests.unit.db import samples
from tests.unit.hosts import loading


class TestCells(loading.LoaderTestCase):

    def test_rows_equal_records_of_the_cells(self):
        self.refresh()

        self.assertEqual(['a1', 'b1'], self.names())
        wanted = {
            'host': 'a1', 'nodename': 'a1', 'uuid': self.a1,
            'cell': self.world.cells['cell1'].uuid,
            'availability_zone': 'nova', 'service_disabled': False,
            'forced_down': False, 'vcpus_total': 8,
            'total_usable_ram_mb': 8192, 'unreserved_ram_mb': 8192,
            'total_usable_disk_gb': 100, 'unreserved_disk_mb': 102400,
            'cpu_allocation_ratio': 1.0, 'hypervisor_version': 1,
            'last_seen_up': self.world.own_clock.timestamp() - 1}
        self.assertEqual(wanted, {
            column: self.value('a1', column) for column in wanted})
        self.assertEqual([], self.loader.silent)

    def test_each_node_of_a_host_has_a_row(self):
        self.world.add_host('cell1', 'a2', 'n1', 'n2')

        self.refresh()

        self.assertEqual(['a1', 'a2', 'a2', 'b1'], self.names())
        self.assertEqual('n2', self.value('n2', 'nodename'))

    def test_amounts_used_by_the_host_are_not_free(self):
        self.save('cell1', 'a1', memory_mb_used=512, local_gb_used=10)

        self.refresh()

        self.assertEqual(8192, self.value('a1', 'total_usable_ram_mb'))
        self.assertEqual(7680, self.value('a1', 'free_ram_mb'))
        self.assertEqual(90 * 1024, self.value('a1', 'free_disk_mb'))

    def test_changed_host_is_updated(self):
        self.refresh()
        self.disable('cell1', 'a1')
        with self.world.writer('cell2') as connection:
            services.set_forced_down(connection, 'b1', True, samples.NOW)
        self.save('cell2', 'b1', vcpus=5)

        self.refresh()

        self.assertTrue(self.value('a1', 'service_disabled'))
        self.assertTrue(self.value('b1', 'forced_down'))
        self.assertEqual(5, self.value('b1', 'vcpus_total'))

    def test_host_without_reports_counts_from_its_creation(self):
        self.change('cell1', models.services, 'a1', last_seen_up=None)

        self.refresh()

        self.assertEqual(self.world.own_clock.timestamp() - 1,
                         self.value('a1', 'last_seen_up'))

    def test_empty_columns_of_old_rows_have_defaults(self):
        self.change('cell1', models.services, 'a1', disabled=None,
                    forced_down=None, last_seen_up=None, created_at=None)
        self.change('cell1', models.compute_nodes, 'a1',
                    cpu_allocation_ratio=None, ram_allocation_ratio=None,
                    disk_allocation_ratio=None, mapped=None)

        self.refresh()

        self.assertEqual((False, 0.0, 1.0), (
            self.value('a1', 'service_disabled'),
            self.value('a1', 'last_seen_up'),
            self.value('a1', 'cpu_allocation_ratio')))

    def test_aggregates_are_followed(self):
        self.refresh()
        with self.world.database.writer() as connection:
            number = aggregates.create(
                connection, samples.uuids(1)[0], 'z', ['a1', 'b1'],
                {'availability_zone': 'east', 'ratio': '2'}, samples.NOW)
        self.refresh()
        self.assertEqual(['east', 'east'], self.zones())
        self.assertEqual(2.0, self.view().number('ratio', 9.0)[0])

        with self.world.database.writer() as connection:
            aggregates.remove_hosts(connection, number, ['a1'], samples.NOW)
        self.refresh()
        self.assertEqual(['nova', 'east'], self.zones())

        with self.world.database.writer() as connection:
            aggregates.delete(connection, number, samples.NOW)
        self.refresh()
        self.assertEqual(['nova', 'nova'], self.zones())
        self.assertEqual((), self.value('b1', 'aggregates'))

    def zones(self):
        return [self.value(host, 'availability_zone')
                for host in ('a1', 'b1')]

    def test_hosts_of_a_disabled_cell_are_marked(self):
        self.refresh()
        self.map('cell1', disabled=True)

        self.refresh()

        self.assertEqual(
            [True, False],
            [self.value(host, 'cell_disabled') for host in ('a1', 'b1')])
        self.assertEqual([], self.loader.silent)

        self.map('cell1', disabled=False)
        self.refresh()
        self.assertEqual(['a1', 'b1'], self.names())
        self.assertEqual(8, self.available('a1'))

    def test_removed_cell_removes_its_hosts(self):
        self.refresh()
        with self.world.database.writer() as connection:
            for table in ('host_mappings', 'cell_mappings'):
                connection.execute(sa.text(f'DELETE FROM {table}'))

        self.refresh()

        self.assertEqual([], self.names())

    def test_added_cell_is_read(self):
        self.refresh()
        self.world.cells['cell3'] = self.world.add_cell('cell3')
        self.world.add_host('cell3', 'c1')

        self.refresh()

        self.assertEqual(['a1', 'b1', 'c1'], self.names())

    def test_extra_column_is_added_with_its_default(self):
        extra = columns.Column('colour', 'object', 'green', 'its colour')
        self.loader = self.world.loader(extra_columns=[extra])

        self.refresh()

        self.assertEqual('green', self.value('a1', 'colour'))

    def test_extra_columns_are_filled_from_their_sources(self):
        extra = columns.Column('celsius', 'float64', -1.0, 'how hot it is',
                               'stats.temperature')
        self.loader = self.world.loader(extra_columns=[extra])
        self.save('cell1', 'a1', stats='{"temperature": 40}')

        self.refresh()
        self.assertEqual((40.0, -1.0), (self.value('a1', 'celsius'),
                                        self.value('b1', 'celsius')))

        self.save('cell1', 'a1', stats='{}')
        self.save('cell2', 'b1', stats='{"temperature": "39.5"}')
        self.refresh()
        self.assertEqual((-1.0, 39.5), (self.value('a1', 'celsius'),
                                        self.value('b1', 'celsius')))


class TestMapping(loading.LoaderTestCase):

    def test_read_only_cell_is_silent_and_other_cells_are_read(self):
        cell = self.world.cells['cell1']
        path = cell.database_connection.removeprefix('sqlite:///')
        self.map('cell1', database_connection=(
            f'sqlite:///file:{path}?mode=ro&uri=true'))

        self.refresh()

        self.assertEqual(['b1'], self.names())
        self.assertEqual([cell.identity], self.loader.silent)


class TestUnreadableProvider(loading.LoaderTestCase):

    def test_capacity_is_zero_until_the_provider_is_readable(self):
        self.refresh()
        read, flaws = self.loader.claims.usages, []

        def usages(since=None, providers=None):
            found = read(since, providers)
            return dataclasses.replace(found, usages=[
                dataclasses.replace(each, **flaws[0])
                if flaws and each.provider == self.a1 else each
                for each in found.usages])

        self.loader.claims.usages = usages
        for flaw in ({'capacity': {'VCPU': 'junk'}}, {'used': {'VCPU': None}},
                     {'consumers': None}, {'units': {'VCPU': (1, 8, 0)}}):
            with self.subTest(flaw=flaw):
                flaws.append(flaw)
                self.loader._claims_token = None
                self.refresh()
                self.assertEqual(0, self.value('a1', 'available:VCPU'))
                self.assertEqual(4, self.value('b1', 'available:VCPU'))
                self.assertIn(f'Provider {self.a1}', self.logs.output)

                # The store reports no change when it is corrected by hand.
                flaws.clear()
                self.refresh()
                self.assertEqual(8, self.value('a1', 'available:VCPU'))
