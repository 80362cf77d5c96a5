# SPDX-License-Identifier: Apache-2.0
"""Fields of a snapshot, which may be anything that JSON can say."""

import copy
import json

import hypothesis
from hypothesis import strategies as st

from cellsched import exception
from cellsched.hosts import columns
from cellsched.hosts.document import dump
from cellsched.hosts.document import HostDocument
from cellsched.hosts.document import load
from cellsched.hosts import snapshot_schema
from cellsched.testing import builders
from tests.unit import base

NAN, INFINITY = float('nan'), float('inf')

#: Anything that Python reads from JSON, and that it writes as it.
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text()
    | st.sampled_from([10 ** 400, -1, 2 ** 53 + 1, '\ud800', 'x' * 300]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
        st.text(max_size=3) | st.sampled_from(['values', 'codes', 'uuid']),
        inner, max_size=4), max_leaves=8)

#: What can be claimed, and a column of each kind and default.
KINDS = [None, *(
    columns.Column('name', kind, default, '') for kind, default in (
        ('bool', False), ('float64', 0.0), ('object', ''),
        (columns.WHOLE, 0), (columns.CODED, ''), (columns.CODED, ()),
        (columns.CODED, frozenset()), (columns.CODED, None),
        ('object', None)))]

CODED = columns.Column('name', columns.CODED, None, '')

GOOD = dump(HostDocument(
    builders.table(2, aggregates=[(builders.aggregate(a='b'),), ()]),
    builders.NOW, {builders.CELL: 'north'}, ['south']))


def places(document, path=()):
    """Return the path of everything in a document."""
    found = [path] if path else []
    if isinstance(document, (dict, list)):
        for key in (document if isinstance(document, dict)
                    else range(len(document))):
            found += places(document[key], (*path, key))
    return found


class ReadingTestCase(base.TestCase):

    def assertRefused(self, field, function, *args):
        error = self.assertRaises(exception.InvalidField, function, *args)
        self.assertEqual(('snapshot', field), (error.where, error.field))
        self.assertLess(len(str(error)), 400)
        return error


class TestValues(ReadingTestCase):

    def test_text_has_a_length(self):
        for good in ('a', 'x' * 255, 'é'):
            self.assertEqual(good, snapshot_schema.text('f', good))
        self.assertEqual('', snapshot_schema.text('f', '', least=0))
        self.assertEqual('x' * 300, snapshot_schema.text('f', 'x' * 300, 300))
        for bad in ('', 'x' * 256, None, 5, b'a', ['a'], {}):
            self.assertRefused('f', snapshot_schema.text, 'f', bad)

    def test_text_can_be_written(self):
        self.assertRefused('f', snapshot_schema.text, 'f', 'a\ud800')

    def test_name_can_be_shown(self):
        self.assertEqual('é 1', snapshot_schema.shown('f', 'é 1'))
        for bad in ('', 'a\nb', '\x1b[2J', 'a\u202eb', 5, '\ud800'):
            self.assertRefused('f', snapshot_schema.shown, 'f', bad)

    def test_number_is_finite_and_between_bounds(self):
        for good in (0, 5, 9.5, 10):
            self.assertEqual(good, snapshot_schema.number('f', good, 0, 10))
        for bad in (-1, 10.1, NAN, INFINITY, 10 ** 400, True, '5', None, []):
            self.assertRefused('f', snapshot_schema.number, 'f', bad, 0, 10)

    def test_list_has_a_length(self):
        self.assertEqual([(0, 'a'), (1, 'b')],
                         snapshot_schema.items('f', ['a', 'b'], 2))
        for bad in (['a', 'b', 'c'], None, 'ab', {0: 'a'}, 5):
            self.assertRefused('f', snapshot_schema.items, 'f', bad, 2)

    def test_keys_are_needed_or_known(self):
        snapshot_schema.check_keys({'a': 1}, 'f', {'a', 'b'}, {'a'})
        snapshot_schema.check_keys({'a': 1, 'c': 1}, 'f', None, {'a'})
        self.assertRefused(
            'f.a', snapshot_schema.check_keys, {'b': 1}, 'f', {'a', 'b'},
            {'a'})
        self.assertRefused(
            'f', snapshot_schema.check_keys, {'a': 1, 'c': 1}, 'f', {'a'},
            set())
        self.assertRefused(
            'document', snapshot_schema.check_keys, [], '', None, set())
        self.assertRefused(
            'f', snapshot_schema.check_keys, {'x' * 10_000_000: 1}, 'f',
            set(), set())

    def test_room_is_named_like_a_resource_class(self):
        snapshot_schema.check_available('available:CUSTOM_GPU', 1, 1)
        self.assertRefused(
            'columns', snapshot_schema.check_available,
            'available:CUSTOM_GPU', 2, 1)
        for bad in ('available:', 'available:a', 'available:A-B',
                    'Available:A', 'available:A\n', 'available:' + 'A' * 256,
                    'x' * 10_000_000):
            self.assertRefused(
                'columns', snapshot_schema.check_available, bad, 1, 1)


