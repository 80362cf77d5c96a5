# SPDX-License-Identifier: Apache-2.0
"""The cells that there are."""

import threading

import sqlalchemy as sa

from cellsched.db.api import models
from cellsched import exception
from cellsched import objects
from tests.unit.cells import base
from tests.unit.db import samples
from tests.unit import racing


class TestCellRegistry(base.TestCase):

    def names(self):
        return [cell.name for cell in self.cells.all()]

    def reads(self):
        """Have reads of the cells counted, in a list."""
        reads = []

        @sa.event.listens_for(self.database.engine, 'before_cursor_execute')
        def count(conn, cursor, statement, *others):
            if 'FROM cell_mappings' in statement:
                reads.append(threading.get_ident())

        return reads

    def test_no_cells_are_none(self):
        self.assertEqual([], self.names())
        self.assertRaises(
            exception.CellMappingNotFound, self.cells.cell0)

    def test_cells_are_sorted_by_their_use(self):
        self.add_cell0()
        self.add_cell('east')
        self.add_cell('west', disabled=True)

        self.assertEqual(['cell0', 'east', 'west'], self.names())
        self.assertEqual(
            ['east', 'west'], [cell.name for cell in self.cells.real()])
        self.assertEqual(
            ['east'], [cell.name for cell in self.cells.enabled()])
        self.assertEqual('cell0', self.cells.cell0().name)

    def test_names_of_several_cells_have_the_uuid(self):
        for _ in range(2):
            self.add_cell('east')
        self.add_cell('west')
        first, second, _ = self.cells.all()

        self.assertEqual(
            [f'east ({first.uuid[:8]})', f'east ({second.uuid[:8]})', 'west'],
            self.names())

    def test_cells_are_read_within_the_given_age(self):
        self.add_cell('east')
        self.names()
        self.add_cell('west')
        self.clock.advance(1)

        self.assertEqual(1, len(self.cells.real(within_s=2)))
        self.assertEqual(2, len(self.cells.real(within_s=1)))

    def test_cells_are_read_once_within_the_interval(self):
        self.add_cell('east')
        reads = self.reads()

        self.assertEqual(['east'], self.names())
        self.add_cell('west')
        self.clock.advance(59.9)
        reads.clear()
        self.assertEqual(['east'], self.names())

        self.assertEqual([], reads)

    def test_cells_are_read_again_after_the_interval(self):
        east = self.add_cell('east')
        self.assertEqual(['east'], self.names())
        self.add_cell('west')
        self.write(self.database, lambda connection: connection.execute(
            sa.update(models.cell_mappings)
            .where(models.cell_mappings.c.id == east.id)
            .values(name='renamed', disabled=True)))

        self.clock.advance(60.0)

        self.assertEqual(['renamed', 'west'], self.names())
        self.assertEqual(
            ['west'], [cell.name for cell in self.cells.enabled()])

    def test_deleted_cell_is_unknown_after_a_refresh(self):
        east = self.add_cell('east')
        self.names()
        self.write(self.database, lambda connection: connection.execute(
            sa.delete(models.cell_mappings)))

        self.cells.refresh()

        self.assertEqual([], self.names())
        self.assertRaises(
            exception.CellMappingNotFound, self.cells.get, east.uuid)

    def test_unknown_cell_is_looked_for_at_once(self):
        self.names()
        cell = self.add_cell('east')

        self.assertEqual('east', self.cells.get(cell.uuid).name)
        self.assertEqual(['east'], self.names())

    def test_cell0_is_found_at_once_after_its_mapping(self):
        self.assertRaises(exception.CellMappingNotFound, self.cells.cell0)

        self.add_cell0()

        self.assertEqual(objects.CELL0_UUID, self.cells.cell0().uuid)

    def test_unknown_cell_is_an_error_with_its_uuid(self):
        uuid, = samples.uuids(1)

        error = self.assertRaises(
            exception.CellMappingNotFound, self.cells.get, uuid)

        self.assertEqual(uuid, error.uuid)

    def test_waiting_threads_share_a_read(self):
        self.add_cell('east')
        self.names()
        self.clock.advance(60.0)
        reads = self.reads()

        racing.race(*[lambda: (self.clock.advance(0.1), self.names())] * 8)

        self.assertEqual(1, len(reads))

    def test_cells_stay_known_when_reading_fails(self):
        self.add_cell('east')
        self.names()
        self.write(self.database, lambda connection: connection.execute(
            sa.text('ALTER TABLE cell_mappings RENAME TO away')))

        self.assertRaises(
            exception.DatabaseError, self.cells.refresh)

        self.assertEqual(['east'], self.names())
