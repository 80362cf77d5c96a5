# SPDX-License-Identifier: Apache-2.0

from cellsched.audit import auditor
from cellsched.cells import cell0
from cellsched.db.api import build_requests
from cellsched.db.api import host_mappings
from cellsched.db.api import instance_mappings
from cellsched.db.cell import instances
from cellsched.db.cell import server_moves
from cellsched import exception
from cellsched import migrations
from tests.unit.audit import base
from tests.unit.db import samples


class TestFences(base.TestCase):
    """A concurrent change between the finding and the repair."""

    def repair_late(self, uuid, change):
        """Repair a finding after a concurrent change."""
        facts = self.reader.servers([uuid], everywhere=True, asked=True)[uuid]
        found = [each for each in auditor.judge(facts) if each.action]
        self.assertNotEqual([], found)
        change()
        for each in found:
            self.repairs.repair(each, facts)

    def test_claim_of_a_rescheduled_or_requested_server_stays(self):
        for change in (lambda uuid: self.map_to(uuid, None), self.request):
            uuid = self.failed()
            self.take(uuid, 'a1')

            self.repair_late(uuid, lambda: change(uuid))

            self.assertNotEqual({}, self.held(uuid))

    def test_claim_of_a_migration_of_an_undecided_server_stays(self):
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

        self.assertNotEqual({}, self.held(name))

    def test_claim_of_a_rebuilt_server_stays(self):
        uuid = self.failed('cell1')
        self.take(uuid, 'a1')

        self.repair_late(uuid, lambda: self.change_row(
            uuid, 'cell1', vm_state='active', task_state='rebuilding'))

        self.assertNotEqual({}, self.held(uuid))

    def test_claim_of_a_beginning_migration_stays(self):
        uuid = self.running()
        name = migrations.consumer(uuid)
        self.take(name, 'a2')

        self.repair_late(uuid, lambda: self.move(uuid))

        self.assertNotEqual({}, self.held(name))

    def test_row_with_a_new_host_is_not_removed(self):
        uuid = self.running()
        self.put_row(uuid, 'cell2')

        self.repair_late(uuid, lambda: self.change_row(
            uuid, 'cell2', host='b1'))

        self.assertEqual({'cell1', 'cell2'}, self.rows(uuid))

    def test_row_with_a_new_mapping_is_not_removed(self):
        uuid = self.running()
        self.put_row(uuid, 'cell2')

        self.repair_late(uuid, lambda: self.map_to(uuid, 'cell2'))

        self.assertEqual({'cell1', 'cell2'}, self.rows(uuid))

    def test_server_with_a_new_cell_keeps_the_cell(self):
        uuid = self.running()
        self.map_to(uuid, None)

        self.repair_late(uuid, lambda: self.decide(uuid, 'cell2'))

        mapping = self.read(
            self.database, instance_mappings.get_many, [uuid])[uuid]
        self.assertEqual('cell2', mapping.cell_mapping.name)

    def test_server_with_a_new_request_is_not_mapped(self):
        uuid = self.running()
        self.map_to(uuid, None)

        self.repair_late(uuid, lambda: self.request(uuid))

        mapping = self.read(
            self.database, instance_mappings.get_many, [uuid])[uuid]
        self.assertIsNone(mapping.cell_mapping)

    def test_server_with_a_new_request_keeps_the_request(self):
        uuid = self.failed()
        self.write(self.cell('cell0'), instances.purge, [uuid])

        self.repair_late(uuid, lambda: self.request(uuid))

        self.assertIsNotNone(self.read(
            self.database, build_requests.get, uuid))

    def test_deleted_server_is_not_buried(self):
        uuid = self.accept()
        self.forget(uuid)

        self.repair_late(uuid, lambda: self.write(
            self.database, instance_mappings.mark_deleted, [uuid],
            samples.NOW))

        self.assertEqual(set(), self.rows(uuid))

    def test_deleted_server_does_not_claim(self):
        uuid = self.running()
        self.claims.release([uuid])

        self.repair_late(uuid, lambda: self.write(
            self.cell('cell1'), instances.delete, uuid, samples.NOW))

        self.assertEqual({}, self.held(uuid))

    def test_row_of_a_deleted_server_on_a_host_is_not_marked(self):
        uuid = self.failed('cell1')
        self.write(self.database, instance_mappings.mark_deleted, [uuid],
                   samples.NOW)

        self.repair_late(uuid, lambda: self.change_row(
            uuid, 'cell1', host='a1'))

        self.assertIsNotNone(self.read(
            self.cell('cell1'), instances.get, uuid))

    def test_rebuilt_server_gets_no_reason(self):
        uuid = self.failed('cell1', fault=False)

        self.repair_late(uuid, lambda: self.change_row(
            uuid, 'cell1', vm_state='active'))
        self.change_row(uuid, 'cell1', vm_state='error')

        self.assertFound(('S13', 'no-reason', uuid, 'cell1'))

    def test_restored_request_is_not_buried(self):
        uuid = self.accept()
        table = build_requests.models.request_specs
        with self.database.reader() as connection:
            text = connection.execute(table.select()).one().spec
        self.spoil(uuid, 'request_specs', spec='x')

        self.repair_late(uuid, lambda: self.spoil(
            uuid, 'request_specs', spec=text))

        self.assertEqual(set(), self.rows(uuid))

    def test_newly_leased_request_is_not_buried(self):
        uuid = self.accept()
        self.spoil(uuid, 'request_specs')

        self.repair_late(uuid, lambda: self.write(
            self.database, build_requests.lease, [uuid], 'somebody',
            self.clock.timestamp(), self.clock.timestamp() + 60))

        self.assertEqual(set(), self.rows(uuid))

    def test_request_leased_during_its_burial_is_not_buried(self):
        uuid = self.accept()
        self.take(uuid, 'a1')
        self.spoil(uuid, 'request_specs')
        bury = cell0.Cell0.bury

        def late(*args):
            self.spoil(uuid, 'build_requests', lease_owner='somebody')
            return bury(*args)

        self.patch(cell0.Cell0, 'bury', late)
        self.repair_late(uuid, lambda: None)

        self.assertEqual(set(), self.rows(uuid))
        self.assertNotEqual({}, self.held(uuid))

    def test_request_is_buried_where_claims_are_another_process_s(self):
        uuid = self.accept()
        self.take(uuid, 'a1')
        self.spoil(uuid, 'request_specs')
        self.reader.claims = None

        self.repair_late(uuid, lambda: None)

        self.assertEqual({'cell0'}, self.rows(uuid))
        self.assertNotEqual({}, self.held(uuid))

    def test_build_with_a_cast_to_its_host_continues(self):
        uuid = self.building()

        self.repair_late(uuid, lambda: self.cast(uuid, 'cell1'))

        self.assertEqual('building', self.row(uuid, 'cell1').vm_state)

    def test_build_on_a_host_continues(self):
        uuid = self.building()

        self.repair_late(uuid, lambda: self.change_row(
            uuid, 'cell1', host='a1', task_state='spawning'))

        self.assertEqual('building', self.row(uuid, 'cell1').vm_state)

    def test_task_of_a_server_with_a_new_migration_stays(self):
        uuid = self.running()
        self.change_row(uuid, 'cell1', task_state='resize_prep')

        self.repair_late(uuid, lambda: self.move(uuid))

        self.assertEqual('resize_prep', self.row(uuid, 'cell1').task_state)

    def test_migration_with_a_newly_waiting_server_continues(self):
        uuid = self.running()
        name = self.move(uuid)
        self.take(name, 'a2')

        self.repair_late(uuid, lambda: self.change_row(
            uuid, 'cell1', task_state='resize_prep'))

        self.assertNotEqual({}, self.held(name))
        self.assertClean()

    def test_server_in_a_move_keeps_its_claims(self):
        uuid = self.running()
        self.claims.release([uuid])
        self.take(uuid, 'a2')

        self.repair_late(uuid, lambda: self.move(uuid))

        self.assertEqual([self.providers['a2']], [*self.held(uuid)])

    def test_claim_of_a_move_is_not_taken_for_another(self):
        uuid = self.running()
        self.claims.release([uuid])
        self.take(uuid, 'a2')

        def claim():
            self.take(migrations.consumer(uuid), 'a2')

        self.assertRaises(
            exception.ClaimConflict, self.repair_late, uuid, claim)

        self.assertEqual([self.providers['a2']], [*self.held(uuid)])

    def test_changed_server_is_not_remapped(self):
        for change in (
                lambda uuid: self.put_row(uuid, 'cell1'),
                lambda uuid: self.request(uuid),
                lambda uuid: self.map_to(uuid, 'cell0'),
                lambda uuid: self.write(
                    self.database, instance_mappings.mark_deleted, [uuid],
                    samples.NOW),
                lambda uuid: self.change_row(uuid, 'cell2', host=None)):
            uuid = self.running('cell2', 'b1')
            self.map_to(uuid, 'cell1')

            self.repair_late(uuid, lambda: change(uuid))

            self.assertNotEqual('cell2', self.mapped(uuid))
            self.claims.release([uuid])

    def test_server_of_a_remapped_host_stays(self):
        uuid = self.running('cell2', 'b1')
        self.map_to(uuid, 'cell1')
        table = host_mappings.models.host_mappings

        def unmap():
            with self.database.writer() as connection:
                connection.execute(table.delete())

        self.repair_late(uuid, unmap)

        self.assertEqual('cell1', self.mapped(uuid))

    def test_deletion_on_a_new_host_is_not_finished(self):
        uuid = self.running()
        self.change_row(uuid, 'cell1', task_state='deleting', host=None)

        self.repair_late(uuid, lambda: self.change_row(
            uuid, 'cell1', host='a1'))

        self.assertIsNotNone(self.row(uuid, 'cell1'))


