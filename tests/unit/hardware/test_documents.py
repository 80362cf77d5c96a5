# SPDX-License-Identifier: Apache-2.0
import json
import unittest

from cellsched import exception
from cellsched.hardware import devices
from cellsched.hardware import documents
from cellsched.hardware import fit
from cellsched.hardware import guest
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

    def test_cells_of_each_version(self):
        # Each version has the fields of the one before it, and some more.
        fields, cell = {}, guest.GuestCell(
            0, frozenset({0, 1}), frozenset(), 64)
        dedicated = cell._replace(
            cpus=frozenset(), pcpus=cell.cpus, policy='dedicated')
        for version, more, expected in (
                ('1.0', {'id': 0, 'cpuset': [1, 0], 'memory': 64}, cell),
                ('1.1', {'pagesize': 4}, cell._replace(
                    page_size=4)),
                ('1.2', {'pagesize': None, 'cpu_pinning_raw': None,
                         'cpu_topology': None}, cell),
                ('1.2', {'cpu_pinning_raw': {}}, dedicated),
                ('1.2', {'cpu_pinning_raw': {'0': 4, '1': 5}}, dedicated),
                ('1.3', {'cpu_policy': 'dedicated',
                         'cpu_thread_policy': 'isolate'}, dedicated._replace(
                    thread_policy='isolate')),
                ('1.4', {'cpuset_reserved': [2], 'cpu_thread_policy': None},
                 dedicated),
                # An aborted claim leaves an empty mapping of pins.
                ('1.4', {'cpu_policy': None, 'cpu_pinning_raw': {}}, cell),
                ('1.5', {'cpu_policy': 'dedicated', 'cpuset': [],
                         'pcpuset': [0, 1]}, dedicated),
                ('1.6', {'cpu_policy': 'mixed', 'cpuset': [0],
                         'pcpuset': [1]}, cell._replace(
                    cpus=frozenset({0}), pcpus=frozenset({1}),
                    policy='mixed'))):
            fields |= more
            with self.subTest(version=version, more=str(more)):
                topology = documents.guest_topology({
                    'nova_object.name': 'InstanceNUMATopology',
                    'nova_object.data': {'cells': [{
                        'nova_object.name': 'InstanceNUMACell',
                        'nova_object.version': version,
                        'nova_object.data': fields}]}})
                self.assertEqual((expected,), topology.cells)

    def test_form_before_liberty(self):
        [cell] = documents.guest_topology({'cells': [{
            'id': 1, 'cpus': '0-3,^2', 'mem': {'total': 512},
            'pagesize': 2048}]}).cells
        self.assertEqual(guest.GuestCell(
            1, frozenset({0, 1, 3}), frozenset(), 512, 2048), cell)

    def test_json(self):
        document = {'cells': [{'id': 0, 'cpuset': [0], 'memory': 64}]}
        self.assertEqual(
            documents.guest_topology(document),
            documents.guest_topology(json.dumps(document)))

    def test_error_names_the_field(self):
        cell = {'id': 0, 'cpuset': [0], 'memory': 64}
        for document in (
                {'cells': ['x']}, {'cells': 3}, [1], 5, 'x', '[' * 9999,
                {'nova_object.data': 5}, {'cells': [{'id': 0}]},
                {'cells': [{**cell, 'cpuset': ['a']}]},
                {'cells': [{**cell, 'cpuset': [-1]}]},
                {'cells': [{**cell, 'cpuset': [guest.CPUS_MAX]}]},
                {'cells': [{**cell, 'memory': None}]},
                {'cells': [cell, {**cell, 'memory': -1}]},
                {'cells': [{'id': 0, 'cpus': '0', 'mem': {'total': -1}}]},
                {'cells': [{**cell, 'memory': float('inf')}]},
                {'cells': [{**cell, 'cpu_policy': 'pinned'}]},
                {'cells': [{**cell, 'cpu_thread_policy': ['isolate']}]},
                {'cells': [cell], 'emulator_threads_policy': 'x'},
                {'cells': [cell] * (guest.CELLS_MAX + 1)},
                {'cells': [{'id': 0, 'cpus': '0-999999999', 'mem': {}}]}):
            with self.subTest(str(document)[:60]), self.assertRaisesRegex(
                    exception.InvalidField, 'request: numa_topology: '):
                documents.guest_topology(document)


class DevicesTest(unittest.TestCase):
    POOL = {'vendor_id': '8086', 'product_id': '10ed', 'numa_node': 1,
            'count': 3}

    def test_document_keeps_the_requests(self):
        for case in cases.of_kind('pci'):
            requests = cases.requests(case)
            with self.subTest(case['name']):
                self.assertEqual(requests, documents.device_requests(_read(
                    documents.written_requests(requests))))

    def test_requests_of_all_forms(self):
        # The fields of version 1.0; 1.1 adds request_id, 1.2 numa_policy.
        fields = {'count': 2, 'spec': [{'vendor_id': '8086'}],
                  'alias_name': 'card', 'is_new': False}
        for more in {}, {'request_id': None}, {
                'request_id': 'x', 'numa_policy': 'socket'}:
            fields |= more
            document = {'nova_object.data': {'requests': [
                {'nova_object.data': fields}]}}
            expected = (devices.DeviceRequest(
                2, ({'vendor_id': '8086'},), 'card',
                fields.get('request_id'), fields.get('numa_policy')),)
            for form in (document, [fields], {'requests': [fields]},
                         json.dumps([fields]), json.dumps(document)):
                self.assertEqual(expected, documents.device_requests(form))

    def test_no_requests(self):
        for document in None, [], {}, '', {'requests': None}, 'null':
            self.assertEqual((), documents.device_requests(document))

    def test_bad_requests_are_named(self):
        fields = {'count': 2, 'spec': [], 'alias_name': None}
        for document in (
                5, 'x', [5], {'requests': 5}, {'requests': [{}]},
                [{**fields, 'count': 'many'}], [{**fields, 'count': -1}],
                [{**fields, 'spec': ['x']}], [{**fields, 'spec': 5}],
                [{**fields, 'numa_policy': 'near'}]):
            with self.subTest(str(document)), self.assertRaisesRegex(
                    exception.InvalidField, 'request: pci_requests: '):
                documents.device_requests(document)

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
        for pool in ({'count': 'many'}, {'count': -1}, {'count': 2 ** 31},
                     {'count': 1, 'tags': {'a': {}}}, {'count': 1, 'a': [{}]},
                     {'count': 1, 'numa_node': 'near'}):
            with self.assertRaisesRegex(exception.InvalidField, 'pci_stats'):
                documents.device_pools([pool])
