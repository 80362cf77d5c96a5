# SPDX-License-Identifier: Apache-2.0
"""Columns that plug-ins add."""

from cellsched import exception
from cellsched.hosts import column_providers
from cellsched.hosts import columns
from tests import broken_packages
from tests.unit import base
from tests.unit import installing


class TestLoad(base.TestCase):

    def names(self):
        return {column.name for column in column_providers.load()}

    def test_columns_of_all_that_are_installed_are_there(self):
        self.useFixture(installing.Installed(broken_packages.write_working))

        self.assertEqual(
            {'gpus', *(column.name for column in columns.STANDARD)},
            self.names())

    def test_broken_ones_are_left_out_and_named_in_the_log(self):
        self.useFixture(installing.Installed(broken_packages.write_broken))

        self.assertEqual({column.name for column in columns.STANDARD},
                         self.names())
        self.assertIn('cellsched.hosts.columns leaving: ', self.logs.output)
        self.assertIn('cellsched.hosts.columns odd: ', self.logs.output)

    def test_column_of_every_table_is_not_for_plugins(self):
        for name in 'free_ram_mb', 'cell_failures':
            error = self.assertRaises(
                exception.ConfigurationInvalid, column_providers.check, 'it',
                [columns.Column(name, 'object', '', 'text')])

            self.assertIn(name, str(error))
        self.assertEqual([*columns.STANDARD], column_providers.check(
            'it', columns.STANDARD))
