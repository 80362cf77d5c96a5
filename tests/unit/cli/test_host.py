# SPDX-License-Identifier: Apache-2.0
"""Hosts of a snapshot; those of a deployment are in the stories."""

import json

from cellsched.cli import host_snapshot
from cellsched.hosts import document
from cellsched.testing import builders
from tests.unit.cli import base
from tests.unit.cli import test_server
from tests.unit.scheduler.decision import test_provider_groups


class TestHost(base.CommandTestCase):

    def setUp(self):
        super().setUp()
        self.path = self.write_snapshot()
        self.write('api.conf')

    def write_snapshot(self, **columns):
        hosts = builders.table(
            host=['b', 'a', 'a'], nodename=['b', 'a1', 'a2'],
            vcpus_used=[4, 0, 0], num_instances=[2, 0, 0],
            last_seen_up=[builders.NOW - 3600, builders.NOW, builders.NOW],
            service_disabled=[False, True, False],
            aggregates=[(builders.aggregate(7, ssd='true'),), (), ()],
            **columns)
        path = self.directory / 'hosts.json'
        with path.open('w') as file:
            host_snapshot.write(document.dump(document.HostDocument(
                hosts, builders.NOW, {builders.CELL: 'north'},
                ['south'])), file)
        return path

    def test_file_is_json_with_a_column_on_each_line(self):
        text = self.path.read_text()

        self.assertEqual(['b', 'a', 'a'], json.loads(text)['columns']['host'])
        self.assertIn('\n  "vcpus_used": [4, 0, 0],\n', text)

    def test_list_shows_room_and_state(self):
        ran = self.shell('host', 'list', '--snapshot', self.path, '-f',
                         'json')

        self.assertEnds(0, ran, 'south', 'did not answer')
        self.assertEqual(
            [('a', 'a1', 'north', 'nova', 'up', 'disabled', '32/32', 0),
             ('a', 'a2', 'north', 'nova', 'up', 'enabled', '32/32', 0),
             ('b', 'b', 'north', 'nova', 'down', 'enabled', '28/32', 2)],
            [tuple(row[name] for name in (
                'Host', 'Node', 'Cell', 'Zone', 'State', 'Status', 'VCPU',
                'Instances')) for row in ran.data])
        self.assertEqual(('16384/16384', '100/100'), (
            ran.data[0]['MEMORY_MB'], ran.data[0]['DISK_GB']))

    def test_show_has_all_columns(self):
        ran = self.shell('host', 'show', 'b', '--snapshot', self.path, '-f',
                         'json')

        self.assertEqual(('b', 4, [7]), (
            ran.data['Host'], ran.data['Columns']['vcpus_used'],
            ran.data['Columns']['aggregates']))
        self.assertEqual('a2', self.shell(
            'host', 'show', 'a2', '--snapshot', self.path, '-f',
            'json').data['Node'])
        self.assertIn('vcpus_used=4', self.shell(
            'host', 'show', 'b', '--snapshot', self.path).out)

    def test_columns_of_a_host_fit_80_columns(self):
        traits = frozenset(f'CUSTOM_TRAIT_{number}' for number in range(9))
        path = self.write_snapshot(traits=[traits, frozenset(), frozenset()])

        shown = self.shell('host', 'show', 'b', '--snapshot', path).out

        self.assertIn('CUSTOM_TRAIT_8', shown)
        self.assertGreaterEqual(80, max(map(len, shown.splitlines())))

    def test_show_has_the_providers_of_a_host(self):
        groups = test_provider_groups
        hosts = groups.make(
            [[groups.Provider((1, 0), parent=None), groups.Provider((2, 0), [
                'CUSTOM_T', 'CUSTOM_S']), groups.Provider((0, 0), parent=1)],
             [groups.Provider(), groups.Provider((1, 1))]],
            [{0}, set()], [groups.Provider((9, 0), ['CUSTOM_S'])],
            host=['a', 'b'], nodename=['a', 'b'])
        with self.path.open('w') as file:
            host_snapshot.write(document.dump(document.HostDocument(
                hosts, builders.NOW, {})), file)

        def show(name, *options):
            return self.shell(
                'host', 'show', name, '--snapshot', self.path, *options)

        first, second = groups.uuid_of(0, 1), groups.uuid_of(0, 2)
        found = show('a', '-f', 'json').data
        self.assertEqual([
            {'number': 1, 'name': None, 'uuid': first,
             'parent': groups.uuid_of(0), 'room': {'CUSTOM_A': 2},
             'traits': ['CUSTOM_S', 'CUSTOM_T']},
            {'number': 2, 'name': None, 'uuid': second, 'parent': first,
             'room': {}, 'traits': []},
            {'number': None, 'name': 'pool0', 'uuid': groups.POOLS[0],
             'parent': None, 'room': {'CUSTOM_A': 9},
             'traits': ['CUSTOM_S']}], found['Providers'])
        self.assertEqual(2, found['Columns']['available:CUSTOM_A@1'])
        self.assertEqual(['CUSTOM_A', 'CUSTOM_B'], list(
            show('b', '-f', 'json').data['Providers'][0]['room']))
        out = show('a').out
        for text in (f'1, {first}: 2 CUSTOM_A available; CUSTOM_S, CUSTOM_T',
                     f'2, {second}: nothing available',
                     'pool0, shared: 9 CUSTOM_A available; CUSTOM_S',
                     'available:CUSTOM_A=1'):
            self.assertIn(text, out)
        self.assertNotIn('available:CUSTOM_A@1', out)
        self.assertNotIn('child_uuids', out)
        for formatter in ('yaml', 'shell', 'value', 'table'):
            self.assertIn('pool0', show('a', '-f', formatter).out)

    def test_host_with_several_nodes_requires_a_node(self):
        ran = self.shell('host', 'show', 'a', '--snapshot', self.path)

        self.assertEqual(1, ran.code)
        self.assertIn('a1, a2', ran.err)

    def test_unknown_host_is_named_with_a_suggestion(self):
        ran = self.shell('host', 'show', 'x', '--snapshot', self.path)

        self.assertEqual(1, ran.code)
        self.assertIn('There is no host x.', ran.err)
        self.assertIn('There is no host b1; did you mean b?', self.shell(
            'host', 'show', 'b1', '--snapshot', self.path).err)

    def test_invalid_snapshot_is_refused(self):
        for text, words in (('{', 'JSON'), ('[]', 'an object'),
                            ('{"format": "x"}', 'it is missing')):
            self.path.write_text(text)

            self.assertEnds(1, self.shell(
                'host', 'list', '--snapshot', self.path), 'snapshot', words)
        self.assertEnds(1, self.shell(
            'host', 'list', '--snapshot', self.directory / 'none'),
            '--snapshot', 'No such file')


