# SPDX-License-Identifier: Apache-2.0
import unittest

from cellsched.hardware import devices
from tests.unit.hardware import cases


class WithoutTest(unittest.TestCase):
    def test_taken_devices_are_missing(self):
        nics, disks = ({'vendor_id': vendor, 'product_id': '1', 'count': 2}
                       for vendor in ('8086', '144d'))
        near = {**nics, 'numa_node': 1}
        for taken, remaining in (
                ([], [4, 2, 2]), ([{**nics, 'count': 3}], [1, 2, 2]),
                ([nics, nics], [0, 2, 2]), ([near, disks], [4, 0, 0]),
                ([{**near, 'numa_node': 2}], [4, 2, 2]),
                ([{**near, 'count': 9}], [4, 0, 2])):
            with self.subTest(taken):
                self.assertEqual(remaining, [
                    pool.count for pool in devices.without(
                        devices.pools([nics, near, nics, disks]),
                        devices.pools(taken))])


class ReportedTest(unittest.TestCase):
    CARD = {'vendor_id': '10de', 'product_id': '1db4', 'count': 1}

    def reported(self, **tags):
        [pool] = devices.reported(devices.pools([{**self.CARD, **tags}]))
        return pool

    def test_network_devices_are_not_managed_remotely_by_default(self):
        for kind, tags, expected in (
                ('type-VF', {}, 'false'), ('type-PF', {}, 'false'),
                ('vdpa', {}, 'false'), ('type-PCI', {}, None),
                ('type-VF', {'remote_managed': 'true'}, 'true')):
            pool = self.reported(dev_type=kind, **tags)
            self.assertEqual(expected, pool.values.get('remote_managed'))

    def test_title_has_no_default_tags(self):
        self.assertEqual(
            '10de:1db4 type-VF', self.reported(dev_type='type-VF').title)
        self.assertEqual(
            '10de:1db4 type-VF remote_managed=true resource_class=gpu',
            self.reported(dev_type='type-VF', remote_managed='true',
                          resource_class='gpu').title)

    def test_request_names_the_class_and_the_traits(self):
        plain = self.reported()
        tagged = self.reported(
            resource_class='big gpu', traits='fast, CUSTOM_NEW,HW_GPU_API_VK',
            live_migratable='true', one_time_use='true')
        for spec, verdicts in (
                ({}, (True, True)),
                ({'resource_class': 'CUSTOM_BIG_GPU'}, (False, True)),
                ({'resource_class': 'custom_pci_10de_1db4'}, (True, False)),
                ({'traits': 'CUSTOM_FAST,hw_gpu_api_vk'}, (False, True)),
                ({'traits': 'new,slow'}, (False, False)),
                ({'traits': 'HW_PCI_LIVE_MIGRATABLE'}, (False, True)),
                ({'traits': 'HW_PCI_ONE_TIME_USE'}, (False, True)),
                ({'resource_class': 7, 'traits': 7}, (False, False)),
                ({'traits': 'fast', 'vendor_id': '8086'}, (False, False))):
            with self.subTest(spec):
                self.assertEqual(
                    verdicts, (plain.fits(spec), tagged.fits(spec)))

    def test_pool_of_nova_has_no_class(self):
        [pool] = devices.pools([self.CARD])
        self.assertTrue(pool.fits({
            'resource_class': 'CUSTOM_X', 'traits': 'CUSTOM_Y'}))


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

    def test_empty_mappings_are_none(self):
        pools = devices.pools([
            {'vendor_id': '8086', 'count': 1, 'rp_uuid': each}
            for each in ('first', 'second')])
        request = devices.DeviceRequest(
            1, ({'vendor_id': '8086', 'rp_uuids': 'second'},), 'nic', 'nic')
        for mappings in None, {}:
            [remaining] = devices.take(pools, [request], mappings)
            self.assertEqual('first', remaining.provider)

    def test_affinity_of_socket_needs_the_host(self):
        pools = devices.pools([{'vendor_id': '8086', 'product_id': '1',
                                'count': 1, 'numa_node': 0}])
        request = devices.DeviceRequest(
            1, ({'vendor_id': '8086'},), 'nic', affinity=devices.SOCKET)
        self.assertIsNone(devices.take(pools, [request], cells=[1]))
