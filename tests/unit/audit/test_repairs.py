# SPDX-License-Identifier: Apache-2.0
"""Repairs of findings that are still valid, and the rows that they write."""

import dataclasses

import sqlalchemy as sa

from cellsched.audit import auditor
from cellsched.audit import findings
from cellsched.cells import cell0
from cellsched.claims import base as claims_base
from cellsched.db.api import build_requests
from cellsched.db.api import host_mappings
from cellsched.db.api import instance_mappings
from cellsched.db.api import models as api_models
from cellsched.db.cell import instances
from cellsched.db.cell import models
from cellsched.db.cell import on_host
from cellsched.db.cell import server_moves
from cellsched import exception
from cellsched.hardware import units
from cellsched import migrations
from cellsched import objects
from cellsched.testing import clock
from tests.unit.audit import base
from tests.unit.db import samples


class TestFences(base.TestCase):
    """A concurrent change between the finding and the repair."""

    def repair_late(self, uuid, change):
        """Repair a finding after a concurrent change."""
        facts = self.facts(uuid)
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

    def test_deleted_server_is_not_buried(self):
        uuid = self.accept()
        self.forget(uuid)

        self.repair_late(uuid, lambda: self.mark_deleted(uuid))

        self.assertEqual(set(), self.rows(uuid))

    def test_deleted_server_does_not_claim(self):
        uuid = self.running()
        self.claims.release([uuid])

        self.repair_late(uuid, lambda: self.write(
            self.cell('cell1'), instances.delete, uuid, samples.NOW))

        self.assertEqual({}, self.held(uuid))

    def test_row_of_a_deleted_server_on_a_host_is_not_marked(self):
        uuid = self.failed('cell1')
        self.mark_deleted(uuid)

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

        self.repair_late(uuid, lambda: self.lease(uuid))

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
                lambda uuid: self.mark_deleted(uuid),
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


Action = findings.Action


