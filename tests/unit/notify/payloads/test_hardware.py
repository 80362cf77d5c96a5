# SPDX-License-Identifier: Apache-2.0
from cellsched.notify.payloads import hardware
from tests.unit import base
from tests.unit.notify import wire


class TestHardware(base.TestCase):

    def test_nothing_asked_for_is_nothing(self):
        self.assertIsNone(hardware.numa_topology(None, wire.INSTANCE))
        self.assertIsNone(hardware.pci_requests(None, wire.INSTANCE))

    def test_instance_is_the_request_s_where_none_is_named(self):
        told = hardware.numa_topology(wire.NUMA_TOPOLOGY, wire.OTHER)
        requests = hardware.pci_requests(wire.PCI_REQUESTS, wire.OTHER)

        self.assertEqual(wire.OTHER, told['nova_object.data']['instance_uuid'])
        self.assertEqual(
            wire.INSTANCE, requests['nova_object.data']['instance_uuid'])

    def test_cell_without_a_topology_of_cpus_is_told(self):
        told = hardware.numa_topology({'cells': [{'id': 3}]}, wire.INSTANCE)

        [cell] = told['nova_object.data']['cells']
        self.assertEqual(3, cell['nova_object.data']['id'])
        self.assertIsNone(cell['nova_object.data']['cpu_topology'])
        self.assertIsNone(cell['nova_object.data']['cpuset'])
