# SPDX-License-Identifier: Apache-2.0

from cellsched.db.cell import services
from tests.unit.cli import test_server

UNKNOWN = test_server.UNKNOWN


class TestServerMove(test_server.ServerTestCase):

    def setUp(self):
        super().setUp()
        ran = self.create('web', '--flavor', 'small', '--wait')
        [made] = ran.data
        self.uuid, self.host = made['ID'], made['Host']
        self.addCleanup(self.server, 'delete', self.uuid, '--wait')

    @property
    def shown(self):
        return self.server('show', self.uuid, '-f', 'json').data

    def test_migrated_server_is_elsewhere(self):
        ran = self.server('migrate', self.uuid, '--wait')

        self.assertEqual(0, ran.code)
        self.assertEqual('ACTIVE', self.shown['status'])
        self.assertNotEqual(self.host, self.shown['host'])

    def test_server_that_has_nowhere_to_go_is_told(self):
        ran = self.create('web', '--flavor', 'small', '--wait',
                          '--availability-zone', 'zone2')
        [made] = ran.data

        ran = self.server('migrate', made['ID'], '--wait')

        self.assertEnds(2, ran, f'{made["ID"]} failed; the server is ACTIVE '
                                'on host2')

    def test_rebuilt_server_stays(self):
        ran = self.server(
            'rebuild', self.uuid, '--image', UNKNOWN, '--wait')

        self.assertEqual(0, ran.code)
        self.assertEqual(('ACTIVE', self.host), (
            self.shown['status'], self.shown['host']))

    def test_shelved_server_comes_back(self):
        ran = self.server('shelve', self.uuid, '--wait', '-f', 'json')
        self.assertEqual((0, [{
            'action': 'shelving', 'kind': 'server', 'name': self.uuid,
        }]), (ran.code, ran.data))
        self.assertEqual(('SHELVED_OFFLOADED', None), (
            self.shown['status'], self.shown['host']))

        self.assertEqual(0, self.server('unshelve', self.uuid, '--wait').code)
        self.assertEqual('ACTIVE', self.shown['status'])

    def test_server_is_evacuated_off_a_dead_host_only(self):
        ran = self.server('evacuate', self.uuid, '--wait')
        self.assertEqual(1, ran.code)
        self.assertIn('forced down', ran.err)
        parts = self.cloud.agents[self.host].parts
        for down in (True, False):
            with parts.cell_database.writer() as connection:
                services.set_forced_down(
                    connection, self.host, down, parts.clock.now())
            if down:
                ran = self.server('evacuate', self.uuid, '--wait')

        self.assertEqual(0, ran.code)
        self.assertNotEqual(self.host, self.shown['host'])

    def test_wrong_state_is_one_line(self):
        ran = self.server('unshelve', self.uuid, UNKNOWN)

        self.assertEqual(1, ran.code)
        self.assertIn(f'Server {self.uuid} cannot unshelve while it is '
                      'active.', ran.err)
        self.assertIn(f'There is no server {UNKNOWN}', ran.err)
