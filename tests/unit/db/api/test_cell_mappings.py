# SPDX-License-Identifier: Apache-2.0
"""Queries for cells."""

from oslo_db import exception as db_exc
import sqlalchemy as sa

from cellsched.db.api import cell_mappings
from cellsched.db.api import models
from cellsched import exception
from cellsched import objects
from tests.unit.db.api import base
from tests.unit.db import samples

SECRET = 's3cr3t'


class TestCellMappings(base.TestCase):

    def test_what_was_created_is_listed_by_id(self):
        cells = [samples.cell('east', disabled=True), samples.cell('west'),
                 samples.cell(None)]
        for cell in cells:
            self.write(cell_mappings.create, cell, samples.NOW)

        listed = self.read(cell_mappings.list_all)

        for number, (cell, found) in enumerate(zip(cells, listed), 1):
            self.assertEqual(number, found.id)
            for name in ('uuid', 'name', 'transport_url', 'disabled',
                         'database_connection'):
                self.assertEqual(getattr(cell, name), getattr(found, name))

    def test_cell0_is_one_of_them(self):
        self.write(cell_mappings.create,
                   samples.cell('cell0', uuid=objects.CELL0_UUID),
                   samples.NOW)

        self.assertTrue(self.read(cell_mappings.list_all)[0].is_cell0())

    def test_uuid_that_is_taken_is_an_error(self):
        cell = samples.cell()
        self.write(cell_mappings.create, cell, samples.NOW)

        error = self.assertRaises(
            exception.CellMappingExists, self.write, cell_mappings.create,
            samples.cell('other', uuid=cell.uuid), samples.NOW)

        self.assertEqual((cell.uuid, 'uuid'), (error.uuid, error.field))
        self.assertEqual(
            ['cell'], [each.name for each in self.read(
                cell_mappings.list_all)])

    def test_names_and_urls_may_be_shared(self):
        for _ in range(2):
            self.write(cell_mappings.create, samples.cell(), samples.NOW)

        self.assertEqual(2, len(self.read(cell_mappings.list_all)))

    def test_urls_that_are_missing_are_empty(self):
        self.write(lambda connection: connection.execute(sa.insert(
            models.cell_mappings).values(uuid='u', disabled=False)))

        cell, = self.read(cell_mappings.list_all)

        self.assertEqual('', cell.transport_url)
        self.assertEqual('', cell.database_connection)

    def test_errors_of_the_database_hold_no_password(self):
        cell = samples.cell(
            transport_url=f'rabbit://u:{SECRET}@h/',
            database_connection=f'mysql+pymysql://u:{SECRET}@h/cell')

        error = self.assertRaises(
            db_exc.DBError, self.write, cell_mappings.create, cell, 'no time')

        self.assertIn('INSERT INTO cell_mappings', str(error))
        self.assertNotIn(SECRET, str(error))
        self.assertNotIn(SECRET, repr(error))
