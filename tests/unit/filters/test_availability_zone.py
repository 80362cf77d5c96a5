# SPDX-License-Identifier: Apache-2.0
"""AvailabilityZoneFilter."""

import hypothesis
from hypothesis import strategies

from cellsched.filters import availability_zone
from cellsched.testing import builders
from cellsched.testing.suite import filters
from tests.unit import base
from tests.unit.hosts import rows


class TestAvailabilityZoneFilter(filters.FilterSuite, base.TestCase):

    plugin = availability_zone.AvailabilityZoneFilter

    def test_host_in_another_zone_is_rejected(self):
        hosts = builders.hosts(availability_zone=['east', 'west', 'nova'])

        self.assertKeeps([False, True, False], hosts,
                         builders.request(availability_zone='west'))

    def test_zone_without_hosts_rejects_all_hosts(self):
        hosts = builders.hosts(availability_zone=['east', 'west'])

        for zone in ('north', 'EAST', 'east,west', '%', "' or 1"):
            self.assertKeeps([False, False], hosts,
                             builders.request(availability_zone=zone))

    def test_request_without_a_zone_is_not_filtered(self):
        plugin = builders.plugin(self.plugin)

        self.assertFalse(plugin.applies(builders.request()))
        self.assertFalse(plugin.applies(
            builders.request(availability_zone='')))

    @hypothesis.given(table=rows.ROWS, zone=strategies.sampled_from(
        [None, 'east', 'west', 'nova', 'north']))
    def test_column_verdict_equals_row_verdicts(self, table, zone):
        self.assertKeeps(
            [zone is None or row['availability_zone'] == zone
             for row in table],
            rows.hosts(table), builders.request(availability_zone=zone))
