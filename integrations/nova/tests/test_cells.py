# SPDX-License-Identifier: Apache-2.0
"""Compute nodes and services of Nova fill columns."""

from concurrent import futures
import json
import threading
import types
import unittest

import fixtures
from nova import context as nova_context
from nova import exception as nova_exception
from nova import objects as nova_objects

from cellsched_nova import cells
from tests import configuration_fixtures

nova_objects.register_all()


def node(**fields):
    """Return the row of a compute node."""
    return types.SimpleNamespace(**{
        'uuid': '00000000-0000-4000-8000-000000000000', 'host': 'host1',
        'hypervisor_hostname': 'node1', 'host_ip': '192.0.2.1', 'vcpus': 8,
        'vcpus_used': 2, 'memory_mb': 8192, 'memory_mb_used': 512,
        'free_ram_mb': 6000,
        'local_gb': 100, 'local_gb_used': 20, 'free_disk_gb': 80,
        'disk_available_least': None, 'cpu_allocation_ratio': 4.0,
        'ram_allocation_ratio': 1.0, 'disk_allocation_ratio': 1.0,
        'hypervisor_type': 'QEMU', 'hypervisor_version': 6002000,
        'cpu_info': '{}', 'metrics': '[]', 'numa_topology': None,
        'pci_stats': None,
        'supported_instances': '[["x86_64", "kvm", "hvm"]]',
        'stats': '{"num_instances": "3", "io_workload": "1", '
                 '"failed_builds": "2", "rack": "r1"}', **fields})


