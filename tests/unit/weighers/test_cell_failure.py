# SPDX-License-Identifier: Apache-2.0
"""CellFailureWeigher."""

import hypothesis
from hypothesis import strategies as st
import numpy as np

from cellsched.hosts import cell_health
from cellsched.hosts import table
from cellsched.scheduler.decision import pipeline
from cellsched.testing import builders
from cellsched.testing.suite import weighers
from cellsched.weighers import cell_failure
from cellsched.weighers import ram
from tests.unit import base

CELLS = ('one', 'two', 'three')


def hosts(failures, cells=CELLS, later_s=0.0):
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

    plugin = cell_failure.CellFailureWeigher

    def best(self, failures, later_s):
        """Return the best host; the second has more memory than the first."""
        decision = pipeline.Pipeline([], [
            builders.plugin(ram.RAMWeigher), builders.plugin(self.plugin)])
        request = builders.request(vcpus=0, memory_mb=0, root_gb=0)
        there = hosts(failures, CELLS[:2], later_s)
        return decision.weigh(
            request, decision.candidates(there, request)).top(1)[0]

    def test_score_is_the_failures_of_the_cell(self):
        self.assertScores([3, 0, 1], hosts({'one': 3, 'three': 1}))

    def test_failures_are_forgotten(self):
        self.assertScores([1.5, 0, 0], hosts({'one': 3}, later_s=300.0))

    def test_cell_is_avoided_and_comes_back(self):
        self.assertEqual([0, 0, 1, 1], [
            self.best({'two': 1}, later_s) for later_s in (0, 60, 1200, 7200)])

    def test_cell_that_fails_on_stays_away_for_longer(self):
        self.assertEqual([0, 0, 1], [
            self.best({'two': 50}, later_s) for later_s in (0, 1200, 7200)])

    def test_cell_with_fewer_failures_is_better(self):
        self.assertEqual(1, self.best({'one': 5, 'two': 4}, 0))

    def test_nothing_is_scored_where_nothing_fails(self):
        plugin = builders.plugin(self.plugin)

        self.assertEqual(0.0, plugin.multiplier(hosts({})))
        self.assertEqual(0.0, plugin.multiplier(hosts({'one': 1}, (), 36e3)))
        self.assertEqual(-1000.0, plugin.multiplier(hosts({'two': 1})))

    @hypothesis.given(
        failures=st.dictionaries(st.sampled_from(CELLS), st.integers(0, 500)),
        cells=st.lists(st.sampled_from(CELLS), max_size=9),
        later_s=st.floats(0.0, 1e4))
    @hypothesis.settings(deadline=None, max_examples=60)
    def test_column_score_is_that_of_each_row(self, failures, cells, later_s):
        scores = builders.plugin(self.plugin).score(
            hosts(failures, cells, later_s), builders.request())

        np.testing.assert_allclose(
            [failures.get(cell, 0) / 2 ** (later_s / 300) for cell in cells],
            scores, rtol=1e-9, atol=1e-12)
