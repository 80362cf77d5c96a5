# SPDX-License-Identifier: Apache-2.0
"""Findings of invalid states in databases and claims, and their repairs."""

import sqlalchemy as sa

from cellsched.claims import base as claims_base
from cellsched.db.api import host_mappings
from cellsched.db.api import instance_mappings
from cellsched.db.cell import build_casts
from cellsched.db.cell import compute_nodes
from cellsched.db.cell import hosts
from cellsched.db.cell import instance_history
from cellsched.db.cell import instances
from cellsched.db.cell import models
from cellsched.db.cell import server_moves
from cellsched.db.cell import states
from cellsched import migrations
from cellsched import objects
from cellsched.objects import child_providers
from tests.unit.audit import base
from tests.unit.db import samples


class TestValidStates(base.TestCase):

    def test_valid_states_have_no_finding(self):
        self.running()
        self.running('cell2', 'b1')
        self.failed()
        self.failed('cell2', action=False)
        self.claims.release([self.deleted()])

        self.assertClean()
        # Nothing had to be looked at again.
        self.assertEqual([], self.clock.slept)

    def test_builds_in_progress_have_no_finding(self):
        self.accept()
        decided = self.accept()
        self.decide(decided, 'cell1')
        written = self.accept()
        self.take(written, 'a1')
        self.decide(written, 'cell1')
        self.put_row(written, 'cell1')
        buried = self.accept()
        self.decide(buried, 'cell0')

        self.assertClean()

    def test_deletion_in_progress_has_no_finding(self):
        uuid = self.running()
        self.mark_deleted(uuid)
        self.change_row(uuid, 'cell1', task_state='deleting')

        self.assertClean()


class TestUnmapped(base.TestCase):

    def test_request_without_mapping_is_mapped(self):
        uuid = self.accept()
        self.unmap(uuid)

        self.assertMends(('S3', 'request-unmapped', uuid, ''))

    def test_unmapped_row_is_mapped_to_its_cell(self):
        uuid = self.running('cell2', 'b1')
        self.unmap(uuid)

        self.assertMends(('S3', 'row-unmapped', uuid, 'cell2'))

        mapping = self.read(
            self.database, instance_mappings.get_many, [uuid])[uuid]
        self.assertEqual(
            ('cell2', 'project', 'user'),
            (mapping.cell_mapping.name, mapping.project_id, mapping.user_id))


class TestDeleted(base.TestCase):

    def test_request_of_a_deleted_server_goes(self):
        uuid = self.accept()
        self.mark_deleted(uuid)

        self.assertMends(('S2', 'request-of-deleted', uuid, ''))

    def test_row_of_a_deleted_server_without_a_host_is_removed(self):
        uuid = self.failed('cell1')
        self.mark_deleted(uuid)

        self.assertMends(('S2', 'deleted-visible', uuid, 'cell1'))


class TestRequested(base.TestCase):

    def test_request_of_a_running_server_is_removed(self):
        uuid = self.requested()

        self.assertMends(('S2', 'request-left', uuid, 'cell1'))

    def test_leased_request_of_a_running_server_stays(self):
        for loses in self.requested, self.undecided:
            uuid = loses()
            self.lease(uuid)

            self.assertFound(('S2', 'request-left', uuid, 'cell1'), fix=True)
            self.forget(uuid)
            self.decide(uuid, 'cell1')

    def test_running_server_with_a_restored_request_keeps_its_cell(self):
        uuid = self.undecided()

        self.assertMends(('S2', 'request-left', uuid, 'cell1'))

        mapping = self.read(
            self.database, instance_mappings.get_many, [uuid])[uuid]
        self.assertEqual('cell1', mapping.cell_mapping.name)

    def requested(self):
        """Return a running server with a build request."""
        uuid = self.running()
        self.request(uuid)
        return uuid

    def undecided(self):
        """Return such a server whose decision is lost."""
        uuid = self.requested()
        cell = self.read(self.database, instance_mappings.get_many, [uuid])[
            uuid].cell_mapping
        self.write(self.database, instance_mappings.withdraw, [uuid], cell.id,
                   samples.NOW)
        return uuid


