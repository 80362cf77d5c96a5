# SPDX-License-Identifier: Apache-2.0
"""IoOpsFilter and its form for aggregates."""

import hypothesis
from hypothesis import strategies as st

from cellsched.filters import io_ops
from cellsched.testing import builders
from cellsched.testing.suite import filters
from tests.unit import base
from tests.unit.filters import agreeing
from tests.unit import strategies


class TestIoOpsFilter(
        agreeing.Agreeing, filters.FilterSuite, base.TestCase):

    plugin = io_ops.IoOpsFilter

    def test_host_at_its_limit_is_rejected(self):
        self.assertKeeps([True, False, False],
                         builders.hosts(num_io_ops=[1, 2, 3]),
                         max_io_ops_per_host=2)

    def test_limit_is_8_unless_set(self):
        self.assertKeeps([True, False], builders.hosts(num_io_ops=[7, 8]))

    def test_aggregates_are_ignored(self):
        one = builders.aggregate(max_io_ops_per_host='1')

        self.assertKeeps([True], builders.hosts(
            num_io_ops=[2], aggregates=[(one,)]))

    def test_placement_changes_the_verdict_on_its_host_alone(self):
        self.assertFalse(self.plugin.run_filter_once_per_request)
        self.assertTrue(self.plugin.local)

    @hypothesis.given(hosts=strategies.hosts(), limit=st.integers(0, 12))
    def test_column_verdict_equals_row_verdicts(self, hosts, limit):
        self.assertAgrees(
            lambda host, _: host.num_io_ops < limit, hosts,
            builders.request(), max_io_ops_per_host=limit)


class TestAggregateIoOpsFilter(
        agreeing.Agreeing, filters.FilterSuite, base.TestCase):

    plugin = io_ops.AggregateIoOpsFilter

    def test_least_number_of_the_aggregates_is_the_limit(self):
        two = builders.aggregate(1, max_io_ops_per_host='2')
        nine = builders.aggregate(2, max_io_ops_per_host='9')
        bad = builders.aggregate(3, max_io_ops_per_host='many')

        self.assertKeeps(
            [True, False, True, False, False, True, False],
            builders.hosts(
                num_io_ops=[1, 2, 8, 9, 2, 3, 4],
                aggregates=[(two,), (two,), (nine,), (nine,), (two, nine),
                            (bad,), ()]), max_io_ops_per_host=4)

    def test_option_is_the_limit_without_metadata_of_aggregates(self):
        self.assertKeeps([True, False], builders.hosts(num_io_ops=[7, 8]))

    @hypothesis.given(hosts=strategies.hosts({
        'max_io_ops_per_host': st.sampled_from(
            ['3', ' 9 ', '0', 'x', '', '1,2'])}))
    def test_column_verdict_equals_row_verdicts(self, hosts):
        def passes(host, request):
            texts = [each.metadata['max_io_ops_per_host'].strip()
                     for each in host.aggregates
                     if 'max_io_ops_per_host' in each.metadata]
            # As in Nova, no aggregate counts if one has no number.
            numbers = ([int(text) for text in texts]
                       if all(map(str.isdigit, texts)) else [])
            return host.num_io_ops < min(numbers, default=8)

        self.assertAgrees(passes, hosts, builders.request())
