# SPDX-License-Identifier: Apache-2.0
"""Weighers that look at one host after the other."""

from cellsched import exception
from cellsched.scheduler.decision import pipeline
from cellsched.testing import builders
from cellsched.weighers import rows
from tests.unit import base
from tests.unit.scheduler import toys


class Bare:
    """Has nothing of ours."""

    asked = ()

    def _weigh_object(self, host_state, weight_properties):
        self.asked = [*self.asked, host_state.host]
        return host_state.free_ram_mb - weight_properties.flavor.memory_mb


class Based(rows.BaseHostWeigher):

    minval = 0
    maxval = 10

    def weight_multiplier(self, host_state):
        return -1.0 if host_state.host == 'host1' else 2.0

    def _weigh_object(self, host_state, weight_properties):
        return host_state.num_instances


class Broken:

    def _weigh_object(self, host_state, weight_properties):
        return host_state.nonsense


class TestRowWeigher(base.TestCase):

    def weigh(self, plugin, hosts, passed=None):
        request = builders.request()
        made = pipeline.Pipeline(
            [toys.Filter(passed)] if passed else [],
            [rows.RowWeigher(plugin)])
        return made.weigh(request, made.candidates(hosts, request))

    def test_class_without_any_base_is_asked_host_by_host(self):
        found = self.weigh(
            Bare(), builders.hosts(free_ram_mb=[1000, 3000, 2000]))

        self.assertEqual([0.0, 1.0, 0.5], found.weights.tolist())
        self.assertEqual(('Bare', 488.0), (
            found.weighed(0)[1][0].by, found.weighed(0)[1][0].raw))

    def test_only_hosts_that_passed_are_looked_at(self):
        plugin = Bare()

        # To weigh them all would cost less, as most are in.
        self.weigh(plugin, builders.hosts(30),
                   [row != 1 for row in range(30)])

        self.assertEqual(29, len(plugin.asked))
        self.assertNotIn('host2', plugin.asked)

    def test_chosen_host_alone_is_looked_at_again(self):
        plugin = Bare()
        hosts, request = builders.hosts(3), builders.request()
        made = pipeline.Pipeline([], [rows.RowWeigher(plugin)])
        found = made.candidates(hosts, request)
        ranking = made.weigh(request, found)
        ranking.detach()
        plugin.asked = ()
        hosts.take(1, {'MEMORY_MB': 9000})

        ranking = made.reweigh(request, found, ranking, 1)

        self.assertEqual(['host2'], plugin.asked)
        self.assertEqual([1.0, 0.0, 1.0], ranking.weights.tolist())

    def test_bounds_and_multiplier_are_those_of_the_class(self):
        found = self.weigh(
            Based(), builders.hosts(num_instances=[5, 5, 20]))

        self.assertEqual([-0.5, 1.0, 2.0], found.weights.tolist())

    def test_base_has_no_bounds_and_multiplies_by_one(self):
        plugin = rows.RowWeigher(rows.BaseHostWeigher())

        self.assertEqual((None, None), (plugin.minval, plugin.maxval))
        self.assertEqual([1.0, 1.0],
                         plugin.multiplier(builders.hosts(2)).tolist())
        self.assertEqual(1.0, rows.RowWeigher(Bare()).multiplier(
            builders.hosts(2)))

    def test_exception_names_the_class(self):
        error = self.assertRaises(
            exception.PluginFailed, self.weigh, Broken(), builders.hosts(2))

        self.assertEqual('Broken', error.plugin)
        self.assertIn('nonsense', str(error.__cause__))

    def test_base_leaves_the_score_to_the_class(self):
        self.assertRaises(
            exception.PluginFailed, self.weigh, rows.BaseHostWeigher(),
            builders.hosts(2))
