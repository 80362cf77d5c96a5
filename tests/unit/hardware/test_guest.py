# SPDX-License-Identifier: Apache-2.0
import unittest

from cellsched import exception
from cellsched.hardware import guest
from tests.unit.hardware import cases


def _shown(topology):
    if topology is None:
        return None
    return {'emulator_threads_policy': topology.emulator_policy, 'cells': [{
        'id': each.id, 'cpus': sorted(each.cpus),
        'pcpus': sorted(each.pcpus), 'memory_mb': each.memory_mb,
        'pagesize': each.page_size, 'cpu_policy': each.policy,
        'cpu_thread_policy': each.thread_policy} for each in topology.cells]}


class TopologyTest(unittest.TestCase):
    def test_topology_and_error_agree_with_nova(self):
        tried = 0
        for case in cases.every():
            expect = case['expect']
            if 'topology' not in expect and 'topology_error' not in expect:
                continue
            tried += 1
            with self.subTest(case['name']):
                if 'topology_error' in expect:
                    with self.assertRaises(
                            exception.HardwareRequestInvalid) as caught:
                        cases.topology(case)
                    self.assertEqual(
                        expect['topology_error'], caught.exception.error)
                else:
                    self.assertEqual(
                        expect['topology'], _shown(cases.topology(case)))
        self.assertGreater(tried, 300)

    def test_requests_for_a_topology_are_noticed(self):
        for case in cases.every():
            expect = case['expect']
            if expect.get('topology') or 'topology_error' in expect:
                with self.subTest(case['name']):
                    self.assertTrue(guest.may_ask(
                        case['flavor']['extra_specs'],
                        case.get('image', {})))
        self.assertFalse(guest.may_ask(
            {'ssd': 'true', 'hw:watchdog_action': 'reset'},
            {'hw_disk_bus': 'scsi'}))

    def test_text_comes_from_nova(self):
        with self.assertRaisesRegex(
                exception.HardwareRequestInvalid,
                "^The property 'numa_nodes' cannot be 'two'. It must be a "
                'number greater than 0$'):
            guest.topology(4, 1024, {'hw:numa_nodes': 'two'}, {})

    def test_bad_range_of_cpus(self):
        for text in '3-1', 'x', '^x', '1-2-3':
            with self.subTest(text), self.assertRaisesRegex(
                    exception.HardwareRequestInvalid, 'expression'):
                guest.parse_cpus(text)

    def test_cpus_without_excluded_ranges(self):
        self.assertEqual({0, 3, 8}, guest.parse_cpus('0-4, ^1-2,8,^4'))

    def test_persistent_memory_without_label_is_none(self):
        self.assertIsNone(guest.topology(4, 1024, {'hw:pmem': ' , '}, {}))

    def test_image_lists_of_cpus_and_memory(self):
        topology = guest.topology(4, 3072, {'hw:numa_nodes': '2'}, {
            'hw_numa_cpus': [[0], [1, 2, 3]], 'hw_numa_mem': [1024, 2048]})
        self.assertEqual([{0}, {1, 2, 3}],
                         [each.cpus for each in topology.cells])
        self.assertEqual([1024, 2048],
                         [each.memory_mb for each in topology.cells])

    def test_error_has_the_name_of_nova(self):
        for error, vcpus, specs in (
                # The policy of the emulator is checked before the mask, but
                # not before an empty one.
                *((error, 4, {
                    'hw:emulator_threads_policy': 'other',
                    'hw:cpu_realtime': 'yes', 'hw:cpu_realtime_mask': mask})
                  for error, mask in (
                      ('InvalidEmulatorThreadsPolicy', '2-9'),
                      ('RealtimeMaskNotFoundOrInvalid', '^0-3'))),
                *(('InvalidNUMANodesNumber', 4, {'hw:numa_nodes': nodes})
                  for nodes in ('02', ' 2 ', '+2', '\u0662')),
                ('ImageNUMATopologyCPUOutOfRange', 4, {
                    'hw:numa_nodes': '1', 'hw:numa_cpus.0': '0-999999999999',
                    'hw:numa_mem.0': '1024'}),
                ('LockMemoryForbidden', 1, {'hw:locked_memory': 'true'})):
            with self.subTest(specs), self.assertRaises(
                    exception.HardwareRequestInvalid) as caught:
                guest.topology(vcpus, 1024, specs, {})
            self.assertEqual(error, caught.exception.error)

    def test_numbers_are_bounded(self):
        for vcpus, specs, text in (
                (10 ** 9, {'hw:cpu_policy': 'dedicated'}, 'at most 65536'),
                (10 ** 9, {'hw:cpu_policy': 'mixed',
                           'hw:cpu_dedicated_mask': '^0'}, 'at most 65536'),
                (4, {'hw:numa_nodes': '1', 'hw:numa_cpus.0': '0-999999999',
                     'hw:numa_mem.0': '64'}, 'larger than max 3'),
                (4, {'hw:numa_nodes': '1', 'hw:numa_mem.0': '64',
                     'hw:numa_cpus.0': '9' * 5000}, 'expression'),
                (256, {'hw:numa_nodes': '256'}, 'at most 128'),
                (4, {'hw:numa_nodes': '9' * 5000}, 'greater than 0'),
                (4, {'hw:mem_page_size': '9' * 5000 + 'MB'}, 'page size')):
            with self.subTest(str(specs)[:60]), self.assertRaisesRegex(
                    exception.HardwareRequestInvalid, text):
                guest.topology(vcpus, 256, specs, {})

    def test_most_vcpus(self):
        topology = guest.topology(
            guest.CPUS_MAX, 128, {'hw:numa_nodes': '128'}, {})
        self.assertEqual(128, len(topology.cells))

    def test_emulator_adds_a_dedicated_cpu(self):
        topology = guest.topology(4, 64, {
            'hw:cpu_policy': 'dedicated',
            'hw:emulator_threads_policy': 'isolate'}, {})
        self.assertEqual(5, topology.pcpus)


