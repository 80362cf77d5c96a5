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
from tests.unit.hardware import cases


class DeviceTableTest(unittest.TestCase):
    def test_devices_anywhere_equal_those_of_each_host(self):
        given = [case for case in cases.of_kind('pci')
                 if case.get('pools') is not None and case['pci']
                 and not case.get('candidates')]
        pools = list(dict.fromkeys(map(cases.pools, given)))
        table = device_table.DeviceTable()
        for each in pools:
            table.add([each])
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

    def test_devices_near_to_cells_equal_those_of_each_host(self):
        cells = cell_table.CellTable()
        topologies = [host.HostTopology(tuple(
            host.HostCell(number, frozenset(range(4)), frozenset(), 4096,
                          socket=socket)
            for number, socket in enumerate(sockets)))
            for sockets in ((0, 0, 1), (0, 1, 1), (0, None, 1))]
        cells.add(topologies)
        table, pools = device_table.DeviceTable(), []
        for nodes in itertools.product((0, 1, 2), repeat=4):
            pools.append(devices.pools([
                {'vendor_id': '8086', 'product_id': '1', 'count': count,
                 'numa_node': node, 'dev_type': kind}
                for count, node, kind in zip(
                    nodes, (0, 1, 2, None),
                    ('type-PCI', 'type-PCI', 'type-PF', 'type-PCI'))
                if count]))
        table.add(pools)
        topology = guest.topology(2, 64, {'hw:numa_nodes': '2'}, {})
        for affinity in (*devices.AFFINITIES, None):
            request = devices.DeviceRequest(
                2, ({'vendor_id': '8086'},), 'a', affinity=affinity)
            for code, each in enumerate(topologies):
                codes = np.full(len(pools), code)
                near = table.near(
                    [request], np.arange(len(pools)), cells, codes)
                demand = fit.Demand(topology, (request,))
                with self.subTest(affinity=affinity, sockets=code):
                    self.assertEqual(
                        [fit.fit(each, demand, pools=pool) is not None
                         for pool in pools],
                        cells.fits(topology, codes, near=near).tolist())

    def test_requests_for_the_same_devices_are_not_exact(self):
        table = device_table.DeviceTable()
        table.add([devices.pools([{'vendor_id': '8086', 'product_id': '1',
                                   'numa_node': 0, 'count': 3}])])
        request = devices.DeviceRequest(2, ({'vendor_id': '8086'},), 'a')
        self.assertTrue(table.is_exact([request]))
        self.assertFalse(table.is_exact([request, request]))

    def test_selected_entries_keep_their_devices(self):
        table = device_table.DeviceTable()
        table.add([devices.pools([{'vendor_id': '8086', 'product_id': '1',
                                   'numa_node': 0, 'count': count}])
                   for count in range(5)])
        request = devices.DeviceRequest(2, ({'vendor_id': '8086'},), 'a')
        self.assertEqual([False, True, True], table.select(
            np.array([1, 3, 4])).enough([request], slice(None)).tolist())
