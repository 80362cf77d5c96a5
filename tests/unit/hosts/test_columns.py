# SPDX-License-Identifier: Apache-2.0
"""Columns of the host table."""

import numpy as np

from cellsched.hosts import columns
from cellsched.hosts import table
from cellsched import plugins
from tests.unit import base

EVERY = (*columns.STANDARD, *columns.CELL_FACTS)


class TestStandard(base.TestCase):

    def test_names_are_unique(self):
        names = [column.name for column in EVERY]

        self.assertEqual(sorted(set(names)), sorted(names))

    def test_default_is_of_the_type_of_the_column(self):
        for column in EVERY:
            if column.dtype == columns.CODED:
                self.assertEqual(
                    0, table.HostTable().encoding(column.name).code(
                        column.default), column.name)
            else:
                value = np.array([column.default], dtype=column.stored)[0]
                self.assertEqual(column.default, value, column.name)

    def test_every_column_has_a_description(self):
        for column in EVERY:
            self.assertTrue(column.doc, column.name)

    def test_whole_numbers_are_exact(self):
        column = columns.Column('x', columns.WHOLE, 0, 'a number')

        value = np.array([2 ** 53 - 1], dtype=column.stored)[0]

        self.assertEqual(2 ** 53 - 1, int(value))

    def test_types_other_than_whole_numbers_are_stored_unchanged(self):
        for dtype in ('bool', 'float64', 'object'):
            column = columns.Column('x', dtype, None, 'a thing')
            self.assertEqual(dtype, column.stored)

    def test_standard_is_the_entry_point(self):
        self.assertEqual({'standard': columns.STANDARD},
                         plugins.load_shipped(plugins.COLUMNS))
