# SPDX-License-Identifier: Apache-2.0
import json
import unittest

from cellsched import exception
from cellsched.hardware import devices
from cellsched.hardware import documents
from cellsched.hardware import fit
from tests.unit.hardware import cases


def _read(document):
    """Return a document as it comes from a database."""
    return json.loads(json.dumps(document))


class HostTopologyTest(unittest.TestCase):
    def test_document_keeps_the_topology(self):
        for case in cases.of_kind('numa'):
            topology = cases.host_topology(case)
            if topology is None:
                continue
            with self.subTest(case['name']):
                self.assertEqual(topology, documents.host_topology(_read(
                    documents.written_host(topology))))

    def test_form_before_liberty(self):
        topology = documents.host_topology({'cells': [{
            'id': 1, 'cpus': '0-3,^2', 'cpu_usage': 2,
            'mem': {'total': 512, 'used': 128}}]})
        [cell] = topology.cells
        self.assertEqual((1, {0, 1, 3}, frozenset(), 512, 2, 128), (
            cell.id, cell.cpus, cell.pcpus, cell.memory_mb, cell.cpu_usage,
            cell.memory_usage))

    def test_old_cpu_set_serves_for_dedicated_use(self):
        topology = documents.host_topology({'cells': [{
            'id': 0, 'cpuset': [0, 1], 'memory': 64}]})
        self.assertEqual({0, 1}, topology.cells[0].pcpus)

    def test_host_without_cells(self):
        for document in None, {}, {'cells': []}:
            self.assertIsNone(documents.host_topology(document))

    def test_error_names_the_field(self):
        for document in [], 3, {'cells': 3}, {'cells': [{'id': 0}]}, {
                'cells': [{'id': 'x', 'cpuset': [], 'memory': 1}]}:
            if not document:
                continue
            with self.subTest(document), self.assertRaisesRegex(
                    exception.InvalidField, 'numa_topology of the node'):
                documents.host_topology(document)


class GuestTopologyTest(unittest.TestCase):
    def test_document_keeps_the_topology(self):
        for case in cases.of_kind('numa'):
            if 'topology_error' in case['expect']:
                continue
            topology = cases.topology(case)
            if topology is None:
                continue
            with self.subTest(case['name']):
                self.assertEqual(topology, documents.guest_topology(_read(
                    documents.written_guest(topology))))

    def test_placed_server(self):
        [case] = [each for each in cases.every()
                  if each['name'] == 'physnet-affine-cell']
        demand = cases.demand(case)
        placement = fit.fit(cases.host_topology(case), demand,
                            cases.ratios(case))
        document = documents.written_guest(demand.topology, placement)
        [cell] = document['nova_object.data']['cells']
        self.assertEqual(1, cell['nova_object.data']['id'])

    def test_document_keeps_the_place_of_a_server(self):
        pinned = 0
        for case in cases.of_kind('numa'):
            host = cases.host_topology(case)
            if host is None or 'topology_error' in case['expect'] or (
                    cases.topology(case) is None):
                continue
            demand = cases.demand(case)
            placement = fit.fit(host, demand, cases.ratios(case),
                                cases.pools(case), cases.mappings(case))
            if placement is None:
                continue
            with self.subTest(case['name']):
                read = documents.placement(_read(documents.written_guest(
                    demand.topology, placement)))
                self.assertEqual(
                    fit.used(host, placement), fit.used(host, read))
                pinned += any(placed.pinned for placed in read)
        self.assertGreater(pinned, 40)

    def test_server_without_a_document_has_no_place(self):
        self.assertEqual((), documents.placement(None))

    def test_error_of_a_place_names_the_field(self):
        for document in {'cells': 7}, {'cells': [{'id': 0}]}, {'a': 7}:
            with self.subTest(document), self.assertRaisesRegex(
                    exception.InvalidField, 'numa_topology'):
                documents.placement(document)

    def test_dedicated_cpus_of_a_version_before_1_5(self):
        topology = documents.guest_topology({'cells': [{
            'id': 0, 'cpuset': [0, 1], 'memory': 64,
            'cpu_policy': 'dedicated'}]})
        self.assertEqual((frozenset(), {0, 1}), (
            topology.cells[0].cpus, topology.cells[0].pcpus))

    def test_error_names_the_field(self):
        with self.assertRaisesRegex(
                exception.InvalidField, 'request: numa_topology: '):
            documents.guest_topology({'cells': ['x']})


class DevicesTest(unittest.TestCase):
    POOL = {'vendor_id': '8086', 'product_id': '10ed', 'numa_node': 1,
            'count': 3}

    def test_document_keeps_the_requests(self):
        for case in cases.of_kind('pci'):
            requests = cases.requests(case)
            with self.subTest(case['name']):
                self.assertEqual(requests, documents.device_requests(_read(
                    documents.written_requests(requests))))

    def test_document_keeps_the_pools(self):
        for case in cases.of_kind('pci'):
            pools = cases.pools(case)
            if pools is None:
                continue
            with self.subTest(case['name']):
                self.assertEqual(pools, documents.device_pools(_read(
                    documents.written_pools(pools))))

    def test_pools_of_all_forms(self):
        tagged = {**self.POOL, 'physical_network': 'red'}
        [expected] = devices.pools([tagged])
        fields = {**self.POOL, 'tags': {'physical_network': 'red'}}
        listed = {'nova_object.data': {'objects': [
            {'nova_object.data': fields}]}}
        for document in listed, [tagged], tagged:
            with self.subTest(document):
                self.assertEqual(
                    (expected,), documents.device_pools(document))

    def test_document_keeps_pools(self):
        tried = 0
        for case in cases.every():
            pools = cases.pools(case)
            if pools:
                tried += 1
                with self.subTest(case['name']):
                    self.assertEqual(pools, documents.device_pools(_read(
                        documents.written_pools(pools))))
        self.assertGreater(tried, 40)

    def test_tags_of_a_written_pool_are_apart(self):
        pools = devices.pools([{
            'vendor_id': '8086', 'product_id': '154c', 'count': 2,
            'dev_type': 'type-VF'}])
        [pool] = documents.written_pools(
            pools)['nova_object.data']['objects']
        self.assertEqual(
            {'vendor_id': '8086', 'product_id': '154c', 'count': 2,
             'numa_node': None, 'tags': {'dev_type': 'type-VF'}},
            pool['nova_object.data'])

    def test_host_without_devices(self):
        self.assertEqual((), documents.device_pools(None))

    def test_error_names_the_field(self):
        with self.assertRaisesRegex(exception.InvalidField, 'pci_stats'):
            documents.device_pools([{'count': 'many'}])
