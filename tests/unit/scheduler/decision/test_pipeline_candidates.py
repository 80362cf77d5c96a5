# SPDX-License-Identifier: Apache-2.0
"""Candidates and rejections."""

import numpy as np

from cellsched import exception
from cellsched.filters.base import Reason
from cellsched.scheduler.decision import capacity
from cellsched.scheduler.decision import pipeline
from cellsched.testing import builders
from cellsched.testing.clock import FakeClock
from tests.unit import base
from tests.unit.scheduler import toys


def found(hosts, *stages):
    left = pipeline.FilteredHosts(hosts, None, len(hosts)).through(
        stages, builders.request())
    return pipeline.Candidates(stages, left)


class TestCandidates(base.TestCase):

    def test_rows_are_the_passed_hosts(self):
        passed = found(builders.hosts(3), toys.Filter([False, True, True]))

        self.assertEqual([1, 2], passed.rows.tolist())
        self.assertEqual(2, len(passed))

    def test_refused_host_is_excluded(self):
        passed = found(builders.hosts(2))

        self.assertEqual([1], passed.without([0]).rows.tolist())
        self.assertEqual([0, 1], passed.rows.tolist())
        self.assertEqual([], passed.without([0]).rejections(
            builders.request()))

    def test_rejected_returns_the_rows_of_a_stage(self):
        first = toys.Filter([False, True, True, True])
        second = toys.Filter([False, True, False, False])
        passed = found(builders.hosts(4), first, second)

        self.assertEqual([[0], [2, 3], []], [
            passed.rejected(stage).tolist()
            for stage in (first, second, toys.Filter([]))])


class TestRejections(base.TestCase):

    def rejections(self, hosts, *stages):
        return found(hosts, *stages).rejections(builders.request())

    def test_rejections_are_in_the_order_of_stages_with_counts(self):
        first = toys.Filter([False, True, True, False])
        second = toys.Filter([True, False, True, True])
        second.reason = 'is second'

        self.assertEqual(
            [pipeline.Rejection('Filter', 2, 'is no toy'),
             pipeline.Rejection('Filter', 1, 'is second')],
            self.rejections(builders.hosts(4), first, second))

    def test_stage_without_rejections_is_omitted(self):
        self.assertEqual([], self.rejections(
            builders.hosts(1), toys.Filter([True])))

    def test_nearest_miss_is_computed_from_hosts_of_the_stage(self):
        hosts = builders.hosts(
            available={'MEMORY_MB': [511, 100, 500, 500, 9000]})

        _, rejection = self.rejections(
            hosts, toys.Filter([False, True, True, True, True]),
            capacity.Capacity('MEMORY_MB', 512))

        self.assertEqual(pipeline.Nearest(2, 12, 'MB'), rejection.nearest)
        self.assertIs(int, type(rejection.nearest.amount))

    def test_miss_may_be_a_part(self):
        stage = toys.Filter([False])
        stage.shortfall = lambda hosts, request: (np.array([0.5]), 'GB')

        (rejection,) = self.rejections(builders.hosts(1), stage)

        self.assertEqual(pipeline.Nearest(1, 0.5, 'GB'), rejection.nearest)

    def test_freed_host_is_not_counted_as_a_miss(self):
        for available, freed, nearest in (
                ([500], 8000, None),
                ([500, 400], 12, pipeline.Nearest(1, 112, 'MB'))):
            hosts = builders.hosts(available={'MEMORY_MB': available})
            passed = found(hosts, capacity.Capacity('MEMORY_MB', 512))
            hosts.take(0, {'MEMORY_MB': -freed})

            (rejection,) = passed.rejections(builders.request())

            self.assertEqual((len(available), nearest),
                             (rejection.hosts, rejection.nearest))

    def test_shortfall_receives_the_request_and_is_timed(self):
        clock = FakeClock()
        calls = pipeline.PluginCalls(clock.monotonic)
        stage = toys.Filter([False])

        def shortfall(hosts, request):
            clock.advance(2.0)
            return np.array([request.flavor.vcpus]), 'CPUs'

        stage.shortfall = shortfall

        (rejection,) = found(builders.hosts(1), stage).rejections(
            builders.request(vcpus=7), calls)

        self.assertEqual(pipeline.Nearest(1, 7, 'CPUs'), rejection.nearest)
        self.assertEqual({stage: 2.0}, calls.seconds)

    def test_each_reason_of_a_stage_is_a_rejection(self):
        stage = toys.Filter([False] * 4)
        stage.reasons = lambda hosts, request: [
            Reason('lacks A', np.arange(3) > 0, (
                np.array([3, 2]), 'CPUs')),
            Reason('lacks B', np.arange(3) == 0)]

        rejections = found(builders.hosts(4), stage).rejections(
            builders.request(), besides=[1])

        self.assertEqual(
            [pipeline.Rejection('Filter', 2, 'lacks A', pipeline.Nearest(
                1, 2, 'CPUs')), pipeline.Rejection('Filter', 1, 'lacks B')],
            rejections)
        self.assertEqual([[2, 3], [0]],
                         [each.rows.tolist() for each in rejections])

    def test_failing_explanation_names_the_plugin(self):
        for name in 'reasons', 'shortfall':
            stage = toys.Filter([False])
            setattr(stage, name, toys.fail)

            self.assertEqual('Filter', self.assertRaises(
                exception.PluginFailed, self.rejections, builders.hosts(1),
                stage).plugin)
