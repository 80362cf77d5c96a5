# SPDX-License-Identifier: Apache-2.0
"""RAMWeigher."""

import hypothesis

from cellsched.testing import builders
from cellsched.testing.suite import weighers
from cellsched.weighers import ram
from tests.unit import base
from tests.unit.hosts import rows


class TestRAMWeigher(weighers.WeigherSuite, base.TestCase):

    plugin = ram.RAMWeigher

    def test_score_is_the_free_memory(self):
        hosts = builders.hosts(free_ram_mb=[512, 0, -5])

        self.assertScores([512, 0, -5], hosts)

    def test_overcommitted_host_counts_as_full(self):
        self.assertEqual((0, None), (self.plugin.minval, self.plugin.maxval))

    @hypothesis.given(table=rows.ROWS)
    @rows.settings
    def test_column_score_is_that_of_each_row(self, table):
        self.assertScores([row['free_ram_mb'] for row in table],
                          rows.hosts(table))
