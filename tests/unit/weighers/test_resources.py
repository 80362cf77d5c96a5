# SPDX-License-Identifier: Apache-2.0
"""Weighers of what is free."""

import hypothesis

from cellsched.testing import builders
from cellsched.testing.suite import weighers
from cellsched.weighers import resources
from tests.unit import base
from tests.unit.hosts import rows


class TestCPUWeigher(weighers.WeigherSuite, base.TestCase):

    plugin = resources.CPUWeigher

    def test_score_is_the_free_amount(self):
        hosts = builders.hosts(vcpus_total=[8, 8, 4], vcpus_used=[0, 20, 9],
                               cpu_allocation_ratio=[4.0, 1.5, 2.0])

        self.assertScores([32, -8, -1], hosts)

    def test_overcommitted_host_counts_as_full(self):
        self.assertEqual((0, None), (self.plugin.minval, self.plugin.maxval))

    @hypothesis.given(table=rows.ROWS)
    def test_column_score_is_that_of_each_row(self, table):
        self.assertScores(
            [row['vcpus_total'] * row['cpu_allocation_ratio']
             - row['vcpus_used'] for row in table],
            rows.hosts(table))


class TestDiskWeigher(weighers.WeigherSuite, base.TestCase):

    plugin = resources.DiskWeigher

    def test_score_is_the_free_disk(self):
        hosts = builders.hosts(free_disk_mb=[512, 0, -5])

        self.assertScores([512, 0, -5], hosts)

    def test_overcommitted_host_counts_as_full(self):
        self.assertEqual((0, None), (self.plugin.minval, self.plugin.maxval))

    @hypothesis.given(table=rows.ROWS)
    def test_column_score_is_that_of_each_row(self, table):
        self.assertScores([row['free_disk_mb'] for row in table],
                          rows.hosts(table))


class TestRAMWeigher(weighers.WeigherSuite, base.TestCase):

    plugin = resources.RAMWeigher

    def test_score_is_the_free_memory(self):
        hosts = builders.hosts(free_ram_mb=[512, 0, -5])

        self.assertScores([512, 0, -5], hosts)

    def test_overcommitted_host_counts_as_full(self):
        self.assertEqual((0, None), (self.plugin.minval, self.plugin.maxval))

    @hypothesis.given(table=rows.ROWS)
    def test_column_score_is_that_of_each_row(self, table):
        self.assertScores([row['free_ram_mb'] for row in table],
                          rows.hosts(table))
