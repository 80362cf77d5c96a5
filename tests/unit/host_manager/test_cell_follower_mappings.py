# SPDX-License-Identifier: Apache-2.0
"""Hosts whose mappings go and come."""

import sqlalchemy as sa

from cellsched.db.api import host_mappings
from cellsched.db.api import models
from cellsched.db.cell import compute_nodes
from cellsched.host_manager.cell_follower import HostMappings
from tests.unit.db import recording
from tests.unit.db import samples
from tests.unit.hosts import loading


class MappingCase(loading.LoaderTestCase):

    def setUp(self):
        super().setUp()
        self.a2 = self.world.add_host('cell1', 'a2')

    def execute(self, statement):
        with self.world.database.writer() as connection:
            connection.execute(statement)

    def unmap(self, *hosts):
        table = models.host_mappings
        self.execute(sa.delete(table).where(table.c.host.in_(hosts)))

    def map_to(self, host, cell):
        with self.world.database.writer() as connection:
            host_mappings.create_missing(
                connection, [host], self.world.cells[cell].id, samples.NOW)


class TestHostMappings(MappingCase):

    def setUp(self):
        super().setUp()
        self.refresh()
        self.mappings = HostMappings(self.world.database)
        self.mappings.read()

    def hosts(self, cell='cell1'):
        return self.mappings.hosts(self.world.cells[cell].uuid)

    def test_hosts_are_known_by_cell(self):
        self.assertEqual(({'a1', 'a2'}, {'b1'}),
                         (self.hosts(), self.hosts('cell2')))
        self.assertEqual(set(), self.mappings.hosts('unknown'))

    def test_unchanged_mappings_are_not_read_again(self):
        before = self.hosts()

        with recording.recorded(self.world.database) as statements:
            self.mappings.read()

        self.assertEqual(1, len(statements))
        self.assertIs(before, self.hosts())

    def test_each_change_is_found(self):
        table = models.host_mappings
        cell2 = self.world.cells['cell2'].id

        def move(host, cell_id):
            self.execute(sa.update(table).where(table.c.host == host)
                         .values(cell_id=cell_id))

        for change, here, there in (
                (lambda: self.unmap('a1'), {'a2'}, {'b1'}),
                (lambda: self.map_to('a1', 'cell1'), {'a1', 'a2'}, {'b1'}),
                (lambda: move('a1', cell2), {'a2'}, {'a1', 'b1'}),
                (lambda: self.execute(sa.delete(table)), set(), set())):
            change()
            self.mappings.read()

            self.assertEqual((here, there),
                             (self.hosts(), self.hosts('cell2')))


class TestLoader(MappingCase):

    def test_unmapped_host_is_absent_after_a_restart(self):
        self.refresh()
        self.unmap('a1')
        self.loader = self.world.loader()

        self.refresh()

        self.assertEqual(['a2', 'b1'], self.names())

    def test_remapped_host_returns_after_a_refresh(self):
        self.refresh()
        self.unmap('a1', 'b1')
        self.refresh()
        self.assertEqual(['a2'], self.names())

        self.map_to('a1', 'cell1')
        self.refresh()

        self.assertEqual(['a1', 'a2'], self.names())
        self.assertEqual(8, self.available('a1'))

    def test_unmapped_host_is_not_added_by_its_reports(self):
        self.refresh()
        self.unmap('a1')
        self.refresh()

        self.save('cell1', 'a1', vcpus=16)
        self.world.report('cell1', 'a1')
        self.refresh()
        self.assertEqual(['a2', 'b1'], self.names())

        self.map_to('a1', 'cell1')
        self.refresh()
        self.assertEqual(16, self.value('a1', 'vcpus_total'))

    def test_unmapped_host_is_queried_and_logged_once(self):
        self.refresh()
        self.unmap('a1')
        self.refresh()
        self.save('cell1', 'a1', vcpus=16)
        self.world.report('cell1', 'a1')
        self.refresh()

        with recording.recorded(self.world.database) as statements:
            self.refresh()

        self.assertEqual(3, len(statements))
        self.assertEqual(1, self.logs.output.count('Host a1 of cell'))

    def test_host_moved_to_another_cell_has_a_single_row(self):
        self.refresh()
        self.unmap('a1')
        self.map_to('a1', 'cell2')
        self.world.add_host('cell2', 'a1')

        self.refresh()

        self.assertEqual(self.world.cells['cell2'].uuid,
                         self.value('a1', 'cell'))
        self.assertEqual(['a1', 'a2', 'b1'], self.names())

    def test_host_mapped_by_another_process_is_added_at_once(self):
        self.refresh()
        new = self.world.add_host('cell1', 'a3')

        def map_it():
            # After the mappings were read, and before the cell is.
            self.map_to('a3', 'cell1')
            with self.world.writer('cell1') as connection:
                compute_nodes.mark_mapped(connection, [new])

        self.world.targets.behaviour['cell1'] = map_it
        self.refresh()

        self.assertIn('a3', self.names())
        del self.world.targets.behaviour['cell1']
        self.refresh()
        self.assertIn('a3', self.names())
