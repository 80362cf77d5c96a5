# SPDX-License-Identifier: Apache-2.0
"""The life of a build, through real servers and real processes."""

import json

from cellsched.claims import base as claims_base
from cellsched.conf import loader
from cellsched.wiring import services
from tests.integration import base
from tests.integration import deployment
from tests.integration import servers


class TestStories(base.TestCase):
    """What becomes of servers; the stories share one deployment.

    Each story removes its servers, and none needs hosts that another story
    fills.
    """

    world: deployment.Deployment

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.world = cls.of_class(deployment.Deployment(
            cls.part_of_class(servers.RabbitMQ),
            cls.part_of_class(servers.PostgreSQL),
            above={'use_json': 'true'}))

    def setUp(self) -> None:
        super().setUp()
        for service in self.world.services:
            self.show_output_of(service)

    def test_server_is_built_in_a_cell(self):
        [server] = self.create('web', '--flavor', 'small')

        self.assertEqual('ACTIVE', server['Status'])
        self.assertIn(server['Host'], deployment.CELLS[server['Cell']])
        shown = self.world.show(server['ID'])
        self.assertEqual(
            ('web', 'ACTIVE', server['Cell'], server['Host']),
            tuple(shown[name] for name in ('name', 'status', 'cell', 'host')))
        self.assertIn(server, self.world.list_servers())

    def test_json_lines_have_the_server_and_the_request(self):
        [server] = self.create('web', '--flavor', 'small')
        request = self.world._json(
            'server', 'event', 'list', server['ID'])[-1]['Request ID']

        steps = {}
        for service in self.world.services[:2]:
            lines = [json.loads(line)
                     for line in service.output().splitlines()]
            steps[service.name] = [
                (line['context']['request_id'], line['levelname'])
                for line in lines
                if line['extra'].get('instance_uuid') == server['ID']]

        self.assertEqual(
            {'cellsched-scheduler-api': [(request, 'INFO')],
             'cellsched-conductor-api': [(request, 'INFO')]}, steps)

    def test_servers_of_a_request_are_spread_over_the_cells(self):
        found = self.create(
            'web', '--flavor', 'small', '--min', '6', '--max', '6')

        self.assertEqual({'ACTIVE'}, {server['Status'] for server in found})
        hosts = sorted(server['Host'] for server in found)
        self.assertEqual(['c1-a', 'c1-a', 'c1-b', 'c1-b', 'c2-a', 'c2-a'],
                         hosts)

    def test_failed_build_is_retried_on_another_host_of_its_cell(self):
        [server] = self.create('backup', '--flavor', 'archive')

        self.assertEqual(
            ('ACTIVE', 'cell2', 'c2-steady', 2),
            tuple(server[name] for name in (
                'Status', 'Cell', 'Host', 'Attempts')))

    def test_unplaceable_server_is_kept_in_cell0_with_reasons(self):
        [server] = self.create('monster', '--flavor', 'giant', expected=2)

        self.assertEqual(('ERROR', 'cell0', ''), tuple(
            server[name] for name in ('Status', 'Cell', 'Host')))
        self.assertIn('5', server['Reason'])
        self.assertIn('memory', server['Reason'])
        self.assertIn(server, self.world.list_servers())

    def test_deleted_server_is_not_listed_and_has_no_claims(self):
        [server] = self.create('web', '--flavor', 'small')
        self.assertNotEqual([], self.world.held_by(server['ID']))

        self.world.shell('server', 'delete', server['ID'], '--wait')

        self.assertEqual([], self.world.list_servers())
        self.assertEqual([], self.world.held_by(server['ID']))
        self.world.shell('server', 'show', server['ID'], expected=1)

    def test_audit_finds_and_repairs_only_a_leak(self):
        web, _ = self.create(
            'web', '--flavor', 'small', '--min', '2', '--max', '2')
        self.create('monster', '--flavor', 'giant', expected=2)
        self.assertEqual([], self.audit(expected=0))

        self.world.shell('server', 'delete', web['ID'], '--wait')
        parts = self.leak(web['ID'])

        [found] = self.audit(expected=1)
        self.assertEqual(('S4', web['ID']), (found['Invariant'], found['Of']))
        [found] = self.audit('--fix', expected=2)
        self.assertEqual('repaired', found['State'])
        self.assertEqual({}, parts.claims.claims_of([web['ID']]))
        self.assertEqual([], self.audit(expected=0))

    def audit(self, *args: str, expected: int):
        return json.loads(self.world.manage(
            ['api'], 'audit', '--settle=1', '-f', 'json', *args,
            expected=expected))

    def leak(self, uuid: str) -> services.Components:
        """Claim for a server again what it held."""
        parts = services.Components(loader.load(
            files=[str(self.world.directory / 'api.conf')], dirs=[]))
        self.addCleanup(parts.close)
        [usage, *_] = parts.claims.usages().usages
        parts.claims.claim([claims_base.Claim(
            uuid, usage.provider, {'DISK_GB': 1})])
        return parts

    def create(self, name: str, *args: str, expected: int = 0):
        """Create servers that go with the story."""
        found = self.world.create(name, *args, expected=expected)
        self.addCleanup(self.remove, *(server['ID'] for server in found))
        return found

    def remove(self, *uuids: str) -> None:
        """Delete those of the servers that are left."""
        left = {server['ID'] for server in self.world.list_servers()}
        if left.intersection(uuids):
            self.world.shell('server', 'delete', '--wait',
                             *left.intersection(uuids))
