# SPDX-License-Identifier: Apache-2.0

import numpy as np

from cellsched.hardware import devices
from cellsched.hardware import fit
from cellsched.hardware import units
from cellsched.testing import builders
from cellsched.testing.suite import weighers
from cellsched.weighers import resources
from tests.unit import base
from tests.unit.filters import cells


class TestPCIWeigher(weighers.WeigherSuite, base.TestCase):

    plugin = resources.PCIWeigher

    def test_score_is_the_lower_the_more_devices_are_free(self):
        hosts = builders.hosts(free_pci_devices=[0, 1, 98, 99, 100, 5000])

        self.assertScores([100, 99, 2, 1, 1, 1], hosts)

    def test_claimed_devices_are_not_free(self):
        pools = devices.pools([cells.pool(3)])
        hosts = builders.hosts(
            free_pci_devices=3, device_pools=[pools] * 2,
            claims_hardware=True,
            available=units.inventory(None, pools, fit.Ratios()))
        hosts.take(1, {units.device(pools[0]): 2}, 'x')

        self.assertScores([97, 99], hosts)
        self.assertScores([99], hosts.at(np.array([1])))

    def test_preference_cannot_be_turned_around(self):
        self.assertRaises(ValueError, builders.plugin, self.plugin,
                          pci_weight_multiplier=-0.1)


class TestCPUWeigher(weighers.WeigherSuite, base.TestCase):

    plugin = resources.CPUWeigher

    def test_score_is_the_free_amount(self):
        hosts = builders.hosts(vcpus_total=[8, 8, 4], vcpus_used=[0, 20, 9],
                               cpu_allocation_ratio=[4.0, 1.5, 2.0])

        self.assertScores([32, -8, -1], hosts)

    def test_overcommitted_host_counts_as_full(self):
        self.assertEqual((0, None), (self.plugin.minval, self.plugin.maxval))


class TestDiskWeigher(weighers.WeigherSuite, base.TestCase):

    plugin = resources.DiskWeigher

    def test_score_is_the_free_disk(self):
        hosts = builders.hosts(free_disk_mb=[512, 0, -5])

        self.assertScores([512, 0, -5], hosts)

    def test_overcommitted_host_counts_as_full(self):
        self.assertEqual((0, None), (self.plugin.minval, self.plugin.maxval))


class TestRAMWeigher(weighers.WeigherSuite, base.TestCase):

    plugin = resources.RAMWeigher

    def test_score_is_the_free_memory(self):
        hosts = builders.hosts(free_ram_mb=[512, 0, -5])

        self.assertScores([512, 0, -5], hosts)

    def test_overcommitted_host_counts_as_full(self):
        self.assertEqual((0, None), (self.plugin.minval, self.plugin.maxval))
