# SPDX-License-Identifier: Apache-2.0
"""The audit of a deployment of real servers and real processes."""

import json

from cellsched import assembly
from cellsched.claims import base as claims_base
from cellsched.conf import loading
from tests.integration import base
from tests.integration import deployment
from tests.integration import processes
from tests.integration import servers


class TestAudit(base.TestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.world = cls.of_class(deployment.Deployment(
            cls.part_of_class(servers.RabbitMQ),
            cls.part_of_class(servers.PostgreSQL)))

    def audit(self, *args, expected):
        return json.loads(processes.run(
            ['cellsched-manage',
             f'--config-file={self.world.directory / "api"}.conf', 'audit',
             '--settle=1', '-f', 'json', *args],
            self.world.directory, expected=expected))

    def leak(self, uuid):
        """Claim for a server again what it held."""
        parts = assembly.Parts(loading.load(
            files=[str(self.world.directory / 'api.conf')], dirs=[]))
        self.addCleanup(parts.close)
        [usage, *_] = parts.claims.usages().usages
        parts.claims.claim([claims_base.Claim(
            uuid, usage.provider, {'DISK_GB': 1})])
        return parts

    def test_leak_is_found_and_mended_and_nothing_else(self):
        created = self.world.create('web', '--flavor', 'small', '--min', '2',
                                    '--max', '2')
        self.world.create('monster', '--flavor', 'giant', expected=2)
        self.assertEqual([], self.audit(expected=0))

        uuid = created[0]['ID']
        self.world.shell('server', 'delete', uuid, '--wait')
        parts = self.leak(uuid)

        [found] = self.audit(expected=1)
        self.assertEqual(('S4', uuid), (found['Invariant'], found['Of']))
        [found] = self.audit('--fix', expected=2)
        self.assertEqual('repaired', found['State'])
        self.assertEqual({}, parts.claims.held([uuid]))
        self.assertEqual([], self.audit(expected=0))
