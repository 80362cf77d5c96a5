# SPDX-License-Identifier: Apache-2.0
"""NumInstancesWeigher."""

import hypothesis

from cellsched.testing import builders
from cellsched.testing.suite import weighers
from cellsched.weighers import num_instances
from tests.unit import base
from tests.unit import strategies


class TestNumInstancesWeigher(weighers.WeigherSuite, base.TestCase):

    plugin = num_instances.NumInstancesWeigher

    def test_score_is_the_number_of_instances(self):
        self.assertScores([3, 0], builders.hosts(num_instances=[3, 0]))

    def test_nothing_counts_unless_it_is_set(self):
        plugin = builders.plugin(self.plugin)

        self.assertEqual(0.0, plugin.multiplier(builders.hosts()))

    @hypothesis.given(hosts=strategies.hosts())
    def test_column_score_is_that_of_each_row(self, hosts):
        plugin, request = builders.plugin(self.plugin), builders.request()
        self.assertEqual(
            strategies.scored_by_rows(
                lambda host, _: host.num_instances, hosts, request),
            strategies.scored_by_columns(plugin, hosts, request))
