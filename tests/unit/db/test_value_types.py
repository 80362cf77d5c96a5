# SPDX-License-Identifier: Apache-2.0

import datetime

import sqlalchemy as sa

from cellsched.db import value_types
from tests.unit import base

METADATA = sa.MetaData()

TABLE = sa.Table(
    'things', METADATA, sa.Column('id', sa.Integer, primary_key=True),
    sa.Column('at', sa.DateTime), sa.Column('name', sa.String(36)),
    sa.Column('number', sa.Integer), sa.Column('ratio', sa.Float),
    sa.Column('flag', sa.Boolean))

#: By column, texts of values in SQL that are of another type.
WRONG = {
    'at': ("12345", "1.5", "'junk'", "x'ff'", "'2026-13-01 00:00:00'",
           "'now'", "'12:30'"),
    'name': ("x'ff'",),
    'number': ("'junk'", "x'ff'", '1.5', '9e999'),
    'ratio': ("'junk'", "x'ff'"),
    'flag': ("'junk'", "x'ff'")}


class TestValueTypes(base.TestCase):

    def setUp(self):
        super().setUp()
        engine = sa.create_engine('sqlite://')
        self.addCleanup(engine.dispose)
        self.connection = engine.connect()
        self.addCleanup(self.connection.close)
        METADATA.create_all(self.connection)

    def found(self, limit=10):
        return value_types.find_wrong(self.connection, METADATA, limit)

    def test_values_written_by_the_product_are_valid(self):
        self.connection.execute(sa.insert(TABLE), [
            {'id': 1, 'at': datetime.datetime(2026, 1, 31, 23, 59, 59, 5),
             'name': '12', 'number': 2 ** 40, 'ratio': 1.5, 'flag': True},
            {'id': 2, 'at': None, 'name': None, 'number': None,
             'ratio': None, 'flag': None},
            {'id': 3, 'at': datetime.datetime(1970, 1, 1), 'name': '',
             'number': -1, 'ratio': 0, 'flag': False}])

        self.assertEqual([], self.found())

    def test_value_of_another_type_is_found(self):
        for column, values in WRONG.items():
            for value in values:
                self.connection.execute(sa.text(
                    f'INSERT INTO things (id, {column}) VALUES (7, {value})'))

                [wrong] = self.found()

                self.assertEqual(
                    ('things', 7, column), wrong[:3], value)
                self.connection.rollback()

    def test_several_values_of_a_row_are_found(self):
        self.connection.execute(sa.text(
            "INSERT INTO things (id, at, number) VALUES (7, 5, 'junk')"))

        self.assertEqual(
            [('things', 7, 'at', 5, 'time'),
             ('things', 7, 'number', 'junk', 'integer')], self.found())

    def test_rows_are_limited(self):
        self.connection.execute(sa.text(
            'INSERT INTO things (id, at) VALUES (1, 5), (2, 5), (3, 5)'))

        self.assertEqual([1, 2], [each.key for each in self.found(limit=2)])
