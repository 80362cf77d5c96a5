# SPDX-License-Identifier: Apache-2.0
"""Tests that every virtualisation driver must pass.

::

    class TestMyDriver(virt.DriverSuite, unittest.TestCase):

        plugin = my_driver.MyDriver

        def make_driver(self):
            return my_driver.MyDriver(conf, clock)
"""

import json
import uuid

from cellsched.claims import validation
from cellsched.compute import children
from cellsched import objects
from cellsched import plugins
from cellsched.testing.suite.base import PluginSuite
from cellsched.virt import base


class DriverSuite(PluginSuite):
    """Tests of a driver, which ``make_driver`` makes."""

    def make_driver(self) -> base.ComputeDriver:
        """Return the driver of a host without servers."""
        raise NotImplementedError

    def make_instance(self) -> objects.Instance:
        """Return a server that the host can take."""
        return objects.Instance(
            uuid=str(uuid.uuid4()), project_id='project', user_id='user')

    def start(
        self, driver: base.ComputeDriver, instance: objects.Instance
    ) -> None:
        driver.spawn(instance, min(driver.nodes()))

    def test_entry_point_names_a_driver(self) -> None:
        self.check_entry_point(plugins.VIRT, base.ComputeDriver)

    def test_node_reports_its_resources(self) -> None:
        nodes = self.make_driver().nodes()
        self.assertTrue(nodes)
        for name, node in nodes.items():
            self.assertTrue(name)
            self.assertIsInstance(node, base.NodeResources)
            for amount in node.vcpus, node.memory_mb, node.local_gb:
                self.assertIs(int, type(amount))
                self.assertGreaterEqual(amount, 0)
            validation.check_inventory(name, node.inventories)

    def test_child_providers_are_below_their_node(self) -> None:
        for name, node in self.make_driver().nodes().items():
            children.check(name, node.providers)

    def test_names_of_nodes_and_providers_are_stable(self) -> None:
        first, again = (
            {name: {*node.providers} for name, node in driver.nodes().items()}
            for driver in (self.make_driver(), self.make_driver()))
        self.assertEqual(first, again)

    def test_server_runs_until_its_destruction(self) -> None:
        driver = self.make_driver()
        instance = self.make_instance()
        self.assertEqual([], driver.list_instances())

        self.start(driver, instance)
        self.assertEqual([instance.uuid], driver.list_instances())

        driver.destroy(instance)
        self.assertEqual([], driver.list_instances())

    def test_spawn_of_a_running_server_has_no_effect(self) -> None:
        driver = self.make_driver()
        instance = self.make_instance()
        self.start(driver, instance)

        self.start(driver, instance)

        self.assertEqual([instance.uuid], driver.list_instances())

    def test_destroy_of_a_missing_server_succeeds(self) -> None:
        driver = self.make_driver()
        instance = self.make_instance()
        driver.destroy(instance)
        self.start(driver, instance)
        driver.destroy(instance)
        driver.destroy(instance)

        self.assertEqual([], driver.list_instances())

    def test_server_moves_with_its_disks_or_comes_back(self) -> None:
        source, destination = self.make_driver(), self.make_driver()
        instance = self.make_instance()
        if not source.supports_migration:
            self.skipTest('the driver does not transfer disks')
        self.start(source, instance)
        source.prepare_migration(instance)
        self.assertEqual([instance.uuid], source.list_prepared())
        self.assertEqual([instance.uuid], source.list_instances())
        for _ in range(2):
            source.revert_migration(instance)
            self.assertEqual([], source.list_prepared())

        data = source.prepare_migration(instance)
        self.assertEqual(data, source.prepare_migration(instance))
        self.assertEqual(data, json.loads(json.dumps(data)))
        node = min(destination.nodes())
        destination.transfer_disks(instance, node, data, lambda: None)
        for _ in range(2):
            destination.finish_migration(instance, node)
        source.destroy(instance)

        self.assertEqual([], source.list_prepared())
        self.assertEqual([], source.list_instances())
        self.assertEqual([instance.uuid], destination.list_instances())

    def test_running_servers_do_not_reduce_inventories(self) -> None:
        driver = self.make_driver()
        before = driver.nodes()

        self.start(driver, self.make_instance())

        # Claims reduce the free amount, and not the inventory.
        after = driver.nodes()
        for name, node in before.items():
            self.assertEqual(node.inventories, after[name].inventories)
            self.assertEqual(
                {each: child.inventories
                 for each, child in node.providers.items()},
                {each: child.inventories
                 for each, child in after[name].providers.items()})
