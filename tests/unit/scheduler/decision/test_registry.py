# SPDX-License-Identifier: Apache-2.0
"""From names in a configuration to filters and weighers."""

from oslo_config import cfg

from cellsched.conf import filter_scheduler
from cellsched import exception
from cellsched.filters import base as filters
from cellsched.filters import compute
from cellsched.filters import num_instances
from cellsched import plugins
from cellsched.scheduler.decision import registry
from cellsched.weighers import base as weighers
from tests.unit import base

HERE = 'tests.unit.scheduler.decision.test_registry'


class ColumnFilter(filters.Filter):
    """Is named by its path, and has options of its own."""

    group = 'strange'

    @classmethod
    def opts(cls):
        return [cfg.IntOpt('strange_limit', default=7)]

    def keep(self, hosts, request):
        return hosts['num_instances'] < self.options.strange_limit


class RowFilter:
    """Has nothing of ours."""

    def host_passes(self, host_state, spec_obj):
        return True


class NoFilter:
    """Is none."""


class TestFilters(base.TestCase):

    def setUp(self):
        super().setUp()
        self.conf = cfg.ConfigOpts()
        self.conf.register_opts(
            filter_scheduler.OPTS, group='filter_scheduler')
        self.conf.register_opts(compute.ComputeFilter.opts())
        self.conf.register_opts(num_instances.NumInstancesFilter.opts(),
                                group='filter_scheduler')
        self.conf([], default_config_files=[], default_config_dirs=[])

    def make(self, *names, available=()):
        self.conf.set_override(
            'available_filters',
            ['all_filters', *(f'{HERE}.{name}' for name in available)],
            group='filter_scheduler')
        return registry.make_filters(self.conf, names)

    def names(self, *names, **available):
        return [plugin.name for plugin in self.make(*names, **available)]

    def test_filters_have_the_order_of_the_option(self):
        for names in (['NumInstancesFilter', 'ComputeFilter'],
                      ['ComputeFilter', 'NumInstancesFilter'], []):
            self.assertEqual(names, self.names(*names))

    def test_filter_with_repeated_name_is_made_once(self):
        self.assertEqual(['ComputeFilter'], self.names(
            'ComputeFilter', 'ComputeFilter'))

    def test_filter_has_the_options_of_its_group(self):
        self.conf.set_override('service_down_time', 7)
        self.conf.set_override('max_instances_per_host', 8,
                               group='filter_scheduler')

        down, many = self.make('ComputeFilter', 'NumInstancesFilter')

        self.assertEqual(7, down.options.service_down_time)
        self.assertEqual(8, many.options.max_instances_per_host)

    def test_unknown_name_lists_the_installed_names(self):
        error = self.assertRaises(
            exception.PluginNotFound, self.make, 'ComputerFilter')

        self.assertIn('ComputeFilter', str(error))

    def test_class_is_named_by_the_end_of_its_path(self):
        column, row = self.make(
            'ColumnFilter', 'RowFilter',
            available=['RowFilter', 'ColumnFilter'])

        self.assertIsInstance(column, ColumnFilter)
        self.assertIsInstance(row, filters.RowFilter)
        self.assertEqual('RowFilter', row.name)

    def test_unavailable_class_is_not_found(self):
        self.assertRaises(exception.PluginNotFound, self.make, 'RowFilter')

    def test_column_filter_by_path_has_its_options(self):
        for _ in range(2):
            (plugin,) = self.make('ColumnFilter', available=['ColumnFilter'])
            self.assertEqual(7, plugin.options.strange_limit)

        self.conf.set_override('strange_limit', 3, group='strange')
        self.assertEqual(3, plugin.options.strange_limit)

    def test_name_of_nova_for_all_filters_is_understood(self):
        self.conf.set_override(
            'available_filters', ['nova.scheduler.filters.all_filters'],
            group='filter_scheduler')

        (plugin,) = registry.make_filters(self.conf, ['ComputeFilter'])

        self.assertEqual('ComputeFilter', plugin.name)

    def test_class_without_filter_methods_is_refused(self):
        error = self.assertRaises(
            exception.ConfigurationInvalid, self.make, 'NoFilter',
            available=['NoFilter'])

        self.assertIn('enabled_filters: NoFilter', str(error))
        self.assertIn('host_passes', str(error))

    def test_path_without_importable_class_is_refused(self):
        for path in ('Missing', 'missing.Missing'):
            error = self.assertRaises(
                exception.ConfigurationInvalid, self.make, 'Missing',
                available=[path])
            self.assertIn(f'{HERE}.{path}', str(error))

    def test_disabled_path_is_not_imported(self):
        self.assertEqual(['ComputeFilter'], self.names(
            'ComputeFilter', available=['Missing']))