class TestClaiming(base.TestCase):

    def unclaimed(self):
        uuid = self.running()
        self.claims.release([uuid])
        return uuid

    def elsewhere(self):
        uuid = self.unclaimed()
        self.take(uuid, 'a2')
        return uuid

    def test_server_on_another_node_does_not_claim(self):
        uuid = self.unclaimed()
        found, facts = self.repairable(uuid)
        self.assertEqual(Action.CLAIM, found.action)

        for values in ({'host': 'a2', 'node': 'node-a2'},
                       {'host': 'a1', 'node': 'gone'},
                       {'host': 'a1', 'node': 'node-a1',
                        'task_state': 'deleting'}):
            self.change_row(uuid, 'cell1', **values)
            self.repairs.repair(found, facts)
            self.assertEqual({}, self.held(uuid), values)

        self.change_row(uuid, 'cell1', task_state=None)
        self.repairs.repair(found, facts)
        self.assertEqual({self.providers['a1']: base.SIZE}, self.held(uuid))

    def test_claims_of_named_cpus_are_not_replaced(self):
        self.claims.set_inventory(self.providers['a1'], {
            **{name: claims_base.Inventory(99999) for name in base.SIZE},
            units.cpu(3): claims_base.Inventory(1)})
        for amounts in ({**base.SIZE, 'VCPU': 2}, base.SIZE):
            uuid = self.running()
            self.claims.release([uuid])
            self.take(uuid, 'a1', **amounts, **{units.cpu(3): 1})
            self.change_row(uuid, 'cell1', project_id='project')
            if amounts == base.SIZE:
                self.take_second(uuid)
            facts = self.facts(uuid)

            [found] = [each for each in auditor.judge(facts)
                       if each.kind.startswith('claim-')]

            self.assertIsNone(found.action, found.kind)
            self.assertIn('only a scheduler chooses its CPUs', found.advice)
            self.claims.release([uuid])

    def take_second(self, uuid):
        """Add a claim elsewhere, in a way that the product never does."""
        held = self.claims.claims_of([uuid])[uuid]
        self.claims.release([uuid])
        self.claims.claim([*held, claims_base.Claim(
            uuid, self.providers['a2'], base.SIZE, project_id='project',
            user_id='user')])

    def test_claim_has_the_project_and_user_of_the_server(self):
        for make, owner in ((self.unclaimed, ('whose', 'who')),
                            (self.elsewhere, ('whose', None)),
                            (self.unclaimed, (None, None)),
                            (self.unclaimed, ('', ''))):
            uuid = make()
            self.change_row(
                uuid, 'cell1', project_id=owner[0], user_id=owner[1])

            self.repairs.repair(*self.repairable(uuid))

            [claim] = self.claims.claims_of([uuid])[uuid]
            self.assertEqual(
                (self.providers['a1'], owner[0] or None, owner[1] or None),
                (claim.provider, claim.project_id, claim.user_id))

    def test_server_without_a_row_does_not_claim(self):
        uuid = self.unclaimed()
        found, facts = self.repairable(uuid)
        self.write(self.cell('cell1'), instances.purge, [uuid])

        self.repairs.repair(found, facts)

        self.assertEqual({}, self.held(uuid))

    def test_repairs_without_a_shared_store_change_no_claim(self):
        unclaimed, elsewhere = self.unclaimed(), self.elsewhere()
        leaked = self.deleted()
        found = [self.repairable(uuid)
                 for uuid in (unclaimed, elsewhere, leaked)]
        self.assertEqual([Action.CLAIM, Action.RECLAIM, Action.RELEASE],
                         [each.action for each, _ in found])
        before = self.claims.claims_of([unclaimed, elsewhere, leaked])
        self.reader.claims = None

        for each, facts in found:
            self.repairs.repair(each, facts)
        self.repairs.recount(self.providers['a1'])

        self.assertEqual(
            before, self.claims.claims_of([unclaimed, elsewhere, leaked]))
        self.assertFalse(self.repairs.release(leaked, Action.RELEASE))

    def test_server_without_a_known_node_does_not_claim(self):
        uuid = self.unclaimed()
        found, facts = self.repairable(uuid)
        cell = self.by_name['cell1'].uuid
        facts = dataclasses.replace(facts, rows={
            cell: dataclasses.replace(facts.rows[cell], provider=None)})

        self.repairs.repair(found, facts)

        self.assertEqual({}, self.held(uuid))

    def test_server_of_unknown_size_cannot_claim(self):
        for values, asked, problem in (
                ({}, True, 'is missing'), ({'spec': 'x'}, True,
                                           'cannot be read'),
                ({}, False, 'was not looked at')):
            uuid = self.unclaimed()
            self.spoil(uuid, 'request_specs', **values)
            found, facts = self.repairable(uuid)
            if not asked:
                facts = self.reader.servers([uuid])[uuid]

            error = self.assertRaises(
                exception.RequestUnreadable, self.repairs.repair, found,
                facts)

            self.assertEqual(
                (uuid, 'request specification', problem),
                (error.uuid, error.what, error.problem))
            self.assertEqual({}, self.held(uuid))

    def test_claim_of_a_member_counts_for_its_group(self):
        for make in self.unclaimed, self.elsewhere:
            uuid, other = make(), samples.uuids(1)[0]
            group = objects.InstanceGroup(
                uuid=samples.uuids(1)[0], name='g', project_id='project',
                user_id='user', policy='anti-affinity', rules={})
            self.join(group, uuid)
            self.spoil(uuid, 'request_specs', spec=base.text(
                objects.RequestSpec(
                    instance_uuid=uuid, flavor=samples.flavor(),
                    instance_group=group)))

            self.repairs.repair(*self.repairable(uuid))

            self.assertEqual(
                {self.providers['a1']: base.SIZE}, self.held(uuid))
            self.assertRaises(
                exception.GroupPolicyViolated, self.claims.claim,
                [claims_base.Claim(
                    other, self.providers['a1'], base.SIZE,
                    claims_base.membership(group, 'a1', other))])

    def test_claim_of_a_changing_server_is_unchanged(self):
        uuid = self.elsewhere()
        found, facts = self.repairable(uuid)
        self.assertEqual(Action.RECLAIM, found.action)
        self.change_row(uuid, 'cell1', task_state='rebuilding')

        self.repairs.repair(found, facts)

        self.assertEqual({self.providers['a2']: base.SIZE}, self.held(uuid))
        self.assertEqual({}, self.held(migrations.consumer(uuid)))


