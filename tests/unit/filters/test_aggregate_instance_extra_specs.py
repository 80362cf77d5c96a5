# SPDX-License-Identifier: Apache-2.0
"""AggregateInstanceExtraSpecsFilter."""

import hypothesis
from hypothesis import strategies as st

from cellsched import exception
from cellsched.filters import aggregate_instance_extra_specs
from cellsched.filters import extra_specs_ops
from cellsched.testing import builders
from cellsched.testing.suite import filters
from tests.unit import base
from tests.unit.filters import agreeing
from tests.unit import strategies

SCOPE = 'aggregate_instance_extra_specs:'


class TestAggregateInstanceExtraSpecsFilter(
        agreeing.Agreeing, filters.FilterSuite, base.TestCase):

    plugin = aggregate_instance_extra_specs.AggregateInstanceExtraSpecsFilter

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

    def test_request_without_specs_is_not_asked_about(self):
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
    def test_column_verdict_is_that_of_each_row(self, hosts, specs):
        def passes(host, request):
            for name, requirement in request.flavor.extra_specs.items():
                if ':' in name and not name.startswith(SCOPE):
                    continue
                key = name.removeprefix(SCOPE)
                values = [value.strip() for each in host.aggregates
                          if key in each.metadata
                          for value in each.metadata[key].split(',')]
                if not any(extra_specs_ops.match(value, requirement)
                           for value in values):
                    return False
            return True

        self.assertAgrees(
            passes, hosts, builders.request(extra_specs=specs))