class TestColumns(ReadingTestCase):

    def read(self, given, spec, count=2):
        return snapshot_schema.column('f', given, spec, count)

    def coded(self, values, codes, count=2):
        return self.read({'values': values, 'codes': codes}, CODED, count)

    def test_each_kind_is_read(self):
        read = {spec.default if spec else None: spec for spec in KINDS}
        self.assertEqual([True, False], self.read([True, False], KINDS[1]))
        self.assertEqual([0.5, 1], list(self.read([0.5, 1], KINDS[2])))
        self.assertEqual(['', 'b'], self.read(['', 'b'], KINDS[3]))
        self.assertEqual([-1, 2 ** 53], list(
            self.read([-1, 2 ** 53], KINDS[4])))
        self.assertEqual(['b', 'a'], self.read(
            {'values': ['a', 'b'], 'codes': [1, 0]}, read['']))
        self.assertEqual([frozenset({'x'})] * 2, self.read(
            {'values': [['x', 'x']], 'codes': [0, 0]}, read[frozenset()]))
        self.assertEqual([(1, (2.5, 'x'))] * 2, self.coded(
            [[1, [2.5, 'x']]], [0, 0]))

    def test_no_host_has_no_value(self):
        for spec in KINDS[:5]:
            self.assertEqual([], list(self.read([], spec, 0)))
        self.assertEqual([], self.coded([], [], 0))

    def test_room_is_whole(self):
        self.assertEqual([1, 2], list(self.read([1, 2.0], None)))
        self.assertRefused('f', self.read, [1, 2.5], None)

    def test_names_of_hosts_can_be_shown(self):
        self.assertRefused('f[1]', self.read, ['a', '\x1b[2J'], KINDS[3])

    def test_text_may_be_absent_where_that_is_the_default(self):
        self.assertEqual([None, 'a'], self.read([None, 'a'], KINDS[-1]))
        self.assertRefused('f[0]', self.read, [None, 'a'], KINDS[3])
        self.assertRefused('f[1]', self.read, ['a', 5], KINDS[-1])

    def test_codes_are_places(self):
        for codes in ([0, 1], [-1, 0], [0, 0.5], [0, 2 ** 60], [0, NAN]):
            self.assertRefused('f.codes', self.coded, ['a'], codes)
        self.assertRefused('f.codes[1]', self.coded, ['a'], [0, True])
        self.assertRefused('f.values', self.coded, ['a'] * 3, [0, 0])

    def test_coded_values_can_be_kept(self):
        deep = []
        for _ in range(6):
            deep = [deep]
        for bad in ({}, [{}], NAN, INFINITY, deep, ['x'] * 10_000,
                    'x' * 65_537, '\ud800'):
            self.assertRefused('f.values[0]', self.coded, [bad], [0, 0])
        for good in (None, True, 10 ** 400, 'x' * 65_536, ['x'] * 9_999,
                     deep[0]):
            self.coded([good], [0, 0])

    @hypothesis.given(ANYTHING | st.lists(ANYTHING, min_size=2, max_size=2)
                      | st.fixed_dictionaries({
                          'values': st.lists(ANYTHING, max_size=3),
                          'codes': st.lists(ANYTHING, max_size=3)}),
                      st.sampled_from(KINDS))
    def test_anything_is_two_values_or_refused(self, given, spec):
        try:
            found = list(self.read(given, spec))
        except exception.InvalidField as error:
            self.assertTrue(error.field.startswith('f'))
            self.assertLess(len(str(error)), 400)
        else:
            self.assertEqual(2, len(found))
            if spec is not None and spec.dtype == columns.CODED:
                hash(tuple(found))


class TestDocuments(ReadingTestCase):

    def test_bad_child_providers_are_refused_by_their_column(self):
        for name, said in (
                ('child_units', [None]), ('child_units', [[['VGPU', 1]]]),
                ('child_uuids', [None]), ('child_uuids', [['x']]),
                ('sharing', [1]), ('children', [[0, 'T']])):
            document = copy.deepcopy(GOOD)
            document['columns'][name]['values'][0] = said

            error = self.assertRaises(
                exception.InvalidField, load, document)

            self.assertTrue(
                error.field.startswith(f'columns.{name}'), error.field)

    @hypothesis.given(st.sampled_from(places(GOOD)), ANYTHING)
    def test_document_with_anything_in_it_is_read_or_refused(self, path, said):
        document = copy.deepcopy(GOOD)
        inside = document
        for key in path[:-1]:
            inside = inside[key]
        inside[path[-1]] = said

        try:
            made = load(document)
        except exception.InvalidField as error:
            self.assertEqual('snapshot', error.where)
        else:
            # What was read can be written again.
            json.dumps(dump(made)).encode()
            self.assertEqual(2, len(made.table))