class TestReleasing(base.TestCase):

    def test_claims_of_a_server_deleted_before_its_row_leak(self):
        for action in Action.RELEASE, Action.RELEASE_MOVE:
            uuid = self.accept()
            name = (uuid if action is Action.RELEASE
                    else migrations.consumer(uuid))
            self.take(name, 'a1')
            self.decide(uuid, 'cell1')
            self.forget(uuid)
            self.assertFalse(self.repairs.release(uuid, action))
            self.assertNotEqual({}, self.held(name))

            self.mark_deleted(uuid)
            self.assertTrue(self.repairs.release(uuid, action))
            self.assertEqual({}, self.held(name))

    def test_claims_of_a_buried_server_leak_with_or_without_a_record(self):
        for lost in False, True:
            uuid = self.failed()
            name = migrations.consumer(uuid)
            self.take(uuid, 'a1')
            self.take(name, 'a2')
            if lost:
                self.write(self.cell('cell0'), instances.purge, [uuid])
            else:
                # Whatever its record says, it is on no host.
                self.change_row(uuid, 'cell0', task_state='rebuilding')

            self.assertTrue(self.repairs.release(uuid, Action.RELEASE))
            self.assertEqual({}, self.held(uuid))
            self.assertTrue(self.repairs.release(uuid, Action.RELEASE_MOVE))
            self.assertEqual({}, self.claims.claims_of([uuid, name]))

    def test_claim_of_a_move_leaks_when_its_server_is_at_rest(self):
        for values, leaks in (
                ({'task_state': 'resize_prep'}, False),
                ({'task_state': None}, True),
                ({'task_state': 'resize_prep', 'deleted': 1}, True)):
            uuid = self.running()
            self.claims.release([uuid])
            self.take(migrations.consumer(uuid), 'a2')
            self.change_row(uuid, 'cell1', **values)

            self.assertEqual(leaks, self.repairs.release(
                uuid, Action.RELEASE_MOVE), values)
            self.assertEqual(not leaks, bool(self.held(
                migrations.consumer(uuid))), values)

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

    def test_claim_of_a_deleted_server_without_a_cell_goes(self):
        uuid = self.accept()
        self.take(uuid, 'a1')
        self.forget(uuid)
        self.mark_deleted(uuid)

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


class BurialCase(base.TestCase):

    def lost(self, **fields):
        uuid = self.accept(**fields)
        self.forget(uuid)
        return uuid


class TestLost(BurialCase):

    def test_lost_server_is_buried_without_a_shared_store(self):
        uuid = self.lost()
        self.take(uuid, 'a1')
        self.reader.claims = None

        self.repair(uuid, Action.BURY)

        self.assertEqual('cell0', self.mapped(uuid))
        self.assertNotEqual({}, self.held(uuid))

    def test_request_is_recorded(self):
        uuid = self.lost(project_id='whose', user_id='who')
        flavor = samples.flavor(
            id=7, vcpus=2, memory_mb=1024, root_gb=20, ephemeral_gb=5)
        self.spoil(uuid, 'request_specs', spec=base.text(
            objects.RequestSpec(
                instance_uuid=uuid, flavor=flavor, availability_zone='zone',
                image=objects.ImageMeta(id=uuid))))

        self.repair(uuid, Action.BURY)

        row = self.row(uuid, 'cell0')
        self.assertEqual(
            ('whose', 'who', f'Server {uuid}', 'error', None, None, uuid, 2,
             1024, 20, 5, 7, 'zone', flavor.flavorid),
            (row.project_id, row.user_id, row.display_name, row.vm_state,
             row.task_state, row.host, row.image_ref, row.vcpus,
             row.memory_mb, row.root_gb, row.ephemeral_gb,
             row.instance_type_id, row.availability_zone,
             self.read(self.cell('cell0'), on_host.get,
                       uuid).flavor.flavorid))
        self.assertIn('its record was lost', self.reason(uuid, 'cell0'))
        self.assertIn(uuid, self.reason(uuid, 'cell0'))

    def test_without_a_specification_its_owner_is_recorded(self):
        for values in ({}, {'spec': 'x'}, {'spec': base.text(
                objects.RequestSpec(is_bfv=True))}):
            uuid = self.lost(project_id='whose', user_id='who')
            self.spoil(uuid, 'request_specs', **values)

            self.repair(uuid, Action.BURY)

            row = self.row(uuid, 'cell0')
            self.assertEqual(
                ('whose', 'who', f'Server {uuid}', 'error'),
                (row.project_id, row.user_id, row.display_name,
                 row.vm_state))

    def test_server_with_a_new_request_is_kept(self):
        uuid = self.lost()
        found, facts = self.repairable(uuid)
        self.request(uuid)
        self.take(uuid, 'a1')

        self.repairs.repair(found, facts)

        self.assertIsNone(self.mapped(uuid))
        self.assertEqual(set(), self.rows(uuid))
        self.assertNotEqual({}, self.held(uuid))
        self.assertIsNotNone(self.read(
            self.database, build_requests.get, uuid))

    def test_unmapped_server_cannot_be_buried(self):
        uuid = self.lost()
        found, facts = self.repairable(uuid)
        self.unmap(uuid)

        error = self.assertRaises(
            exception.InstanceMappingNotFound, self.repairs.repair, found,
            facts)

        self.assertIn(uuid, error.format_message())


