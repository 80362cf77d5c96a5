# SPDX-License-Identifier: Apache-2.0
"""NumInstancesFilter and its form for aggregates."""

from cellsched.filters import num_instances
from cellsched.testing import builders
from tests.unit import base
from tests.unit.filters import limits


class TestNumInstancesFilter(limits.LimitTests, base.TestCase):

    plugin = num_instances.NumInstancesFilter
    column, option, default = 'num_instances', 'max_instances_per_host', 50

    def test_limit_of_zero_is_refused(self):
        self.assertRaises(ValueError, builders.plugin, self.plugin,
                          max_instances_per_host=0)


class TestAggregateNumInstancesFilter(
        limits.AggregateLimitTests, base.TestCase):

    plugin = num_instances.AggregateNumInstancesFilter
    column, option, default = 'num_instances', 'max_instances_per_host', 50
