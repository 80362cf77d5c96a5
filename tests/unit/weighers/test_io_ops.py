# SPDX-License-Identifier: Apache-2.0
"""IoOpsWeigher."""

import hypothesis

from cellsched.testing import builders
from cellsched.testing.suite import weighers
from cellsched.weighers import io_ops
from tests.unit import base
from tests.unit import strategies


class TestIoOpsWeigher(weighers.WeigherSuite, base.TestCase):

    plugin = io_ops.IoOpsWeigher

    def test_score_is_the_number_of_operations(self):
        self.assertScores([3, 0], builders.hosts(num_io_ops=[3, 0]))

    def test_idle_hosts_are_preferred(self):
        plugin = builders.plugin(self.plugin)

        self.assertEqual(-1.0, plugin.multiplier(builders.hosts()))
        self.assertEqual((0, None), (plugin.minval, plugin.maxval))

    @hypothesis.given(hosts=strategies.hosts())
    def test_column_score_is_that_of_each_row(self, hosts):
        plugin, request = builders.plugin(self.plugin), builders.request()
        self.assertEqual(
            strategies.scored_by_rows(
                lambda host, _: host.num_io_ops, hosts, request),
            strategies.scored_by_columns(plugin, hosts, request))
