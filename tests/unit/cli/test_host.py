# SPDX-License-Identifier: Apache-2.0
"""Hosts of a snapshot; those of a deployment are in the stories."""

import dataclasses
import json
import types

from cellsched.cli import host_cells
from cellsched.cli import host_snapshot
from cellsched.conf import loader
from cellsched.hardware import description
from cellsched.hardware import fit
from cellsched.hardware import units
from cellsched.hosts import document
from cellsched.testing import builders
from tests.unit.cli import base
from tests.unit.cli import test_server
from tests.unit.scheduler.decision import test_provider_groups


#: Two cells of four cores, of which the first is for shared CPUs.
HARDWARE = {
    'cells': [
        {'id': number, 'memory_mb': 16384, 'socket': number, 'siblings': 2,
         'cpus': f'{first},{first + 8}',
         'dedicated': f'{first + 1}-{first + 3},{first + 9}-{first + 11}',
         'pages': [{'size_kb': 4, 'total': 2097152},
                   {'size_kb': 1048576, 'total': 8}]}
        for number, first in enumerate((0, 4))],
    'devices': [
        {'vendor_id': '8086', 'product_id': '154c', 'dev_type': 'type-VF',
         'numa_node': 0, 'count': 2},
        {'vendor_id': '10de', 'product_id': '20b5', 'numa_node': None,
         'count': 4}]}


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

    def write_cells(self):
        """Write hosts with and without NUMA cells; the first is half full."""
        described = description.read('test', HARDWARE)
        pools = tuple(dataclasses.replace(each, count=1)
                      for each in described.devices)
        free = units.inventory(*described, fit.Ratios())
        free |= {units.cpu(2): 0, units.cpu(10): 0, units.cpu(5): 0,
                 units.pages(0, 2 ** 20): 6, units.device(pools[0]): 1}
        with self.path.open('w') as file:
            host_snapshot.write(document.dump(document.HostDocument(
                builders.table(
                    host=['a', 'b'], nodename=['a', 'b'],
                    numa_topology=[described.topology, None],
                    device_pools=[pools, ()], claims_hardware=True,
                    cpu_allocation_ratio=1.0,
                    available={name: [amount, 0] for name, amount
                               in free.items()}), builders.NOW, {})), file)
        return described

    def test_picture_has_cells_pages_and_devices(self):
        self.write_cells()

        out = self.shell('host', 'show', 'a', '--snapshot', self.path).out

        for text in ('NUMA cell 0, socket 0', 'NUMA cell 1, socket 1',
                     'dedicated CPUs: 4 of 6 free', '[1 9] [2* 10*] [3 11]',
                     'shared CPUs 0,8: 2 of 2 free',
                     'pages of 1 GB: 6 of 8 free', '[5* 13] [6 14] [7 15]',
                     '8086:154c type-VF: 1 free', 'near to no NUMA cell',
                     '10de:20b5 type-PCI: 4 free'):
            self.assertIn(text, out)
        self.assertNotIn('CUSTOM_', out)
        self.assertGreaterEqual(80, max(map(len, out.splitlines())))

    def test_cells_are_plain_data_in_other_formats(self):
        self.write_cells()

        first, second, far = self.shell(
            'host', 'show', 'a', '--snapshot', self.path, '-f',
            'json').data['Cells']

        self.assertEqual({'total': 6, 'free': 4}, first['dedicated_cpus'])
        self.assertEqual(
            {'cpu': 2, 'free': False, 'server': None}, first['cores'][1][0])
        self.assertEqual(
            {'size': '1 GB', 'total': 8, 'free': 6}, first['pages'][1])
        self.assertEqual(1, second['cell'])
        self.assertEqual({'cell': None, 'devices': [{
            'device': '10de:20b5 type-PCI', 'free': 4, 'total': None}]}, far)
        self.assertIn('dedicated_cpus', self.shell(
            'host', 'show', 'a', '--snapshot', self.path, '-f', 'yaml').out)

    def test_servers_are_named_by_their_claims(self):
        self.write_cells()
        described = description.read('test', HARDWARE)
        snapshot = host_snapshot.read(
            types.SimpleNamespace(conf=loader.load(
                files=[str(self.directory / 'api.conf')], dirs=[])), self.path)
        server = '4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e'
        found = host_cells.of(snapshot.table.view(builders.NOW), 0, {server: {
            'PCPU': 3, units.cpu(2): 1, units.cpu(10): 1, units.cpu(5): 1,
            units.pages(0, 2 ** 20): 2,
            units.device(described.devices[0]): 1}})
        text = '\n'.join(host_cells.picture(found))

        self.assertEqual(
            [{'server': server, 'cpus': [2, 10], 'pages': {'1 GB': 2},
              'devices': {'8086:154c type-VF': 1}}], found[0]['servers'])
        self.assertEqual(2, found[0]['devices'][0]['total'])
        for line in ('[1 9] [2a 10a] [3 11]', f'a: server {server}',
                     'cell 0: CPUs 2,10, 2 x 1 GB pages', 'cell 1: CPUs 5'):
            self.assertIn(line, text)

    def test_host_without_cells_shows_no_cells(self):
        self.write_cells()
        ran = self.shell('host', 'show', 'b', '--snapshot', self.path, '-f',
                         'json')

        self.assertNotIn('Cells', ran.data)
        self.assertIn('Columns', ran.data)

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
