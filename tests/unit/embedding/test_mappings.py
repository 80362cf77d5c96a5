# SPDX-License-Identifier: Apache-2.0
"""Mappings of cells, hosts and servers."""

from cellsched.db.api import host_mappings
from cellsched import exception
from tests.unit.embedding import embedded


class TestMappings(embedded.EmbeddedTestCase):

    def setUp(self):
        super().setUp()
        self.conductor = self.make()
        self.mappings = self.conductor.mappings

    def create_cell(self):
        return self.mappings.create_cell(
            'cell1', f'local://{self.world}/cell1', self.url('cell1'))

    def test_cells_are_created_and_listed(self):
        cell0 = self.mappings.create_cell0(self.url('cell0'))
        cell1 = self.create_cell()

        self.assertEqual([cell0.uuid, cell1.uuid], [
            cell.uuid for cell in self.mappings.cells()])
        self.assertTrue(cell0.is_cell0())

    def test_cell_of_another_cells_database_is_refused(self):
        self.create_cell()

        self.assertRaises(exception.CellMappingExists, self.create_cell)

    def test_new_cell_is_known_at_once(self):
        self.assertEqual([], self.conductor.parts.cells.real())

        self.create_cell()

        self.assertEqual(['cell1'], [
            cell.name for cell in self.conductor.parts.cells.real()])

    def test_hosts_have_their_cells(self):
        self.create_cell()
        [cell] = self.mappings.cells()
        database = self.conductor.parts.database
        with database.writer() as connection:
            host_mappings.create_missing(
                connection, ['a1'], cell.id, database.now())

        [found] = self.mappings.hosts(['a1', 'a2'])

        self.assertEqual(
            ('a1', cell.uuid), (found.host, found.cell_mapping.uuid))

    def test_server_that_is_not_known_is_left_out(self):
        self.assertEqual({}, self.mappings.instances(['nobody']))
