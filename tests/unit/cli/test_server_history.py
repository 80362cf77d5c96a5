# SPDX-License-Identifier: Apache-2.0

from tests.unit.cli import test_server

UNKNOWN = test_server.UNKNOWN


class TestServerHistory(test_server.ServerTestCase):

    def setUp(self):
        super().setUp()
        [made] = self.create('web', '--flavor', 'small', '--wait',
                             '--availability-zone', 'zone2').data
        self.uuid = made['ID']
        self.addCleanup(self.server, 'delete', self.uuid, '--wait')
        self.server('migrate', self.uuid, '--wait')

    def test_moves_are_listed_with_their_ends(self):
        for argv in ((), ('--server', self.uuid), ('--host', 'host2'),
                     ('--status', 'error', '--type', 'migration')):
            row, *_ = self.server('migration', 'list', *argv,
                                  '-f', 'json').data
            self.assertEqual(
                (self.uuid, 'cell1', 'migration', 'error', 'host2', ''),
                tuple(row[name] for name in (
                    'Server UUID', 'Cell', 'Type', 'Status',
                    'Source Compute', 'Dest Compute')))
            self.assertIn('No valid host', row['Reason'])
            self.assertRegex(row['Updated At'], '^20.*Z$')

    def test_events_are_listed_with_their_ends(self):
        move, create = self.server(
            'event', 'list', self.uuid, '-f', 'json').data

        self.assertEqual(('migrate', 'Error'),
                         (move['Action'], move['Result']))
        self.assertIn('No valid host', move['Reason'])
        self.assertEqual(('create', ''), (create['Action'], create['Reason']))

    def test_bad_input_is_refused(self):
        for argv, text in (
                (('migration', 'list', '--server', UNKNOWN), UNKNOWN),
                (('migration', 'list', '--limit', '0'), 'limit'),
                (('event', 'list', UNKNOWN), UNKNOWN)):
            self.assertEnds(1, self.server(*argv), text)
