# SPDX-License-Identifier: Apache-2.0
"""Scenarios: what a demonstration sets up, asks for and expects."""

import copy
import json
import pathlib

import yaml

from cellsched import exception
from cellsched.standalone import deployment
from cellsched.standalone import scenario
from tests.unit import base

ROOT = pathlib.Path(__file__).resolve().parents[3]

LEAST = {
    'cells': [{'name': 'c1', 'hosts': [{'name': 'h1'}]},
              {'name': 'c2', 'hosts': []}],
    'flavors': [{'name': 'small', 'vcpus': 1, 'ram': 512}],
    'requests': [{'name': 'web', 'flavor': 'small'}],
}


class TestLoad(base.TestCase):

    def setUp(self):
        super().setUp()
        self.path = self.temporary_directory() / 'scenario.yaml'

    def load(self, *changes):
        """Read the least scenario with some changes: a way and a value."""
        document = copy.deepcopy(LEAST)
        for *way, last, value in changes:
            place = document
            for part in way:
                place = place[part]
            place[last] = value
        self.path.write_text(yaml.safe_dump(document))
        return scenario.load(self.path)

    def assertRefused(self, field, expected, *change):
        error = self.assertRaises(exception.InvalidField, self.load, change)

        self.assertEqual((str(self.path), field), (error.where, error.field))
        self.assertIn(expected, error.detail)
        self.assertEqual(1, len(str(error).splitlines()))
        self.assertLess(len(str(error)), 400)

    def test_hardware_of_a_host_is_an_option_of_its_driver(self):
        cells = [{'id': 0, 'memory_mb': 64, 'dedicated': '0-1'}]
        way = 'cells', 0, 'hosts', 0, 'hardware'

        found = self.load((*way, {'cells': cells}))

        self.assertEqual({'cells': cells}, json.loads(
            found.cells[0].hosts[0].behaviour['hardware']))
        self.assertRefused('cells[0].hosts[0].hardware', 'a mapping', *way, [])
        self.assertRefused(
            'cells[0].hosts[0].hardware.cells[0].memory_mb', 'it is missing',
            *way, {'cells': [{'id': 0}]})
        self.assertRefused(
            'cells[0].hosts[0].hardware.cells[1].id', 'each cell once',
            *way, {'cells': cells * 2})

    def test_least_scenario_has_defaults_for_the_rest(self):
        found = self.load()

        self.assertEqual(
            [deployment.DeployedCell(
                'c1', [deployment.DeployedHost('h1', aggregates=[])]),
             deployment.DeployedCell('c2', [])], found.cells)
        self.assertEqual([scenario.Request('web', 'small')], found.requests)
        self.assertEqual(({}, {}, self.path), (
            found.aggregates, found.options, found.path))

    def test_host_has_all_its_fields(self):
        found = self.load(
            ('cells', 0, 'hosts', 0, {
                'name': 'h1', 'vcpus': 1, 'memory_mb': 2, 'disk_gb': 0,
                'availability_zone': 'zone', 'aggregates': ['b'],
                'inventories': {'VGPU': 2},
                'faults': {'fail_builds': 1, 'build_delay': 0.5}}),
            ('aggregates', [{'name': 'a', 'hosts': ['h1'],
                             'metadata': {'k': 'v'}}, {'name': 'b'}]))

        self.assertEqual(
            deployment.DeployedHost('h1', 1, 2, 0, 'zone', ['b', 'a'],
                                    {'fail_builds': 1, 'build_delay': 0.5,
                                     'inventories': {'VGPU': 2}}),
            found.cells[0].hosts[0])
        self.assertEqual({'a': {'k': 'v'}, 'b': {}}, found.aggregates)

    def test_request_has_all_its_fields(self):
        said = {'name': 'web', 'flavor': 'small', 'count': 3, 'min_count': 2,
                'availability_zone': 'zone', 'hints': {'a': ['b']},
                'delete': 'when-built', 'expect': {
                    'status': 'DELETED', 'cell': 'c1', 'host': 'h1',
                    'cells': 1, 'attempts': 2, 'reason': 'why'}}

        [found] = self.load(('requests', [said])).requests

        self.assertEqual(scenario.Request(**said), found)

    def test_options_are_of_any_simple_kind(self):
        options = {'scheduler': {'a': 'x', 'b': 1, 'c': -1.5, 'd': True,
                                 'e': ['x', 2]}, 'DEFAULT': {'f': ''}}

        self.assertEqual(options, self.load(('options', options)).options)

    def test_scenarios_of_the_project_are_sound(self):
        paths = list((ROOT / 'etc/cellsched/scenarios').glob('*.yaml'))
        self.assertNotEqual([], paths)
        for path in paths:
            self.assertNotEqual([], scenario.load(
                path, deploys=path.name != 'cluster.yaml').requests)

    def test_first_error_is_named_by_its_path(self):
        for change in (
                ('cells', 'it is missing; expected a list', 'cells'),
                ('document', 'one of cells', 'hosts', []),
                ('cells', 'a list of at least 1', 'cells', []),
                ('cells[1].hosts', 'it is missing', 'cells', 1, {'name': 'x'}),
                ('cells[0].hosts[0]', "unknown field 'memory';",
                 'cells', 0, 'hosts', 0, {'name': 'x', 'memory': 1}),
                ('cells[0].hosts[0].disk_gb', 'None is not valid; expected a',
                 'cells', 0, 'hosts', 0, 'disk_gb', None),
                ('cells[0].hosts[0].faults', "unknown field 'fail';",
                 'cells', 0, 'hosts', 0, 'faults', {'fail': 1}),
                ('cells[0].hosts[0].faults.fail_builds', 'from 0 to',
                 'cells', 0, 'hosts', 0, 'faults', {'fail_builds': -1}),
                ('aggregates[0].metadata.a', '1 is not valid; expected text',
                 'aggregates', [{'name': 'a', 'metadata': {'a': 1}}]),
                ('aggregates[0].hosts', 'an item is repeated',
                 'aggregates', [{'name': 'a', 'hosts': ['h1', 'h1']}]),
                ('flavors[0].swap', 'to 2147483647',
                 'flavors', 0, 'swap', 2 ** 31),
                ('requests[0].count', 'to 1000',
                 'requests', 0, 'count', 1001),
                ('requests[0].delete', 'one of while-building, when-built',
                 'requests', 0, 'delete', 'later'),
                ('requests[0].expect.reason', 'text that is not empty',
                 'requests', 0, 'expect', {'reason': ''}),
                ('requests[0].expect.attempts', 'from 1 to',
                 'requests', 0, 'expect', {'attempts': 0}),
                ('options.scheduler', 'a mapping',
                 'options', {'scheduler': 1}),
                ('options.scheduler.a', 'text or a number',
                 'options', {'scheduler': {'a': None}}),
                ('options.scheduler.a[1]', 'on one line',
                 'options', {'scheduler': {'a': ['b', 'c\nd']}}),
                ('options.scheduler', 'the name of an option',
                 'options', {'scheduler': {'a = b\nc': 1}})):
            if change[0] == 'cells' and len(change) == 3:
                self.path.write_text('{}')
                error = self.assertRaises(
                    exception.InvalidField, scenario.load, self.path)
                self.assertEqual('cells', error.field)
                self.assertIn(change[1], error.detail)
            else:
                self.assertRefused(*change)

    def test_names_are_names_to_the_end(self):
        for way, field in (
                (('cells', 0, 'name'), 'cells[0].name'),
                (('cells', 0, 'hosts', 0, 'name'), 'cells[0].hosts[0].name'),
                (('flavors', 0, 'name'), 'flavors[0].name'),
                (('requests', 0, 'name'), 'requests[0].name')):
            for bad in '', 'a\n', '\na', 'a b', '.a', 'é', 'x' * 64:
                self.assertRefused(field, 'a name of 1 to 63', *way, bad)

    def test_duplicate_names_are_refused(self):
        self.assertRefused('cells[1].name', 'c1', 'cells', 1, 'name', 'c1')
        self.assertRefused(
            'cells[1].hosts[0].name', "'h1' is in cell c1 and in cell c2",
            'cells', 1, 'hosts', [{'name': 'h1'}])
        self.assertRefused(
            'cells[0].hosts[1].name', "'h1' is in cell c1 and in cell c1",
            'cells', 0, 'hosts', [{'name': 'h1'}, {'name': 'h1'}])
        self.assertRefused(
            'aggregates[1].name', 'a', 'aggregates', [{'name': 'a'}] * 2)
        self.assertRefused(
            'flavors[1].name', 'small', 'flavors', LEAST['flavors'] * 2)
        self.load(('requests', LEAST['requests'] * 2))

    def test_unknown_resource_classes_are_refused(self):
        for field, expected, *change in (
                ('cells[0].hosts[0].inventories', 'unknown resource class GPU',
                 'cells', 0, 'hosts', 0, 'inventories', {'GPU': 1}),
                ('cells[0].hosts[0].inventories.VGPU', 'from 0 to',
                 'cells', 0, 'hosts', 0, 'inventories', {'VGPU': -1}),
                ('cells[0].hosts[0].providers',
                 "'a'.inventories: expected a mapping of resource classes",
                 'cells', 0, 'hosts', 0, 'providers',
                 {'a': {'inventories': {'GPU': 1}}}),
                ('cells[0].hosts[0].providers.a.inventories.VGPU',
                 'from 0 to', 'cells', 0, 'hosts', 0, 'providers',
                 {'a': {'inventories': {'VGPU': -1}}}),
                ('flavors[0].extra_specs.resources:GPU', 'a resource class',
                 'flavors', 0, 'extra_specs', {'resources:GPU': '1'}),
                ('flavors[0].extra_specs.resources:VGPU', 'a whole number',
                 'flavors', 0, 'extra_specs', {'resources:VGPU': 'x'}),
                ('flavors[0].extra_specs.group_policy', 'none or isolate',
                 'flavors', 0, 'extra_specs', {'resources1:VGPU': '1',
                                               'resources2:VGPU': '1'}),
                ('flavors[0].extra_specs.a', '1 is not valid; expected text',
                 'flavors', 0, 'extra_specs', {'a': 1})):
            self.assertRefused(field, expected, *change)

    def test_host_has_its_child_providers(self):
        said = {'numa0': {}, 'gpu0': {
            'inventories': {'VGPU': 2}, 'traits': ['CUSTOM_A'],
            'parent': 'numa0'}}

        found = self.load(('cells', 0, 'hosts', 0, 'providers', said))

        self.assertEqual(said, found.cells[0].hosts[0].providers)

    def test_child_providers_of_a_host_are_a_tree(self):
        for field, expected, said in (
                ('', "providers['a'].parent: 'b' is unknown; expected the",
                 {'a': {'parent': 'b'}}),
                ('', "providers['a'].parent: the provider is below itself",
                 {'a': {'parent': 'a'}}),
                ('', "providers['h1']: expected a name of 1 to 200",
                 {'h1': {}}),
                ('', "providers['a'].traits", {'a': {'traits': ['x']}}),
                ('.a', "unknown field 'b'; expected one of inventories",
                 {'a': {'b': 1}}),
                ('.a', 'a mapping', {'a': 1})):
            self.assertRefused(
                f'cells[0].hosts[0].providers{field}', expected,
                'cells', 0, 'hosts', 0, 'providers', said)

    def test_sharing_providers_are_read(self):
        said = {'name': 'pool', 'aggregate': 'a',
                'inventories': {'DISK_GB': 5}, 'traits': ['CUSTOM_X']}

        found = self.load(('aggregates', [{'name': 'a'}]),
                          ('sharing_providers', [said]))

        self.assertEqual(
            [deployment.DeployedSharingProvider(**said)], found.sharing)

    def test_invalid_sharing_provider_is_refused(self):
        good = {'name': 'pool', 'aggregate': 'a', 'inventories': {}}
        aggregates = ('aggregates', [{'name': 'a'}])
        for field, expected, said in (
                ('[0].aggregate', 'it is missing', [{'name': 'p'}]),
                ('[0].aggregate', 'unknown name b; expected one of a',
                 [{**good, 'aggregate': 'b'}]),
                ('[1].name', 'pool is used already', [good, good]),
                ('[0].inventories', 'CUSTOM_',
                 [{**good, 'inventories': {'GPU': 1}}]),
                ('[0].traits', 'CUSTOM_',
                 [{**good, 'traits': ['FAST']}])):
            error = self.assertRaises(
                exception.InvalidField, self.load, aggregates,
                ('sharing_providers', said))

            self.assertEqual(f'sharing_providers{field}', error.field)
            self.assertIn(expected, error.detail)

    def test_unknown_names_are_refused(self):
        self.assertRefused(
            'requests[0].flavor', 'unknown name big; expected one of small',
            'requests', 0, 'flavor', 'big')
        self.assertRefused(
            'cells[0].hosts[0].aggregates',
            'unknown name a; expected one of none',
            'cells', 0, 'hosts', 0, 'aggregates', ['a'])
        self.assertRefused(
            'aggregates[0].hosts', 'unknown name h2; expected one of h1',
            'aggregates', [{'name': 'a', 'hosts': ['h2']}])

    def test_fewest_are_no_more_than_all(self):
        self.assertRefused(
            'requests[0].min_count', 'it is above count; expected at most 1',
            'requests', 0, 'min_count', 2)

    def test_options_set_by_the_deployment_are_refused(self):
        for group, name in (
                ('DEFAULT', 'host'), ('DEFAULT', 'transport_url'),
                ('api_database', 'connection'), ('database', 'connection'),
                ('claims', 'connection'), ('claims', 'store')):
            self.assertRefused(
                f'options.{group}.{name}', 'the scenario sets it',
                'options', {group: {name: 'x'}})
