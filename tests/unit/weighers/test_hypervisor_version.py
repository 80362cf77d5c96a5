# SPDX-License-Identifier: Apache-2.0
"""HypervisorVersionWeigher."""

import hypothesis

from cellsched.testing import builders
from cellsched.testing.suite import weighers
from cellsched.weighers import hypervisor_version
from tests.unit import base
from tests.unit import strategies


class TestHypervisorVersionWeigher(weighers.WeigherSuite, base.TestCase):

    plugin = hypervisor_version.HypervisorVersionWeigher

    def test_score_is_the_version(self):
        hosts = builders.hosts(hypervisor_version=[8002000, 0])

        self.assertScores([8002000, 0], hosts)

    def test_new_hosts_are_preferred(self):
        plugin = builders.plugin(self.plugin)

        self.assertEqual(1.0, plugin.multiplier(builders.hosts()))

    @hypothesis.given(hosts=strategies.hosts())
    def test_column_score_is_that_of_each_row(self, hosts):
        plugin, request = builders.plugin(self.plugin), builders.request()
        self.assertEqual(
            strategies.scored_by_rows(
                lambda host, _: host.hypervisor_version, hosts, request),
            strategies.scored_by_columns(plugin, hosts, request))
