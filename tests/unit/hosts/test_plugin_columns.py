# SPDX-License-Identifier: Apache-2.0
"""Columns that are filled from what agents report."""

import json

import hypothesis
from hypothesis import strategies

from cellsched import exception
from cellsched.hosts import columns
from cellsched.hosts import document
from cellsched.hosts import plugin_columns
from cellsched.testing import builders
from tests import broken_packages
from tests import profile
from tests.unit import base
from tests.unit import installing

KINDS = {
    'bool': False, 'int8': 0, 'uint16': 0, 'int64': 0, 'float16': 0.0,
    'float32': 0.0, 'float64': 0.0, 'object': None, columns.WHOLE: 0,
    columns.CODED: ''}

VALUES = strategies.recursive(
    strategies.none() | strategies.booleans() | strategies.integers()
    | strategies.floats() | strategies.text() | strategies.sampled_from([
        '1', '-1', '127', '128', '65504', '65505', 'true', 'no', 'inf', 'nan',
        '1_0', 2 ** 53, 2 ** 53 + 1, -2 ** 53, -2 ** 53 - 1, 1e300, '\ud800']),
    lambda inner: strategies.lists(inner, max_size=3)
    | strategies.dictionaries(strategies.text(), inner, max_size=3),
    max_leaves=5)


def column(dtype='float64', default=0.0, source='stats.x'):
    return columns.Column('mine', dtype, default, 'mine', source)


def read(dtype, *values):
    return plugin_columns.filled(
        [column(dtype, KINDS[dtype])],
        {'stats': [{'x': value} for value in values]})['mine']


class TestFilled(base.TestCase):

    def test_numbers_are_read_from_texts(self):
        self.assertEqual([1.5, 2.0, 3.25, 1.0],
                         read('float64', 1.5, 2, '3.25', True))
        self.assertEqual([1, 2, 3], read(columns.WHOLE, 1.7, 2, '3'))

    def test_numbers_are_within_the_range_of_the_type(self):
        self.assertEqual([127, 0, -128, 0],
                         read('int8', 127, 128, -128, -129))
        self.assertEqual([65535, 0, 0], read('uint16', 65535, 65536, -1))
        self.assertEqual([65504.0, 0.0], read('float16', 65504, 65505))
        for kind in 'int64', 'float64', columns.WHOLE:
            self.assertEqual([2 ** 53, 0, -2 ** 53, 0], read(
                kind, 2 ** 53, 2 ** 53 + 2, -2 ** 53, -2 ** 53 - 2))

    def test_booleans_are_read_from_texts(self):
        self.assertEqual([True, False, True, True, False],
                         read('bool', True, False, 'yes', 1, 'maybe'))
        self.assertEqual([True, False], plugin_columns.filled(
            [column('bool', True)],
            {'stats': [{'x': 'maybe'}, {'x': 'no'}]})['mine'])

    def test_texts_can_be_shown(self):
        for kind, default in ('object', None), (columns.CODED, ''):
            self.assertEqual(
                ['r1', default, default, default],
                read(kind, 'r1', 'r\n', 7, 'x' * 256))

    @hypothesis.given(strategies.lists(VALUES, min_size=1, max_size=5),
                      strategies.sampled_from(sorted(KINDS)))
    @profile.many_examples
    def test_every_valid_value_fits_a_table_and_a_snapshot(self, said, kind):
        # An agent's report is JSON.
        said = json.loads(json.dumps(said))
        extra = [column(kind, KINDS[kind])]

        made = builders.table(columns=extra, mine=read(kind, *said))
        text = json.dumps(document.dump(document.HostDocument(
            made, builders.NOW, {})))

        again = document.load(document.parse(text), extra).table
        self.assertEqual(made['mine'].tolist(), again['mine'].tolist())


class TestCheck(base.TestCase):

    def check(self, *args):
        return plugin_columns.check_columns('its plug-in', [column(*args)])

    def test_column_of_each_kind_may_have_a_source(self):
        for kind, default in KINDS.items():
            for source in ('stats.x', 'metrics.a.b c', 'traits.HW_X', None):
                [found] = self.check(kind, default, source)
                self.assertEqual(source, found.source)

    def test_source_of_another_form_is_refused(self):
        for bad in ('', 'x', 'stats', 'stats.', '.x', 'cpu.x', 'Stats.x', 7,
                    'stats.' + 'x' * 256, 'stats.a\n'):
            error = self.assertRaises(
                exception.ConfigurationInvalid, self.check, 'bool', False,
                bad)
            self.assertEqual(
                'the source of column mine is not valid; expected one of '
                'stats.NAME, metrics.NAME, traits.NAME', error.detail)

    def test_column_of_an_unsupported_type_is_refused(self):
        for kind, default in ((columns.CODED, ()), ('nonsense', 0),
                              ('datetime64[s]', 0), ('complex128', 0)):
            error = self.assertRaises(
                exception.ConfigurationInvalid, self.check, kind, default)
            self.assertIn('column mine has a source, and its type is not '
                          'supported', error.detail)


class TestLoad(base.TestCase):

    def names(self):
        return {column.name for column in plugin_columns.load()}

    def test_columns_of_installed_packages_are_loaded(self):
        self.useFixture(installing.Installed(broken_packages.write_working))

        self.assertEqual(
            {'gpus', *(column.name for column in columns.STANDARD)},
            self.names())

    def test_broken_column_plugins_are_skipped_and_logged(self):
        self.useFixture(installing.Installed(broken_packages.write_broken))

        self.assertEqual({column.name for column in columns.STANDARD},
                         self.names())
        self.assertIn('cellsched.hosts.columns leaving: ', self.logs.output)
        self.assertIn('cellsched.hosts.columns odd: ', self.logs.output)

    def test_column_of_every_table_is_not_for_plugins(self):
        for name in 'free_ram_mb', 'cell_failures':
            error = self.assertRaises(
                exception.ConfigurationInvalid,
                plugin_columns.check_columns, 'it',
                [columns.Column(name, 'object', '', 'text')])

            self.assertIn(name, str(error))
        self.assertEqual([*columns.STANDARD], plugin_columns.check_columns(
            'it', columns.STANDARD))
