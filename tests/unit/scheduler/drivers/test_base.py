# SPDX-License-Identifier: Apache-2.0
"""The contract of a scheduler driver."""

from cellsched import exception
from cellsched import plugins
from cellsched.scheduler.drivers import base as drivers
from tests.unit import base
from tests.unit import restricted
from tests.unit.scheduler.drivers import world


class TestDriver(base.TestCase):

    def test_driver_must_select(self):
        self.assertRaises(
            TypeError, type(
                'Partial', (drivers.SchedulerDriver,), {}), None, None)

        whole = type('Whole', (drivers.SchedulerDriver,), {
            'select_destinations': lambda self: None})
        driver = whole('conf', 'parts')
        self.assertEqual(('conf', 'parts'), (driver.conf, driver.parts))
        self.assertEqual([], driver.opts())

    def test_driver_without_plans_refuses_plans(self):
        driver = type('Whole', (drivers.SchedulerDriver,), {
            'select_destinations': lambda self: None})('conf', 'parts')

        error = self.assertRaises(
            exception.ConfigurationInvalid, driver.plan, None, None, (), 0)

        self.assertEqual('[scheduler] driver', error.field)
        self.assertIn('Whole cannot plan', str(error))

    def test_driver_reads_no_demand_by_default(self):
        self.assertEqual(frozenset(), drivers.SchedulerDriver.reads)

    def test_installed_drivers_are_scheduler_drivers(self):
        loaded = [
            name for name in plugins.names(plugins.DRIVERS)
            if plugins.load_class(
                plugins.DRIVERS, name, drivers.SchedulerDriver)]

        self.assertEqual({'chance_scheduler', 'filter_scheduler'},
                         set(loaded) & {'chance_scheduler',
                                        'filter_scheduler'})


class TestSchedulerParts(world.DriverTestCase):

    def test_drivers_need_no_other_parts(self):
        self.world.add_host('cell1', 'a1')
        for self.name in ('chance_scheduler', 'filter_scheduler'):
            made = self.driver()
            again = type(made)(made.conf, restricted.Restricted(
                drivers.SchedulerParts, made.parts))

            self.assertEqual([['a1']], self.select(again))
            for function, _ in again.periodic():
                function()