class AmountsTest(unittest.TestCase):
    def _amounts(self, image=None, **specs):
        return guest.cpu_amounts(4, {
            f'hw:{name}': value for name, value in specs.items()}, image or {})

    def test_shared_cpus_stay_vcpus(self):
        for specs in {}, {'cpu_policy': 'shared'}, {'numa_nodes': '2'}, {
                'emulator_threads_policy': 'share'}:
            self.assertEqual({}, self._amounts(**specs))

    def test_dedicated_cpus(self):
        for specs, image in ({'cpu_policy': 'dedicated'}, {}), ({}, {
                'hw_cpu_policy': 'dedicated'}):
            self.assertEqual(
                {'VCPU': 0, 'PCPU': 4}, self._amounts(image, **specs))
            self.assertEqual({'VCPU': 0, 'PCPU': 5}, self._amounts(
                image, emulator_threads_policy='isolate', **specs))

    def test_mixed_cpus(self):
        for mask in {'cpu_dedicated_mask': '^0'}, {
                'cpu_realtime': 'yes', 'cpu_realtime_mask': '1-3'}:
            self.assertEqual({'VCPU': 1, 'PCPU': 3}, self._amounts(
                cpu_policy='mixed', **mask))
            self.assertEqual({'VCPU': 1, 'PCPU': 4}, self._amounts(
                cpu_policy='mixed', emulator_threads_policy='isolate',
                **mask))

    def test_contradiction_is_refused(self):
        with self.assertRaises(exception.HardwareRequestInvalid) as caught:
            self._amounts({'hw_cpu_policy': 'dedicated'}, cpu_policy='shared')
        self.assertEqual('ImageCPUPinningForbidden', caught.exception.error)

    def test_trait_of_a_thread_policy(self):
        for policy, trait in (('require', 'required'),
                              ('isolate', 'forbidden'), ('prefer', None)):
            expected = {'HW_CPU_HYPERTHREADING': trait} if trait else {}
            self.assertEqual(expected, guest.thread_trait(
                {'hw:cpu_thread_policy': policy}, {}))
            self.assertEqual(expected, guest.thread_trait(
                {}, {'hw_cpu_thread_policy': policy}))
        self.assertEqual({}, guest.thread_trait({}, {}))
