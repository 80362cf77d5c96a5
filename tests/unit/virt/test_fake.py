# SPDX-License-Identifier: Apache-2.0
"""A driver that builds nothing, and can be told to be slow or to fail."""

from concurrent import futures
import json

import os_traits
from oslo_config import cfg

from cellsched import exception
from cellsched import objects
from cellsched.objects import resources
from cellsched.testing import clock
from cellsched.testing.suite import virt as suite
from cellsched.virt import base as virt
from cellsched.virt import fake
from tests.unit import base
from tests.unit.db import samples


class TestFakeDriver(suite.DriverSuite, base.TestCase):

    plugin = fake.FakeDriver

    def setUp(self):
        super().setUp()
        self.clock = clock.FakeClock()
        self.servers = [objects.Instance(uuid=uuid)
                        for uuid in samples.uuids(4)]
        self.server = self.servers[0]

    def driver(self, **options):
        conf = cfg.ConfigOpts()
        conf.register_opts(fake.FakeDriver.opts(), group='fake_virt')
        conf.register_opt(cfg.StrOpt('host', default='host1'))
        conf([], default_config_files=[], default_config_dirs=[])
        for name, value in options.items():
            conf.set_override(name, value, 'fake_virt')
        return fake.FakeDriver(conf, self.clock)

    def make_driver(self):
        return self.driver(
            inventories={'VGPU': 2}, providers=json.dumps({
                'card': {'inventories': {'CUSTOM_X': 1}, 'parent': 'slot'},
                'slot': {}}))

    def test_fake_driver_is_a_compute_driver(self):
        self.assertIsInstance(self.driver(), virt.ComputeDriver)

    def test_driver_has_a_single_node_of_the_configured_size(self):
        [(name, node)] = self.driver(
            vcpus=3, memory_mb=5, local_gb=7).nodes().items()

        self.assertEqual('host1', name)
        self.assertEqual(
            (3, 5, 7, 'fake'), (node.vcpus, node.memory_mb, node.local_gb,
                                node.hypervisor_type))

    def test_driver_has_the_configured_capabilities(self):
        [plain] = self.driver().nodes().values()
        [said] = self.driver(
            cpu_arch='aarch64', hypervisor_type='qemu',
            host_ip='192.0.2.7', traits=['CUSTOM_A', 'HW_B'],
            metrics='cpu.percent:0.5').nodes().values()

        self.assertEqual((('x86_64', 'fake', 'hvm'),),
                         plain.supported_instances)
        self.assertEqual((None, []), (plain.host_ip, plain.metrics))
        self.assertIn('COMPUTE_IMAGE_TYPE_QCOW2', plain.traits)
        self.assertEqual((('aarch64', 'qemu', 'hvm'),),
                         said.supported_instances)
        self.assertEqual(
            ('qemu', {'arch': 'aarch64'}, '192.0.2.7',
             [{'name': 'cpu.percent', 'value': 0.5}]),
            (said.hypervisor_type, said.cpu_info, said.host_ip,
             said.metrics))
        self.assertEqual(
            plain.traits - {'HW_ARCH_X86_64'}
            | {'HW_ARCH_AARCH64', 'CUSTOM_A', 'HW_B'}, said.traits)

    def test_driver_has_the_configured_custom_inventories(self):
        [plain] = self.driver().nodes().values()
        [said] = self.driver(
            inventories='VGPU:4,CUSTOM_X:0').nodes().values()

        self.assertEqual({}, plain.inventories)
        self.assertEqual(
            {'VGPU': resources.Inventory(4, max_unit=4),
             'CUSTOM_X': resources.Inventory(0, max_unit=1)},
            said.inventories)

    def test_unknown_resource_class_is_refused(self):
        error = self.assertRaises(
            exception.ConfigurationInvalid, self.driver,
            inventories='VGPU:4,GPU:1')

        self.assertEqual('[fake_virt] inventories', error.field)
        self.assertIn("'GPU'", str(error))

    def test_child_providers_are_read_from_the_option(self):
        [plain] = self.driver().nodes().values()
        [said] = self.driver(providers=json.dumps({
            'numa0': {}, 'gpu0': {
                'inventories': {'VGPU': 4}, 'traits': ['CUSTOM_A', 'HW_B'],
                'parent': 'numa0'}})).nodes().values()

        self.assertEqual({}, plain.providers)
        self.assertEqual({
            'numa0': virt.ChildProvider(),
            'gpu0': virt.ChildProvider(
                {'VGPU': resources.Inventory(4, max_unit=4)},
                frozenset({'CUSTOM_A', 'HW_B'}), 'numa0')}, said.providers)

    def test_invalid_child_provider_is_refused(self):
        for text, field, expected in (
                ('gpu0', '', 'a mapping in JSON'),
                ('[' * 100000, '', 'a mapping in JSON'),
                ('[]', '', 'a mapping in JSON'),
                ('{"a": 7}', ": 'a'", 'a mapping of inventories'),
                ('{"a": {"total": 7}}', ": 'a'", 'a mapping of inventories'),
                ('{"a": {"inventories": {"GPU": 7}}}', ": 'a'.inventories",
                 'resource classes to totals from 0 to 2147483647'),
                ('{"a": {"inventories": {"VGPU": -1}}}', ": 'a'.inventories",
                 'totals'),
                ('{"a": {"inventories": {"VGPU": true}}}', ": 'a'.inventories",
                 'totals'),
                ('{"a": {"inventories": []}}', ": 'a'.inventories", 'totals'),
                ('{"a": {"traits": "HW_A"}}', ": 'a'.traits", 'a list'),
                ('{"a": {"traits": [7]}}', ": 'a'.traits", 'a list'),
                ('{"a": {"parent": 7}}', ": 'a'.parent", 'the name')):
            error = self.assertRaises(
                exception.ConfigurationInvalid, self.driver, providers=text)

            self.assertEqual(f'[fake_virt] providers{field}', error.field)
            self.assertIn(expected, error.detail)

    def test_cells_and_devices_are_read_from_the_option(self):
        [plain] = self.driver().nodes().values()
        [described] = self.driver(hardware=json.dumps({
            'cells': [{'id': 0, 'memory_mb': 64, 'cpus': '0-1'}],
            'devices': [{'vendor_id': '8086', 'product_id': '154c',
                         'count': 2}]})).nodes().values()

        self.assertEqual((None, ()), (plain.topology, plain.devices))
        [cell] = described.topology.cells
        self.assertEqual((0, 64, {0, 1}), (cell.id, cell.memory_mb, cell.cpus))
        self.assertEqual([2], [pool.count for pool in described.devices])

    def test_invalid_hardware_is_refused(self):
        for text, field, expected in (
                ('[]', '', 'a mapping in JSON'),
                ('{"cells": [{"id": 0}]}', ': cells[0].memory_mb',
                 'a whole number from 0'),
                ('{"devices": [{}]}', ': devices[0].vendor_id',
                 'four hexadecimal digits')):
            error = self.assertRaises(
                exception.ConfigurationInvalid, self.driver, hardware=text)

            self.assertEqual(f'[fake_virt] hardware{field}', error.field)
            self.assertIn(expected, error.detail)

    def test_traits_are_standard_traits(self):
        for architecture in ('x86_64', 'armv7l'):
            [node] = self.driver(cpu_arch=architecture).nodes().values()

            self.assertEqual(
                set(), node.traits.difference(os_traits.get_traits()))

    def test_metric_without_a_number_is_refused(self):
        self.assertRaises(
            ValueError, self.driver, metrics='cpu.percent:much')

    def test_spawned_server_runs_until_destroyed(self):
        driver = self.driver()

        for _ in range(2):
            driver.spawn(self.server, 'host1')
            self.assertEqual([self.server.uuid], driver.list_instances())
        for _ in range(2):
            driver.destroy(self.server)
            self.assertEqual([], driver.list_instances())

    def test_server_without_cells_has_none(self):
        driver = self.make_driver()
        instance = self.make_instance()
        driver.spawn(instance, 'host1')

        self.assertEqual((None, ()), driver.hardware_of(instance.uuid))

    def test_build_takes_the_configured_delay(self):
        self.driver(build_delay=7.0).spawn(self.server, 'host1')

        self.assertEqual(7.0, self.clock.monotonic())

    def test_configured_builds_fail_and_create_no_server(self):
        driver = self.driver(fail_builds=2, abort_builds=1)

        for server, error in zip(self.servers, [
                exception.BuildFailed, exception.BuildFailed,
                exception.BuildAborted]):
            self.assertRaises(error, driver.spawn, server, 'host1')
        self.assertEqual([], driver.list_instances())
        driver.spawn(self.servers[3], 'host1')
        self.assertEqual([self.servers[3].uuid], driver.list_instances())

    def test_networks_move_to_another_host_by_default(self):
        for said in False, True:
            driver = self.driver(deallocate_networks_on_reschedule=said)

            self.assertIs(said, driver.deallocate_networks_on_reschedule(
                self.server))

    def test_held_builds_wait_until_released(self):
        driver = self.driver()
        go_on = driver.hold_builds()
        with futures.ThreadPoolExecutor(2) as threads:
            try:
                builds = [threads.submit(driver.spawn, server, 'host1')
                          for server in self.servers[:2]]
                self.assertEqual([], driver.list_instances())
            finally:
                go_on.set()
            for build in builds:
                build.result(30)

        self.assertEqual(2, len(driver.list_instances()))
