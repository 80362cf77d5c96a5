# SPDX-License-Identifier: Apache-2.0
"""AggregateTypeAffinityFilter."""

import hypothesis
from hypothesis import strategies as st

from cellsched.filters import aggregate_type_affinity
from cellsched.testing import builders
from cellsched.testing.suite import filters
from tests.unit import base
from tests.unit.filters import agreeing
from tests.unit import strategies


class TestAggregateTypeAffinityFilter(
        agreeing.Agreeing, filters.FilterSuite, base.TestCase):

    plugin = aggregate_type_affinity.AggregateTypeAffinityFilter

    def test_host_takes_the_flavors_of_its_aggregates(self):
        for expected, *texts in (
                (True,), (True, 'small'), (False, 'large'), (False, ''),
                (True, 'large, small'), (True, 'large', ' small '),
                (False, 'large', 'smaller'), (False, 'Small')):
            with self.subTest(texts=texts):
                self.assertKeeps([expected], builders.hosts(aggregates=[tuple(
                    builders.aggregate(number, instance_type=text)
                    for number, text in enumerate(texts, 1))]))

    def test_aggregate_without_the_key_is_no_matter(self):
        other = builders.aggregate(1, ssd='yes')
        large = builders.aggregate(2, instance_type='large')

        self.assertKeeps([True, False], builders.hosts(
            aggregates=[(other,), (other, large)]))

    def test_flavor_without_a_name_goes_where_all_may(self):
        large = builders.aggregate(2, instance_type='large')

        self.assertKeeps(
            [True, False], builders.hosts(aggregates=[(), (large,)]),
            builders.request(name=None))

    @hypothesis.given(
        hosts=strategies.hosts({'instance_type': st.sampled_from(
            ['small', 'large', 'small,large', '', ' tiny ,'])}),
        name=st.sampled_from(['small', 'large', 'tiny', '']))
    def test_column_verdict_is_that_of_each_row(self, hosts, name):
        def passes(host, request):
            texts = [each.metadata['instance_type']
                     for each in host.aggregates
                     if 'instance_type' in each.metadata]
            return not texts or any(
                request.flavor.name == flavor.strip()
                for text in texts for flavor in text.split(','))

        self.assertAgrees(passes, hosts, builders.request(name=name))
