# SPDX-License-Identifier: Apache-2.0
"""The contract of a weigher."""

from cellsched import exception
from cellsched.scheduler.decision import pipeline
from cellsched.testing import builders
from cellsched.weighers import base as weighers
from cellsched.weighers import resources
from tests.unit import base
from tests.unit.scheduler import toys


class TestWeigher(base.TestCase):

    def test_name_is_name_of_class(self):
        self.assertEqual(
            'RAMWeigher', builders.plugin(resources.RAMWeigher).name)

    def test_weigher_must_score(self):
        self.assertRaises(
            TypeError, type('Partial', (weighers.Weigher,), {}), None)

    def test_multiplier_is_read_from_the_option(self):
        plugin = builders.plugin(
            resources.RAMWeigher, ram_weight_multiplier=-2.5)

        self.assertEqual(-2.5, plugin.multiplier(builders.hosts()))

    def test_multiplier_of_an_aggregate_overrides_the_option(self):
        plugin = builders.plugin(resources.RAMWeigher)
        hosts = builders.hosts(aggregates=[
            (builders.aggregate(1, ram_weight_multiplier='3'),
             builders.aggregate(2, ram_weight_multiplier='2')),
            (builders.aggregate(3, ram_weight_multiplier='many'),), ()])

        self.assertEqual([2.0, 1.0, 1.0], plugin.multiplier(hosts).tolist())

    def test_option_may_have_a_least_value(self):
        for least in (None, 0.0):
            kind = type('Some', (weighers.Weigher,), {
                'multiplier_name': 'some', 'multiplier_min': least,
                'multiplier_default': 4.0, 'score': None})
            (option,) = kind.opts()

            self.assertEqual(('some', 4.0, least), (
                option.name, option.default, option.type.min))

    def test_defaults_of_a_weigher(self):
        plugin = type('Whole', (weighers.Weigher,), {
            'multiplier_name': 'x', 'score': None})(None)

        self.assertTrue(plugin.applies(builders.request()))
        self.assertEqual([], list(plugin.located(builders.request())))
        self.assertEqual((None, None, False, False), (
            plugin.minval, plugin.maxval, plugin.local, plugin.by_row))


class Bare:
    """Has nothing of ours."""

    asked = ()

    def _weigh_object(self, host_state, weight_properties):
        self.asked = [*self.asked, host_state.host]
        return host_state.free_ram_mb - weight_properties.flavor.memory_mb


class Based(weighers.BaseHostWeigher):

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
            [weighers.RowWeigher(plugin)])
        return made.weigh(request, made.candidates(hosts, request))

    def test_class_without_base_is_called_host_by_host(self):
        found = self.weigh(
            Bare(), builders.hosts(free_ram_mb=[1000, 3000, 2000]))

        self.assertEqual([0.0, 1.0, 0.5], found.weights.tolist())
        self.assertEqual(('Bare', 488.0), (
            found.weighed(0)[1][0].by, found.weighed(0)[1][0].raw))

    def test_only_passed_hosts_are_weighed(self):
        plugin = Bare()

        # To weigh them all would cost less, as most are in.
        self.weigh(plugin, builders.hosts(30),
                   [row != 1 for row in range(30)])

        self.assertEqual(29, len(plugin.asked))
        self.assertNotIn('host2', plugin.asked)

    def test_chosen_host_alone_is_looked_at_again(self):
        plugin = Bare()
        hosts, request = builders.hosts(3), builders.request()
        made = pipeline.Pipeline([], [weighers.RowWeigher(plugin)])
        found = made.candidates(hosts, request)
        ranking = made.weigh(request, found)
        ranking.detach()
        plugin.asked = ()
        hosts.take(1, {'MEMORY_MB': 9000})

        ranking = made.reweigh(request, found, ranking, 1)

        self.assertEqual(['host2'], plugin.asked)
        self.assertEqual([1.0, 0.0, 1.0], ranking.weights.tolist())

    def test_bounds_and_multiplier_are_read_from_the_class(self):
        found = self.weigh(
            Based(), builders.hosts(num_instances=[5, 5, 20]))

        self.assertEqual([-0.5, 1.0, 2.0], found.weights.tolist())

    def test_base_has_no_bounds_and_multiplier_1(self):
        plugin = weighers.RowWeigher(weighers.BaseHostWeigher())

        self.assertEqual((None, None), (plugin.minval, plugin.maxval))
        self.assertEqual([1.0, 1.0],
                         plugin.multiplier(builders.hosts(2)).tolist())
        self.assertEqual(1.0, weighers.RowWeigher(Bare()).multiplier(
            builders.hosts(2)))

    def test_exception_names_the_class(self):
        error = self.assertRaises(
            exception.PluginFailed, self.weigh, Broken(), builders.hosts(2))

        self.assertEqual('Broken', error.plugin)
        self.assertIn('nonsense', str(error.__cause__))

    def test_base_class_has_no_score(self):
        self.assertRaises(
            exception.PluginFailed, self.weigh, weighers.BaseHostWeigher(),
            builders.hosts(2))