def numa_topology(pinned=(), count=1):
    """Return the column of a host with two dedicated CPUs in each cell."""
    return json.dumps(nova_objects.NUMATopology(cells=[
        nova_objects.NUMACell(
            id=number, cpuset={4 * number, 4 * number + 1},
            pcpuset={4 * number + 2, 4 * number + 3}, memory=4096,
            cpu_usage=0, memory_usage=0, socket=number, mempages=[],
            siblings=[{4 * number + cpu} for cpu in range(4)],
            pinned_cpus={cpu for cpu in pinned
                         if cpu // 4 == number})
        for number in range(count)]).obj_to_primitive())


def pci_stats(*pools):
    """Return the column of a host with devices.

    :param pools: the NUMA node and the number of devices of each pool
    """
    return json.dumps(nova_objects.PciDevicePoolList(objects=[
        nova_objects.PciDevicePool(
            vendor_id='8086', product_id='1572', numa_node=node, count=count,
            tags={'dev_type': 'type-VF'})
        for node, count in pools]).obj_to_primitive())


class TestColumns(unittest.TestCase):

    def columns(self, **fields):
        row = node(**fields)
        made = cells.columns([row], [cells.KnownNode.of(row)], 'cell')
        return {name: value[0] if isinstance(value, list) else value
                for name, value in made.items()}

    def test_columns_have_the_names_of_nova_s_host_state(self):
        found = self.columns()

        self.assertEqual(
            {'host': 'host1', 'nodename': 'node1', 'host_ip': '192.0.2.1',
             'cell': 'cell', 'vcpus_total': 8, 'vcpus_used': 2,
             'free_ram_mb': 6000, 'free_disk_mb': 80 * 1024,
             'disk_mb_used': 20 * 1024, 'num_instances': 3, 'num_io_ops': 1,
             'failed_builds': 2, 'hypervisor_version': 6002000,
             'supported_instances': (('x86_64', 'kvm', 'hvm'),)},
            {name: found[name] for name in (
                'host', 'nodename', 'host_ip', 'cell', 'vcpus_total',
                'vcpus_used', 'free_ram_mb', 'free_disk_mb', 'disk_mb_used',
                'num_instances', 'num_io_ops', 'failed_builds',
                'hypervisor_version', 'supported_instances')})

    def test_shared_statistics_have_no_counts(self):
        self.assertEqual('{"rack": "r1"}', self.columns()['stats'])

    def test_lower_value_of_free_disk_counts(self):
        self.assertEqual(
            7 * 1024, self.columns(disk_available_least=7)['free_disk_mb'])
        self.assertEqual(
            80 * 1024, self.columns(disk_available_least=90)['free_disk_mb'])

    def test_free_devices_of_all_pools_are_counted(self):
        pools = pci_stats((0, 2), (1, 3))

        self.assertEqual(
            5, self.columns(pci_stats=pools)['free_pci_devices'])

    def test_cells_and_devices_are_read_in_all_forms(self):
        new = self.columns(
            numa_topology=numa_topology(), pci_stats=pci_stats((0, 2)))
        old = self.columns(
            numa_topology=json.dumps({'cells': [{
                'id': 0, 'cpus': '0-1', 'cpu_usage': 0,
                'mem': {'total': 512, 'used': 0}}]}),
            pci_stats=json.dumps([{
                'vendor_id': '8086', 'product_id': '1572', 'numa_node': 0,
                'dev_type': 'type-VF', 'count': 2}]))
        none = self.columns()

        [cell] = new['numa_topology'].cells
        self.assertEqual(({0, 1}, {2, 3}), (cell.cpus, cell.pcpus))
        [cell] = old['numa_topology'].cells
        self.assertEqual({0, 1}, cell.cpus)
        self.assertEqual(new['device_pools'], old['device_pools'])
        self.assertEqual((None, ()), (none['numa_topology'],
                                      none['device_pools']))

    def test_unknown_forms_are_ignored_with_a_warning(self):
        for text in '{', '[1]', '{"cells": [{"id": "x"}]}':
            cells.parse_topology.cache_clear()
            with self.assertLogs(cells.LOG.logger, 'WARNING') as logged:
                found = self.columns(numa_topology=text)
            self.assertIsNone(found['numa_topology'])
            self.assertIn('numa_topology', logged.output[0])

    def test_invalid_statistics_are_ignored_with_a_warning(self):
        with self.assertLogs(cells.LOG.logger, 'WARNING') as logged:
            found = self.columns(stats='{')

        self.assertEqual((0, 0), (found['num_instances'],
                                  found['num_io_ops']))
        self.assertIn('stats is not a JSON object', logged.output[0])

    def test_options_serve_a_node_without_ratios(self):
        found = self.columns(cpu_allocation_ratio=None,
                             ram_allocation_ratio=0.0)

        self.assertEqual((4.0, 1.0), (found['cpu_allocation_ratio'],
                                      found['ram_allocation_ratio']))

    def test_node_without_free_disk_has_not_reported(self):
        self.assertFalse(cells.has_reported(node(free_disk_gb=None)))
        self.assertTrue(cells.has_reported(node()))


class TestReads(configuration_fixtures.TestCase):
    """Reads of many cells, in Nova's threads."""

    def setUp(self):
        super().setUp()
        self.context = nova_context.get_admin_context()
        self.cells = [nova_objects.CellMapping(
            id=number, uuid=f'{number:08}-0000-4000-8000-000000000000',
            name=f'cell{number}', transport_url='none:///', disabled=False,
            database_connection='sqlite://') for number in range(1, 13)]
        for each in self.cells:
            self.addCleanup(nova_context.CELL_CACHE.pop, each.uuid, None)

    def replace(self, name, function):
        replacement = fixtures.MonkeyPatch(
            f'cellsched_nova.cells.{name}', function)
        replacement.setUp()
        self.addCleanup(replacement.cleanUp)

    def changes(self):
        return dict(cells.changes(self.context, self.cells, {}))

    def test_nodes_are_read_a_few_at_a_time(self):
        nodes = [node(uuid=f'{n:08}-0000-4000-8000-000000000000',
                      host=f'host{n}', memory_mb=n, memory_mb_used=0)
                 for n in range(5)]
        by_uuid = {each.uuid: each for each in nodes}
        sizes = []

        def read(context, uuids, names):
            sizes.append(len(uuids))
            return [by_uuid[uuid] for uuid in uuids]

        self.replace('_NODES_AT_ONCE', 2)
        self.replace('_signs', lambda context: (
            dict.fromkeys(by_uuid), {each.host: each for each in nodes}))
        self.replace('_nodes', read)

        [found, *_] = self.changes().values()

        self.assertEqual({1, 2}, set(sizes))
        self.assertEqual([each.uuid for each in nodes],
                         [each.uuid for each in found.nodes])
        self.assertEqual(self.cells[0].uuid, found.columns['cell'])
        self.assertEqual([0, 1, 2, 3, 4],
                         found.columns['total_usable_ram_mb'])

    def test_request_reads_a_cell_while_the_changes_of_many_are_read(self):
        begun, go_on = threading.Event(), threading.Event()

        def read(context, before, hardware):
            begun.set()
            assert go_on.wait(60)
            return context.cell_uuid

        self.replace('_changes', read)
        with futures.ThreadPoolExecutor(1) as pool:
            reading = pool.submit(self.changes)
            try:
                self.assertTrue(begun.wait(60))
                self.assertEqual(({'host1': 1}, []), cells.gathered(
                    self.context, self.cells[:1],
                    lambda context, host: {host: 1}, 'host1'))
            finally:
                go_on.set()
            self.assertEqual({each.uuid: each.uuid for each in self.cells},
                             reading.result(60))

    def test_cells_after_a_silent_cell_are_read_at_once(self):
        asked = []
        gather = nova_context.scatter_gather_cells

        def counted(context, some, *arguments):
            asked.append(len(some))
            return gather(context, some, *arguments)

        def read(context, before, hardware):
            if context.cell_uuid == self.cells[2].uuid:
                raise nova_exception.NovaException('the cell is away')
            return context.cell_uuid

        self.replace('_changes', read)
        self.replace('nova_context.scatter_gather_cells', counted)

        self.assertEqual({
            each.uuid: None if each is self.cells[2] else each.uuid
            for each in self.cells}, self.changes())
        self.assertEqual([2, 2, 8], asked)


class TestUsesLess(unittest.TestCase):

    def test_lower_usage_of_a_node_is_detected(self):
        before = cells.KnownNode.of(node())

        for less in ({'memory_mb_used': 0}, {'vcpus_used': 1},
                     {'local_gb_used': 0}, {'stats': '{}'}):
            now = cells.KnownNode.of(node(**less))
            self.assertTrue(cells.uses_less(now, before), less)
            self.assertFalse(cells.uses_less(before, now), less)
        self.assertFalse(cells.uses_less(before, before))
