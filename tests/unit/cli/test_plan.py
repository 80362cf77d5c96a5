# SPDX-License-Identifier: Apache-2.0
"""Plans on a snapshot: no database and no broker, only options."""

import json

import yaml

from cellsched.cli import host
from cellsched.hosts import document
from cellsched import objects
from cellsched.testing import builders
from tests.unit.cli import base
from tests.unit.scheduler.decision import test_provider_groups


class PlanTestCase(base.CommandTestCase):

    def setUp(self):
        super().setUp()
        self.write('api.conf')
        self.path = self.directory / 'hosts.json'
        hosts = builders.table(
            host=['a', 'b', 'c'], nodename=['a', 'b', 'c'],
            free_ram_mb=[4096, 8192, 2048],
            availability_zone=['east', 'east', 'west'])
        with self.path.open('w') as file:
            host._write(document.dump(document.HostDocument(
                hosts, builders.NOW, {builders.CELL: 'north'})), file)

    def plan(self, *argv, size=('--vcpus', 1, '--ram', 512)):
        return self.shell('plan', '--snapshot', self.path, *size, *argv)

    def planned(self, *argv, **options):
        ran = self.plan('-f', 'json', *argv, **options)
        self.assertEqual('', ran.err)
        return ran.code, [each['host'] for each in ran.data['places']]

    def file(self, request):
        path = self.directory / 'request.json'
        path.write_text(json.dumps(request))
        return '--request', path


class TestPlan(PlanTestCase):

    def test_best_host_is_planned_and_nothing_is_needed(self):
        before = self.path.read_text()

        self.assertEqual((0, ['b']), self.planned())

        self.assertEqual(before, self.path.read_text())

    def test_it_shows_stages_weights_and_why(self):
        ran = self.plan('--count', 2, '--alternates', 1)

        self.assertEqual((0, ''), (ran.code, ran.err))
        for text in ('ComputeFilter', 'Entered', 'RAMWeigher', 'Sum', 'north',
                     'a was not chosen because', 'Alternates'):
            self.assertIn(text, ran.out)

    def test_what_fits_nowhere_ends_with_2_and_the_reasons(self):
        ran = self.plan(size=('--vcpus', 1, '--ram', 9000))

        self.assertEqual((2, ''), (ran.code, ran.err))
        for text in ('No host: ', '808 MB', 'capacity:MEMORY_MB', 'a, b, c'):
            self.assertIn(text, ran.out)
        ran = self.plan('-f', 'yaml', size=('--vcpus', 1, '--ram', 9000))
        data = yaml.safe_load(ran.out)
        self.assertEqual((2, False, []), (
            ran.code, data['fits'], data['places']))
        self.assertEqual({'capacity:MEMORY_MB': ['a', 'b', 'c']},
                         data['examples'])

    def test_stages_say_what_they_left_where_nothing_is_left(self):
        ran = self.plan('--ignore-host', 'A', '--ignore-host', 'b',
                        '--ignore-host', 'c', '-f', 'json')

        self.assertEqual(2, ran.code)
        self.assertIn(
            {'by': 'IgnoredHost', 'entered': 3, 'left': 0,
             'reason': 'is among the ignored hosts'}, ran.data['stages'])

    def test_options_say_what_is_wanted(self):
        for argv, planned in (
                (['--ignore-host', 'b'], ['a']),
                (['--force-host', 'c'], ['c']),
                (['--availability-zone', 'west'], ['c']),
                (['--count', 3], ['b', 'a', 'c']),
                (['--disk', 60, '--count', 2], ['b', 'a'])):
            self.assertEqual((0, planned), self.planned(*argv), argv)

    def test_providers_that_give_a_part_are_told(self):
        groups = test_provider_groups
        hosts = groups.make(
            [[groups.Provider(), groups.Provider((4, 0), ['CUSTOM_T'])]],
            [{0}], [groups.Provider((0, 9))], host=['a'], nodename=['a'])
        with self.path.open('w') as file:
            host._write(document.dump(document.HostDocument(
                hosts, builders.NOW, {})), file)
        wishes = ('--extra-spec', 'resources1:CUSTOM_A=3',
                  '--extra-spec', 'trait1:CUSTOM_T=required',
                  '--extra-spec', 'resources:CUSTOM_B=2')

        lines = [' '.join(line.split())
                 for line in self.plan(*wishes).out.splitlines()]
        data = self.plan(*wishes, '-f', 'json').data

        self.assertIn('Group 1: 3 CUSTOM_A with CUSTOM_T', lines)
        for end in ('a 512 MEMORY_MB, 1 VCPU', 'pool0 2 CUSTOM_B',
                    f'1 {groups.uuid_of(0, 1)} 3 CUSTOM_A'):
            self.assertTrue(any(line.endswith(f' {end}') for line in lines),
                            (end, lines))
        self.assertEqual(
            ['a', 'pool0', None],
            [each['name'] for each in data['picks'][0]['first']['providers']])

        ran = self.plan('--extra-spec', 'resources1:CUSTOM_A=5')
        self.assertEqual(2, ran.code)
        self.assertIn('lacks a provider of 5 CUSTOM_A (by 1 CUSTOM_A)',
                      ran.out)

    def test_request_of_a_file_is_planned(self):
        plain = {'flavor': {'vcpus': 1, 'memory_mb': 512, 'root_gb': 1},
                 'availability_zone': 'east', 'ignore_hosts': ['b'],
                 'image': {'properties': {'os_distro': 'none'}},
                 'project_id': 'p'}
        sent = builders.request(ignore_hosts=['b', 'a']).obj_to_primitive()

        self.assertEqual((0, ['a']), self.planned(
            *self.file(plain), size=()))
        self.assertEqual((0, ['c']), self.planned(
            *self.file(sent), size=()))
        # Options come on top of it.
        self.assertEqual((0, ['c']), self.planned(
            *self.file(plain), '--availability-zone', 'west', size=()))

    def test_properties_are_told_of(self):
        ran = self.plan('--extra-spec', 'a=b', '--image-property', 'c=d',
                        '--project', 'p', '-f', 'json')

        self.assertEqual(
            ('p', 0), (ran.data['request']['project_id'], ran.code))

    def test_demand_that_no_stage_reads_ends_with_2_and_its_name(self):
        ran = self.plan('--extra-spec', 'hw:numa_nodes=2')

        self.assertEqual(2, ran.code)
        self.assertIn('No host: No enabled stage reads what is asked for: '
                      'flavor extra spec hw:numa_nodes (a NUMA topology).',
                      ran.out)

    def test_demands_and_hints_are_ignored_where_it_is_so_configured(self):
        self.write('api.conf', scheduler={
            'unmet_demands': 'ignore', 'unknown_hints': 'ignore'})

        ran = self.plan('--extra-spec', 'hw:numa_nodes=2', '--hint',
                        'color=red')

        self.assertEqual(0, ran.code)


