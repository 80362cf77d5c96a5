# SPDX-License-Identifier: Apache-2.0
"""Queries for cells."""

import sqlalchemy as sa

from cellsched.db.api import cell_mappings
from cellsched.db.api import models
from cellsched import exception
from cellsched import objects
from tests.unit.db.api import base
from tests.unit.db import samples
from tests.unit import racing

SECRET = 's3cr3t'


class TestCellMappings(base.TestCase):

    def test_created_mapping_is_listed_by_id(self):
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

    def test_duplicate_uuid_is_an_error(self):
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

    def test_missing_urls_are_empty(self):
        self.execute(
            sa.insert(models.cell_mappings).values(uuid='u', disabled=False))

        cell, = self.read(cell_mappings.list_all)

        self.assertEqual('', cell.transport_url)
        self.assertEqual('', cell.database_connection)


class TestErrors(base.TestCase):

    def test_errors_contain_no_passwords(self):
        def create(connection):
            connection.execute(sa.insert(models.cell_mappings).values(
                uuid=None, transport_url=f'rabbit://u:{SECRET}@h/',
                database_connection=f'mysql+pymysql://u:{SECRET}@h/cell'))

        error = self.assertRaises(
            exception.ConstraintViolated, self.write, create)

        self.assertIn('cell_mappings.uuid', str(error))
        self.assertIn('INSERT INTO cell_mappings', str(error.__cause__))
        for each in error, error.__cause__:
            self.assertNotIn(SECRET, str(each))
            self.assertNotIn(SECRET, repr(each))


class TestCreateApart(base.TestCase):

    def create(self, cell):
        self.write(cell_mappings.create_apart, cell, samples.NOW)

    def test_cells_with_different_urls_are_created(self):
        for name in 'east', 'west':
            self.create(samples.cell(name))

        self.assertEqual(2, len(self.read(cell_mappings.list_all)))

    def test_duplicate_url_is_an_error_naming_the_other_cell(self):
        cell = samples.cell('east')
        self.create(cell)

        for field, words in (('transport_url', 'transport URL'),
                             ('database_connection', 'database connection')):
            error = self.assertRaises(
                exception.CellMappingExists, self.create,
                samples.cell('west', **{field: getattr(cell, field)}))

            self.assertEqual((cell.identity, words),
                             (error.uuid, error.field))
        self.assertEqual(1, len(self.read(cell_mappings.list_all)))

    def test_cell_is_created_by_a_single_caller_in_a_race(self):
        self.create(samples.cell(
            'cell0', uuid=objects.CELL0_UUID, transport_url='none:///'))

        outcomes = racing.race(
            *[lambda: self.create(samples.cell('east'))] * 6)

        self.assertEqual(1, outcomes.count(None), outcomes)
        self.assertEqual(2, len(self.read(cell_mappings.list_all)))


class TestBeside(base.TestCase):

    def test_name_of_the_database_has_the_suffix(self):
        for url, expected in (
                ('mysql+pymysql://u:p%40@h:3306/nova_api?charset=utf8',
                 'mysql+pymysql://u:p%40@h:3306/nova_api_cell0?charset=utf8'),
                ('postgresql+psycopg2://h/api',
                 'postgresql+psycopg2://h/api_cell0'),
                ('sqlite:////var/lib/api.sqlite',
                 'sqlite:////var/lib/api_cell0.sqlite'),
                ('sqlite:///api', 'sqlite:///api_cell0')):
            self.assertEqual(
                expected, cell_mappings.beside(url, '_cell0'))

    def test_url_without_a_database_is_an_error(self):
        for url in ('postgresql+psycopg2://h', 'sqlite://',
                    'sqlite:///:memory:'):
            self.assertRaises(
                exception.InvalidField, cell_mappings.beside, url, '_cell0')
