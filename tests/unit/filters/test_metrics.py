# SPDX-License-Identifier: Apache-2.0
"""MetricsFilter."""

import json

import hypothesis
from hypothesis import strategies as st

from cellsched.filters import metrics
from cellsched.testing import builders
from cellsched.testing.suite import filters
from tests.unit import base
from tests.unit.filters import agreeing
from tests.unit import strategies


def reported(*names):
    return json.dumps([{'name': name, 'value': 1} for name in names])


class TestMetricsFilter(
        agreeing.Agreeing, filters.FilterSuite, base.TestCase):

    plugin = metrics.MetricsFilter

    def test_host_must_report_all_metrics_of_the_setting(self):
        hosts = builders.hosts(metrics=[
            '', reported('a'), reported('b', 'a', 'c'), reported('b')])

        self.assertKeeps([False, False, True, False], hosts,
                         weight_setting=['a=1.0', 'b = -2'])
        self.assertKeeps([False, True, True, False], hosts,
                         weight_setting=['a=0'])

    def test_invalid_metrics_text_has_no_metrics(self):
        hosts = builders.hosts(metrics=[
            'junk', '{"name": "a"}', '[5, null, "a", {}]', '[{"name": [1]}]',
            'null', '[{"name": "a"}]'])

        self.assertKeeps([False] * 5 + [True], hosts, weight_setting=['a=1'])

    def test_empty_setting_passes_every_host(self):
        plugin = builders.plugin(self.plugin)

        self.assertFalse(plugin.applies(builders.request()))

    @hypothesis.given(
        hosts=strategies.hosts(metrics=st.lists(
            st.sampled_from('abc'), max_size=3).map(
            lambda names: reported(*names))),
        names=st.lists(st.sampled_from('abc'), max_size=3))
    def test_column_verdict_equals_row_verdicts(self, hosts, names):
        self.assertAgrees(
            lambda host, request: all(
                any(each['name'] == name for each in host.metrics)
                for name in names),
            hosts, builders.request(),
            weight_setting=[f'{name}=1' for name in names])
