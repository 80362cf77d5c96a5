# SPDX-License-Identifier: Apache-2.0
"""A host table as a document: there and back, and what is refused."""

import copy
import json

import hypothesis
from hypothesis import strategies as st

from cellsched import exception
from cellsched.hardware import devices
from cellsched.hosts import columns
from cellsched.hosts.document import check_available
from cellsched.hosts.document import check_keys
from cellsched.hosts.document import dump
from cellsched.hosts.document import HostDocument
from cellsched.hosts.document import items
from cellsched.hosts.document import load
from cellsched.hosts.document import number
from cellsched.hosts.document import parse
from cellsched.hosts.document import parse_column
from cellsched.hosts.document import shown
from cellsched.hosts.document import text
from cellsched.hosts import providers
from cellsched.testing import builders
from tests import profile
from tests.unit import base
from tests.unit.filters import cells
from tests.unit import strategies

NORTH = '10000000-0000-4000-8000-000000000001'


def taken(hosts, **fields):
    """Return the snapshot of hosts that were built."""
    return HostDocument(hosts, builders.NOW, **fields)


def round_trip(made, **options):
    return load(
        parse(json.dumps(dump(made))), **options)


def plain(table):
    """Return what a table holds, with values in place of codes."""
    found = {}
    for name in table.names:
        spec = table.specs.get(name)
        column = table[name].tolist()
        if spec is not None and spec.dtype == columns.CODED:
            column = [table.encoding(name).values[code] for code in column]
        if name == 'aggregates':
            column = [[(each.id, each.uuid, each.name, dict(each.metadata))
                       for each in group] for group in column]
        found[name] = column
    return found


class TestSnapshot(base.TestCase):

    @staticmethod
    def add_providers(hosts):
        uuids = hosts['uuid']
        hosts.put([uuids[1]], {
            'children': [((0, frozenset({'X'})), (1, frozenset()))],
            'child_uuids': [('c1', 'c2')], 'sharing': [('pool',)]})
        hosts.set_sharing({'pool': providers.SharingProvider(
            'ssd', 'aggregate', frozenset({'X'}))})
        hosts.set_usage('c2', {'VGPU': 4}, {'VGPU': 1}, 1,
                        {'VGPU': (1, 2, 1)})
        hosts.set_usage('pool', {'DISK_GB': 500}, {}, 0)

    def test_hosts_are_the_same_afterwards(self):
        one, two = builders.aggregate(1, ssd='true'), builders.aggregate(2)
        hosts = builders.table(
            host=['a', 'b', 'c'], cell=[NORTH, NORTH, builders.CELL],
            aggregates=[(one, two), (one,), ()],
            traits=[frozenset(), frozenset({'X', 'Y'}), frozenset()],
            supported_instances=[(('x86_64', 'kvm', 'hvm'),), (), ()],
            stats=['{"a": 1}', '', ''], cpu_allocation_ratio=1.5,
            service_disabled=[True, False, False],
            available={'CUSTOM_GPU': [1, 0, 2]})
        self.add_providers(hosts)
        made = taken(hosts, cells={NORTH: 'north'}, silent=['south'])
        made.table.cells.heard(NORTH, builders.NOW - 5)
        made.table.cells.failed(NORTH, 3, builders.NOW - 9)

        again = round_trip(made)

        self.assertEqual(plain(made.table), plain(again.table))
        self.assertEqual((builders.NOW, {NORTH: 'north'}, ['south']),
                         (again.now, again.cells, again.silent))
        self.assertEqual(made.table.cells.known, again.table.cells.known)
        self.assertEqual(
            dump(made)['columns'], dump(again)['columns'])

    def test_cells_and_devices_are_the_same_afterwards(self):
        hosts = builders.table(
            numa_topology=[cells.topology(2, 8, threads=2), None],
            device_pools=[devices.pools([
                cells.pool(2, 1, dev_type='type-VF', trusted='true'),
                cells.pool(1, None)]), ()], claims_hardware=[True, False])

        self.assertEqual(plain(hosts), plain(round_trip(taken(hosts)).table))

    def test_invalid_cells_and_devices_are_refused(self):
        made = dump(taken(builders.table(numa_topology=[
            cells.topology(2), None])))
        for name, value in (
                ('numa_topology', {'cells': [{'id': 'x'}]}),
                ('numa_topology', {'cells': [{'id': 0, 'memory': -1}]}),
                ('numa_topology', 7), ('device_pools', [{'count': 'x'}]),
                ('device_pools', [{'count': -1}]),
                ('device_pools', [{'count': 2 ** 64}]),
                ('device_pools', 'x')):
            columns_ = {**made['columns'], name: {
                'values': [value, None], 'codes': [0, 1]}}
            with self.subTest(name=name, value=value):
                error = self.assertRaises(exception.InvalidField, load, {
                    **made, 'columns': columns_})
                self.assertEqual(f'columns.{name}.values[0]', error.field)
                self.assertIn('from 0 to 9007199254740992', str(error))

    @hypothesis.given(strategies.tables(
        {'note': hypothesis.strategies.text(max_size=3)}))
    @profile.few_examples
    def test_any_hosts_are_the_same_afterwards(self, hosts):
        made = taken(hosts)

        self.assertEqual(
            plain(made.table), plain(round_trip(made).table))

    def test_columns_of_plugins_need_their_definition(self):
        extra = [columns.Column('watts', columns.WHOLE, 0, 'power'),
                 columns.Column('rack', columns.CODED, None, 'where')]
        made = taken(builders.table(
            columns=extra, watts=[1, 2], rack=[('r', 1), None]))

        again = round_trip(made, extra_columns=extra)

        self.assertEqual(plain(made.table), plain(again.table))
        error = self.assertRaises(
            exception.InvalidField, round_trip, made)
        self.assertIn('watts', error.detail)

    def test_missing_columns_have_defaults(self):
        made = load({
            'format': 'cellsched-hosts', 'version': 1, 'taken_at': 5,
            'columns': {'uuid': ['1'], 'host': ['a'], 'nodename': ['a'],
                        'cell': {'values': ['c'], 'codes': [0]}}})

        self.assertEqual([1.0], made.table['cpu_allocation_ratio'].tolist())
        self.assertEqual(5.0, made.now)

    def test_empty_table_round_trips(self):
        made = taken(builders.table(0))

        self.assertEqual(0, len(round_trip(made).table))