class TestUnreadable(base.TestCase):

    def broken(self):
        """Yield requests that are broken, each in its way, and the reason."""
        for table, values, reason in (
                ('build_requests', {'instance': 'x'}, 'cannot be read'),
                ('request_specs', {'spec': 'x'}, 'cannot be read'),
                ('request_specs', {}, 'is missing')):
            uuid = self.accept()
            self.spoil(uuid, table, **values)
            yield uuid, reason

    def test_deleted_server_is_looked_for_in_every_cell(self):
        for waits, shows in ('cell1', 'cell2'), ('cell2', 'cell1'):
            uuid = self.running(waits, 'a1' if waits == 'cell1' else 'b1')
            self.put_row(uuid, shows, vm_state='active', task_state=None)
            self.change_row(uuid, waits, task_state='deleting')
            self.mark_deleted(uuid)

            self.assertMends(('S2', 'deleted-visible', uuid, shows))

    def test_invalid_request_is_buried_with_the_reason(self):
        made = dict(self.broken())
        for uuid in made:
            self.take(uuid, 'a1')

        self.assertMends(*(
            ('S2', 'request-unreadable', uuid, '') for uuid in made))

        for uuid, reason in made.items():
            self.assertEqual('cell0', self.mapped(uuid))
            self.assertIn(reason, self.reason(uuid, 'cell0'))
            row = self.row(uuid, 'cell0')
            self.assertEqual(('project', 'user'),
                             (row.project_id, row.user_id))
            self.assertEqual({}, self.held(uuid))

    def test_request_of_a_later_release_is_reported_only(self):
        uuid = self.accept()
        self.spoil(uuid, 'request_specs', spec=(
            '{"nova_object.name": "RequestSpec", "nova_object.namespace": '
            '"nova", "nova_object.version": "99.0", "nova_object.data": {}}'))

        report = self.assertFound(
            ('S2', 'request-unreadable', uuid, ''), fix=True)

        self.assertIn('start conductors', report.remaining[0].repair)
        self.assertEqual(set(), self.rows(uuid))

    def test_leased_invalid_request_is_not_buried(self):
        made = dict(self.broken())
        self.lease(*made)

        self.assertFound(*(
            ('S2', 'request-unreadable', uuid, '') for uuid in made),
            fix=True)

        for uuid in made:
            self.assertEqual(set(), self.rows(uuid))

    def test_invalid_request_does_not_stop_the_audit(self):
        made = dict(self.broken())
        leaked = self.deleted()

        self.assertFound(
            *(('S2', 'request-unreadable', uuid, '') for uuid in made),
            ('S4', 'claim-leaked', leaked, 'cell1'))


class TestUndecided(base.TestCase):

    def test_server_without_any_fate_is_buried_with_the_reason(self):
        uuid = self.accept()
        self.take(uuid, 'a1')
        self.forget(uuid)

        self.assertMends(('S2', 'no-fate', uuid, ''))

        self.assertEqual({'cell0'}, self.rows(uuid))
        [reason] = self.read(self.cell('cell0'), instance_history.latest,
                             [uuid]).values()
        self.assertIn('lost', reason)
        self.assertEqual({}, self.claims.claims_of([uuid]))

    def test_buried_server_without_a_cell_is_mapped_to_cell0(self):
        uuid = self.failed()
        self.map_to(uuid, None)

        self.assertMends(('S3', 'undecided', uuid, 'cell0'))

    def test_abandoned_row_is_removed_and_buried(self):
        uuid = self.accept()
        self.put_row(uuid, 'cell1')
        self.forget(uuid)

        self.assertMends(('S3', 'undecided', uuid, 'cell1'))

        self.assertEqual({'cell0'}, self.rows(uuid))

    def test_row_of_a_running_server_is_kept_in_two_cells(self):
        uuid = self.running('cell2', 'b1')
        self.map_to(uuid, None)
        self.put_row(uuid, 'cell1')

        self.assertMends(('S2', 'two-cells', uuid, 'cell1'),
                         ('S3', 'undecided', uuid, 'cell2'))

        self.assertEqual({'cell2'}, self.rows(uuid))


class TestDecided(base.TestCase):

    def test_cell0_record_of_a_running_server_is_removed(self):
        uuid = self.running()
        self.put_row(uuid, 'cell0', vm_state='error', task_state=None)

        self.assertMends(('S2', 'cell-and-cell0', uuid, 'cell0'))

        self.assertEqual({'cell1'}, self.rows(uuid))

    def test_lost_record_in_cell0_is_made_again(self):
        uuid = self.failed()
        self.write(self.cell('cell0'), instances.purge, [uuid])

        self.assertMends(('S3', 'row-lost', uuid, 'cell0'))

    def test_mapping_against_row_host_and_claims_is_repaired(self):
        uuid = self.running('cell2', 'b1')
        self.map_to(uuid, 'cell1')

        self.assertMends(('S3', 'row-elsewhere', uuid, 'cell2'))

        self.assertEqual('cell2', self.mapped(uuid))