class TestBadPlan(PlanTestCase):

    def test_bad_options_are_named(self):
        for argv, *texts in (
                (['--count', 0], 'min_count'),
                (['--count', 10 ** 9], '1000'),
                (['--alternates', -1], '--alternates'),
                (['--hint', 'color=red'], 'hints', 'color'),
                (['--hint', 'color'], '--hint'),
                (['--image-property', 'x'], '--image-property'),
                (['--extra-spec', 'a=1', '--extra-spec', 'a=2'],
                 '--extra-spec'),
                (['--availability-zone', ''], 'availability_zone'),
                (['--ignore-host', 'x' * 300], '--ignore-host'),
                (['--disk', -1], '--disk'),
                (['--ram', 10 ** 12], '--ram'),
                (['--group', 'g'], '--group', '--snapshot'),
                (['--flavor', 'x'], '--flavor')):
            self.assertEnds(1, self.plan(*argv), *texts)
        self.assertEnds(1, self.plan(size=()), '--vcpus')
        self.assertEnds(1, self.plan(size=('--vcpus', 1)), '--ram')

    def test_bad_request_is_named(self):
        sent = builders.request().obj_to_primitive()
        for request, *texts in (
                ([], 'an object'), (5, 'an object'),
                ({'flavour': {}}, 'flavour'),
                ({'flavor': []}, 'flavor'),
                ({'flavor': {'ram': 5}}, 'flavor.ram'),
                ({'flavor': {'vcpus': 'many'}}, 'vcpus'),
                ({'ignore_hosts': 5}, 'ignore_hosts'),
                ({'requested_destination': {'cell': {'x': 1}}},
                 'requested_destination.cell.x'),
                ({'instance_group': {'rules': {'spread': 'rack'}}},
                 'spread'),
                ({**sent, 'nova_object.version': '2.0'}, 'RequestSpec'),
                ({**sent, 'nova_object.name': 'Flavor'}, 'RequestSpec'),
                ({'nova_object.name': 'RequestSpec'}, 'RequestSpec'),
                ({'instance_group': {'members': ['\ud800']}}, 'members'),
                ({'requested_destination': {'cell': {'name': 'x'}}},
                 'requested_destination.cell.uuid'),
                ({'scheduler_hints': {'color': ['red']}}, 'hints')):
            self.assertEnds(1, self.plan(*self.file(request)), *texts)

    def test_file_that_cannot_be_read_is_named(self):
        path = self.directory / 'bad.json'
        for text, expected in (
                ('{', 'JSON'), ('{"a": NaN}', 'NaN'), ('[' * 99_999, 'nested'),
                ('"' + 'x' * 2_000_000 + '"', '1000000 bytes')):
            path.write_text(text)
            self.assertEnds(1, self.plan('--request', path), 'bad.json',
                            expected)
        self.assertEnds(1, self.plan('--request', self.directory / 'none'),
                        'none', 'No such file')


class TestRequest(PlanTestCase):

    def test_every_nested_object_is_one(self):
        from cellsched.cli import request_file

        for kind, nested in request_file._NESTED.items():
            for field in nested:
                self.assertIn(field, getattr(objects, kind).fields)
