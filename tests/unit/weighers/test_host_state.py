# SPDX-License-Identifier: Apache-2.0

from cellsched.testing import builders
from cellsched.testing.suite import weighers
from cellsched.weighers import host_state
from tests.unit import base


class TestBuildFailureWeigher(weighers.WeigherSuite, base.TestCase):

    plugin = host_state.BuildFailureWeigher

    def test_score_is_the_number_of_failures(self):
        self.assertScores([2, 0], builders.hosts(failed_builds=[2, 0]))

    def test_multiplier_is_minus_the_option(self):
        for options, expected in (({}, -1000000.0), (
                {'build_failure_weight_multiplier': -2.0}, 2.0)):
            plugin = builders.plugin(self.plugin, **options)
            self.assertEqual(expected, plugin.multiplier(builders.hosts()))

    def test_multiplier_is_minus_the_least_of_the_aggregates(self):
        name = self.plugin.multiplier_name
        many = builders.aggregate(1, **{name: '7'})
        few = builders.aggregate(2, **{name: '3'})
        bad = builders.aggregate(3, **{name: 'many'})
        hosts = builders.hosts(aggregates=[
            (), (many,), (few,), (many, few), (bad,)])

        multiplier = builders.plugin(self.plugin).multiplier(hosts)

        self.assertEqual([-1000000, -7, -3, -3, -1000000],
                         multiplier.tolist())


class TestHypervisorVersionWeigher(weighers.WeigherSuite, base.TestCase):

    plugin = host_state.HypervisorVersionWeigher

    def test_score_is_the_version(self):
        hosts = builders.hosts(hypervisor_version=[8002000, 0])

        self.assertScores([8002000, 0], hosts)

    def test_new_hosts_are_preferred(self):
        plugin = builders.plugin(self.plugin)

        self.assertEqual(1.0, plugin.multiplier(builders.hosts()))


class TestIoOpsWeigher(weighers.WeigherSuite, base.TestCase):

    plugin = host_state.IoOpsWeigher

    def test_score_is_the_number_of_operations(self):
        self.assertScores([3, 0], builders.hosts(num_io_ops=[3, 0]))

    def test_idle_hosts_are_preferred(self):
        plugin = builders.plugin(self.plugin)

        self.assertEqual(-1.0, plugin.multiplier(builders.hosts()))
        self.assertEqual((0, None), (plugin.minval, plugin.maxval))


class TestNumInstancesWeigher(weighers.WeigherSuite, base.TestCase):

    plugin = host_state.NumInstancesWeigher

    def test_score_is_the_number_of_instances(self):
        self.assertScores([3, 0], builders.hosts(num_instances=[3, 0]))

    def test_default_multiplier_is_zero(self):
        plugin = builders.plugin(self.plugin)

        self.assertEqual(0.0, plugin.multiplier(builders.hosts()))