class TestClaims(base.TestCase):

    def test_claim_of_a_deleted_server_goes(self):
        uuid = self.deleted()

        self.assertMends(('S4', 'claim-leaked', uuid, 'cell1'))

        self.assertEqual({}, self.claims.claims_of([uuid]))

    def test_claim_of_an_error_on_a_host_stays(self):
        uuid = self.running()
        self.change_row(uuid, 'cell1', vm_state='error')

        self.assertMends(('S13', 'no-reason', uuid, 'cell1'))

        self.assertIn(uuid, self.claims.claims_of([uuid]))

    def test_running_server_without_a_claim_claims(self):
        uuid = self.running()
        self.claims.release([uuid])

        self.assertMends(('S4', 'unclaimed', uuid, 'cell1'))

        [claim] = self.claims.claims_of([uuid])[uuid]
        self.assertEqual((self.providers['a1'], base.SIZE),
                         (claim.provider, claim.resources))

    def test_running_server_without_a_claim_on_a_full_host_stays(self):
        uuid = self.running()
        self.claims.release([uuid])
        for other in samples.uuids(4):
            self.take(other, 'a1')

        report = self.assertFound(
            ('S4', 'unclaimed', uuid, 'cell1'), fix=True)

        self.assertEqual([], report.repaired)

    def test_server_without_resources_needs_no_claim(self):
        uuid = self.running()
        self.claims.release([uuid])
        spec = objects.RequestSpec(instance_uuid=uuid, flavor=samples.flavor(
            vcpus=0, memory_mb=0, root_gb=0))
        self.spoil(uuid, 'request_specs',
                   spec=base.text(spec))
        self.change_row(uuid, 'cell1', vcpus=0, memory_mb=0, root_gb=0)

        self.assertClean()


class TestRightClaims(base.TestCase):
    """A server at rest holds one claim, on its host, of its size."""

    def hold(self, uuid, *places, **resources):
        """Replace the claims of a server."""
        self.claims.release([uuid])
        self.claims.claim([
            claims_base.Claim(uuid, self.providers[host],
                              resources or base.SIZE, project_id='project')
            for host in places])

    def assertHolds(self, uuid, host):
        self.assertEqual({self.providers[host]: base.SIZE}, self.held(uuid))
        self.assertEqual({}, self.held(migrations.consumer(uuid)))

    def test_claim_on_another_host_is_claimed_anew(self):
        uuid = self.running()
        self.hold(uuid, 'a2')

        self.assertMends(('S4', 'claim-elsewhere', uuid, 'cell1'))

        self.assertHolds(uuid, 'a1')

    def give_child(self, host):
        """Give a host a child with four VGPU; return it."""
        node = self.providers[host]
        uuid = child_providers.uuid_of(node, 'gpu0')
        self.write(self.cell('cell1'), compute_nodes.save, '', host,
                   f'node-{host}', {'providers': child_providers.dump([
                       child_providers.Child(uuid, 'gpu0')])}, samples.NOW)
        self.claims.set_inventory(uuid, {'VGPU': claims_base.Inventory(4)})
        return uuid

    def test_claims_on_child_providers_stay_after_a_second_claim(self):
        uuid, child = self.running(), self.give_child('a1')
        self.providers['other'] = self.give_child('a2')
        spec = objects.RequestSpec(instance_uuid=uuid, flavor=samples.flavor(
            extra_specs={'resources1:VGPU': '2'}))
        self.spoil(uuid, 'request_specs',
                   spec=base.text(spec))
        right = [claims_base.Claim(uuid, self.providers['a1'], base.SIZE,
                                   project_id='project'),
                 claims_base.Claim(uuid, child, {'VGPU': 2},
                                   project_id='project')]
        self.claims.release([uuid])
        self.claims.claim(right)
        self.assertClean()
        self.claims.release([uuid])
        self.claims.claim([*right, claims_base.Claim(
            uuid, self.providers['other'], {'VGPU': 1},
            project_id='project')])

        self.assertMends(('S4', 'claim-second', uuid, 'cell1'))

        self.assertEqual(
            {claim.provider: claim.resources for claim in right},
            self.held(uuid))
        self.assertEqual({}, self.held(migrations.consumer(uuid)))

    def test_claim_of_another_amount_is_claimed_anew(self):
        self.offer('cell1', 'a1', 10)
        made = []
        for resources in ({**base.SIZE, 'VCPU': 2},
                          {**base.SIZE, 'MEMORY_MB': 1},
                          {'VCPU': 1, 'MEMORY_MB': 512}):
            made.append(self.running())
            self.hold(made[-1], 'a1', **resources)

        self.assertMends(*(
            ('S4', 'claim-amount', uuid, 'cell1') for uuid in made))

        for uuid in made:
            self.assertHolds(uuid, 'a1')

    def test_wrong_claim_stays_without_capacity_for_the_right_claim(self):
        uuid = self.running()
        self.hold(uuid, 'a1', VCPU=1)
        for other in samples.uuids(3):
            self.take(other, 'a1')
        self.take(samples.uuids(1)[0], 'a1', MEMORY_MB=1)

        report = self.assertFound(
            ('S4', 'claim-amount', uuid, 'cell1'), fix=True)

        self.assertEqual([], report.repaired)
        self.assertEqual({self.providers['a1']: {'VCPU': 1}},
                         self.held(uuid))

    def test_server_of_unknown_size_is_kept(self):
        uuid = self.running()
        self.hold(uuid, 'a2')
        self.spoil(uuid, 'request_specs')

        self.assertKept(('S4', 'claim-elsewhere', uuid, 'cell1'),
                        ('S13', 'spec-missing', uuid, 'cell1'))

    def test_server_in_a_move_may_hold_any_claim(self):
        uuid = self.running()
        self.move(uuid)
        self.change_row(uuid, 'cell1', task_state='resize_prep')
        self.hold(uuid, 'a2')
        cleaned = self.running()
        self.move(cleaned, status=server_moves.FINISHED)
        self.hold(cleaned, 'a2')

        self.assertClean()


