# SPDX-License-Identifier: Apache-2.0
"""From names in a configuration to weighers."""

from oslo_config import cfg

from cellsched import exception
from cellsched import plugins
from cellsched.scheduler.decision import pipeline
from cellsched.testing import builders
from cellsched.weighers import base as weighers
from cellsched.weighers import registry
from tests.unit import base
from tests.unit.scheduler import toys

HERE = 'tests.unit.weighers.test_registry'


class ColumnWeigher(weighers.Weigher):
    """Is named by its path, and has an option of its own."""

    multiplier_name = 'strange_multiplier'
    multiplier_default = 7.0

    def score(self, hosts, request):
        return hosts['num_instances']


class ByRow:
    """Has nothing of ours."""

    def _weigh_object(self, host_state, weight_properties):
        return 0.0


class NoWeigher:
    """Is none."""


class TestMake(base.TestCase):

    def setUp(self):
        super().setUp()
        self.conf = cfg.ConfigOpts()
        for plugin in plugins.load_shipped(plugins.WEIGHERS).values():
            self.conf.register_opts(
                plugin.opts(), group=plugins.group(plugin))
        self.conf([], default_config_files=[], default_config_dirs=[])

    def names(self, *wanted):
        return [plugin.name for plugin in registry.make(self.conf, wanted)]

    def test_weighers_come_in_the_order_of_their_names(self):
        for names in (['RAMWeigher', 'CPUWeigher'],
                      ['CPUWeigher', 'RAMWeigher'], []):
            self.assertEqual(names, self.names(*names))

    def test_all_weighers_stands_for_those_that_are_installed(self):
        installed = plugins.names(plugins.WEIGHERS)

        for name in ('all_weighers', 'nova.scheduler.weights.all_weighers'):
            self.assertEqual(installed, self.names(name))
        self.assertIn('RAMWeigher', installed)

    def test_weigher_counts_once_however_often_it_is_named(self):
        names = self.names('RAMWeigher', 'all_weighers', 'RAMWeigher')

        self.assertEqual('RAMWeigher', names[0])
        self.assertEqual(sorted(set(names)), sorted(names))

    def test_unknown_name_lists_what_is_there(self):
        error = self.assertRaises(
            exception.PluginNotFound, self.names, 'RamWeigher')

        self.assertIn('RAMWeigher', str(error))

    def test_class_is_named_by_its_path(self):
        column, row = registry.make(
            self.conf, [f'{HERE}.ColumnWeigher', f'{HERE}.ByRow'])

        self.assertIsInstance(column, ColumnWeigher)
        self.assertIsInstance(row, registry.RowWeigher)
        self.assertEqual('ByRow', row.name)

    def test_column_weigher_by_path_has_its_options(self):
        for _ in range(2):
            (plugin,) = registry.make(self.conf, [f'{HERE}.ColumnWeigher'])
            self.assertEqual(7.0, plugin.options.strange_multiplier)

    def test_class_that_is_no_weigher_is_refused(self):
        error = self.assertRaises(
            exception.ConfigurationInvalid, self.names, f'{HERE}.NoWeigher')

        self.assertIn(f'weight_classes: {HERE}.NoWeigher', str(error))
        self.assertIn('_weigh_object', str(error))

    def test_path_that_cannot_be_imported_is_refused(self):
        for path in (f'{HERE}.Missing', 'missing.Missing',
                     'nova.scheduler.weights.ram.RAMWeigher'):
            error = self.assertRaises(
                exception.ConfigurationInvalid, self.names, path)
            self.assertIn(path, str(error))


class Bare:
    """Has nothing of ours."""

    asked = ()

    def _weigh_object(self, host_state, weight_properties):
        self.asked = [*self.asked, host_state.host]
        return host_state.free_ram_mb - weight_properties.flavor.memory_mb


class Based(registry.BaseHostWeigher):

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
            [registry.RowWeigher(plugin)])
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
        made = pipeline.Pipeline([], [registry.RowWeigher(plugin)])
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
        plugin = registry.RowWeigher(registry.BaseHostWeigher())

        self.assertEqual((None, None), (plugin.minval, plugin.maxval))
        self.assertEqual([1.0, 1.0],
                         plugin.multiplier(builders.hosts(2)).tolist())
        self.assertEqual(1.0, registry.RowWeigher(Bare()).multiplier(
            builders.hosts(2)))

    def test_exception_names_the_class(self):
        error = self.assertRaises(
            exception.PluginFailed, self.weigh, Broken(), builders.hosts(2))

        self.assertEqual('Broken', error.plugin)
        self.assertIn('nonsense', str(error.__cause__))

    def test_base_leaves_the_score_to_the_class(self):
        self.assertRaises(
            exception.PluginFailed, self.weigh, registry.BaseHostWeigher(),
            builders.hosts(2))
