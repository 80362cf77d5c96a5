# SPDX-License-Identifier: Apache-2.0
"""NumInstancesFilter."""

import hypothesis
from hypothesis import strategies

from cellsched.filters import num_instances
from cellsched.testing import builders
from cellsched.testing.suite import filters
from tests.unit import base
from tests.unit.hosts import rows


class TestNumInstancesFilter(filters.FilterSuite, base.TestCase):

    plugin = num_instances.NumInstancesFilter

    def test_host_at_its_limit_is_rejected(self):
        hosts = builders.hosts(num_instances=[1, 2, 3])

        self.assertKeeps(
            [True, False, False], hosts, max_instances_per_host=2)

    def test_limit_is_50_unless_set(self):
        hosts = builders.hosts(num_instances=[49, 50])

        self.assertKeeps([True, False], hosts)

    def test_limit_is_at_least_one(self):
        self.assertRaises(ValueError, builders.plugin, self.plugin,
                          max_instances_per_host=0)

    def test_placement_can_change_the_verdict(self):
        self.assertFalse(self.plugin.run_filter_once_per_request)

    @hypothesis.given(table=rows.ROWS, limit=strategies.integers(1, 5))
    @rows.settings
    def test_column_verdict_is_that_of_each_row(self, table, limit):
        self.assertKeeps(
            [row['num_instances'] < limit for row in table],
            rows.hosts(table), max_instances_per_host=limit)