class TestClaimsOfMoves(base.TestCase):

    def test_claim_of_an_ended_migration_is_released(self):
        uuid = self.running()
        name = self.move(uuid, status=server_moves.ERROR)
        self.take(name, 'a2')

        self.assertMends(('S4', 'move-claim-leaked', uuid, 'cell1'))

        self.assertEqual({uuid}, {*self.claims.claims_of([uuid, name])})


class TestReasons(base.TestCase):

    def test_fault_without_a_text_gets_an_unknown_reason(self):
        uuid = self.failed('cell2', fault=False)
        table = instance_history.models.instance_faults
        with self.cell('cell2').writer() as connection:
            connection.execute(table.insert().values(
                instance_uuid=uuid, code=500, message=' ', deleted=0,
                created_at=samples.NOW))

        self.assertMends(('S13', 'no-reason', uuid, 'cell2'))

    def test_missing_action_and_fault_are_recorded(self):
        uuid = self.failed(action=False, fault=False)

        self.assertMends(('S13', 'no-action', uuid, 'cell0'),
                         ('S13', 'no-reason', uuid, 'cell0'))


class TestBuilds(base.TestCase):

    def test_build_without_a_cast_ends_in_error(self):
        for state in states.SCHEDULING, states.WAITING:
            uuid = self.building(task_state=state.task_state)
            self.take(uuid, 'a1')

            self.assertMends(('L1', 'build-stranded', uuid, 'cell1'))

            self.assertEqual('error', self.row(uuid, 'cell1').vm_state)
            self.assertIn(f'The build of {uuid} was not finished',
                          self.reason(uuid, 'cell1'))
            self.assertEqual({}, self.held(uuid))

    def test_build_with_a_cast_continues(self):
        for state in states.SCHEDULING, states.WAITING, states.SPAWNING:
            uuid = self.building(task_state=state.task_state)
            self.cast(uuid, 'cell1')
            self.take(uuid, 'a1')

        self.assertClean()

    def test_build_with_a_damaged_message_ends_in_error(self):
        """The recovery leaves it: no release can read it."""
        uuid = self.building(task_state='scheduling')
        self.take(uuid, 'a1')
        self.write(self.cell('cell1'), build_casts.create, [
            build_casts.BuildCast(uuid, 'a1', 'node-a1', '{"sele', 1.0)])

        self.assertMends(('L1', 'build-stranded', uuid, 'cell1'))

        self.assertEqual('error', self.row(uuid, 'cell1').vm_state)