class TestHostChange(test_server.ServerTestCase):

    def setUp(self):
        super().setUp()
        # A scheduler does so too, some time.
        self.cloud.api.parts.discovery.discover()
        [made] = self.create('web', '--flavor', 'small', '--wait').data
        self.uuid, self.host = made['ID'], made['Host']
        self.addCleanup(self.server, 'delete', self.uuid, '--wait')
        for host in 'host1', 'host2':
            self.addCleanup(self.run_host, 'set', host, '--enable')

    def run_host(self, *argv):
        return self.shell('host', *argv)

    def status(self, host):
        ran = self.shell('service', 'list', '--host', host, '-f', 'json')
        [row] = ran.data
        return row['Status'], row['Disabled Reason']

    def test_host_is_disabled_and_enabled(self):
        self.assertEqual(
            base.Ran(0, 'Set host host1, status disabled\n', ''),
            self.run_host('set', 'host1', '--disable', '--disable-reason',
                          'new disks'))
        self.assertEqual(('disabled', 'new disks'), self.status('host1'))
        self.assertEqual(
            [{'action': 'set', 'kind': 'host', 'name': 'host1',
              'status': 'enabled'}],
            self.run_host('set', 'host1', '--enable', '-f', 'json').data)
        self.assertEqual(('enabled', ''), self.status('host1'))

    def test_drained_host_has_no_servers_and_is_disabled(self):
        ran = self.run_host('drain', self.host, '--reason', 'disks',
                            '-f', 'json')

        self.assertEqual(0, ran.code, ran.err)
        self.assertEqual(
            [{'ID': self.uuid, 'Name': 'web', 'Outcome': 'moved',
              'Reason': ''}], ran.data)
        self.assertEqual(('disabled', 'disks'), self.status(self.host))
        self.assertNotEqual(self.host, self.server(
            'show', self.uuid, '-f', 'json').data['host'])

    def test_remaining_server_ends_with_2_and_the_reason(self):
        ran = self.run_host('evacuate', self.host, '-f', 'json')

        self.assertEqual(2, ran.code, ran.err)
        [row] = ran.data
        self.assertEqual('stays', row['Outcome'])
        self.assertIn('forced down', row['Reason'])

    def test_timeout_ends_with_1(self):
        ran = self.run_host('drain', self.host, '--timeout', '0',
                            '-f', 'json')

        self.assertEqual((1, ['moving']), (
            ran.code, [row['Outcome'] for row in ran.data]))
        self.assertEqual(0, self.run_host('drain', self.host).code)

    def test_bad_input_is_refused(self):
        for argv, text in (
                (('set', 'nix', '--disable'), 'nix'),
                (('set', 'host1'), 'required'),
                (('set', 'host1', '--enable', '--disable-reason', 'x'),
                 'disabled_reason'),
                (('drain', 'nix'), 'nix'),
                (('drain', 'host1', '--at-once', '0'),
                 '--at-once: 0 is out of range; expected a whole number from '
                 '1 to 100'),
                (('drain', 'host1', '--timeout', '-1'), '--timeout'),
                (('evacuate', 'nix'), 'nix')):
            self.assertEnds(1, self.run_host(*argv), text)
        self.assertEqual(('enabled', ''), self.status('host1'))
