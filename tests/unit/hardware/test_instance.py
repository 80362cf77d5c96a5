# SPDX-License-Identifier: Apache-2.0
import unittest

from cellsched.hardware import devices
from cellsched.hardware import fit
from cellsched.hardware import guest
from cellsched.hardware import instance


class InstanceTest(unittest.TestCase):
    def test_cells_have_the_names_of_nova(self):
        cell = guest.GuestCell(
            0, frozenset([2]), frozenset([0, 1]), 64, -1, guest.MIXED,
            guest.PREFER)
        found = instance.numa_topology((fit.PlacedCell(
            cell, 3, 2048, fit.Pins(
                ((0, 8), (1, 9)), frozenset([10]))),), 'isolate')

        self.assertEqual('isolate', found.emulator_threads_policy)
        [placed] = found.cells
        self.assertEqual(
            (3, {2}, {0, 1}, {0: 8, 1: 9}, {10}, 64, 2048, 'mixed', 'prefer'),
            (placed.id, placed.cpuset, placed.pcpuset, placed.cpu_pinning,
             placed.cpuset_reserved, placed.memory, placed.pagesize,
             placed.cpu_policy, placed.cpu_thread_policy))

    def test_server_without_cells(self):
        self.assertIsNone(instance.numa_topology((), None))

    def test_devices_are_single(self):
        pool, alone = devices.pools([
            {'vendor_id': '8086', 'product_id': '154c', 'numa_node': 1,
             'count': 2, 'dev_type': 'type-VF'},
            {'vendor_id': '10de', 'product_id': '1db4', 'count': 1,
             'dev_type': 'type-PCI', 'address': '0000:81:00.0',
             'managed': 'false'}])
        found = instance.pci_devices([
            instance.TakenDevices('port', pool),
            instance.TakenDevices(None, alone)])

        self.assertEqual([
            ('8086', '154c', 'type-VF', 1, None, 'port', {}),
            ('8086', '154c', 'type-VF', 1, None, 'port', {}),
            ('10de', '1db4', 'type-PCI', None, '0000:81:00.0', None,
             {'managed': 'false'})], [
            (each.vendor_id, each.product_id, each.dev_type, each.numa_node,
             each.address, each.request_id, each.extra_info)
            for each in found])
