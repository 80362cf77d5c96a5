# SPDX-License-Identifier: Apache-2.0
"""MetricsWeigher."""

import json

import hypothesis
from hypothesis import strategies as st
import numpy as np

from cellsched import exception
from cellsched.testing import builders
from cellsched.testing.suite import weighers
from cellsched.weighers import metrics
from tests.unit import base
from tests.unit import strategies

NAMES = ['cpu', 'net', 'heat']

METRICS = st.lists(st.fixed_dictionaries({
    'name': st.sampled_from(NAMES), 'value': st.integers(-9, 9)})).map(
    json.dumps)

SETTINGS = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from([-1.5, 0.0, 2.0])))

MULTIPLIERS = st.sampled_from(['0', '2.0', 'much'])


def reported(**values):
    return json.dumps([{'name': name, 'value': value, 'source': 'virt'}
                       for name, value in values.items()])


class TestMetricsWeigher(weighers.WeigherSuite, base.TestCase):

    plugin = metrics.MetricsWeigher

    def make_hosts(self, count):
        return builders.hosts(
            count, metrics=[reported(cpu=row) for row in range(count)])

    def test_score_is_the_sum_of_values_times_ratios(self):
        hosts = builders.hosts(
            metrics=[reported(cpu=1, net=2), reported(cpu=0.5, net=0, heat=9)])

        self.assertScores([-1.6, 0.5], hosts,
                          weight_setting='cpu=1.0, net=-1.3')

    def test_percentages_are_weighed_as_whole_percents(self):
        # The scores are those of Nova's own code.
        for part in '', 'idle.', 'iowait.', 'kernel.', 'user.':
            name = f'cpu.{part}percent'
            hosts = builders.hosts(metrics=[
                reported(**{name: value, 'cpu.frequency': 40})
                for value in (0.25, 0.29, 0.5, 1.0)])

            self.assertScores([45, 48, 70, 120], hosts,
                              weight_setting=f'{name}=1,cpu.frequency=0.5')

    def test_metric_with_two_settings_counts_twice(self):
        self.assertScores([9], builders.hosts(metrics=[reported(cpu=3)]),
                          weight_setting='cpu=1,cpu=2')

    def test_default_setting_weighs_no_metric(self):
        plugin = builders.plugin(self.plugin)

        self.assertFalse(plugin.applies(builders.request()))
        self.assertEqual(1.0, plugin.multiplier(builders.hosts()))

    def test_missing_metric_fails_the_request_and_is_named(self):
        hosts = builders.hosts(host=['good', 'bad'], nodename='node',
                               metrics=[reported(cpu=1, net=0),
                                        reported(cpu=1, heat=1)])

        for setting in ('cpu=1,net=2', 'cpu=1,net=0'):
            error = self.assertRaises(
                exception.ComputeHostMetricNotFound, self.assertScores, [],
                hosts, weight_setting=setting)
            self.assertEqual(('net', 'bad', 'node'),
                             (error.name, error.host, error.node))

    def test_rejected_host_may_lack_metrics(self):
        hosts = builders.hosts(metrics=['', reported(cpu=1)])

        self.assertScores([1], hosts.at(np.array([1])), weight_setting='cpu=1')

    def test_missing_metric_gives_the_weight_of_unavailable(self):
        hosts = builders.hosts(metrics=[
            reported(cpu=1, net=1), reported(cpu=1), '', '[]'])

        self.assertScores([3, -10000, -10000, -10000], hosts,
                          weight_setting='cpu=1,net=2', required=False)
        self.assertScores([3, -5, -5, -5], hosts, required=False,
                          weight_setting='cpu=1,net=2',
                          weight_of_unavailable=-5)
        # What has no ratio may be missing.
        self.assertScores([1, 1, -10000, -10000], hosts,
                          weight_setting='cpu=1,net=0', required=False)

    def test_metric_without_a_number_is_missing(self):
        values = ['9', None, True, [1], {}, float('nan'), float('inf'),
                  10 ** 400, -10 ** 400]
        bad = [reported(cpu=value) for value in values]
        bad += ['{', '7', '{"cpu": 1}', '[7]', '[[]]', '[{"value": 1}]',
                '[{"name": ["cpu"], "value": 1}]', '[{"name": "cpu"}]']

        self.assertScores([-10000] * len(bad), builders.hosts(metrics=bad),
                          weight_setting='cpu=1', required=False)

    def test_infinite_sum_is_missing(self):
        hosts = builders.hosts(metrics=[reported(cpu=1e300, net=-1e300)])

        self.assertScores([-10000], hosts, required=False,
                          weight_setting='cpu=1e300,net=1e300')
        self.assertRaises(
            exception.ComputeHostMetricNotFound, self.assertScores, [],
            hosts, weight_setting='cpu=1e300,net=1e300')

    @hypothesis.given(
        hosts=strategies.hosts(
            metadata={'metrics_weight_multiplier': MULTIPLIERS},
            metrics=st.just('') | METRICS),
        setting=SETTINGS, multiplier=st.sampled_from([0.0, 1.0]))
    def test_column_score_equals_row_scores(
            self, hosts, setting, multiplier):
        plugin = builders.plugin(
            self.plugin, required=False, weight_multiplier=multiplier,
            weight_setting=[f'{name}={ratio}' for name, ratio in setting])

        def weigh(host, _):
            texts = [each.metadata['metrics_weight_multiplier']
                     for each in host.aggregates
                     if 'metrics_weight_multiplier' in each.metadata]
            # As in Nova, no aggregate counts if one has no number.
            numbers = [] if 'much' in texts else [
                float(text) for text in texts]
            times = min(numbers, default=multiplier)
            values = {each['name']: each['value'] for each in host.metrics}
            score = 0.0
            for name, ratio in setting:
                if name in values:
                    score += values[name] * ratio
                elif ratio * times:
                    return -10000
            return score

        request = builders.request()
        np.testing.assert_allclose(
            strategies.scored_by_rows(weigh, hosts, request),
            strategies.scored_by_columns(plugin, hosts, request), atol=1e-12)
