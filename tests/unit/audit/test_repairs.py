# SPDX-License-Identifier: Apache-2.0

from cellsched.audit import checks
from cellsched.db.api import build_requests
from cellsched.db.api import instance_mappings
from cellsched.db.cell import instances
from cellsched.db.cell import server_moves
from tests.unit.audit import base
from tests.unit.db import samples


class TestFences(base.TestCase):
    """Things change between the look and the repair."""

    def repair_late(self, uuid, change):
        """Repair what is wrong, which changes just before."""
        facts = self.reader.facts([uuid], everywhere=True)[uuid]
        found = [each for each in checks.judge(facts) if each.action]
        self.assertNotEqual([], found)
        change()
        for each in found:
            self.repairs.repair(each, facts)

    def held(self, uuid):
        return self.claims.held([uuid]).get(uuid, [])

    def test_claim_of_what_is_scheduled_again_stays(self):
        uuid = self.failed()
        self.take(uuid, 'a1')

        self.repair_late(uuid, lambda: self.map_to(uuid, None))

        self.assertNotEqual([], self.held(uuid))

    def test_claim_of_what_is_asked_for_again_stays(self):
        uuid = self.failed()
        self.take(uuid, 'a1')

        self.repair_late(uuid, lambda: self.request(uuid))

        self.assertNotEqual([], self.held(uuid))

    def test_claim_of_a_move_stays_that_no_cell_knows_of(self):
        uuid = self.deleted()
        self.claims.release([uuid])
        name = self.move(uuid, status=server_moves.DONE)
        self.take(name, 'a1')
        table = instance_mappings.models.instance_mappings

        def undecide():
            with self.database.writer() as connection:
                connection.execute(table.update().values(
                    cell_id=None, queued_for_delete=False))

        self.repair_late(uuid, undecide)

        self.assertNotEqual([], self.held(name))

    def test_claim_of_what_is_rebuilt_stays(self):
        uuid = self.failed('cell1')
        self.take(uuid, 'a1')

        self.repair_late(uuid, lambda: self.change_row(
            uuid, 'cell1', vm_state='active', task_state='rebuilding'))

        self.assertNotEqual([], self.held(uuid))

    def test_claim_of_a_move_that_begins_stays(self):
        uuid = self.running()
        name = base.moving.consumer(uuid)
        self.take(name, 'a2')

        self.repair_late(uuid, lambda: self.move(uuid))

        self.assertNotEqual([], self.held(name))

    def test_row_that_has_come_to_a_host_is_not_removed(self):
        uuid = self.running()
        self.put_row(uuid, 'cell2')

        self.repair_late(uuid, lambda: self.change_row(
            uuid, 'cell2', host='b1'))

        self.assertEqual({'cell1', 'cell2'}, self.rows(uuid))

    def test_row_to_which_the_mapping_leads_now_is_not_removed(self):
        uuid = self.running()
        self.put_row(uuid, 'cell2')

        self.repair_late(uuid, lambda: self.map_to(uuid, 'cell2'))

        self.assertEqual({'cell1', 'cell2'}, self.rows(uuid))

    def test_server_that_was_decided_on_keeps_its_cell(self):
        uuid = self.running()
        self.map_to(uuid, None)

        self.repair_late(uuid, lambda: self.decide(uuid, 'cell2'))

        mapping = self.read(
            self.database, instance_mappings.get_many, [uuid])[uuid]
        self.assertEqual('cell2', mapping.cell_mapping.name)

    def test_server_that_is_asked_for_again_is_not_decided_on(self):
        uuid = self.running()
        self.map_to(uuid, None)

        self.repair_late(uuid, lambda: self.request(uuid))

        mapping = self.read(
            self.database, instance_mappings.get_many, [uuid])[uuid]
        self.assertIsNone(mapping.cell_mapping)

    def test_server_that_is_asked_for_again_keeps_its_request(self):
        uuid = self.failed()
        self.write(self.cell('cell0'), instances.purge, [uuid])

        self.repair_late(uuid, lambda: self.request(uuid))

        self.assertIsNotNone(self.read(
            self.database, build_requests.get, uuid))

    def test_server_that_was_deleted_is_not_buried(self):
        uuid = self.accept()
        self.forget(uuid)

        self.repair_late(uuid, lambda: self.write(
            self.database, instance_mappings.mark_deleted, [uuid],
            samples.NOW))

        self.assertEqual(set(), self.rows(uuid))

    def test_server_that_is_gone_claims_nothing(self):
        uuid = self.running()
        self.claims.release([uuid])

        self.repair_late(uuid, lambda: self.write(
            self.cell('cell1'), instances.delete, uuid, samples.NOW))

        self.assertEqual([], self.held(uuid))

    def test_row_of_a_deleted_server_on_a_host_is_not_marked(self):
        uuid = self.failed('cell1')
        self.write(self.database, instance_mappings.mark_deleted, [uuid],
                   samples.NOW)

        self.repair_late(uuid, lambda: self.change_row(
            uuid, 'cell1', host='a1'))

        self.assertIsNotNone(self.read(
            self.cell('cell1'), instances.get, uuid))

    def test_error_that_is_rebuilt_gets_no_reason(self):
        uuid = self.failed('cell1', fault=False)

        self.repair_late(uuid, lambda: self.change_row(
            uuid, 'cell1', vm_state='active'))
        self.change_row(uuid, 'cell1', vm_state='error')

        self.assertFound(('S13', 'no-reason', uuid, 'cell1'))
