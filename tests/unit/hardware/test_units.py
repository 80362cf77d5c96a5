# SPDX-License-Identifier: Apache-2.0
import unittest

from cellsched.hardware import devices
from cellsched.hardware import fit
from cellsched.hardware import guest
from cellsched.hardware import host
from cellsched.hardware import units
from tests.unit.hardware import cases
from tests.unit.hardware import generated


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

    def test_host_limited_to_amounts_has_no_more(self):
        limited = units.limited(self.HOST, {
            units.cpu(5): 1, units.cpu(7): 1, units.memory(2): 512,
            units.pages(2, 4): 2 ** 17, units.shared_cpus(2): 1})

        [cell] = limited.cells
        [pages] = cell.pages
        self.assertEqual(
            ({5, 7}, 512, 2 ** 17, 1),
            (cell.free_pcpus, cell.free_memory_mb,
             pages.total - pages.reserved - pages.used,
             len(cell.cpus) - cell.cpu_usage))

    def test_names_are_resource_classes(self):
        for name in units.inventory(self.HOST, self.POOLS, fit.Ratios()):
            self.assertRegex(name, r'^CUSTOM_[A-Z0-9_]{1,248}\Z')
            self.assertTrue(units.is_named(name), name)

    def test_amounts_without_named_parts(self):
        named = units.inventory(self.HOST, self.POOLS, fit.Ratios())

        self.assertEqual(
            {'PCPU': 2, 'CUSTOM_NUMA_LICENCE': 1, 'CUSTOM_PCPU_X': 1},
            units.plain({'PCPU': 2, 'CUSTOM_NUMA_LICENCE': 1,
                         'CUSTOM_PCPU_X': 1, **named}))

    def test_names_in_words(self):
        self.assertEqual(
            ['CPU 12', 'shared CPUs of NUMA cell 1',
             'MB of memory of NUMA cell 1', 'pages of 1 GB of NUMA cell 10',
             'devices of pool 0123456789ABCDEF', 'VCPU', 'CUSTOM_PCPU_X'],
            [*map(units.title, (
                units.cpu(12), units.shared_cpus(1), units.memory(1),
                units.pages(10, 2 ** 20), 'CUSTOM_PCI_POOL_0123456789ABCDEF',
                'VCPU', 'CUSTOM_PCPU_X'))])

    def test_parts_are_by_cell(self):
        far = devices.pools([{'vendor_id': '8086', 'product_id': '154c',
                              'dev_type': 'type-VF', 'numa_node': None,
                              'count': 1, 'physical_network': 'red'}])
        parts = units.parts({
            'PCPU': 2, units.cpu(5): 1, units.cpu(4): 1, units.memory(2): 64,
            units.pages(2, 4): 16384, units.device(self.POOLS[0]): 2,
            units.device(far[0]): 1, units.cpu(99): 1,
        }, self.HOST, (*self.POOLS, *far))

        self.assertEqual([
            {'cell': 2, 'cpus': [4, 5], 'shared_cpus': 0, 'memory_mb': 64,
             'pages': {'4 KB': 16384}, 'devices': {'10de:20b5': 2}},
            {'cell': None, 'cpus': [], 'shared_cpus': 0, 'memory_mb': 0,
             'pages': {}, 'devices': {
                 '8086:154c type-VF physical_network=red': 1}},
            {'cell': None, 'unknown': {units.cpu(99): 1}}], parts)
        self.assertEqual(
            ['CPUs 4-5, 16384 x 4 KB pages, 64 MB, 2 x 10de:20b5',
             '1 x 8086:154c type-VF physical_network=red',
             'no longer on the host: CPU 99'], [*map(units.describe, parts)])

    def test_amounts_without_named_parts_are_no_parts(self):
        self.assertEqual([], units.parts({'VCPU': 1}, None, ()))

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

    def test_amounts_beside_a_report_are_the_usage_of_the_server(self):
        compared = 0
        for case in map(generated.case, range(300)):
            reported, demand = cases.host_topology(case), cases.demand(case)
            placement = fit.fit(reported, demand, cases.ratios(case))
            if not placement:
                continue
            amounts = units.amounts(reported, placement)
            found = units.reduced(
                reported, lambda names: [
                    -amounts.get(name, 0) for name in names])
            used = fit.used(reported, placement)
            with self.subTest(case['name']):
                self.assertEqual(
                    [(each.memory_usage, each.cpu_usage, each.pages,
                      each.free_pcpus) for each in used.cells],
                    [(each.memory_usage, each.cpu_usage, each.pages,
                      each.free_pcpus) for each in found.cells])
            compared += 1
        self.assertGreater(compared, 30)

    def test_devices_beside_a_report_are_not_free(self):
        [pool] = self.POOLS
        for taken, count in (0, 3), (2, 1), (3, 0):
            found = units.free_devices(
                self.POOLS, lambda names: [-taken] * len(names), True)
            self.assertEqual(count, sum(each.count for each in found))

    def test_taken_devices_are_counted_by_pool(self):
        # None is taken of the other pool.
        pools = devices.pools([
            {'vendor_id': '10de', 'numa_node': node, 'count': 3}
            for node in (0, 1)])
        remaining = devices.take(pools, [devices.DeviceRequest(
            2, ({'vendor_id': '10de'},), 'gpu')])

        self.assertEqual({units.device(pools[0]): 2}, units.amounts(
            None, (), pools, remaining))
