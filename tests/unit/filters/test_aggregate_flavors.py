# SPDX-License-Identifier: Apache-2.0

import hypothesis
from hypothesis import strategies as st

from cellsched import exception
from cellsched.filters import aggregate_flavors
from cellsched.filters import extra_specs_ops
from cellsched.testing import builders
from cellsched.testing.suite import filters
from tests.unit import base
from tests.unit.filters import agreeing
from tests.unit import strategies


class TestAggregateTypeAffinityFilter(
        agreeing.Agreeing, filters.FilterSuite, base.TestCase):

    plugin = aggregate_flavors.AggregateTypeAffinityFilter

    def test_host_takes_the_flavors_of_its_aggregates(self):
        for expected, *texts in (
                (True,), (True, 'small'), (False, 'large'), (False, ''),
                (True, 'large, small'), (True, 'large', ' small '),
                (False, 'large', 'smaller'), (False, 'Small')):
            with self.subTest(texts=texts):
                self.assertKeeps([expected], builders.hosts(aggregates=[tuple(
                    builders.aggregate(number, instance_type=text)
                    for number, text in enumerate(texts, 1))]))

    def test_aggregate_without_the_key_is_ignored(self):
        other = builders.aggregate(1, ssd='yes')
        large = builders.aggregate(2, instance_type='large')

        self.assertKeeps([True, False], builders.hosts(
            aggregates=[(other,), (other, large)]))

    def test_flavor_without_a_name_is_kept_off_dedicated_hosts(self):
        large = builders.aggregate(2, instance_type='large')

        self.assertKeeps(
            [True, False], builders.hosts(aggregates=[(), (large,)]),
            builders.request(name=None))

    @hypothesis.given(
        hosts=strategies.hosts({'instance_type': st.sampled_from(
            ['small', 'large', 'small,large', '', ' tiny ,'])}),
        name=st.sampled_from(['small', 'large', 'tiny', '']))
    def test_column_verdict_equals_row_verdicts(self, hosts, name):
        def passes(host, request):
            texts = [each.metadata['instance_type']
                     for each in host.aggregates
                     if 'instance_type' in each.metadata]
            return not texts or any(
                request.flavor.name == flavor.strip()
                for text in texts for flavor in text.split(','))

        self.assertAgrees(passes, hosts, builders.request(name=name))


SCOPE = 'aggregate_instance_extra_specs:'


class TestAggregateInstanceExtraSpecsFilter(
        agreeing.Agreeing, filters.FilterSuite, base.TestCase):

    plugin = aggregate_flavors.AggregateInstanceExtraSpecsFilter

    def make_requests(self):
        return [builders.request(),
                builders.request(extra_specs={SCOPE + 'ssd': 's!= no'})]

    def assertMatches(self, expected, extra_specs, *metadata):
        """Check one host in aggregates with this metadata."""
        aggregates = tuple(
            builders.aggregate(number, **each)
            for number, each in enumerate(metadata, 1))
        self.assertKeeps([expected], builders.hosts(aggregates=[aggregates]),
                         builders.request(extra_specs=extra_specs))

    def test_each_spec_has_to_match_some_value(self):
        for expected, specs, *metadata in (
                (True, {}, {}),
                (True, {'ssd': 'yes'}, {'ssd': 'yes'}),
                (False, {'ssd': 'yes'}, {'ssd': 'no'}),
                (False, {'ssd': 'yes'}, {}),
                (False, {'ssd': 'yes'}),
                (True, {'ssd': 'yes'}, {'ssd': 'no, yes'}),
                (True, {'ssd': 'yes'}, {'ssd': 'no'}, {'ssd': 'yes'}),
                (False, {'ssd': 'no, yes'}, {'ssd': 'no, yes'}),
                (True, {SCOPE + 'ssd': 'yes'}, {'ssd': 'yes'}),
                (False, {SCOPE + 'ssd': 'yes'}, {}),
                (True, {SCOPE + 'a:b': '1'}, {'a:b': '1'}),
                (True, {'capabilities:ssd': 'yes'}, {'ssd': 'no'}),
                (True, {'hw:cpu_policy': 'dedicated'}),
                (False, {'ssd': 'yes', SCOPE + 'ssd': 'no'}, {'ssd': 'yes'}),
                (True, {'ssd': 'yes', SCOPE + 'ssd': 'no'},
                 {'ssd': 'yes'}, {'ssd': 'no'}),
                (True, {'ssd': 'yes', 'nic': '10'}, {'ssd': 'yes'},
                 {'nic': '10'}),
                (False, {'ssd': 'yes', 'nic': '10'}, {'ssd': 'yes'}),
                (True, {'nic': '>= 10'}, {'nic': '40'}),
                (False, {'nic': '>= 10'}, {'nic': '1'}),
                (False, {'nic': '>= 10'}, {'nic': 'fast'}),
                (True, {'nic': '<or> 10 <or> 40'}, {'nic': '40'}),
                (True, {'nic': ''}, {'nic': ''}),
                (False, {'nic': '='}, {'nic': '1'})):
            with self.subTest(specs=specs, metadata=metadata):
                self.assertMatches(expected, specs, *metadata)

    def test_request_without_specs_is_not_filtered(self):
        plugin = builders.plugin(self.plugin)

        for specs in ({}, {'hw:cpu_policy': 'dedicated'}):
            self.assertFalse(
                plugin.applies(builders.request(extra_specs=specs)))

    def test_bad_spec_is_named(self):
        for specs, expected in (
                ({'nic': '>= fast'}, 'extra_specs.nic: expected a number'),
                ({SCOPE + 'nic': '<or> 1 ' * 100_000},
                 f'extra_specs.{SCOPE}nic: expected at most 1024')):
            error = self.assertRaises(
                exception.InvalidField, self.assertMatches, True, specs, {})
            self.assertIn(expected, str(error))

    def test_very_many_specs_have_a_verdict(self):
        specs = {f'_{number}': '<in> a' for number in range(100_000)}

        self.assertMatches(False, specs, {'_1': 'a'})

    @hypothesis.given(
        hosts=strategies.hosts({'a': st.sampled_from(['1', '2', '1, 2', 'x']),
                                'b': st.sampled_from(['', '1', '5'])}),
        specs=st.dictionaries(
            st.sampled_from(['a', SCOPE + 'a', 'b', 'hw:a', 'c']),
            st.sampled_from(['1', '>= 2', 's!= x', '<or> x <or> 2', ''])))
    def test_column_verdict_equals_row_verdicts(self, hosts, specs):
        def passes(host, request):
            for name, requirement in request.flavor.extra_specs.items():
                if ':' in name and not name.startswith(SCOPE):
                    continue
                key = name.removeprefix(SCOPE)
                values = [value.strip() for each in host.aggregates
                          if key in each.metadata
                          for value in each.metadata[key].split(',')]
                if not any(map(
                        extra_specs_ops.matcher(requirement, name), values)):
                    return False
            return True

        self.assertAgrees(
            passes, hosts, builders.request(extra_specs=specs))
