# SPDX-License-Identifier: Apache-2.0
"""Columns of the host table."""

import numpy as np

from cellsched.hosts import columns
from cellsched import plugins
from tests.unit import base


class TestStandard(base.TestCase):

    def test_names_are_unique(self):
        names = [column.name for column in columns.STANDARD]

        self.assertEqual(sorted(set(names)), sorted(names))

    def test_default_is_of_the_type_of_the_column(self):
        for column in columns.STANDARD:
            value = np.array([column.default], dtype=column.dtype)[0]
            self.assertEqual(column.default, value, column.name)

    def test_every_column_says_what_it_is(self):
        for column in columns.STANDARD:
            self.assertTrue(column.doc, column.name)

    def test_standard_is_the_entry_point(self):
        self.assertEqual({'standard': columns.STANDARD},
                         plugins.load_all(plugins.COLUMNS))