class TestBadSnapshot(base.TestCase):

    def setUp(self):
        super().setUp()
        self.good = dump(taken(
            builders.table(2, aggregates=[(builders.aggregate(),), ()]),
            cells={NORTH: 'north'}))

    def refuse(self, field, *path, to):
        """Change something; make sure that the field is named."""
        document = copy.deepcopy(self.good)
        place = document
        for part in path[:-1]:
            place = place[part]
        place[path[-1]] = to
        error = self.assertRaises(
            exception.InvalidField, load, document)
        self.assertEqual(('snapshot', field), (error.where, error.field), to)
        self.assertGreater(500, len(str(error)))

    def test_invalid_snapshot_is_refused(self):
        for document in (None, [], 'x', 5, {}, {'format': 'x'}):
            self.assertRaises(
                exception.InvalidField, load, document)
        for version in (0, 2, '1', None, True + 1):
            self.refuse('version', 'version', to=version)
        self.refuse('document', 'more', to=1)
        for time in (None, -1, 1e12, float('nan'), '5', True):
            self.refuse('taken_at', 'taken_at', to=time)

    def test_columns_have_a_value_for_each_host(self):
        for name in ('host', 'vcpus_total', 'service_disabled',
                     'available:VCPU', 'last_seen_up'):
            for values in ([], [1], [1, 2, 3], None, 'ab', {}):
                self.refuse(f'columns.{name}', 'columns', name, to=values)
        self.refuse('columns.cell.codes', 'columns', 'cell', 'codes',
                    to=[0])
        self.refuse('columns.uuid', 'columns', 'uuid', to=['1', '1'])

    def test_numbers_are_finite_and_fit(self):
        for value in (float('nan'), float('inf'), 2 ** 60, 10 ** 400):
            for name in ('vcpus_total', 'last_seen_up', 'available:VCPU'):
                self.refuse(f'columns.{name}', 'columns', name,
                            to=[1, value])
        for value in (None, 'x', True, [1]):
            self.refuse('columns.vcpus_total[1]', 'columns', 'vcpus_total',
                        to=[1, value])
        self.refuse('columns.vcpus_total', 'columns', 'vcpus_total',
                    to=[1, 1.5])
        self.refuse('columns.forced_down', 'columns', 'forced_down',
                    to=[True, 1])

    def test_codes_are_places_of_values(self):
        for codes in ([0, 9], [0, -1], [0, 0.5], [0, 2 ** 60], [0, NAN]):
            self.refuse('columns.cell.codes', 'columns', 'cell', 'codes',
                        to=codes)
        self.refuse('columns.cell.codes[1]', 'columns', 'cell', 'codes',
                    to=[0, True])
        self.refuse('columns.cell.values[0]', 'columns', 'cell', 'values',
                    to=[None])
        self.refuse('columns.cell.values', 'columns', 'cell', 'values',
                    to=['a'] * 3)
        self.refuse('columns.traits.values[0]', 'columns', 'traits',
                    'values', to=['X'])
        self.refuse('columns.traits.values[0]', 'columns', 'traits',
                    'values', to=[[{}]])
        self.refuse('columns.aggregates', 'columns', 'aggregates', 'values',
                    to=[[1], [7]])
        self.refuse('columns.aggregates', 'columns', 'aggregates', 'values',
                    to=[[1], [[]]])

    def test_bounds_on_amounts_can_be_compared(self):
        good = ['CUSTOM_X', 1, 8, 2]
        for place, bad in ((0, 5), (1, 0), (2, 1.5), (3, 0), (3, True),
                           (3, '1')):
            units = [*good]
            units[place] = bad
            self.refuse('columns.units', 'columns', 'units',
                        to={'values': [[good, units]], 'codes': [0, 0]})
        for units in ([good[:3]], ['CUSTOM_X'], [5]):
            self.refuse('columns.units', 'columns', 'units',
                        to={'values': [units], 'codes': [0, 0]})

    def test_unknown_columns_are_refused(self):
        for name in ('free_ram', 'available:', 'available:vcpu',
                     'available:A-B', ''):
            self.refuse('columns', 'columns', name, to=[1, 2])
        for name in ('uuid', 'host', 'cell'):
            document = copy.deepcopy(self.good)
            del document['columns'][name]
            error = self.assertRaises(
                exception.InvalidField, load, document)
            self.assertEqual(f'columns.{name}', error.field)

    def test_cells_and_aggregates_are_validated(self):
        self.refuse('cells[0].uuid', 'cells', 0, 'uuid', to='')
        self.refuse('cells[1].uuid', 'cells',
                    to=self.good['cells'] * 2)
        self.refuse('cells[0].failures', 'cells', 0, 'failures', to='x')
        self.refuse('cells[0]', 'cells', 0, 'database', to='mysql://')
        self.refuse('aggregates[0].id', 'aggregates', 0, 'id', to='1')
        self.refuse('aggregates[0].metadata', 'aggregates', 0, 'metadata',
                    to={'a': 5})
        self.refuse('silent', 'silent', to='all')

    def test_text_has_to_be_json_without_nan(self):
        for data in ('', '{', '[NaN]', '{"a": Infinity}', '[' * 100_000,
                     b'\xff', '9' * 5000):
            self.assertRaises(
                exception.InvalidField, parse, data)


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
            self.assertEqual(good, text('f', good))
        self.assertEqual('', text('f', '', least=0))
        self.assertEqual('x' * 300, text('f', 'x' * 300, 300))
        for bad in ('', 'x' * 256, None, 5, b'a', ['a'], {}):
            self.assertRefused('f', text, 'f', bad)

    def test_text_can_be_written(self):
        self.assertRefused('f', text, 'f', 'a\ud800')

    def test_name_can_be_shown(self):
        self.assertEqual('é 1', shown('f', 'é 1'))
        for bad in ('', 'a\nb', '\x1b[2J', 'a\u202eb', 5, '\ud800'):
            self.assertRefused('f', shown, 'f', bad)

    def test_number_is_finite_and_between_bounds(self):
        for good in (0, 5, 9.5, 10):
            self.assertEqual(good, number('f', good, 0, 10))
        for bad in (-1, 10.1, NAN, INFINITY, 10 ** 400, True, '5', None, []):
            self.assertRefused('f', number, 'f', bad, 0, 10)

    def test_list_has_a_length(self):
        self.assertEqual([(0, 'a'), (1, 'b')],
                         items('f', ['a', 'b'], 2))
        for bad in (['a', 'b', 'c'], None, 'ab', {0: 'a'}, 5):
            self.assertRefused('f', items, 'f', bad, 2)

    def test_keys_are_needed_or_known(self):
        check_keys({'a': 1}, 'f', {'a', 'b'}, {'a'})
        check_keys({'a': 1, 'c': 1}, 'f', None, {'a'})
        self.assertRefused(
            'f.a', check_keys, {'b': 1}, 'f', {'a', 'b'},
            {'a'})
        self.assertRefused(
            'f', check_keys, {'a': 1, 'c': 1}, 'f', {'a'},
            set())
        self.assertRefused(
            'document', check_keys, [], '', None, set())
        self.assertRefused(
            'f', check_keys, {'x' * 10_000_000: 1}, 'f',
            set(), set())

    def test_room_is_named_like_a_resource_class(self):
        check_available('available:CUSTOM_GPU', 1, 1)
        self.assertRefused(
            'columns', check_available,
            'available:CUSTOM_GPU', 2, 1)
        for bad in ('available:', 'available:a', 'available:A-B',
                    'Available:A', 'available:A\n', 'available:' + 'A' * 256,
                    'x' * 10_000_000):
            self.assertRefused(
                'columns', check_available, bad, 1, 1)


class TestColumns(ReadingTestCase):

    def read(self, given, spec, count=2):
        return parse_column('f', given, spec, count)

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
        for bad in '\x1b[2J', 'x' * 300:
            self.assertRefused('f[1]', self.read, ['a', bad], KINDS[3])

    def test_text_may_be_absent_only_if_the_default_is(self):
        self.assertEqual([None, 'a'], self.read([None, 'a'], KINDS[-1]))
        self.assertRefused('f[0]', self.read, [None, 'a'], KINDS[3])
        self.assertRefused('f[1]', self.read, ['a', 5], KINDS[-1])

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
    def test_arbitrary_value_is_read_or_refused(self, given, spec):
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

    def test_bad_child_providers_are_refused_with_their_column(self):
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
    def test_arbitrary_document_is_read_or_refused(self, path, said):
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
