# SPDX-License-Identifier: Apache-2.0
"""Tests of the FPGA driver."""

import unittest

from oslo_config import cfg

from cellsched.testing import clock
from cellsched.testing.suite import virt
from third_party_driver import driver


class TestFPGADriver(virt.DriverSuite, unittest.TestCase):

    plugin = driver.FPGADriver

    def make_driver(self, **options):
        conf = cfg.ConfigOpts()
        conf.register_opt(cfg.StrOpt('host', default='host1'))
        conf.register_opts(self.plugin.opts(), group=self.plugin.group)
        conf([], default_config_files=[], default_config_dirs=[])
        for name, value in options.items():
            conf.set_override(name, value, self.plugin.group)
        return self.plugin(conf, clock.FakeClock())

    def test_slots_are_children_of_their_cards(self):
        [node] = self.make_driver(
            families=['agilex', 'stratix'], slots=1).nodes().values()

        self.assertEqual(
            {'fpga0': (None, {}, set()),
             'fpga0/slot0': ('fpga0', {'CUSTOM_FPGA_SLOT': 1},
                             {'CUSTOM_FPGA_AGILEX'}),
             'fpga1': (None, {}, set()),
             'fpga1/slot0': ('fpga1', {'CUSTOM_FPGA_SLOT': 1},
                             {'CUSTOM_FPGA_STRATIX'})},
            {name: (child.parent, {
                each: has.total for each, has in child.inventories.items()},
                child.traits) for name, child in node.providers.items()})
