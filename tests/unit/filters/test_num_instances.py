# SPDX-License-Identifier: Apache-2.0
"""NumInstancesFilter."""

import hypothesis
from hypothesis import strategies

from cellsched.filters import num_instances
from cellsched.testing import builders
from cellsched.testing.suite import filters
from tests.unit import base
from tests.unit.filters import agreeing
from tests.unit.hosts import rows
from tests.unit import strategies as tables


class TestNumInstancesFilter(filters.FilterSuite, base.TestCase):

    plugin = num_instances.NumInstancesFilter

    def test_host_at_its_limit_is_rejected(self):
        hosts = builders.hosts(num_instances=[1, 2, 3])

        self.assertKeeps(
            [True, False, False], hosts, max_instances_per_host=2)

    def test_limit_is_50_unless_set(self):
        hosts = builders.hosts(num_instances=[49, 50])

        self.assertKeeps([True, False], hosts)

    def test_limit_of_zero_is_refused(self):
        self.assertRaises(ValueError, builders.plugin, self.plugin,
                          max_instances_per_host=0)

    def test_placement_can_change_the_verdict(self):
        self.assertFalse(self.plugin.run_filter_once_per_request)

    @hypothesis.given(table=rows.ROWS, limit=strategies.integers(1, 5))
    def test_column_verdict_equals_row_verdicts(self, table, limit):
        self.assertKeeps(
            [row['num_instances'] < limit for row in table],
            rows.hosts(table), max_instances_per_host=limit)


class TestAggregateNumInstancesFilter(
        agreeing.Agreeing, filters.FilterSuite, base.TestCase):

    plugin = num_instances.AggregateNumInstancesFilter

    def test_least_number_of_the_aggregates_is_the_limit(self):
        two = builders.aggregate(1, max_instances_per_host='2')
        nine = builders.aggregate(2, max_instances_per_host='9')
        bad = builders.aggregate(3, max_instances_per_host='many')

        self.assertKeeps(
            [True, False, True, False, False, True, False],
            builders.hosts(
                num_instances=[1, 2, 8, 9, 2, 3, 4],
                aggregates=[(two,), (two,), (nine,), (nine,), (two, nine),
                            (bad,), ()]), max_instances_per_host=4)

    def test_option_is_the_limit_without_metadata_of_aggregates(self):
        self.assertKeeps(
            [True, False], builders.hosts(num_instances=[49, 50]))

    @hypothesis.given(table=tables.hosts({
        'max_instances_per_host': strategies.sampled_from(
            ['5', ' 30 ', '0', 'x', '', '1,2'])}), request=tables.requests())
    def test_column_verdict_equals_row_verdicts(self, table, request):
        def passes(host, request):
            texts = [each.metadata['max_instances_per_host'].strip()
                     for each in host.aggregates
                     if 'max_instances_per_host' in each.metadata]
            # As in Nova, no aggregate counts if one has no number.
            numbers = ([int(text) for text in texts]
                       if all(map(str.isdigit, texts)) else [])
            return host.num_instances < min(numbers, default=50)

        self.assertAgrees(passes, table, request)
