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

    def test_number_of_cells_has_no_other_form(self):
        for nodes in '02', ' 2 ', '+2', '\u0662':
            with self.subTest(nodes), self.assertRaises(
                    exception.HardwareRequestInvalid) as caught:
                guest.topology(4, 1024, {'hw:numa_nodes': nodes}, {})
            self.assertEqual('InvalidNUMANodesNumber', caught.exception.error)

    def test_range_without_end_is_out_of_range(self):
        with self.assertRaises(exception.HardwareRequestInvalid) as caught:
            guest.topology(4, 1024, {
                'hw:numa_nodes': '1', 'hw:numa_cpus.0': '0-999999999999',
                'hw:numa_mem.0': '1024'}, {})
        self.assertEqual(
            'ImageNUMATopologyCPUOutOfRange', caught.exception.error)

    def test_persistent_memory_without_label_is_none(self):
        self.assertIsNone(guest.topology(4, 1024, {'hw:pmem': ' , '}, {}))

    def test_image_lists_of_cpus_and_memory(self):
        topology = guest.topology(4, 3072, {'hw:numa_nodes': '2'}, {
            'hw_numa_cpus': [[0], [1, 2, 3]], 'hw_numa_mem': [1024, 2048]})
        self.assertEqual([{0}, {1, 2, 3}],
                         [each.cpus for each in topology.cells])
        self.assertEqual([1024, 2048],
                         [each.memory_mb for each in topology.cells])

    def test_locked_memory_without_page_size(self):
        with self.assertRaises(exception.HardwareRequestInvalid) as caught:
            guest.topology(1, 64, {'hw:locked_memory': 'true'}, {})
        self.assertEqual('LockMemoryForbidden', caught.exception.error)

    def test_emulator_adds_a_dedicated_cpu(self):
        topology = guest.topology(4, 64, {
            'hw:cpu_policy': 'dedicated',
            'hw:emulator_threads_policy': 'isolate'}, {})
        self.assertEqual(5, topology.pcpus)
