# SPDX-License-Identifier: Apache-2.0
"""Tests of the inlet temperature column and filter."""

import unittest

from cellsched.hosts import plugin_columns
from cellsched.testing import builders
from cellsched.testing.suite import filters
from third_party_class import cooling


def hosts(celsius):
    return builders.hosts(columns=cooling.COLUMNS, inlet_celsius=celsius)


class TestColumn(unittest.TestCase):

    def test_column_is_in_the_table_of_a_scheduler(self):
        self.assertLessEqual({*cooling.COLUMNS}, {*plugin_columns.load()})


class TestCoolHostFilter(filters.FilterSuite, unittest.TestCase):

    plugin = cooling.CoolHostFilter

    def make_hosts(self, count):
        return hosts([30.0 + row for row in range(count)])

    def test_host_is_cool_up_to_the_limit(self):
        self.assertKeeps([True, False, False], hosts([35.0, 35.5, 1000.0]))
        self.assertKeeps([True, False], hosts([20.0, 20.5]),
                         inlet_celsius_max=20.0)

    def test_shortfall_of_each_host_is_returned(self):
        missing, unit = builders.plugin(self.plugin).shortfall(
            hosts([36.5, 40.0]), builders.request())

        self.assertEqual(([1.5, 5.0], '°C'), (missing.tolist(), unit))
