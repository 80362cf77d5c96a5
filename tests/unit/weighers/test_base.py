# SPDX-License-Identifier: Apache-2.0
"""Weighers are made from their names."""

from oslo_config import cfg

from cellsched import exception
from cellsched import plugins
from cellsched.testing import builders
from cellsched.weighers import base as weighers
from cellsched.weighers import ram
from tests.unit import base


class TestWeigher(base.TestCase):

    def test_name_is_that_of_the_class(self):
        self.assertEqual('RAMWeigher', builders.plugin(ram.RAMWeigher).name)

    def test_multiplier_is_that_of_the_option(self):
        plugin = builders.plugin(ram.RAMWeigher, ram_weight_multiplier=-2.5)

        self.assertEqual(-2.5, plugin.multiplier(builders.hosts()))


class TestMake(base.TestCase):

    def setUp(self):
        super().setUp()
        self.conf = cfg.ConfigOpts()
        for plugin in plugins.load_all(plugins.WEIGHERS).values():
            self.conf.register_opts(plugin.opts(), group=plugin.group)

    def names(self, wanted):
        return [plugin.name for plugin in weighers.make(self.conf, wanted)]

    def test_weighers_come_in_the_order_of_their_names(self):
        for names in (['RAMWeigher', 'CPUWeigher'],
                      ['CPUWeigher', 'RAMWeigher'], []):
            self.assertEqual(names, self.names(names))

    def test_all_weighers_stands_for_those_that_are_installed(self):
        installed = plugins.names(plugins.WEIGHERS)

        self.assertEqual(installed, self.names(['all_weighers']))
        self.assertIn('RAMWeigher', installed)

    def test_weigher_counts_once_however_often_it_is_named(self):
        names = self.names(['RAMWeigher', 'all_weighers', 'RAMWeigher'])

        self.assertEqual('RAMWeigher', names[0])
        self.assertEqual(sorted(set(names)), sorted(names))

    def test_unknown_name_lists_what_is_there(self):
        error = self.assertRaises(exception.PluginNotFound, weighers.make,
                                  self.conf, ['RamWeigher'])

        self.assertIn('RAMWeigher', str(error))
