# SPDX-License-Identifier: Apache-2.0
"""Filters are made from their names."""

from oslo_config import cfg

from cellsched import exception
from cellsched.filters import base as filters
from cellsched.filters import compute
from cellsched.filters import num_instances
from cellsched.testing import builders
from tests.unit import base


class TestFilter(base.TestCase):

    def test_name_is_that_of_the_class(self):
        plugin = builders.plugin(compute.ComputeFilter)

        self.assertEqual('ComputeFilter', plugin.name)

    def test_filter_asks_for_nothing_unless_it_says_so(self):
        plugin = builders.plugin(compute.ComputeFilter)
        hosts, request = builders.hosts(), builders.request()

        self.assertTrue(plugin.applies(request))
        self.assertEqual([], list(plugin.located(request)))
        self.assertIsNone(plugin.shortfall(hosts, request))


class TestMake(base.TestCase):

    def setUp(self):
        super().setUp()
        self.conf = cfg.ConfigOpts()
        self.conf.register_opts(compute.ComputeFilter.opts())
        self.conf.register_opts(num_instances.NumInstancesFilter.opts(),
                                group='filter_scheduler')

    def test_filters_come_in_the_order_of_their_names(self):
        for names in (['NumInstancesFilter', 'ComputeFilter'],
                      ['ComputeFilter', 'NumInstancesFilter'], []):
            made = filters.make(self.conf, names)
            self.assertEqual(names, [plugin.name for plugin in made])

    def test_filter_has_the_options_of_its_group(self):
        self.conf.set_override('service_down_time', 7)
        self.conf.set_override('max_instances_per_host', 8,
                               group='filter_scheduler')

        down, many = filters.make(
            self.conf, ['ComputeFilter', 'NumInstancesFilter'])

        self.assertEqual(7, down.options.service_down_time)
        self.assertEqual(8, many.options.max_instances_per_host)

    def test_unknown_name_lists_what_is_there(self):
        error = self.assertRaises(exception.PluginNotFound, filters.make,
                                  self.conf, ['ComputerFilter'])

        self.assertIn('ComputeFilter', str(error))
