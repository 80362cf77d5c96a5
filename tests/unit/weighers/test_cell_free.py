# SPDX-License-Identifier: Apache-2.0
"""CellFreeWeigher."""

import hypothesis
import numpy as np

from cellsched.testing import builders
from cellsched.testing.suite import weighers
from cellsched.weighers import cell_free
from tests.unit import base
from tests.unit import strategies


def free_share(hosts):
    """Return the least share of what some hosts have that is free."""
    offered = [host.vcpus_total * host.cpu_allocation_ratio for host in hosts]
    used = sum(host.vcpus_used for host in hosts)
    pairs = [
        (sum(offered) - used, sum(offered)),
        (sum(host.free_ram_mb for host in hosts),
         sum(host.total_usable_ram_mb for host in hosts)),
        (sum(host.free_disk_mb for host in hosts),
         sum(host.total_usable_disk_gb for host in hosts) * 1024)]
    return min(free / there if there else 0.0 for free, there in pairs)


class TestCellFreeWeigher(weighers.WeigherSuite, base.TestCase):

    plugin = cell_free.CellFreeWeigher

    def test_score_is_what_is_free_in_the_cell(self):
        hosts = builders.hosts(
            cell=['one', 'two', 'one'], free_ram_mb=[4096, 8192, 8192])

        self.assertScores([0.375, 0.5, 0.375], hosts)

    def test_nothing_counts_unless_it_is_set(self):
        plugin = builders.plugin(self.plugin)

        self.assertEqual(0.0, plugin.multiplier(builders.hosts()))

    def test_what_is_taken_counts_for_all_hosts_of_the_cell(self):
        hosts, request = builders.hosts(2), builders.request(vcpus=16)

        hosts.take(0, request.resources())

        self.assertScores([0.75, 0.75], hosts, request)
        self.assertFalse(self.plugin.local)

    def test_cell_that_is_overcommitted_counts_as_full(self):
        self.assertEqual((0, None), (self.plugin.minval, self.plugin.maxval))

    @hypothesis.given(hosts=strategies.hosts())
    @hypothesis.settings(deadline=None, max_examples=60)
    def test_column_score_is_that_of_each_row(self, hosts):
        by_cell = {}
        strategies.scored_by_rows(
            lambda host, _: by_cell.setdefault(host.cell, []).append(host)
            or 0, hosts, None)

        np.testing.assert_allclose(
            strategies.scored_by_rows(
                lambda host, _: free_share(by_cell[host.cell]), hosts, None),
            strategies.scored_by_columns(
                builders.plugin(self.plugin), hosts, builders.request()),
            rtol=1e-12)
