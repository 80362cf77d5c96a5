# SPDX-License-Identifier: Apache-2.0
"""Reading a YAML document that somebody wrote."""

from cellsched import exception
from cellsched.validation import yaml_file
from tests.unit import base


class TestRead(base.TestCase):

    def setUp(self):
        super().setUp()
        self.path = self.temporary_directory() / 'document.yaml'

    def read(self, text):
        self.path.write_bytes(text if isinstance(text, bytes)
                              else text.encode())
        return yaml_file.read(self.path)

    def assertRefused(self, text, field, *words):
        error = self.assertRaises(exception.InvalidField, self.read, text)

        self.assertEqual((str(self.path), field), (error.where, error.field))
        for word in words:
            self.assertIn(word, error.detail)
        self.assertEqual(1, len(str(error).splitlines()))

    def test_document_is_plain_data(self):
        self.assertEqual(
            {'a': [1, 2.5, True, None, 'x'], 'b': {'c': {}}},
            self.read('a: [1, 2.5, true, ~, x]\nb: {c: {}}'))

    def test_aliases_and_merges_are_read(self):
        self.assertEqual(
            {'base': {'x': 1, 'y': 2}, 'more': {'x': 3, 'y': 2},
             'same': {'x': 1, 'y': 2}},
            self.read('base: &base {x: 1, y: 2}\n'
                      'more: {<<: *base, x: 3}\n'
                      'same: *base\n'))

    def test_unreadable_file_is_named(self):
        error = self.assertRaises(
            exception.InvalidField, yaml_file.read, self.path)
        self.assertIn('No such file', str(error))
        self.assertRaisesRegex(
            exception.InvalidField, 'Is a directory', yaml_file.read,
            self.path.parent)

    def test_binary_file_is_refused(self):
        self.assertRefused(b'\xff\xfe\0', 'document', 'UTF-8')
        self.assertRefused('a: é'.encode('latin-1'), 'document', 'UTF-8')
        self.assertRefused(b'a: \x07', 'document', 'YAML')

    def test_invalid_yaml_is_refused_with_its_line(self):
        self.assertRefused('a: 1\nb: [1', 'line 2', 'YAML')
        self.assertRefused('a: 1\n\tb: 2', 'line 2', 'YAML')
        self.assertRefused('a: *nothing', 'line 1', 'nothing')
        self.assertRefused('a: 1\n---\nb: 2', 'line 2', 'document')

    def test_unconvertible_values_are_refused_with_their_line(self):
        self.assertRefused('a: 1\nb: ' + '9' * 5000, 'line 2', 'limit')
        self.assertRefused('a: 2024-99-99', 'line 1', 'month')
        self.assertRefused('a: !!python/name:os.system', 'line 1', 'tag')
        self.assertRefused('? [a]\n: 1', 'line 1', 'unhashable')

    def test_value_of_another_type_than_its_tag_is_refused(self):
        for value in ('!!timestamp abc', '!!bool abc', '!!int ""',
                      '!!float ""', '!!map [a]', '? !!timestamp x\n: 1'):
            self.assertRefused(f'---\n{value}', 'line 2')

    def test_repeated_key_is_refused(self):
        self.assertRefused('a: 1\nb: 2\na: 3', 'line 3', "'a'", 'twice')
        self.assertRefused('x: [{a: 1, a: 2}]', 'line 1', "'a'", 'twice')

    def test_depth_has_a_bound(self):
        deep = yaml_file.DEPTH_MAX - 1
        self.assertEqual(deep, str(self.read('[' * deep + ']' * deep))
                         .count('['))

        for depth in deep + 2, 100_000:
            self.assertRefused('[' * depth + ']' * depth, 'line 1', 'deeper')

    def test_values_have_a_bound(self):
        """Nine lines would say a thousand million values."""
        lines = ['a0: &a0 [x, x, x, x, x, x, x, x, x, x]']
        for number in range(1, 9):
            several = ', '.join([f'*a{number - 1}'] * 10)
            lines.append(f'a{number}: &a{number} [{several}]')

        self.assertRefused('\n'.join(lines), 'line 6', 'more than')
        self.assertEqual(5, len(self.read('\n'.join(lines[:5]))))

    def test_recursive_alias_is_refused(self):
        self.assertRefused('a: &a [*a]', 'line 1', 'within itself')
        self.assertRefused('a: &a {b: [1, {c: *a}]}', 'line 1',
                           'within itself')
