# SPDX-License-Identifier: Apache-2.0
import itertools
import unittest

import numpy as np

from cellsched.hardware import cell_table
from cellsched.hardware import device_table
from cellsched.hardware import devices
from cellsched.hardware import fit
from cellsched.hardware import guest
from cellsched.hardware import host
from cellsched.hardware import units
from tests.unit.hardware import cases


def table_of(hosts):
    """Return a table of the pools of each host."""
    table = device_table.DeviceTable(len(hosts))
    for row, pools in enumerate(hosts):
        table.put(np.array([row]), pools)
    return table


class DeviceTableTest(unittest.TestCase):
    def test_verdicts_agree_with_pools_of_each_host(self):
        given = [case for case in cases.of_kind('pci')
                 if case.get('pools') is not None and case['pci']
                 and not case.get('candidates')]
        pools = list(dict.fromkeys(map(cases.pools, given)))
        table = table_of(pools)
        exact = 0
        for case in given:
            requests = cases.requests(case)
            verdicts = table.enough(requests, slice(None))
            expected = [devices.take(each, requests) is not None
                        for each in pools]
            with self.subTest(case['name']):
                if table.is_exact(requests):
                    exact += 1
                    self.assertEqual(expected, verdicts.tolist())
                else:
                    self.assertLessEqual(expected, verdicts.tolist())
        self.assertGreater(exact, 25)

    def test_verdicts_near_cells_agree_with_fits(self):
        topologies = [host.HostTopology(tuple(
            host.HostCell(number, frozenset(range(4)), frozenset(), 4096,
                          socket=socket)
            for number, socket in enumerate(sockets)))
            for sockets in ((0, 0, 1), (0, 1, 1), (0, None, 1))]
        pools = []
        for nodes in itertools.product((0, 1, 2), repeat=4):
            pools.append(devices.pools([
                {'vendor_id': '8086', 'product_id': '1', 'count': count,
                 'numa_node': node, 'dev_type': kind}
                for count, node, kind in zip(
                    nodes, (0, 1, 2, None),
                    ('type-PCI', 'type-PCI', 'type-PF', 'type-PCI'))
                if count]))
        table, every = table_of(pools), np.arange(len(pools))
        topology = guest.topology(2, 64, {'hw:numa_nodes': '2'}, {})
        for affinity, counts, (code, each) in itertools.product(
                (*devices.AFFINITIES, None), ((2,), (1, 1)),
                enumerate(topologies)):
            # Two ports have equal requests.
            requests = tuple(devices.DeviceRequest(
                count, ({'vendor_id': '8086', 'dev_type': 'type-PCI'},
                        ) if len(counts) > 1 else ({'vendor_id': '8086'},),
                'a', affinity=affinity) for count in counts)
            with self.subTest(affinity=affinity, counts=counts, sockets=code):
                self.assertTrue(table.is_exact(requests))
                cells = cell_table.CellTable(len(pools))
                cells.put(every, each)
                near = table.near(requests, every, cells)
                demand = fit.Demand(topology, requests)
                self.assertEqual(
                    [fit.fit(each, demand, pools=pool) is not None
                     for pool in pools],
                    cells.fits(topology, near=near).tolist())

    def test_requests_for_the_same_devices_are_not_exact(self):
        table = table_of([devices.pools([
            {'vendor_id': '8086', 'product_id': '1', 'numa_node': 0,
             'count': 3}])])
        request = devices.DeviceRequest(2, ({'vendor_id': '8086'},), 'a')
        other = devices.DeviceRequest(1, ({'product_id': '1'},), 'a')
        self.assertTrue(table.is_exact([request]))
        self.assertFalse(table.is_exact([request, other]))

    def test_equal_requests_need_the_sum_of_their_devices(self):
        table = table_of([devices.pools([
            {'vendor_id': '8086', 'product_id': '1', 'numa_node': 0,
             'count': count}]) for count in (3, 4)])
        request = devices.DeviceRequest(2, ({'vendor_id': '8086'},))
        self.assertTrue(table.is_exact([request, request]))
        self.assertEqual([False, True], table.enough(
            [request, request], slice(None)).tolist())

    def test_equal_requests_for_special_devices_are_not_exact(self):
        # Only the first of them may find enough devices near to its cells.
        table = table_of([devices.pools([
            {'vendor_id': '8086', 'product_id': '1', 'numa_node': 0,
             'count': 3, 'dev_type': kind}
            for kind in ('type-PF', 'type-VF')])])
        request = devices.DeviceRequest(2, ({'vendor_id': '8086'},))
        self.assertFalse(table.is_exact([request, request]))

    def test_devices_beyond_the_inventory_are_not_free(self):
        cards = devices.pools([{
            'vendor_id': '8086', 'product_id': '1', 'numa_node': 0,
            'count': 1, 'address': each} for each in '12'])
        table = device_table.DeviceTable(1)
        table.put(np.arange(1), cards, {
            units.device(card): np.array([free])
            for card, free in zip(cards, (-1.0, 1.0))}.__getitem__)
        [(_, free)] = table.lacking([devices.DeviceRequest(
            1, ({'vendor_id': '8086'},))], slice(None))
        self.assertEqual([1], free.tolist())

    def test_claims_count(self):
        pools = devices.pools([{'vendor_id': '8086', 'product_id': '1',
                                'numa_node': 0, 'count': 5}])
        table = device_table.DeviceTable(3)
        table.put(np.arange(3), pools, {
            units.device(pools[0]): np.array([1.0, 3.0, 0.0])}.__getitem__)
        request = devices.DeviceRequest(2, ({'vendor_id': '8086'},), 'a')
        self.assertEqual([False, True, False], table.enough(
            [request], slice(None)).tolist())