class TestTasks(base.TestCase):

    def setUp(self):
        super().setUp()
        self.offer('cell1', 'a1', 40)

    def begun(self):
        """Yield each kind of move with each state that matches it."""
        for name, kind in server_moves.KINDS.items():
            for transition in filter(None, (kind.ask, kind.begin)):
                state = states.TRANSITIONS[transition].after
                # A server in ERROR can be evacuated, and not rebuilt yet.
                yield name, kind, states.State(
                    state.vm_state or 'error', state.task_state)

    def server(self, state):
        uuid = self.running()
        self.change_row(uuid, 'cell1', vm_state=state.vm_state,
                        task_state=state.task_state)
        if state.vm_state == 'shelved_offloaded':
            self.change_row(uuid, 'cell1', host=None, node=None)
            self.claims.release([uuid])
        return uuid

    def test_task_of_a_moving_server_is_no_finding(self):
        for name, _, state in self.begun():
            for status in server_moves.UNMOVED:
                self.move(self.server(state), status=status, kind=name)

        self.assertClean()

    def test_stranded_task_is_reverted(self):
        made = {self.server(state): kind for _, kind, state in self.begun()}
        before = {uuid: self.row(uuid, 'cell1') for uuid in made}
        for uuid in made:
            # It was moved before.
            self.move(uuid, status=server_moves.DONE)

        self.assertMends(*(
            ('L1', 'task-stranded', uuid, 'cell1') for uuid in made))

        for uuid, kind in made.items():
            after = states.TRANSITIONS[kind.revert].after
            row = self.row(uuid, 'cell1')
            self.assertEqual(
                (after.vm_state or 'error', None, before[uuid].host),
                (row.vm_state, row.task_state, row.host))
            reason = self.reason(uuid, 'cell1')
            self.assertIn('its process has stopped', reason)
            self.assertNotIn('build', reason.replace('rebuild', ''))
            self.assertEqual('audit', self.blamed(uuid))

    def blamed(self, uuid):
        """Return the host of the fault of a server in cell1."""
        table = models.instance_faults
        with self.cell('cell1').reader() as connection:
            return connection.execute(sa.select(table.c.host).where(
                table.c.instance_uuid == uuid)).scalar_one()

    def test_task_beside_a_finished_migration_is_a_finding(self):
        uuid = self.server(states.RESIZE_PREP)
        self.move(uuid, status=server_moves.FINISHED)

        self.assertFound(('L1', 'task-stranded', uuid, 'cell1'))


class TestMoves(base.TestCase):

    def setUp(self):
        super().setUp()
        for host in 'a1', 'a2':
            self.offer('cell1', host, 40)

    def test_active_migration_of_a_server_in_error_is_aborted(self):
        made = []
        for kind in server_moves.KINDS:
            for status in server_moves.UNMOVED:
                uuid = self.running()
                self.change_row(uuid, 'cell1', vm_state='error')
                self.write_reason(uuid)
                self.take(self.move(uuid, status=status, kind=kind), 'a2')
                made.append(uuid)

        self.assertMends(*(
            ('L1', 'move-stranded', uuid, 'cell1') for uuid in made))

        for uuid in made:
            self.assertEqual({}, self.held(migrations.consumer(uuid)))
            self.assertEqual(
                {self.providers['a1']: base.SIZE}, self.held(uuid))
            self.assertEqual('error', self.row(uuid, 'cell1').vm_state)

    def write_reason(self, uuid):
        table = base.instance_history.models.instance_faults
        self.write(self.cell('cell1'), lambda connection: connection.execute(
            table.insert().values(
                instance_uuid=uuid, code=500, message='why', deleted=0,
                created_at=samples.NOW)))

    def test_stranded_migration_is_aborted(self):
        uuid = self.running()
        self.move(uuid)

        self.assertMends(('L1', 'move-stranded', uuid, 'cell1'))

        self.assertEqual('active', self.row(uuid, 'cell1').vm_state)


class TestDeletions(base.TestCase):

    def deleting(self, marked=False, **values):
        uuid = self.running()
        self.change_row(uuid, 'cell1', task_state='deleting', **values)
        if marked:
            self.mark_deleted(uuid)
        return uuid

    def test_stranded_deletion_without_a_host_is_finished(self):
        for marked in False, True:
            uuid = self.deleting(marked, host=None, node=None)

            self.assertMends(('L1', 'deleting-stranded', uuid, 'cell1'))

            self.assertIsNone(self.row(uuid, 'cell1'))
            self.assertEqual({}, self.held(uuid))
            mapping = self.read(
                self.database, instance_mappings.get_many, [uuid])[uuid]
            self.assertTrue(mapping.queued_for_delete)

    def test_stranded_deletion_on_a_deleted_host_is_finished(self):
        uuid = self.running('cell2', 'b1')
        self.change_row(uuid, 'cell2', task_state='deleting')
        self.write(self.cell('cell2'), hosts.delete, 'b1', samples.NOW)
        self.claims.release([uuid])
        self.claims.set_inventory(self.providers['b1'], {})
        self.write(self.database, host_mappings.delete,
                   self.by_name['cell2'].id, ['b1'])

        self.assertMends(('L1', 'deleting-stranded', uuid, 'cell2'))
