# SPDX-License-Identifier: Apache-2.0
"""A deletion whose client is killed at any step is completed."""

import futurist

from cellsched.conductor import recovery
from cellsched import deletion
from cellsched import exception
from cellsched.wiring import services
from tests.functional import base
from tests.functional import moving

#: Later than the lease of a deletion.
LATE_S = 60


class TestKilledDeletions(moving.TestCase):

    def setUp(self):
        super().setUp()
        self.start({'cell1': self.hosts('a1', 'a2')})

    def kill_deletion(self, uuid):
        self.at['Delete'] = self.kill
        self.assertRaises(moving.Killed, self.delete, uuid)

    def continue_deletions(self):
        """Do what a conductor above the cells does later."""
        parts, later = self.world.api.parts, self.later(LATE_S)
        recovery.InterruptedDeletions(
            later.database, deletion.Deletion(
                parts.database, parts.targets, lambda: parts.compute,
                parts.claims, parts.clock, 60), 'conductor',
            futurist.SynchronousExecutor()).run()

    def audit(self):
        return services.auditor(self.world.api.parts).run(0)

    def assertIsGone(self, uuid):
        super().assertIsGone(uuid)
        self.assertRaises(exception.InstanceNotFound, self.delete, uuid)

    def test_server_on_a_host_is_named_and_deleted(self):
        uuid = self.active()

        self.kill_deletion(uuid)
        self.assertEqual(
            {(uuid, 'deleted-visible')},
            {(each.of, each.kind) for each in self.audit().remaining})
        self.continue_deletions()

        self.assertIsGone(uuid)
        self.assertEqual([], self.audit().remaining)

    def test_waiting_build_is_deleted(self):
        [uuid] = self.unheard().servers.create(base.USER, 'server', 'small')

        self.kill_deletion(uuid)
        self.task().run(base.USER, [uuid])
        self.continue_deletions()

        self.assertIsGone(uuid)
