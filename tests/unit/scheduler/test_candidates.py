# SPDX-License-Identifier: Apache-2.0
"""Candidates and rejections."""

import numpy as np

from cellsched import exception
from cellsched.scheduler import candidates
from cellsched.scheduler import capacity
from cellsched.testing import builders
from tests.unit import base
from tests.unit.scheduler import toys


class TestCandidates(base.TestCase):

    def test_rows_are_those_that_passed(self):
        found = candidates.Candidates(
            (), np.array([False, True, True]), {})

        self.assertEqual([1, 2], found.rows.tolist())
        self.assertEqual(2, len(found))

    def test_refused_host_is_left_out(self):
        found = candidates.Candidates((), np.array([True, True]), {})

        self.assertEqual([1], found.without(0).rows.tolist())
        self.assertEqual([0, 1], found.rows.tolist())


class TestRejections(base.TestCase):

    def rejections(self, hosts, out):
        found = candidates.Candidates(
            tuple(out), np.zeros(len(hosts), bool),
            {stage: np.array(mask) for stage, mask in out.items()
             if any(mask)})
        return found.rejections(hosts, builders.request())

    def test_stages_come_in_their_order_with_counts(self):
        first, second = toys.Filter([]), toys.Filter([])
        second.reason = 'is second'
        hosts = builders.hosts(3)

        self.assertEqual(
            [candidates.Rejection('Filter', 1, 'is no toy'),
             candidates.Rejection('Filter', 2, 'is second')],
            self.rejections(hosts, {first: [False, True, False],
                                    second: [True, False, True]}))

    def test_stage_that_rejected_nothing_is_left_out(self):
        self.assertEqual([], self.rejections(
            builders.hosts(1), {toys.Filter([]): [False]}))

    def test_nearest_miss_is_of_the_hosts_that_failed_here(self):
        hosts = builders.hosts(
            room={'MEMORY_MB': [511, 100, 500, 500, 9000]})
        stage = capacity.Capacity('MEMORY_MB', 512)

        (rejection,) = self.rejections(
            hosts, {stage: [False, True, True, True, False]})

        self.assertEqual(candidates.Nearest(2, 12, 'MB'), rejection.nearest)
        self.assertIs(int, type(rejection.nearest.amount))

    def test_host_that_has_room_again_is_no_miss(self):
        hosts = builders.hosts(room={'MEMORY_MB': [9000]})
        stage = capacity.Capacity('MEMORY_MB', 512)

        (rejection,) = self.rejections(hosts, {stage: [True]})

        self.assertEqual((1, None), (rejection.hosts, rejection.nearest))

    def test_failing_shortfall_names_the_plugin(self):
        stage = toys.Filter([])
        stage.shortfall = toys.fail

        error = self.assertRaises(
            exception.PluginFailed, self.rejections, builders.hosts(1),
            {stage: [True]})

        self.assertEqual('Filter', error.plugin)
