# SPDX-License-Identifier: Apache-2.0
import unittest

from cellsched.hardware import devices
from tests.unit.hardware import cases


class TakeTest(unittest.TestCase):
    def test_devices_are_taken_as_by_nova(self):
        tried = 0
        for case in cases.of_kind('pci'):
            if case.get('pools') is None:
                continue
            tried += 1
            expect, pools = case['expect'], cases.pools(case)
            with self.subTest(case['name']):
                left = devices.take(
                    pools, cases.requests(case), cases.mappings(case),
                    case.get('instance_on'), cases.host_topology(case))
                if 'supports' in expect:
                    self.assertEqual(expect['supports'], left is not None)
                if 'pools_after' in expect:
                    self.assertEqual(expect['pools_after'], [
                        {'count': each.count, **each.values}
                        for each in left])
        self.assertGreater(tried, 40)

    def test_candidates_with_devices(self):
        tried = 0
        for case in cases.of_kind('pci'):
            pools, requests = cases.pools(case), cases.requests(case)
            if pools is None or not requests:
                continue
            tried += 1
            with self.subTest(case['name']):
                left = [each for each in case.get('candidates') or [None]
                        if devices.take(pools, requests, each or None)
                        is not None]
                self.assertEqual(
                    case['expect']['candidates_left'], len(left))
        self.assertGreater(tried, 40)

    def test_affinity_of_socket_needs_the_host(self):
        pools = devices.pools([{'vendor_id': '8086', 'product_id': '1',
                                'count': 1, 'numa_node': 0}])
        request = devices.DeviceRequest(
            1, ({'vendor_id': '8086'},), 'nic', affinity=devices.SOCKET)
        self.assertIsNone(devices.take(pools, [request], cells=[1]))
