# SPDX-License-Identifier: Apache-2.0
"""From names in a configuration to weighers."""

from oslo_config import cfg

from cellsched import exception
from cellsched import plugins
from cellsched.weighers import base as weighers
from cellsched.weighers import registry
from tests.unit import base

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

    def test_weighers_have_the_order_of_the_option(self):
        for names in (['RAMWeigher', 'CPUWeigher'],
                      ['CPUWeigher', 'RAMWeigher'], []):
            self.assertEqual(names, self.names(*names))

    def test_all_weighers_means_installed_weighers(self):
        installed = plugins.names(plugins.WEIGHERS)

        for name in ('all_weighers', 'nova.scheduler.weights.all_weighers'):
            self.assertEqual(installed, self.names(name))
        self.assertIn('RAMWeigher', installed)

    def test_weigher_with_repeated_name_counts_once(self):
        names = self.names('RAMWeigher', 'all_weighers', 'RAMWeigher')

        self.assertEqual('RAMWeigher', names[0])
        self.assertEqual(sorted(set(names)), sorted(names))

    def test_unknown_name_lists_the_installed_names(self):
        error = self.assertRaises(
            exception.PluginNotFound, self.names, 'RamWeigher')

        self.assertIn('RAMWeigher', str(error))

    def test_class_is_named_by_its_path(self):
        column, row = registry.make(
            self.conf, [f'{HERE}.ColumnWeigher', f'{HERE}.ByRow'])

        self.assertIsInstance(column, ColumnWeigher)
        self.assertIsInstance(row, weighers.RowWeigher)
        self.assertEqual('ByRow', row.name)

    def test_column_weigher_by_path_has_its_options(self):
        for _ in range(2):
            (plugin,) = registry.make(self.conf, [f'{HERE}.ColumnWeigher'])
            self.assertEqual(7.0, plugin.options.strange_multiplier)

    def test_class_without_weigher_methods_is_refused(self):
        error = self.assertRaises(
            exception.ConfigurationInvalid, self.names, f'{HERE}.NoWeigher')

        self.assertIn(f'weight_classes: {HERE}.NoWeigher', str(error))
        self.assertIn('_weigh_object', str(error))

    def test_path_without_importable_class_is_refused(self):
        for path in (f'{HERE}.Missing', 'missing.Missing',
                     'nova.scheduler.weights.ram.RAMWeigher'):
            error = self.assertRaises(
                exception.ConfigurationInvalid, self.names, path)
            self.assertIn(path, str(error))
