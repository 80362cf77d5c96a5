# SPDX-License-Identifier: Apache-2.0
"""From names in a configuration to filters."""

from oslo_config import cfg

from cellsched.conf import filter_scheduler
from cellsched import exception
from cellsched.filters import base as filters
from cellsched.filters import compute
from cellsched.filters import num_instances
from cellsched.filters import registry
from tests.unit import base

HERE = 'tests.unit.filters.test_registry'


class ColumnFilter(filters.Filter):
    """Is named by its path, and has options of its own."""

    group = 'strange'

    @classmethod
    def opts(cls):
        return [cfg.IntOpt('strange_limit', default=7)]

    def keep(self, hosts, request):
        return hosts['num_instances'] < self.options.strange_limit


class ByRow:
    """Has nothing of ours."""

    def host_passes(self, host_state, spec_obj):
        return True


class NoFilter:
    """Is none."""


class TestMake(base.TestCase):

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
        return registry.make(self.conf, names)

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
            'ColumnFilter', 'ByRow', available=['ByRow', 'ColumnFilter'])

        self.assertIsInstance(column, ColumnFilter)
        self.assertIsInstance(row, filters.RowFilter)
        self.assertEqual('ByRow', row.name)

    def test_unavailable_class_is_not_found(self):
        self.assertRaises(exception.PluginNotFound, self.make, 'ByRow')

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

        (plugin,) = registry.make(self.conf, ['ComputeFilter'])

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
