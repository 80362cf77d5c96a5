# SPDX-License-Identifier: Apache-2.0
"""ComputeFilter."""

import hypothesis
from hypothesis import strategies

from cellsched.filters import compute
from cellsched.testing import builders
from cellsched.testing.suite import filters
from tests.unit import base
from tests.unit.hosts import rows


def keeps(row, service_down_time):
    """Return what the filter says of one host."""
    if row['service_disabled'] or row['forced_down']:
        return False
    return abs(builders.NOW - row['last_seen_up']) <= service_down_time


class TestComputeFilter(filters.FilterSuite, base.TestCase):

    plugin = compute.ComputeFilter

    def test_service_that_is_disabled_or_forced_down_is_rejected(self):
        hosts = builders.hosts(
            service_disabled=[False, True, False, True],
            forced_down=[False, False, True, True])

        self.assertKeeps([True, False, False, False], hosts)

    def test_service_is_down_after_service_down_time(self):
        hosts = builders.hosts(now=1000.0, last_seen_up=[
            1000.0, 940.0, 939.9, 0.0])

        self.assertKeeps([True, True, False, False], hosts)
        self.assertKeeps([True, False, False, False], hosts,
                         service_down_time=10)

    def test_report_from_the_far_future_does_not_count(self):
        hosts = builders.hosts(now=1000.0, last_seen_up=[1060.0, 1060.1])

        self.assertKeeps([True, False], hosts)

    @hypothesis.given(table=rows.ROWS, down_time=strategies.integers(1, 4000))
    def test_column_verdict_is_that_of_each_row(self, table, down_time):
        self.assertKeeps(
            [keeps(row, down_time) for row in table], rows.hosts(table),
            service_down_time=down_time)