class TestUnreadable(BurialCase):

    def unreadable(self):
        uuid = self.accept()
        self.take(uuid, 'a1')
        self.spoil(uuid, 'request_specs')
        return uuid

    def lease_of(self, uuid):
        """Return the owner of a request's lease, and its seconds."""
        table = api_models.build_requests
        with self.database.reader() as connection:
            row = connection.execute(sa.select(table).where(
                table.c.instance_uuid == uuid)).one()
        return row.lease_owner, (
            row.lease_expires_at - self.database_clock.timestamp())

    def test_request_is_leased_while_cell0_is_down(self):
        uuid = self.unreadable()
        self.take_down('cell0')

        for _ in range(2):
            self.assertRaises(
                exception.DatabaseUnreachable, self.repairs.repair,
                findings.Finding('request-unreadable', uuid, '',
                                 action=Action.BURY_REQUEST),
                self.reader.servers([uuid])[uuid])

            owner, seconds = self.lease_of(uuid)
            self.assertTrue(owner)
            self.assertEqual(60, seconds)
            self.assertNotEqual({}, self.held(uuid))
            self.database_clock.advance(61)

    def test_lease_is_judged_by_the_clock_of_the_database(self):
        uuid = self.unreadable()
        now = self.database_clock.timestamp()
        self.write(self.database, build_requests.lease, [uuid], 'somebody',
                   now, now + 60)

        wrong = self.make_repairs(clock.WrongClock(600, self.clock))
        wrong.repair(*self.repairable(uuid, Action.BURY_REQUEST))

        self.assertEqual(('somebody', 60), self.lease_of(uuid))
        self.assertEqual(set(), self.rows(uuid))

    def test_server_deleted_meanwhile_keeps_its_claim(self):
        uuid = self.unreadable()
        found, facts = self.repairable(uuid)
        self.forget(uuid)

        self.repairs.repair(found, facts)

        self.assertNotEqual({}, self.held(uuid))
        self.assertIsNone(self.mapped(uuid))

    def test_restored_record_releases_the_claim(self):
        uuid = self.failed()
        self.write(self.cell('cell0'), instances.purge, [uuid])
        self.take(uuid, 'a1')

        self.repair(uuid, Action.BURY)

        self.assertEqual({'cell0'}, self.rows(uuid))
        self.assertEqual({}, self.held(uuid))


class RowCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.clock.advance(3600)

    def rows_of(self, table, uuid, cell='cell1'):
        column = table.c.get('instance_uuid', table.c.get('uuid'))
        with self.cell(cell).reader() as connection:
            return connection.execute(
                sa.select(table).where(column == uuid)).all()

    def assertFault(self, uuid, *words, cell='cell1'):
        """Check that the auditor recorded this fault now."""
        [fault] = self.rows_of(models.instance_faults, uuid, cell)
        self.assertEqual(('audit', self.clock.now()),
                         (fault.host, fault.created_at))
        for word in (uuid, *words):
            self.assertIn(word, fault.message)

    def assertNoFault(self, uuid):
        self.assertEqual([], self.rows_of(models.instance_faults, uuid))


class TestFailing(RowCase):

    def test_abandoned_build_ends_in_error(self):
        uuid = self.building()

        self.repair(uuid, Action.FAIL)

        self.assertFault(uuid, 'The build of')
        [row] = self.rows_of(models.instances, uuid)
        self.assertEqual(('error', None, None, self.clock.now()),
                         (row.vm_state, row.task_state, row.host,
                          row.updated_at))


class TestTasks(RowCase):

    def test_fault_of_a_reverted_task_has_its_name(self):
        uuid = self.running()
        self.change_row(uuid, 'cell1', task_state='resize_prep')

        self.repair(uuid, Action.TAKE_BACK)

        self.assertFault(uuid, 'migration')
        [row] = self.rows_of(models.instances, uuid)
        self.assertEqual(('active', None, 'a1', self.clock.now()),
                         (row.vm_state, row.task_state, row.host,
                          row.updated_at))

    def test_unknown_task_is_not_reverted(self):
        uuid = self.running()
        self.change_row(uuid, 'cell1', task_state='resize_prep')
        found, _ = self.repairable(uuid, Action.TAKE_BACK)
        self.change_row(uuid, 'cell1', task_state='rescuing')
        facts = self.reader.servers([uuid])[uuid]

        self.repairs.repair(found, facts)

        self.assertNoFault(uuid)
        self.assertEqual('rescuing', self.row(uuid, 'cell1').task_state)


