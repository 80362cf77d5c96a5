# SPDX-License-Identifier: Apache-2.0
"""Tests of filters that limit a number of each host."""

import hypothesis
from hypothesis import strategies as st

from cellsched.testing import builders
from cellsched.testing.suite import filters
from tests import profile
from tests.unit.filters import agreeing
from tests.unit import strategies


class LimitCase(agreeing.Agreeing, filters.FilterSuite):
    """``column`` is the limited number, ``option`` its limit.

    ``default`` is the limit without that option.
    """

    def hosts(self, *numbers, **columns):
        return builders.hosts(**{self.column: list(numbers)}, **columns)

    def test_option_is_the_limit(self):
        self.assertKeeps([True, False, False], self.hosts(1, 2, 3),
                         **{self.option: 2})

    def test_limit_has_a_default(self):
        self.assertKeeps(
            [True, False], self.hosts(self.default - 1, self.default))

    def test_placement_changes_the_verdict_on_its_host_alone(self):
        self.assertFalse(self.plugin.run_filter_once_per_request)
        self.assertTrue(self.plugin.local)


class LimitTests(LimitCase):

    def test_aggregates_are_ignored(self):
        one = builders.aggregate(**{self.option: '1'})

        self.assertKeeps([True], self.hosts(2, aggregates=[(one,)]))

    @hypothesis.settings(suppress_health_check=profile.SHARED)
    @hypothesis.given(hosts=strategies.hosts(), limit=st.integers(1, 12))
    def test_column_verdict_equals_row_verdicts(self, hosts, limit):
        self.assertAgrees(
            lambda host, _: getattr(host, self.column) < limit, hosts,
            builders.request(), **{self.option: limit})


class AggregateLimitTests(LimitCase):

    def test_least_number_of_the_aggregates_is_the_limit(self):
        two, nine, bad = (
            builders.aggregate(number, **{self.option: text})
            for number, text in enumerate(('2', '9', 'many'), 1))

        self.assertKeeps(
            [True, False, True, False, False, True, False],
            self.hosts(1, 2, 8, 9, 2, 3, 4, aggregates=[
                (two,), (two,), (nine,), (nine,), (two, nine), (bad,), ()]),
            **{self.option: 4})

    @hypothesis.settings(suppress_health_check=profile.SHARED)
    @hypothesis.given(st.data())
    def test_column_verdict_equals_row_verdicts(self, data):
        hosts = data.draw(strategies.hosts({self.option: st.sampled_from(
            ['3', ' 9 ', '30', '0', 'x', '', '1,2'])}))

        def passes(host, request):
            texts = [each.metadata[self.option].strip()
                     for each in host.aggregates
                     if self.option in each.metadata]
            # As in Nova, no aggregate counts if one has no number.
            numbers = ([int(text) for text in texts]
                       if all(map(str.isdigit, texts)) else [])
            return getattr(host, self.column) < min(
                numbers, default=self.default)

        self.assertAgrees(passes, hosts, builders.request())
