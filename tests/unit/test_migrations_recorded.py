# SPDX-License-Identifier: Apache-2.0
"""Actions and faults of migrations that end."""

import sqlalchemy as sa

from cellsched.claims import base as claims_base
from cellsched.db.cell import instance_history
from cellsched.db.cell import models
from cellsched.db.cell import server_moves
from cellsched import exception
from cellsched import migrations
from tests.unit.compute import agents
from tests.unit.compute import mover


class TestRecorded(mover.MoverTestCase):

    def setUp(self):
        super().setUp()
        self.migrations = migrations.Migrations(self.claims, 'here')

    def rows(self, table):
        with self.cell.reader() as connection:
            return connection.execute(sa.select(table)).all()

    def begin(self, kind=server_moves.MIGRATION, **fields):
        """Accept a migration with an action, and another action."""
        with self.cell.writer() as connection:
            for action in server_moves.KINDS[kind].action, 'other':
                instance_history.create_all(
                    connection, {self.uuid: agents.USER}, action,
                    self.clock.now())
        return self.accept(kind, **fields)

    def actions(self):
        return {row.action: (row.message, row.finish_time)
                for row in self.rows(models.instance_actions)}

    def abort(self, move, **options):
        return self.migrations.abort(
            self.cell, move, exception.NoValidHost(reason='Full.'), **options)

    def test_fault_has_the_host_and_the_reason(self):
        move = self.begin()
        self.clock.advance(7)

        self.abort(move)

        [fault] = self.rows(models.instance_faults)
        self.assertEqual(
            (self.uuid, 'here', self.clock.now(),
             'No valid host was found. Full.'),
            (fault.instance_uuid, fault.host, fault.created_at,
             fault.message))
        self.migrations.abort(self.cell, self.accept(), KeyError('x'))
        self.assertIn('Migration of instance failed', self.fault)

    def test_abort_records_its_time(self):
        move = self.begin()
        self.clock.advance(7)

        self.abort(move)

        [row] = self.rows(models.migrations)
        self.assertEqual((server_moves.ERROR, self.clock.now()),
                         (row.status, row.updated_at))
        self.assertEqual(
            {'migrate': ('Error', self.clock.now()), 'other': (None, None)},
            self.actions())
        self.assertEqual(self.clock.now(), self.row.updated_at)

    def test_abort_is_logged_once(self):
        move = self.begin()

        for _ in range(2):
            self.abort(move)

            self.assertEqual(1, self.logs.output.count(
                f'[instance: {self.uuid}] Aborted the migration: '))

    def test_reverted_rebuild_restores_the_server(self):
        move = self.begin(server_moves.REBUILD)

        self.abort(move, revert='revert_rebuild')

        self.assertState('active', None, 'host1')

    def test_server_with_a_failed_rebuild_is_in_error_on_its_host(self):
        self.abort(self.begin(server_moves.REBUILD))

        self.assertState('error', None, 'host1')
        self.assertEqual({'own': 'host1'}, self.places)

    def test_finish_records_its_time(self):
        move = self.begin()
        self.end(move, server_moves.MOVED)
        self.clock.advance(7)

        self.assertTrue(self.migrations.finish(self.cell, move))

        [row] = self.rows(models.migrations)
        self.assertEqual((server_moves.FINISHED, self.clock.now()),
                         (row.status, row.updated_at))
        self.assertEqual(
            {'migrate': (None, self.clock.now()), 'other': (None, None)},
            self.actions())
        self.assertEqual({'own': 'host2'}, self.places)

    def test_rebuilt_server_keeps_its_claim(self):
        move = self.begin(server_moves.REBUILD)
        self.end(move, server_moves.MOVED)
        # Of a scheduler that nobody waited for any more.
        self.claims.claim([claims_base.Claim(
            migrations.consumer(self.uuid), self.there, {'VCPU': 1})])

        self.assertTrue(self.migrations.finish(self.cell, move))

        self.assertEqual(server_moves.DONE, self.status(move))
        self.assertEqual({'own': 'host1'}, self.places)
        self.assertEqual(
            (None, self.clock.now()), self.actions()['rebuild'])

    def test_unknown_migration_changes_no_row(self):
        move = server_moves.Migration(
            'unknown', self.uuid, server_moves.MIGRATION,
            source_compute='host1')

        self.assertFalse(self.abort(move))
        self.assertFalse(self.migrations.finish(self.cell, move))

        self.assertState('active', None, 'host1')
        self.assertEqual(([], None), (
            self.rows(models.migrations), self.fault))


class TestSettled(mover.MoverTestCase):

    def setUp(self):
        super().setUp()
        self.migrations = migrations.Migrations(self.claims, 'here')

    def settle(self, move):
        self.migrations.release_ended(self.cell, move)
        return self.places

    def test_moving_server_keeps_its_claims_of_two_hosts(self):
        self.assertEqual({'own': 'host1', 'move': 'host2'},
                         self.settle(self.accept()))

    def test_moved_claim_is_released_after_the_end(self):
        move = self.accept()
        self.end(move)

        self.assertEqual({'own': 'host1'}, self.settle(move))

    def test_deleted_server_keeps_no_claim(self):
        move = self.accept()
        self.delete()
        self.terminate()

        self.assertEqual({}, self.settle(move))
