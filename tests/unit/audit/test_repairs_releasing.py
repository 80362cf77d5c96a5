# SPDX-License-Identifier: Apache-2.0
"""Releases of leaked claims, if the finding is still valid."""

from cellsched.audit import findings
from cellsched.db.api import instance_mappings
from cellsched.db.cell import server_moves
from tests.unit.audit import base
from tests.unit.db import samples

Action = findings.Action


class TestRelease(base.TestCase):

    def test_leaked_claim_is_released(self):
        uuid = self.deleted()

        self.assertTrue(self.repairs.release(uuid, Action.RELEASE))

        self.assertEqual({}, self.claims.claims_of([uuid]))

    def test_claim_in_use_is_not_released(self):
        running, accepted, undecided = (
            self.running(), self.accept(), self.accept())
        self.take(accepted, 'a2')
        self.take(undecided, 'a2')
        self.forget(undecided)
        for uuid in (running, accepted, undecided):
            self.assertFalse(self.repairs.release(uuid, Action.RELEASE))
            self.assertIn(uuid, self.claims.claims_of([uuid]))

    def test_claim_of_an_unknown_consumer_stays(self):
        [uuid] = samples.uuids(1)
        self.take(uuid, 'a1')

        self.assertFalse(self.repairs.release(uuid, Action.RELEASE))

        self.assertIn(uuid, self.claims.claims_of([uuid]))

    def test_claim_of_a_migration_in_progress_stays(self):
        uuid = self.running()
        consumer = self.move(uuid)
        self.take(consumer, 'a2')

        self.assertFalse(self.repairs.release(uuid, Action.RELEASE_MOVE))

        self.assertIn(consumer, self.claims.claims_of([consumer]))

    def test_claims_of_server_and_migration_are_released_separately(self):
        uuid = self.running()
        consumer = self.move(uuid, status=server_moves.DONE)
        self.take(consumer, 'a2')

        self.assertTrue(self.repairs.release(uuid, Action.RELEASE_MOVE))

        self.assertEqual({uuid}, {*self.claims.claims_of([uuid, consumer])})

    def test_claim_of_a_deleted_server_without_a_cell_goes(self):
        uuid = self.accept()
        self.take(uuid, 'a1')
        self.forget(uuid)
        self.write(self.database, instance_mappings.mark_deleted, [uuid],
                   samples.NOW)

        self.assertTrue(self.repairs.release(uuid, Action.RELEASE))

        self.assertEqual({}, self.claims.claims_of([uuid]))


class TestMovingServers(base.TestCase):

    def test_moving_server_without_a_host_keeps_its_claim(self):
        for state in ('error', 'shelved_offloaded'):
            uuid = self.running()
            self.move(uuid)
            self.change_row(uuid, 'cell1', vm_state=state, task_state=None,
                            host=None, node=None)

            kinds = [each.kind for each in self.audit().remaining
                     if each.of == uuid]

            self.assertNotIn('claim-leaked', kinds, state)
            self.assertFalse(self.repairs.release(uuid, Action.RELEASE))
