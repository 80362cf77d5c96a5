# SPDX-License-Identifier: Apache-2.0
"""Rows that repairs write, with their times and hosts."""

import sqlalchemy as sa

from cellsched.audit import auditor
from cellsched.audit import findings
from cellsched.audit import repairs
from cellsched.cells import cell0
from cellsched.db.api import models as api_models
from cellsched.db.cell import models
from cellsched.db.cell import server_moves
from cellsched import migrations
from tests.unit.audit import base
from tests.unit.db import samples

Action = findings.Action


class TestCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.clock.advance(3600)

    def found(self, uuid, action):
        facts = self.reader.servers([uuid], everywhere=True, asked=True)[uuid]
        [found] = [each for each in auditor.judge(facts)
                   if each.action is action]
        return found, facts

    def repair(self, uuid, action):
        self.repairs.repair(*self.found(uuid, action))

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


class TestFailing(TestCase):

    def test_abandoned_build_ends_in_error(self):
        uuid = self.building()

        self.repair(uuid, Action.FAIL)

        self.assertFault(uuid, 'The build of')
        [row] = self.rows_of(models.instances, uuid)
        self.assertEqual(('error', None, None, self.clock.now()),
                         (row.vm_state, row.task_state, row.host,
                          row.updated_at))


class TestTasks(TestCase):

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
        found, _ = self.found(uuid, Action.TAKE_BACK)
        self.change_row(uuid, 'cell1', task_state='rescuing')
        facts = self.reader.servers([uuid])[uuid]

        self.repairs.repair(found, facts)

        self.assertNoFault(uuid)
        self.assertEqual('rescuing', self.row(uuid, 'cell1').task_state)


class TestMoves(TestCase):

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
        repairs_ = repairs.Repairs(
            self.reader, self.targets, cell0.Cell0(
                self.database, self.cells, self.targets, self.clock, 'audit'),
            self.clock, 'audit')

        repairs_.repair(*self.found(uuid, Action.GIVE_UP))

        self.assertNoFault(uuid)
        self.assertEqual(server_moves.PREPARING, self.status(uuid))

    def test_changed_migration_is_not_aborted(self):
        for status in (server_moves.MIGRATING, server_moves.MOVED,
                       server_moves.FINISHED, server_moves.DONE):
            uuid = self.stranded()
            found = self.found(uuid, Action.GIVE_UP)
            with self.cell('cell1').writer() as connection:
                connection.execute(
                    sa.update(models.migrations)
                    .where(models.migrations.c.instance_uuid == uuid)
                    .values(status=status))

            self.repairs.repair(*found)

            self.assertNoFault(uuid)
            self.assertEqual(status, self.status(uuid))
            self.claims.release(migrations.consumers([uuid]))


class TestReasons(TestCase):

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
            found = self.found(uuid, Action.EXPLAIN)

            for _ in range(2):
                self.repairs.repair(*found)

            for table in models.instance_faults, models.instance_actions:
                self.assertEqual(1, len(self.rows_of(table, uuid, cell)))


class TestDeleting(TestCase):

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
        self.write(self.database, base.instance_mappings.mark_deleted, [uuid],
                   samples.NOW)

        self.repair(uuid, Action.DELETE)

        self.assertEqual(self.clock.now(), self.deleted_at(uuid))
        self.assertEqual(samples.NOW, self.mapping(uuid).updated_at)