class ColumnWeigher(weighers.Weigher):
    """Is named by its path, and has an option of its own."""

    multiplier_name = 'strange_multiplier'
    multiplier_default = 7.0

    def score(self, hosts, request):
        return hosts['num_instances']


class RowWeigher:
    """Has nothing of ours."""

    def _weigh_object(self, host_state, weight_properties):
        return 0.0


class NoWeigher:
    """Is none."""


class TestWeighers(base.TestCase):

    def setUp(self):
        super().setUp()
        self.conf = cfg.ConfigOpts()
        for plugin in plugins.load_shipped(plugins.WEIGHERS).values():
            self.conf.register_opts(
                plugin.opts(), group=plugins.group(plugin))
        self.conf([], default_config_files=[], default_config_dirs=[])

    def make(self, *names):
        return registry.make_weighers(self.conf, names)

    def names(self, *names):
        return [plugin.name for plugin in self.make(*names)]

    def test_weighers_come_in_the_order_of_their_names(self):
        for names in (['RAMWeigher', 'CPUWeigher'],
                      ['CPUWeigher', 'RAMWeigher'], []):
            self.assertEqual(names, self.names(*names))

    def test_all_weighers_means_the_installed_weighers(self):
        installed = plugins.names(plugins.WEIGHERS)

        for name in ('all_weighers', 'nova.scheduler.weights.all_weighers'):
            self.assertEqual(installed, self.names(name))
        self.assertIn('RAMWeigher', installed)

    def test_weigher_named_several_times_counts_once(self):
        names = self.names('RAMWeigher', 'all_weighers', 'RAMWeigher')

        self.assertEqual('RAMWeigher', names[0])
        self.assertEqual(sorted(set(names)), sorted(names))

    def test_unknown_name_lists_the_installed_names(self):
        error = self.assertRaises(
            exception.PluginNotFound, self.names, 'RamWeigher')

        self.assertIn('RAMWeigher', str(error))

    def test_class_is_named_by_its_path(self):
        column, row = self.make(
            f'{HERE}.ColumnWeigher', f'{HERE}.RowWeigher')

        self.assertIsInstance(column, ColumnWeigher)
        self.assertIsInstance(row, weighers.RowWeigher)
        self.assertEqual('RowWeigher', row.name)

    def test_column_weigher_by_path_has_its_options(self):
        for _ in range(2):
            (plugin,) = self.make(f'{HERE}.ColumnWeigher')
            self.assertEqual(7.0, plugin.options.strange_multiplier)

    def test_class_without_weigher_methods_is_refused(self):
        error = self.assertRaises(
            exception.ConfigurationInvalid, self.names, f'{HERE}.NoWeigher')

        self.assertIn(f'weight_classes: {HERE}.NoWeigher', str(error))
        self.assertIn('_weigh_object', str(error))

    def test_unimportable_path_is_refused(self):
        for path in (f'{HERE}.Missing', 'missing.Missing',
                     'nova.scheduler.weights.ram.RAMWeigher'):
            error = self.assertRaises(
                exception.ConfigurationInvalid, self.names, path)
            self.assertIn(path, str(error))
