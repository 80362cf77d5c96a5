# SPDX-License-Identifier: Apache-2.0

import sqlalchemy as sa

from cellsched.db.api import host_mappings
from cellsched.db.api import instance_mappings
from cellsched.db.cell import build_casts
from cellsched.db.cell import hosts
from cellsched.db.cell import models
from cellsched.db.cell import server_moves
from cellsched.db.cell import states
from cellsched import migrations
from tests.unit.audit import base
from tests.unit.db import samples


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
            self.write(self.database, instance_mappings.mark_deleted, [uuid],
                       samples.NOW)
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
