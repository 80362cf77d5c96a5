# SPDX-License-Identifier: Apache-2.0
import unittest

from cellsched.hardware import devices
from cellsched.hardware import fit
from cellsched.hardware import guest
from cellsched.hardware import host
from cellsched.hardware import units
from cellsched.objects import resources


class UnitsTest(unittest.TestCase):
    CELL = host.HostCell(
        2, frozenset([0, 1]), frozenset([4, 5, 6, 7]), 4096,
        siblings=(frozenset([4, 6]), frozenset([5, 7])),
        pages=(host.Pages(4, 2 ** 20, reserved=1024),))
    HOST = host.HostTopology((CELL,))
    POOLS = devices.pools([{'vendor_id': '10de', 'product_id': '20b5',
                            'numa_node': 2, 'count': 3}])

    def test_inventory_has_parts_of_the_host(self):
        [pool] = self.POOLS
        self.assertEqual({
            'CUSTOM_PCPU_4': 1, 'CUSTOM_PCPU_5': 1, 'CUSTOM_PCPU_6': 1,
            'CUSTOM_PCPU_7': 1, 'CUSTOM_NUMA2_VCPU': 8,
            'CUSTOM_NUMA2_MEMORY_MB': 4096,
            'CUSTOM_NUMA2_PAGES_4KB': 2 ** 20 - 1024,
            units.device(pool): 3},
            units.inventory(self.HOST, self.POOLS, fit.Ratios(4.0)))

    def test_names_are_resource_classes(self):
        for name in units.inventory(self.HOST, self.POOLS, fit.Ratios()):
            self.assertTrue(resources.is_known(name), name)

    def test_amounts_without_named_parts(self):
        named = units.inventory(self.HOST, self.POOLS, fit.Ratios())

        self.assertEqual(
            {'PCPU': 2, 'CUSTOM_NUMA_LICENCE': 1, 'CUSTOM_PCPU_X': 1},
            units.plain({'PCPU': 2, 'CUSTOM_NUMA_LICENCE': 1,
                         'CUSTOM_PCPU_X': 1, **named}))

    def test_isolated_server_takes_idle_threads(self):
        topology = guest.topology(1, 64, {
            'hw:cpu_policy': 'dedicated', 'hw:cpu_thread_policy': 'isolate'},
            {})
        old = host.HostTopology((host.HostCell(
            0, frozenset(range(4)), frozenset(range(4)), 4096,
            siblings=(frozenset([0, 1]), frozenset([2, 3]))),))
        placement = fit.fit(old, fit.Demand(topology))

        self.assertEqual(
            {'CUSTOM_PCPU_0': 1, 'CUSTOM_PCPU_1': 1,
             'CUSTOM_NUMA0_MEMORY_MB': 64}, units.amounts(old, placement))

    def test_taken_devices_are_counted_by_pool(self):
        # None is taken of the other pool.
        pools = devices.pools([
            {'vendor_id': '10de', 'numa_node': node, 'count': 3}
            for node in (0, 1)])
        remaining = devices.take(pools, [devices.DeviceRequest(
            2, ({'vendor_id': '10de'},), 'gpu')])

        self.assertEqual({units.device(pools[0]): 2}, units.amounts(
            None, (), pools, remaining))
