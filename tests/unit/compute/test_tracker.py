# SPDX-License-Identifier: Apache-2.0
"""Reporting what a host has, when it has changed, and that it is alive."""

import contextlib
import json

from cellsched.claims import base as claims_base
from cellsched.compute import provider_config
from cellsched.db.cell import models
from cellsched.db import session
from cellsched import exception
from cellsched.objects import resources
from cellsched.rpc import compute
from cellsched.virt import base as virt
from tests.unit.compute import tracking
from tests.unit.db import samples


class Losing(session.Database):
    """Has so many of its next transactions lose as ``left`` says."""

    left = 0

    @contextlib.contextmanager
    def writer(self):
        with super().writer() as connection:
            yield connection
            if self.left:
                self.left -= 1
                raise exception.TransactionLost(
                    schema=self.schema, reason='another one was faster')


class TestTracker(tracking.TrackerTestCase):

    def test_report_that_loses_is_made_again(self):
        self.cell = Losing(self.cell.url, 'cell', clock=self.clock)
        self.addCleanup(self.cell.close)
        self.cell.left = 3

        self.tracker().report()

        self.assertEqual(0, self.cell.left)
        self.assertEqual(1, len(self.rows(models.compute_nodes)))
        [service] = self.rows(models.services)
        self.assertEqual(1, service.report_count)

    def test_service_tells_its_version(self):
        self.tracker().report()

        [service] = self.rows(models.services)
        self.assertEqual(compute.SERVICE_VERSION, service.version)

    def test_report_that_always_loses_fails(self):
        self.cell = Losing(self.cell.url, 'cell', clock=self.clock)
        self.addCleanup(self.cell.close)
        self.cell.left = 1000

        self.assertRaises(exception.TransactionLost, self.tracker().report)

        self.assertLess(900, self.cell.left)

    def capacities(self, **options):
        self.tracker(**options).report()
        [node] = self.rows(models.compute_nodes)
        [usage] = self.claims.usages(providers=[node.uuid]).usages
        return usage.capacity

    def test_node_service_and_inventory_are_reported(self):
        self.tracker(reserved_host_memory_mb=0).report()

        [node] = self.rows(models.compute_nodes)
        self.assertEqual(
            ('host1', 'node1', 4, 8192, 100, 0, 0, 0, 'kind', 7),
            (node.host, node.hypervisor_hostname, node.vcpus, node.memory_mb,
             node.local_gb, node.vcpus_used, node.memory_mb_used,
             node.local_gb_used, node.hypervisor_type,
             node.hypervisor_version))
        [service] = self.rows(models.services)
        self.assertEqual(
            ('host1', 'nova-compute', 'compute', 1, self.clock.now()),
            (service.host, service.binary, service.topic,
             service.report_count, service.last_seen_up))
        self.assertEqual([node.uuid], [
            usage.provider for usage in self.claims.usages().usages])

    def test_service_is_reported_each_time_and_the_rest_once(self):
        reports = self.tracker()
        for _ in range(3):
            self.clock.advance(10)
            reports.report()

        [service] = self.rows(models.services)
        self.assertEqual((3, self.clock.now()), (
            service.report_count, service.last_seen_up))
        [node] = self.rows(models.compute_nodes)
        self.assertLess(node.updated_at, self.clock.now())
        self.assertEqual(1, self.claims.said)

    def test_what_changed_is_reported_again_under_the_same_uuid(self):
        reports = self.tracker(initial_cpu_allocation_ratio=1.0)
        reports.report()
        [before] = self.rows(models.compute_nodes)

        self.driver.found = {'node1': virt.NodeResources(16, 8192, 100)}
        reports.report()

        [after] = self.rows(models.compute_nodes)
        self.assertEqual((before.uuid, 16), (after.uuid, after.vcpus))
        [usage] = self.claims.usages().usages
        self.assertEqual((after.uuid, 16), (
            usage.provider, usage.capacity['VCPU']))

    def test_agent_that_starts_again_keeps_its_uuids(self):
        self.tracker().report()
        before = [row.uuid for row in self.rows(models.compute_nodes)]
        services = [row.uuid for row in self.rows(models.services)]

        self.tracker().report()

        self.assertEqual(
            before, [row.uuid for row in self.rows(models.compute_nodes)])
        self.assertEqual(
            services, [row.uuid for row in self.rows(models.services)])

    def test_each_node_of_a_host_is_reported(self):
        self.driver.found = {
            f'node{number}': virt.NodeResources(number, 1024, 10)
            for number in (1, 2, 3)}

        self.tracker().report()

        rows = self.rows(models.compute_nodes)
        self.assertEqual(
            [('host1', 'node1', 1), ('host1', 'node2', 2),
             ('host1', 'node3', 3)],
            [(row.host, row.hypervisor_hostname, row.vcpus) for row in rows])
        self.assertEqual(
            {row.uuid for row in rows},
            {usage.provider for usage in self.claims.usages().usages})

    def test_host_is_not_up_before_its_inventory_is_known(self):
        self.claims.failure = exception.DatabaseUnreachable(
            schema='claims', url='x', reason='y')
        reports = self.tracker()

        self.assertRaises(exception.DatabaseUnreachable, reports.report)
        self.assertEqual([], self.rows(models.services))

        self.claims.failure = None
        reports.report()
        self.assertEqual(1, len(self.rows(models.services)))
        self.assertEqual(1, self.claims.said)

    def test_initial_ratios_hold_where_no_others_are_set(self):
        self.assertEqual(
            {'VCPU': 8, 'MEMORY_MB': 12288, 'DISK_GB': 300},
            self.capacities(
                initial_cpu_allocation_ratio=2.0,
                initial_ram_allocation_ratio=1.5,
                initial_disk_allocation_ratio=3.0,
                reserved_host_memory_mb=0))

    def test_ratios_that_are_set_hold_before_the_initial_ones(self):
        self.assertEqual(
            {'VCPU': 12, 'MEMORY_MB': 4096, 'DISK_GB': 200},
            self.capacities(
                cpu_allocation_ratio=3.0, ram_allocation_ratio=0.5,
                disk_allocation_ratio=2.0, reserved_host_memory_mb=0))
        [node] = self.rows(models.compute_nodes)
        self.assertEqual((3.0, 0.5, 2.0), (
            node.cpu_allocation_ratio, node.ram_allocation_ratio,
            node.disk_allocation_ratio))

    def test_ratio_of_zero_is_as_good_as_none(self):
        self.assertEqual(8, self.capacities(
            cpu_allocation_ratio=0.0,
            initial_cpu_allocation_ratio=2.0)['VCPU'])

    def test_initial_ratio_of_zero_is_refused_and_nothing_reported(self):
        error = self.assertRaises(
            exception.ConfigurationInvalid,
            self.tracker(initial_disk_allocation_ratio=0.0).report)

        self.assertEqual(
            '[DEFAULT] initial_disk_allocation_ratio', error.field)
        self.assertEqual([], self.rows(models.compute_nodes))

    def test_what_is_reserved_cannot_be_claimed(self):
        self.assertEqual(
            {'VCPU': 3, 'MEMORY_MB': 8192 - 512, 'DISK_GB': 98},
            self.capacities(
                initial_cpu_allocation_ratio=1.0, reserved_host_cpus=1,
                reserved_host_memory_mb=512, reserved_host_disk_mb=1025))
        [node] = self.rows(models.compute_nodes)
        self.assertEqual(
            (512, 8192 - 512, 2, 98),
            (node.memory_mb_used, node.free_ram_mb, node.local_gb_used,
             node.free_disk_gb))

    def test_more_can_be_reserved_than_there_is(self):
        self.assertEqual(
            {'VCPU': 0, 'MEMORY_MB': 0, 'DISK_GB': 0},
            self.capacities(
                reserved_host_cpus=5, reserved_host_memory_mb=10000,
                reserved_host_disk_mb=1024000))

    def test_no_server_may_be_larger_than_the_host(self):
        self.capacities(initial_cpu_allocation_ratio=4.0)
        [node] = self.rows(models.compute_nodes)

        self.assertRaises(
            exception.ClaimRefused, self.claims.claim,
            [claims_base.Claim(
                samples.uuids(1)[0], node.uuid, {'VCPU': 5})])

    def inventories(self, files=None, **resources_):
        """Report a node; return its inventories in the claim store."""
        self.driver.found = {'node1': virt.NodeResources(
            4, 8192, 100, inventories=resources_)}
        self.tracker(files).report()
        [node] = self.rows(models.compute_nodes)
        [usage] = self.claims.usages(providers=[node.uuid]).usages
        return {name: (most, usage.units.get(name))
                for name, most in usage.capacity.items()
                if name not in ('MEMORY_MB', 'DISK_GB')}

    def files(self, **inventories):
        directory = self.temporary_directory()
        (directory / 'a.yaml').write_text(json.dumps({
            'meta': {'schema_version': '1.0'}, 'providers': [{
                'identification': {'uuid': '$COMPUTE_NODE'},
                'inventories': {'additional': [inventories]}}]}))
        return provider_config.ProviderConfig(str(directory))

    def test_other_classes_are_as_driver_and_files_say(self):
        self.assertEqual(
            {'VCPU': (16, resources.Units(1, 4, 1)),
             'VGPU': (4, resources.Units(2, 4, 2)),
             'CUSTOM_A': (1, None),
             'CUSTOM_B': (6, resources.Units(1, 3, 1))},
            self.inventories(
                self.files(CUSTOM_B={'total': 3, 'allocation_ratio': 2}),
                VGPU=resources.Inventory(
                    4, min_unit=2, max_unit=4, step_size=2),
                CUSTOM_A=resources.Inventory(1)))

    def test_driver_may_say_of_a_class_what_the_figures_do_not(self):
        self.assertEqual(
            {'VCPU': (2, resources.Units(1, 1, 1)),
             'PCPU': (2, resources.Units(1, 2, 1))},
            self.inventories(VCPU=resources.Inventory(2, max_unit=1),
                             PCPU=resources.Inventory(2, max_unit=2)))

    def test_driver_has_the_last_word_of_a_class_and_that_is_said_once(self):
        files = self.files(CUSTOM_A={'total': 9}, CUSTOM_B={'total': 9})
        for _ in range(2):
            found = self.inventories(
                files, CUSTOM_A=resources.Inventory(1))
            self.assertEqual((1, None), found['CUSTOM_A'])
            self.assertEqual(9, found['CUSTOM_B'][0])
        before = self.logs.output
        tracker = self.tracker(files)
        for _ in range(2):
            tracker.report()
        [line] = self.logs.output.removeprefix(before).splitlines()
        self.assertIn('CUSTOM_A on node node1 is ignored', line)

    def test_class_that_a_file_names_no_more_has_no_room(self):
        files = self.files(CUSTOM_A={'total': 9})
        self.assertIn('CUSTOM_A', self.inventories(files))

        self.assertNotIn('CUSTOM_A', self.inventories(self.files()))

    def test_host_without_anything_is_reported(self):
        self.driver.found = {'node1': virt.NodeResources(0, 0, 0)}

        self.assertEqual(
            {'VCPU': 0, 'MEMORY_MB': 0, 'DISK_GB': 0}, self.capacities())
