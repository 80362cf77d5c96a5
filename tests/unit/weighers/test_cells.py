# SPDX-License-Identifier: Apache-2.0
"""Weighers that look at cells."""

import hypothesis
from hypothesis import strategies as st
import numpy as np

from cellsched.hosts import cell_health
from cellsched.hosts import table
from cellsched import objects
from cellsched.scheduler.decision import pipeline
from cellsched.testing import builders
from cellsched.testing.suite import weighers
from cellsched.weighers import cells
from cellsched.weighers import resources
from tests.unit import base


CELLS = [f'30000000-0000-4000-8000-{number:012}' for number in range(3)]


def move(cell, **fields):
    mapping = cell if cell is None else objects.CellMapping(uuid=cell)
    return builders.request(
        requested_destination=objects.Destination(cell=mapping, **fields))


class TestCrossCellWeigher(weighers.WeigherSuite, base.TestCase):

    plugin = cells.CrossCellWeigher

    def make_requests(self):
        return [*super().make_requests(),
                move(builders.CELL, allow_cross_cell_move=True)]

    def test_hosts_of_the_preferred_cell_are_best(self):
        hosts = builders.hosts(cell=[CELLS[0], CELLS[1], CELLS[0]])
        for cell, expected in ((CELLS[0], [1, -1, 1]), (CELLS[1], [-1, 1, -1]),
                               (CELLS[2], [-1, -1, -1])):
            self.assertScores(expected, hosts,
                              move(cell, allow_cross_cell_move=True))

    def test_only_cross_cell_moves_are_weighed(self):
        plugin = builders.plugin(self.plugin)
        nowhere = objects.Destination(allow_cross_cell_move=True)
        for expected, request in (
                (True, move(CELLS[0], allow_cross_cell_move=True)),
                (False, move(CELLS[0], allow_cross_cell_move=False)),
                (False, move(CELLS[0])),
                (False, move(None, allow_cross_cell_move=True)),
                (False, builders.request(requested_destination=nowhere)),
                (False, builders.request(requested_destination=None)),
                (False, builders.request())):
            self.assertEqual(expected, plugin.applies(request))

    def test_default_multiplier_outweighs_all_weighers(self):
        plugin = builders.plugin(self.plugin)

        self.assertEqual(1000000.0, plugin.multiplier(builders.hosts()))


FAILING = ('one', 'two', 'three')


def hosts(failures, cells=FAILING, later_s=0.0):
    """Return a host in each cell; the failures are so many seconds old."""
    known = cell_health.Cells(half_life_s=300.0)
    for cell, count in failures.items():
        known.failed(cell, count, builders.NOW)
    made = table.HostTable(cells=known)
    made.put([str(number) for number in range(len(cells))],
             {'cell': list(cells),
              'free_ram_mb': list(range(len(cells)))})
    return made.view(builders.NOW + later_s)


class TestCellFailureWeigher(weighers.WeigherSuite, base.TestCase):

    plugin = cells.CellFailureWeigher

    def best(self, failures, later_s):
        """Return the best host; the second has more memory than the first."""
        decision = pipeline.Pipeline([], [
            builders.plugin(resources.RAMWeigher),
            builders.plugin(self.plugin)])
        request = builders.request(vcpus=0, memory_mb=0, root_gb=0)
        there = hosts(failures, FAILING[:2], later_s)
        return decision.weigh(
            request, decision.candidates(there, request)).top(1)[0]

    def test_score_is_the_failures_of_the_cell(self):
        self.assertScores([3, 0, 1], hosts({'one': 3, 'three': 1}))

    def test_failures_are_forgotten(self):
        self.assertScores([1.5, 0, 0], hosts({'one': 3}, later_s=300.0))

    def test_avoided_cell_recovers_with_time(self):
        self.assertEqual([0, 0, 1, 1], [
            self.best({'two': 1}, later_s) for later_s in (0, 60, 1200, 7200)])

    def test_repeated_failures_of_a_cell_extend_its_penalty(self):
        self.assertEqual([0, 0, 1], [
            self.best({'two': 50}, later_s) for later_s in (0, 1200, 7200)])

    def test_cell_with_fewer_failures_is_better(self):
        self.assertEqual(1, self.best({'one': 5, 'two': 4}, 0))

    def test_multiplier_is_zero_without_failing_cells(self):
        plugin = builders.plugin(self.plugin)

        self.assertEqual(0.0, plugin.multiplier(hosts({})))
        self.assertEqual(0.0, plugin.multiplier(hosts({'one': 1}, (), 36e3)))
        self.assertEqual(-1000.0, plugin.multiplier(hosts({'two': 1})))

    @hypothesis.given(
        failures=st.dictionaries(
            st.sampled_from(FAILING), st.integers(0, 500)),
        cells=st.lists(st.sampled_from(FAILING), max_size=9),
        later_s=st.floats(0.0, 1e4))
    def test_column_score_equals_row_scores(self, failures, cells, later_s):
        scores = builders.plugin(self.plugin).score(
            hosts(failures, cells, later_s), builders.request())

        np.testing.assert_allclose(
            [failures.get(cell, 0) / 2 ** (later_s / 300) for cell in cells],
            scores, rtol=1e-9, atol=1e-12)


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

    plugin = cells.CellFreeWeigher

    def test_score_is_the_free_memory_of_the_cell(self):
        hosts = builders.hosts(
            cell=['one', 'two', 'one'], free_ram_mb=[4096, 8192, 8192])

        self.assertScores([0.375, 0.5, 0.375], hosts)

    def test_default_multiplier_is_zero(self):
        plugin = builders.plugin(self.plugin)

        self.assertEqual(0.0, plugin.multiplier(builders.hosts()))

    def test_taken_memory_counts_for_all_hosts_of_the_cell(self):
        hosts, request = builders.hosts(2), builders.request(vcpus=16)

        hosts.take(0, request.resources())

        self.assertScores([0.75, 0.75], hosts, request)
        self.assertFalse(self.plugin.local)

    def test_overcommitted_cell_counts_as_full(self):
        self.assertEqual((0, None), (self.plugin.minval, self.plugin.maxval))
