# SPDX-License-Identifier: Apache-2.0
import unittest

from cellsched import exception
from cellsched.hardware import description
from cellsched.hardware.host import Pages


def _cell(**fields):
    return {'id': 0, 'memory_mb': 64, **fields}


def _device(**fields):
    return {'vendor_id': '8086', 'product_id': '154c', 'count': 2, **fields}


class ReadTest(unittest.TestCase):
    def test_cells_have_their_fields(self):
        first, second = description.read('file', {'cells': [
            _cell(cpus='0-1,8', dedicated='2-5', siblings=[
                [0, 1], [2, 3, 4], [5], [8]], socket=1,
                pages=[{'size_kb': 4, 'total': 9, 'reserved': 2}],
                physnets=['a'], tunneled=True),
            _cell(id=3, cpus=6)]}).topology.cells
        self.assertEqual(
            (0, {0, 1, 8}, {2, 3, 4, 5}, 64, 1, {'a'}, True),
            (first.id, first.cpus, first.pcpus, first.memory_mb, first.socket,
             first.physnets, first.tunneled))
        self.assertEqual(({0, 1}, {2, 3, 4}, {5}, {8}), first.siblings)
        self.assertEqual((Pages(4, 9, reserved=2),), first.pages)
        self.assertEqual(
            (3, {6}, frozenset(), (), ({6},), None, None, False),
            (second.id, second.cpus, second.pcpus, second.pages,
             second.siblings, second.socket, second.physnets,
             second.tunneled))

    def test_threads_of_cores_are_numbered_as_by_linux(self):
        [cell] = description.read('file', {'cells': [_cell(
            cpus='0,4', dedicated='1,5', siblings=2)]}).topology.cells
        self.assertEqual(({0, 4}, {1, 5}), cell.siblings)

    def test_devices_are_pools(self):
        pools = description.read('file', {'devices': [
            _device(numa_node=1, dev_type='type-VF', tags={'a': 'b'}),
            _device(numa_node=None, tags={'physical_network': None})
        ]}).devices
        self.assertEqual([
            (2, {'numa_node': None, 'vendor_id': '8086', 'product_id': '154c',
                 'dev_type': 'type-PCI'}),
            (2, {'numa_node': 1, 'vendor_id': '8086', 'product_id': '154c',
                 'dev_type': 'type-VF', 'a': 'b'})],
            [(pool.count, pool.values) for pool in pools])

    def test_tags_of_yes_and_no_are_read_as_by_nova(self):
        [pool] = description.read('file', {'devices': [_device(
            count=1, tags={'managed': 'No', 'one_time_use': '1',
                           'live_migratable': 'yes', 'trusted': True,
                           'remote_managed': 'no', 'a': 'Yes'})]}).devices
        self.assertEqual(
            ('false', 'true', 'true', 'true', 'false', 'Yes'), tuple(map(
                pool.values.get,
                ('managed', 'one_time_use', 'live_migratable', 'trusted',
                 'remote_managed', 'a'))))
        self.assertTrue(pool.is_one_time)

    def test_empty_description_is_a_host_without_cells_and_devices(self):
        for value in {}, {'cells': [], 'devices': []}:
            self.assertEqual(
                description.Hardware(), description.read('file', value))

    def assertRefused(self, *cases):
        for field, expected, value in cases:
            with self.subTest(value):
                with self.assertRaises(exception.InvalidField) as caught:
                    description.read('file', value)
                self.assertEqual(
                    ('file', field),
                    (caught.exception.where, caught.exception.field))
                self.assertIn(expected, caught.exception.detail)

    def test_error_of_cells_names_the_field_and_the_expectation(self):
        cpus = 'numbers of CPUs up to 9999, such as 0-3,8'
        self.assertRefused(
            ('document', 'one of cells, devices', {'cell': []}),
            ('cells', 'a list of 0 to 128 items', {'cells': {}}),
            ('cells[0].memory_mb', 'a whole number from 0',
             {'cells': [{'id': 0}]}),
            ('cells[0]', 'one of id, memory_mb',
             {'cells': [_cell(memory=1)]}),
            ('cells[0].cpus', cpus, {'cells': [_cell(cpus='0-')]}),
            ('cells[0].cpus', cpus, {'cells': [_cell(cpus='3-0')]}),
            ('cells[0].cpus', cpus, {'cells': [_cell(cpus='0-10000')]}),
            ('cells[0].cpus', cpus, {'cells': [_cell(cpus=10000)]}),
            ('cells[0].dedicated', 'each CPU for one use',
             {'cells': [_cell(cpus='0-1', dedicated='1-2')]}),
            ('cells[1]', 'each CPU in one cell',
             {'cells': [_cell(cpus='0-1'), _cell(id=1, dedicated=1)]}),
            ('cells[1].id', 'each cell once',
             {'cells': [_cell(), _cell()]}),
            ('cells[0].siblings', 'a divisor of the number of CPUs',
             {'cells': [_cell(cpus='0-2', siblings=2)]}),
            ('cells[0].siblings', 'each CPU of the cell in one core',
             {'cells': [_cell(cpus='0-2', siblings=[[0, 1]])]}),
            ('cells[0].siblings', 'each CPU of the cell in one core',
             {'cells': [_cell(cpus='0-1', siblings=[[0, 1], [1]])]}),
            ('cells[0].siblings', 'the number of threads of a core',
             {'cells': [_cell(cpus='0-1', siblings=0)]}),
            ('cells[0].siblings[0]', 'a list of the CPUs of a core',
             {'cells': [_cell(cpus='0-1', siblings=[[]])]}),
            ('cells[0].pages', 'each size once', {'cells': [_cell(
                pages=[{'size_kb': 4, 'total': 1}] * 2)]}),
            ('cells[0].pages[0].total', 'a whole number from 0',
             {'cells': [_cell(pages=[{'size_kb': 4}])]}),
            ('cells[0].pages[0].total', '3 is out of range; expected 0 to 2',
             {'cells': [_cell(memory_mb=2, pages=[
                 {'size_kb': 1024, 'total': 3}])]}),
            ('cells[0].pages[0].reserved', '3 is out of range; expected '
             '0 to 2', {'cells': [_cell(pages=[
                 {'size_kb': 4, 'total': 2, 'reserved': 3}])]}))

    def test_error_of_devices_names_the_field_and_the_expectation(self):
        self.assertRefused(
            ('devices[0].vendor_id', 'four hexadecimal digits, in quotes',
             {'devices': [_device(vendor_id=8086)]}),
            ('devices[0].dev_type', 'one of type-PCI, type-PF',
             {'devices': [_device(dev_type='type-XY')]}),
            ('devices[0].tags.a', 'text',
             {'devices': [_device(tags={'a': 7})]}),
            ('devices[0].tags.a', 'text',
             {'devices': [_device(tags={'a': ''})]}),
            ('devices[0].tags.a', 'text',
             {'devices': [_device(tags={'a': True})]}),
            ('devices[0].count', 'has its own entry',
             {'devices': [_device(tags={'address': '0000:81:00.0'})]}),
            ('devices[1].tags.address', 'each address once',
             {'devices': [_device(count=1, tags={
                 'address': '0000:81:00.0', **more})
                 for more in ({}, {'a': 'b'})]}),
            ('devices[0].tags.numa_node', 'numa_node beside tags',
             {'devices': [_device(tags={'numa_node': '1'})]}),
            ('devices[0].tags.managed', 'yes or no',
             {'devices': [_device(tags={'managed': 'maybe'})]}),
            ('devices[0].tags.one_time_use',
             'devices of type-PCI or type-PF',
             {'devices': [_device(dev_type='type-VF', tags={
                 'one_time_use': 'no'})]}),
            ('devices[0].count', 'has its own entry',
             {'devices': [_device(tags={'one_time_use': 'yes'})]}),
            ('devices[0].numa_node', 'the id of a cell',
             {'cells': [_cell()], 'devices': [_device(numa_node=1)]}),
            ('devices[1]', 'each kind of device once in a cell',
             {'devices': [_device(), _device(count=1)]}))

    def test_field_of_a_larger_document_is_named(self):
        for value, field in (
                ({'cells': [_cell(), _cell()]}, 'providers[0].cells[1].id'),
                ({'cells': 7}, 'providers[0].cells')):
            with self.assertRaises(exception.InvalidField) as caught:
                description.read('file', value, 'providers[0]')
            self.assertEqual(field, caught.exception.field)