class TestTwice(base.TestCase):
    """Two concurrent audits repair the same."""

    def test_each_repair_may_be_done_again(self):
        unreadable, lost = self.accept(), self.accept()
        self.spoil(unreadable, 'request_specs')
        self.forget(lost)
        mapped = self.running('cell2', 'b1')
        self.map_to(mapped, 'cell1')
        building = self.building()
        self.take(building, 'a2')
        task, move, deleting, amount = (self.running() for _ in range(4))
        self.change_row(task, 'cell1', task_state='rebuilding')
        self.move(move)
        self.change_row(deleting, 'cell1', task_state='deleting', host=None)
        self.claims.release([amount, deleting])
        self.take(amount, 'a1', VCPU=1)

        for uuid, kind in (
                (unreadable, 'request-unreadable'), (lost, 'no-fate'),
                (mapped, 'row-elsewhere'), (building, 'build-stranded'),
                (task, 'task-stranded'), (move, 'move-stranded'),
                (deleting, 'deleting-stranded'), (amount, 'claim-amount')):
            facts = self.reader.servers([uuid], True, True)[uuid]
            [found] = [each for each in auditor.judge(facts) if each.action]
            self.assertEqual(kind, found.kind)
            for _ in range(2):
                self.repairs.repair(found, facts)

        self.claims.release([building])
        self.assertClean()