class TestMoves(RowCase):

    def stranded(self):
        uuid = self.running()
        self.take(self.move(uuid), 'a2')
        return uuid

    def status(self, uuid):
        [move] = self.rows_of(models.migrations, uuid)
        return move.status

    def test_fault_of_an_aborted_migration_has_its_name(self):
        uuid = self.stranded()

        self.repair(uuid, Action.GIVE_UP)

        [fault] = self.rows_of(models.instance_faults, uuid)
        self.assertEqual('audit', fault.host)
        self.assertIn('migration', fault.message)
        self.assertIn(uuid, fault.message)
        self.assertEqual(server_moves.ERROR, self.status(uuid))
        self.assertEqual({}, self.held(migrations.consumer(uuid)))

    def test_move_stays_where_claims_are_another_process_s(self):
        uuid = self.stranded()
        self.reader.claims = None
        self.repairs = self.make_repairs(self.clock)

        self.repair(uuid, Action.GIVE_UP)

        self.assertNoFault(uuid)
        self.assertEqual(server_moves.PREPARING, self.status(uuid))

    def test_changed_migration_is_not_aborted(self):
        for status in (server_moves.MIGRATING, server_moves.MOVED,
                       server_moves.FINISHED, server_moves.DONE):
            uuid = self.stranded()
            found = self.repairable(uuid, Action.GIVE_UP)
            with self.cell('cell1').writer() as connection:
                connection.execute(
                    sa.update(models.migrations)
                    .where(models.migrations.c.instance_uuid == uuid)
                    .values(status=status))

            self.repairs.repair(*found)

            self.assertNoFault(uuid)
            self.assertEqual(status, self.status(uuid))
            self.claims.release(migrations.consumers([uuid]))


class TestReasons(RowCase):

    def test_unknown_reason_is_recorded(self):
        uuid = self.failed('cell1', fault=False)

        self.repair(uuid, Action.EXPLAIN)

        self.assertFault(uuid, 'without a recorded reason')
        [action] = self.rows_of(models.instance_actions, uuid)
        self.assertEqual(samples.NOW, action.start_time)

    def test_failed_action_is_recorded(self):
        uuid = self.failed(action=False)

        self.repair(uuid, Action.EXPLAIN)

        [action] = self.rows_of(models.instance_actions, uuid, 'cell0')
        now = self.clock.now()
        self.assertEqual(
            ('create', 'Error', now, now, now),
            (action.action, action.message, action.start_time,
             action.finish_time, action.created_at))
        self.assertTrue(action.request_id)
        [fault] = self.rows_of(models.instance_faults, uuid, 'cell0')
        self.assertEqual('host', fault.host)

    def test_reason_is_recorded_once(self):
        for cell, fields in (('cell1', {'fault': False}),
                             ('cell0', {'action': False})):
            uuid = self.failed(cell, **fields)
            found = self.repairable(uuid, Action.EXPLAIN)

            for _ in range(2):
                self.repairs.repair(*found)

            for table in models.instance_faults, models.instance_actions:
                self.assertEqual(1, len(self.rows_of(table, uuid, cell)))


class TestDeleting(RowCase):

    def deleted_at(self, uuid):
        [row] = self.rows_of(models.instances, uuid)
        return row.deleted_at

    def mapping(self, uuid):
        table = api_models.instance_mappings
        with self.database.reader() as connection:
            return connection.execute(sa.select(table).where(
                table.c.instance_uuid == uuid)).one()

    def test_deletion_has_its_time_in_cell_and_api_database(self):
        uuid = self.running()
        self.change_row(uuid, 'cell1', task_state='deleting', host=None)

        self.repair(uuid, Action.DELETE)

        now = self.clock.now()
        self.assertEqual(now, self.deleted_at(uuid))
        mapping = self.mapping(uuid)
        self.assertEqual((True, now),
                         (mapping.queued_for_delete, mapping.updated_at))

    def test_row_of_a_deleted_server_is_removed_without_its_mapping(self):
        uuid = self.failed('cell1')
        self.mark_deleted(uuid)

        self.repair(uuid, Action.DELETE)

        self.assertEqual(self.clock.now(), self.deleted_at(uuid))
        self.assertEqual(samples.NOW, self.mapping(uuid).updated_at)
