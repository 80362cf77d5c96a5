# SPDX-License-Identifier: Apache-2.0
"""The contract of a virtualisation driver."""

from cellsched import plugins
from cellsched.virt import base as virt
from tests.unit import base


class TestDriver(base.TestCase):

    def test_driver_implements_the_abstract_methods(self):
        for missing in ('nodes', 'spawn', 'destroy', 'list_instances'):
            whole = {name: lambda self: None for name in (
                'nodes', 'spawn', 'destroy', 'list_instances')}
            driver = type('Whole', (virt.ComputeDriver,), whole)(None, None)
            self.assertEqual([], driver.opts())
            self.assertFalse(driver.deallocate_networks_on_reschedule(None))

            del whole[missing]
            self.assertRaises(
                TypeError, type(
                    'Partial', (virt.ComputeDriver,), whole), None, None)

    def test_installed_drivers_are_compute_drivers(self):
        loaded = [
            name for name in plugins.names(plugins.VIRT)
            if plugins.load_class(plugins.VIRT, name, virt.ComputeDriver)]

        self.assertIn('fake', loaded)
