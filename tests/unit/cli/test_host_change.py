# SPDX-License-Identifier: Apache-2.0

from tests.unit.cli import base
from tests.unit.cli import test_server


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

    def test_what_stays_ends_with_2_and_says_why(self):
        ran = self.run_host('evacuate', self.host, '-f', 'json')

        self.assertEqual(2, ran.code, ran.err)
        [row] = ran.data
        self.assertEqual('stays', row['Outcome'])
        self.assertIn('forced down', row['Reason'])

    def test_what_is_not_through_in_time_ends_with_1(self):
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
                (('drain', 'host1', '--at-once', '0'), 'at_once'),
                (('drain', 'host1', '--timeout', '-1'), '--timeout'),
                (('evacuate', 'nix'), 'nix')):
            self.assertEnds(1, self.run_host(*argv), text)
        self.assertEqual(('enabled', ''), self.status('host1'))
