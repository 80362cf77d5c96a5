# SPDX-License-Identifier: Apache-2.0

from tests.unit.cli import base
from tests.unit.cli import test_server
from tests.unit.db import samples

UNKNOWN = samples.uuids(1)[0]


class TestService(test_server.ServerTestCase):

    def setUp(self):
        super().setUp()
        # A scheduler does so too, some time.
        self.cloud.api.parts.discovery.discover()

    def service(self, *argv):
        return self.shell('service', *argv)

    def listed(self, *argv):
        return self.service('list', *argv, '-f', 'json').data

    def test_services_are_listed_and_set(self):
        ran = self.service('set', '--disable', '--disable-reason', 'new disks',
                           'host1', 'nova-compute')

        self.assertEqual(base.Ran(
            0, 'Set service nova-compute, host host1, status disabled, '
            'reason new disks\n', ''), ran)
        [row] = self.listed('--host', 'host1')
        self.assertEqual(
            ('nova-compute', 'cell1', 'disabled', 'up', 'new disks', False),
            tuple(row[name] for name in (
                'Binary', 'Cell', 'Status', 'State', 'Disabled Reason',
                'Forced Down')))
        self.assertEqual(['host1', 'host2'], [
            row['Host'] for row in self.listed(
                '--cell', 'cell1', '--binary', 'nova-compute')])
        self.assertEqual(
            [{'action': 'set', 'kind': 'service', 'name': 'nova-compute',
              'host': 'host1', 'status': 'enabled', 'forced_down': False}],
            self.service('set', '--enable', '--up', 'host1', 'nova-compute',
                         '-f', 'json').data)

    def test_schedulers_and_conductors_are_listed(self):
        self.assertEqual(
            {('nova-scheduler', 'api', 'cell0', 'up'),
             ('nova-conductor', 'api', 'cell0', 'up'),
             ('nova-conductor', 'conductor-cell1', 'cell1', 'up')},
            {tuple(row[name] for name in ('Binary', 'Host', 'Cell', 'State'))
             for row in self.listed() if row['Binary'] != 'nova-compute'})

    def test_invalid_operations_are_refused(self):
        [row] = self.listed('--host', 'host2')
        for argv, text in (
                (('set', 'host1', 'nova-compute'), '--enable or --disable'),
                (('set', '--disable', 'nix', 'nova-compute'), 'nix'),
                (('set', '--down', 'host1', 'nix'), 'nix'),
                (('set', '--up', '--down', 'host1', 'x'), 'not allowed'),
                (('delete', row['ID']), 'is up'),
                (('delete', UNKNOWN), UNKNOWN),
                (('list', '--cell', 'nix'), 'nix')):
            self.assertEnds(1, self.service(*argv), text)
        self.assertEqual([row['ID']], [
            each['ID'] for each in self.listed('--host', 'host2')])
