# SPDX-License-Identifier: Apache-2.0
"""Hosts, and a driver that chooses among them as a deployment's does."""

import random

from cellsched.conf import loader
from cellsched import exception
from cellsched import plugins
from cellsched.scheduler.drivers import base as drivers
from cellsched.testing import builders
from cellsched.wiring import services
from tests.unit import base
from tests.unit.db import samples
from tests.unit.hosts import world


class DriverTestCase(base.TestCase):
    """``driver`` is the name of the entry point."""

    name = ''

    def setUp(self):
        super().setUp()
        self.world = self.useFixture(world.World('cell1', 'cell2'))

    def driver(
        self, seed=0, filters=(), network_driver='noop', metrics=None,
        **options
    ):
        """Return a driver with options of ``[scheduler]``.

        :param filters: options of ``[filter_scheduler]``
        """
        path = self.temporary_directory() / 'conf'
        lines = ['[DEFAULT]', f'network_driver = {network_driver}',
                 '[api_database]', f'connection = {self.world.database.url}',
                 '[scheduler]', 'refresh_interval = 0']
        lines += [f'{name} = {value}' for name, value in options.items()]
        lines += ['[filter_scheduler]']
        lines += [f'{name} = {value}' for name, value in dict(
            {'enabled_filters': 'ComputeFilter'}, **dict(filters)).items()]
        path.write_text('\n'.join(lines))
        parts = services.Components(
            loader.load(files=[str(path)], dirs=[]), self.world.clock,
            self.world.claims)
        parts.random = random.Random(seed)
        parts.metrics = metrics or parts.metrics
        parts.targets = self.world.targets
        self.addCleanup(parts.close)
        return plugins.load_class(
            plugins.DRIVERS, self.name, drivers.SchedulerDriver)(
            parts.conf, parts)

    @staticmethod
    def change(driver, **options):
        """Change options of ``[filter_scheduler]`` in the file of a driver."""
        [path] = driver.conf.default_config_files
        with open(path, 'a') as stream:
            stream.writelines(f'\n{name} = {value}'
                              for name, value in options.items())
        driver.conf.mutate_config_files()

    def select(self, driver, count=1, alternates=0, **wishes):
        """Return the hosts that a driver chooses for each instance."""
        return [[each.service_host for each in place] for place
                in driver.select_destinations(
                    world.CONTEXT, builders.request(**wishes),
                    samples.uuids(count), alternates)]


class DemandCases:
    """Tests of a driver that does not read the demands of NUMA cells."""

    def test_unread_demand_is_refused_by_name(self):
        driver = self.driver()

        for wishes, name in (
                ({'extra_specs': {'hw:numa_nodes': '2'}}, 'hw:numa_nodes'),
                ({'extra_specs': {'capabilities:x': 'y'}}, 'capabilities:x'),
                ({'image': {'hw_architecture': 'x86_64'}}, 'hw_architecture'),
                ({'numa_topology': {'cells': []}}, 'numa_topology')):
            error = self.assertRaises(
                exception.NoValidHost, self.select, driver, **wishes)
            self.assertIn(name, str(error))
        self.assertEqual(1, len(self.select(driver, memory_mb=1, extra_specs={
            'trait:X': 'forbidden'}, ignore_hosts=['x'])))

    def test_unread_demand_is_ignored_if_configured(self):
        driver = self.driver(unmet_demands='ignore')

        self.select(driver, memory_mb=1, extra_specs={'hw:numa_nodes': '2'})

        self.assertIn('hw:numa_nodes (a NUMA topology)', self.logs.output)
