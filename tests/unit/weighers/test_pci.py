# SPDX-License-Identifier: Apache-2.0
"""PCIWeigher."""

import hypothesis

from cellsched.testing import builders
from cellsched.testing.suite import weighers
from cellsched.weighers import pci
from tests.unit import base
from tests.unit import strategies


class TestPCIWeigher(weighers.WeigherSuite, base.TestCase):

    plugin = pci.PCIWeigher

    def test_score_is_the_lower_the_more_devices_are_free(self):
        hosts = builders.hosts(free_pci_devices=[0, 1, 98, 99, 100, 5000])

        self.assertScores([100, 99, 2, 1, 1, 1], hosts)

    def test_preference_cannot_be_turned_around(self):
        self.assertRaises(ValueError, builders.plugin, self.plugin,
                          pci_weight_multiplier=-0.1)

    @hypothesis.given(hosts=strategies.hosts())
    def test_column_score_is_that_of_each_row(self, hosts):
        # Where none has a device, all are alike.
        hypothesis.assume(hosts['free_pci_devices'].any())
        plugin, request = builders.plugin(self.plugin), builders.request()
        self.assertEqual(
            strategies.scored_by_rows(
                lambda host, _: 100 - min(host.free_pci_devices, 99),
                hosts, request),
            strategies.scored_by_columns(plugin, hosts, request, 100.0))
