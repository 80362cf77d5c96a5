# SPDX-License-Identifier: Apache-2.0
"""Files on a host that say what its nodes can do."""

import os
import textwrap

from cellsched.compute import provider_config
from cellsched import exception
from cellsched.objects import resources
from tests.unit import base

UUID = '0123ABCD-0000-4000-8000-00000000000f'
UUID_OTHER = '0123abcd-0000-4000-8000-000000000010'

HEAD = "meta:\n  schema_version: '1.0'\nproviders:\n"


def provider(name, *traits, kind='uuid'):
    return (f'- identification:\n    {kind}: {name}\n'
            f'  traits:\n    additional: [{", ".join(traits)}]\n')


def inventories(*said):
    return f'  inventories:\n    additional: [{", ".join(said)}]\n'


class TestProviderConfig(base.TestCase):

    def setUp(self):
        super().setUp()
        self.directory = self.temporary_directory()
        self.config = provider_config.ProviderConfig(str(self.directory))

    def write(self, text, name='a.yaml'):
        """Write a file; it counts as changed whatever the clock says."""
        path = self.directory / name
        path.write_text(text)
        self.written = getattr(self, 'written', 0) + 1
        os.utime(path, (self.written, self.written))

    def assertTraits(self, *traits, node='node1', uuid=UUID_OTHER):
        self.assertEqual(frozenset(traits), self.config.traits(node, uuid))

    def test_node_has_the_traits_of_its_entry(self):
        self.write(HEAD + provider('$COMPUTE_NODE', 'CUSTOM_ANY')
                   + provider('node2', 'CUSTOM_A', 'CUSTOM_B', kind='name'))
        self.write(HEAD + provider(UUID, 'CUSTOM_C'), 'b.yaml')
        self.write('no YAML: [', 'c.txt')

        self.config.load()

        self.assertTraits('CUSTOM_ANY')
        self.assertTraits('CUSTOM_A', 'CUSTOM_B', node='node2')
        self.assertTraits('CUSTOM_C', uuid=UUID.lower())
        self.assertTraits('CUSTOM_ANY', uuid=UUID.replace('A', 'B'))

    def test_child_has_the_content_of_its_entry(self):
        self.write(HEAD + provider('$COMPUTE_NODE', 'CUSTOM_ANY')
                   + provider('gpu0', 'CUSTOM_A', kind='name')
                   + inventories('{CUSTOM_X: {total: 4}}')
                   + provider(UUID, 'CUSTOM_B'))

        self.config.load()

        for name, uuid, traits, classes in (
                ('gpu0', UUID_OTHER, {'CUSTOM_A'}, {'CUSTOM_X'}),
                ('gpu1', UUID.lower(), {'CUSTOM_B'}, set()),
                ('gpu1', UUID_OTHER, set(), set())):
            self.assertEqual(
                traits, self.config.traits(name, uuid, is_node=False))
            self.assertEqual(classes, self.config.inventories(
                name, uuid, is_node=False).keys())

    def test_entry_without_a_provider_is_logged_once(self):
        self.write(HEAD + provider('$COMPUTE_NODE', 'CUSTOM_ANY')
                   + provider('node1', kind='name')
                   + provider('gpu\u00e9', kind='name') + provider(UUID))
        self.config.load()
        for _ in range(2):
            self.config.note_idle({'node1', UUID.lower()})

        [line] = self.logs.output.splitlines()
        self.assertIn("1 entries name no node of this host", line)
        self.assertIn("ignored: 'gpu\\xe9'", line)
        self.config.note_idle({'node1'})
        _, line = self.logs.output.splitlines()
        self.assertIn(f"ignored: '{UUID.lower()}'", line)

        self.config.note_idle({'gpu\u00e9', 'node1', UUID.lower()})
        self.assertEqual(2, len(self.logs.output.splitlines()))
        self.config.note_idle({'node1', UUID.lower()})
        self.assertEqual(3, len(self.logs.output.splitlines()))

    def test_line_of_the_log_names_a_few_entries(self):
        self.write(HEAD + ''.join(
            provider(f'n{number:02}', kind='name') for number in range(12)))
        self.config.load()

        self.config.note_idle(set())

        [line] = self.logs.output.splitlines()
        self.assertIn('12 entries', line)
        self.assertIn("'n09'", line)
        self.assertNotIn("'n10'", line)

    def test_missing_files_set_no_traits(self):
        for location in (None, str(self.directory),
                         str(self.directory / 'none')):
            self.config = provider_config.ProviderConfig(location)
            self.config.load()
            self.config.follow()
            self.assertTraits()
        self.assertEqual('', self.logs.output)

    def test_changed_files_are_read_again(self):
        self.config.load()
        for text, traits in (
                (provider('$COMPUTE_NODE', 'CUSTOM_A'), ['CUSTOM_A']),
                (provider('$COMPUTE_NODE', 'CUSTOM_B'), ['CUSTOM_B'])):
            self.write(HEAD + text)
            self.config.follow()
            self.assertTraits(*traits)

        (self.directory / 'a.yaml').unlink()
        self.config.follow()
        self.assertTraits()

    def test_invalid_file_keeps_the_earlier_configuration(self):
        self.write(HEAD + provider('$COMPUTE_NODE', 'CUSTOM_A'))
        self.config.load()

        self.write(HEAD + provider('$COMPUTE_NODE', 'lower'))
        for _ in range(3):
            self.config.follow()

        self.assertTraits('CUSTOM_A')
        [line] = self.logs.output.splitlines()
        self.assertIn('a.yaml: providers[0].traits.additional[0]', line)
        self.assertIn('the earlier configuration stays in force', line)

        self.write(HEAD + provider('$COMPUTE_NODE', 'CUSTOM_B'))
        self.config.follow()
        self.assertTraits('CUSTOM_B')

    def test_link_to_a_missing_file_keeps_the_earlier_configuration(self):
        self.write(HEAD + provider('$COMPUTE_NODE', 'CUSTOM_A'))
        self.config.load()

        (self.directory / 'b.yaml').symlink_to(self.directory / 'missing')
        for _ in range(3):
            self.config.follow()

        self.assertTraits('CUSTOM_A')
        [line] = self.logs.output.splitlines()
        self.assertIn('b.yaml: document: the file cannot be read', line)

    def test_pipe_keeps_the_earlier_configuration(self):
        self.write(HEAD + provider('$COMPUTE_NODE', 'CUSTOM_A'))
        self.config.load()

        os.mkfifo(self.directory / 'b.yaml')
        self.config.follow()

        self.assertTraits('CUSTOM_A')
        self.assertIn('b.yaml: document: it is a pipe', self.logs.output)

    def test_missing_directory_keeps_the_earlier_configuration(self):
        self.write(HEAD + provider('$COMPUTE_NODE', 'CUSTOM_A'))
        self.config.load()
        other = self.directory.with_name(f'{self.directory.name}-other')
        for _ in range(2):
            self.directory.rename(other)
            for _ in range(3):
                self.config.follow()
            self.assertTraits('CUSTOM_A')
            other.rename(self.directory)
            self.config.follow()

        self.assertEqual(2, self.logs.output.count('No such file'))

    def assertRefused(self, field, expected, text):
        self.write(textwrap.dedent(text))
        with self.subTest(text=text):
            error = self.assertRaises(
                exception.InvalidField, self.config.load)
            self.assertEqual(
                (str(self.directory / 'a.yaml'), field),
                (error.where, error.field))
            self.assertIn(expected, error.detail)
            self.assertNotIn('\n', str(error))

    def test_bad_file_is_refused_by_field_and_bound(self):
        for field, expected, text in (
                ('line 1', 'YAML', 'a: ['),
                ('document', 'a mapping with meta', ''),
                ('meta', 'a mapping with schema_version', 'providers: []'),
                ('meta.schema_version', "'1.0', in quotes", 'meta: {}'),
                ('meta.schema_version', "'1.0', in quotes",
                 'meta: {schema_version: 1.0}'),
                ('meta.schema_version', "'1.0'",
                 "meta: {schema_version: '2.0'}"),
                ('providers', 'at most 1000 providers',
                 "meta: {schema_version: '1.0'}\nproviders: 5"),
                ('providers', 'at most 1000 providers',
                 HEAD + '- {}\n' * 1001),
                ('providers[0].identification', 'either uuid or name',
                 HEAD + '- {}'),
                ('providers[0].identification', 'either uuid or name',
                 HEAD + '- identification: {}'),
                ('providers[0].identification', 'either uuid or name',
                 HEAD + '- identification: {id: 5}'),
                ('providers[0].identification.uuid', 'a uuid or $COMPUTE',
                 HEAD + provider('nonsense')),
                ('providers[0].identification.name', '1 to 200 characters',
                 HEAD + provider('x' * 201, kind='name')),
                ('providers[0].traits.additional[1]', 'CUSTOM_ and 1 to 248',
                 HEAD + provider('n', 'CUSTOM_A', 'HW_B', kind='name')),
                ('providers[0].traits.additional[0]', 'CUSTOM_ and 1 to 248',
                 HEAD + provider('n', 'CUSTOM_' + 'A' * 249, kind='name')),
                ('providers[1].identification', 'n is repeated',
                 HEAD + provider('n', kind='name') * 2)):
            self.assertRefused(field, expected, text)

    def test_unreadable_directory_is_refused(self):
        path = self.directory / 'file'
        path.write_text('')

        error = self.assertRaises(
            exception.InvalidField,
            provider_config.ProviderConfig(str(path)).load)

        self.assertEqual(str(path), error.where)
        self.assertIn('a readable directory', error.detail)

    def test_newer_schema_version_is_logged(self):
        self.write(HEAD.replace('1.0', '1.7') + provider(
            '$COMPUTE_NODE', 'CUSTOM_A'))

        self.config.load()

        self.assertTraits('CUSTOM_A')
        self.assertIn('schema_version 1.7 is newer than 1.0',
                      self.logs.output)

    def test_node_has_the_inventories_of_its_entry(self):
        self.write(HEAD + provider('$COMPUTE_NODE') + inventories(
            '{CUSTOM_A: {total: 4}}') + provider('node2', kind='name')
            + inventories(
                '{CUSTOM_B: {total: 9, reserved: 1, min_unit: 2, '
                'max_unit: 8, step_size: 2, allocation_ratio: 1.5}, '
                'CUSTOM_C: {total: 1}}', '{CUSTOM_D: {total: 2}}')
            + provider('node3', 'CUSTOM_T', kind='name'))

        self.config.load()

        self.assertEqual(
            {'CUSTOM_A': resources.Inventory(4, max_unit=4)},
            self.config.inventories('node1', UUID_OTHER))
        self.assertEqual(
            {'CUSTOM_B': resources.Inventory(9, 1, 1.5, 2, 8, 2),
             'CUSTOM_C': resources.Inventory(1, max_unit=1),
             'CUSTOM_D': resources.Inventory(2, max_unit=2)},
            self.config.inventories('node2', UUID))
        self.assertEqual({}, self.config.inventories('node3', UUID_OTHER))

    def test_node_has_the_hardware_of_its_entry(self):
        self.write(HEAD + provider('$COMPUTE_NODE') + (
            '  hardware:\n'
            '    cells: [{id: 0, memory_mb: 64, cpus: 0-3}]\n'
            "    devices: [{vendor_id: '8086', product_id: '154c', "
            'count: 2, numa_node: 0}]\n')
            + provider('node2', kind='name'))

        self.config.load()

        found = self.config.hardware('node1', UUID_OTHER)
        [cell], [pool] = found.topology.cells, found.devices
        self.assertEqual(
            ({0, 1, 2, 3}, 2, 0), (cell.cpus, pool.count, pool.numa_node))
        self.assertEqual(
            (None, ()), self.config.hardware('node2', UUID_OTHER))

    def test_bad_hardware_is_refused_by_field_and_bound(self):
        for field, expected, text in (
                ('', 'one of cells, devices', '{cell: []}'),
                ('.cells[0].cpus', 'numbers of CPUs up to 9999',
                 '{cells: [{id: 0, memory_mb: 1, cpus: many}]}'),
                ('.cells[0].dedicated', 'each CPU for one use',
                 '{cells: [{id: 0, memory_mb: 1, cpus: 1, dedicated: 0-1}]}')):
            self.assertRefused(
                f'providers[1].hardware{field}', expected,
                HEAD + provider('node2', kind='name')
                + provider('$COMPUTE_NODE') + f'  hardware: {text}\n')

    def test_invalid_hardware_keeps_the_earlier_cells(self):
        for memory in 64, -1:
            self.write(HEAD + provider('$COMPUTE_NODE') + (
                '  hardware: {cells: [{id: 0, cpus: 0-3, '
                f'memory_mb: {memory}}}]}}\n'))
            self.config.follow()

        self.assertIn(
            'hardware.cells[0].memory_mb: -1 is out of range',
            self.logs.output)
        [cell] = self.config.hardware('node1', UUID_OTHER).topology.cells
        self.assertEqual(64, cell.memory_mb)

    def test_bad_inventory_is_refused_by_field_and_bound(self):
        for field, expected, *said in (
                ('', 'at most 1000 mappings', *['{}'] * 1001),
                ('[0]', 'inventories by their resource classes',
                 '{VCPU: {total: 1}}'),
                ('[0]', 'inventories by their resource classes',
                 '{custom_x: {total: 1}}'),
                ('[0].CUSTOM_X.total', 'from 1 to', '{CUSTOM_X: {}}'),
                ('[0].CUSTOM_X', 'a mapping with total',
                 '{CUSTOM_X: {total: 1, totla: 1}}'),
                ('[0].CUSTOM_X.total', 'from 1 to 2147483647',
                 '{CUSTOM_X: {total: 0}}'),
                ('[0].CUSTOM_X.total', 'from 1 to 2147483647',
                 '{CUSTOM_X: {total: 2147483648}}'),
                ('[0].CUSTOM_X.reserved', 'from 0 to 2147483647',
                 '{CUSTOM_X: {total: 1, reserved: -1}}'),
                ('[0].CUSTOM_X.step_size', 'from 1 to',
                 '{CUSTOM_X: {total: 1, step_size: 0}}'),
                ('[0].CUSTOM_X.allocation_ratio', 'above 0',
                 '{CUSTOM_X: {total: 1, allocation_ratio: 0}}'),
                ('[0]', 'hardware for the CPUs',
                 '{CUSTOM_PCPU_1: {total: 1}}'),
                ('[1]', 'CUSTOM_X is repeated',
                 '{CUSTOM_X: {total: 1}}', '{CUSTOM_X: {total: 1}}')):
            self.assertRefused(
                f'providers[0].inventories.additional{field}', expected,
                HEAD + provider('$COMPUTE_NODE') + inventories(*said))
