# SPDX-License-Identifier: Apache-2.0
"""The end of migrations, and their claims."""

import sqlalchemy as sa

from cellsched.claims import base as claims_base
from cellsched.claims import memory
from cellsched.db.cell import instance_history
from cellsched.db.cell import models
from cellsched.db.cell import server_moves
from cellsched.db import session
from cellsched import exception
from cellsched import migrations
from tests.unit import base
from tests.unit.compute import agents
from tests.unit.compute import mover
from tests.unit.db import samples


def watched(method, watch):
    """Return a method that is watched when it is called."""
    def call(*args):
        watch()
        return method(*args)

    return call


def failing(*args):
    """Fail as a claim store that does not answer."""
    raise exception.DatabaseUnreachable(
        url='claims://', schema='claims', reason='silence')


class TestMoving(mover.MoverTestCase):

    def setUp(self):
        super().setUp()
        self.migrations = migrations.Migrations(self.claims, 'here')

    def abort(self, move, *args):
        return self.migrations.abort(
            self.cell, move, exception.NoValidHost(reason='Full.'), *args)

    def test_names_are_the_same_in_every_process(self):
        self.assertEqual(
            '0847d5cb-e932-5e5a-be52-13c73d2e8d07',
            migrations.consumer('00000000-0000-4000-8000-000000000000'))
        self.assertEqual(['u', migrations.consumer('u')],
                         migrations.consumers(['u']))

    def test_aborted_migration_restores_the_server_and_its_claims(self):
        move = self.accept()
        for first in (True, False):
            self.assertEqual(first, self.abort(move))

        self.assertState('active', None, 'host1')
        self.assertEqual({'own': 'host1'}, self.places)
        self.assertEqual(server_moves.ERROR, self.status(move))
        self.assertIn('Full.', self.fault)
        with self.cell.reader() as connection:
            self.assertIsNotNone(connection.scalar(
                sa.select(models.migrations.c.updated_at)))

    def test_abort_is_notified_once(self):
        move, calls = self.accept(), []
        for _ in range(2):
            self.migrations.abort(
                self.cell, move, KeyError('x'), notify=lambda: calls.append(1))

        self.assertEqual([1], calls)
        self.assertEqual(
            'Migration of instance failed: an error that operators find in '
            'the logs.', self.fault)

    def test_abort_during_a_deletion_has_no_fault_or_notification(self):
        move, calls = self.accept(), []
        self.delete()

        self.assertTrue(self.migrations.abort(
            self.cell, move, KeyError('x'), notify=lambda: calls.append(1)))

        self.assertState('active', 'deleting', 'host1')
        self.assertEqual(([], None), (calls, self.fault))
        self.assertEqual({'own': 'host1'}, self.places)

    def test_action_is_marked_as_failed_once(self):
        with self.cell.writer() as connection:
            instance_history.create_all(
                connection, {self.uuid: agents.USER}, 'migrate',
                self.clock.now())
        self.abort(self.accept())

        with self.cell.reader() as connection:
            [row] = connection.execute(
                instance_history._ACTIONS.select()).all()
        self.assertEqual(('Error', self.clock.now()),
                         (row.message, row.finish_time))

    def test_migration_in_another_state_is_not_aborted(self):
        move = self.accept()

        self.assertFalse(self.abort(move, [server_moves.ACCEPTED]))

        self.assertState('active', 'resize_prep', 'host1')
        self.assertEqual({'own': 'host1', 'move': 'host2'}, self.places)

    def test_moved_migration_is_not_aborted(self):
        move = self.accept()
        self.end(move, server_moves.MOVED)

        self.assertFalse(self.abort(move))

        self.assertEqual({'own': 'host1', 'move': 'host2'}, self.places)

    def test_late_end_of_a_migration_keeps_the_next_migration(self):
        move = self.accept()
        self.end(move)
        self.transit('revert_migrate')
        self.claims.release([move.uuid])
        self.accept()

        self.assertFalse(self.abort(move))
        self.migrations.finish(self.cell, move)
        self.migrations.release_ended(self.cell, move)

        self.assertState('active', 'resize_prep', 'host1')
        self.assertEqual({'own': 'host1', 'move': 'host2'}, self.places)

    def patch(self, name, method):
        """Replace a method of the claim store; return what restores it."""
        former = getattr(self.claims, name)
        setattr(self.claims, name, method)
        return lambda: setattr(self.claims, name, former)

    def locked(self):
        """Return whether another connection cannot lock the server."""
        other = session.Database(
            self.cell.url, 'cell', {'lock_timeout': 0.001}, clock=self.clock)
        self.addCleanup(other.close)
        try:
            with other.writer() as connection:
                server_moves.hold(connection, self.uuid)
        except exception.DatabaseBusy:
            return True
        return False

    def test_row_is_not_locked_while_the_claim_store_works(self):
        aborted = self.accept()
        seen = []
        for method in 'release', 'transfer':
            self.patch(method, watched(
                getattr(self.claims, method),
                lambda: seen.append(self.locked())))
        self.abort(aborted)
        moved = self.accept()
        self.end(moved, server_moves.MOVED)
        self.migrations.finish(self.cell, moved)
        self.migrations.release_ended(self.cell, moved)

        self.assertEqual({False}, {*seen})
        self.assertLess(2, len(seen))

    def test_migration_is_finished_after_a_failed_transfer(self):
        move = self.accept()
        self.end(move, server_moves.MOVED)
        down = self.patch('transfer', failing)
        self.assertRaises(exception.DatabaseUnreachable,
                          self.migrations.finish, self.cell, move)
        self.assertEqual(server_moves.MOVED, self.status(move))
        down()

        self.assertTrue(self.migrations.finish(self.cell, move))

        self.assertEqual({'own': 'host2'}, self.places)

    def test_claims_of_an_aborted_migration_are_released_later(self):
        move = self.accept()
        down = self.patch('release', failing)
        self.assertRaises(exception.DatabaseUnreachable, self.abort, move)
        self.assertState('active', None, 'host1')
        self.assertEqual(server_moves.ERROR, self.status(move))
        down()

        self.migrations.release_ended(self.cell, move)

        self.assertEqual({'own': 'host1'}, self.places)

    def test_late_transfer_takes_no_claims_of_the_next_move(self):
        first = self.accept()
        self.end(first, server_moves.MOVED)
        transfer, following = self.claims.transfer, []

        def late(source, target):
            if not following:
                # Another process finishes the move, and the next one begins.
                following.append(None)
                self.migrations.finish(self.cell, first)
                self.transit('revert_migrate')
                following.append(self.accept())
            return transfer(source, target)

        self.patch('transfer', late)

        self.assertFalse(self.migrations.finish(self.cell, first))

        self.assertEqual({'own': 'host2', 'move': 'host2'}, self.places)
        self.assertIn(following[1].uuid,
                      self.claims.claims_of([following[1].uuid]))

    def test_claim_of_an_ended_migration_is_released(self):
        move = self.accept()
        self.end(move)
        self.transit('revert_migrate')

        self.migrations.release_ended(self.cell, move)

        self.assertEqual({'own': 'host1'}, self.places)

    def test_claims_follow_once(self):
        move = self.accept()
        self.assertFalse(self.migrations.finish(self.cell, move))
        self.assertEqual({'own': 'host1', 'move': 'host2'}, self.places)
        self.end(move, server_moves.MOVED)

        for first in (True, False):
            self.assertEqual(first, self.migrations.finish(self.cell, move))
            self.assertEqual({'own': 'host2'}, self.places)

    def test_abort_releases_all_claims_of_a_deleted_server(self):
        move = self.accept()
        self.delete()
        self.terminate()
        self.assertEqual({'move': 'host2'}, self.places)

        self.assertTrue(self.abort(move))

        self.assertEqual({}, self.places)

    def test_finish_releases_all_claims_of_a_deleted_server(self):
        move = self.accept()
        self.end(move, server_moves.MOVED)
        self.delete()
        self.terminate()

        self.assertTrue(self.migrations.finish(self.cell, move))

        self.assertEqual({}, self.places)


class TestWithdrawal(base.TestCase):
    """A server withdraws its claims, and a process may decide so too late."""

    def setUp(self):
        super().setUp()
        self.uuid, self.node, self.other = samples.uuids(3)
        self.name = migrations.consumer(self.uuid)
        self.store = memory.MemoryClaims()
        for provider in self.node, self.other:
            self.store.set_inventory(
                provider, {'VCPU': claims_base.Inventory(total=4)})
        self.claim(self.node)

    def claim(self, provider):
        self.store.claim([
            claims_base.Claim(self.uuid, provider, {'VCPU': 3})])

    def withdraw(self, look):
        return migrations.withdraw(self.store, self.uuid, self.name, look)

    def holds(self):
        """Return the provider of the server, and of its other consumer."""
        held = self.store.claims_of([self.uuid, self.name])
        return tuple(held[name][0].provider if name in held else None
                     for name in (self.uuid, self.name))

    def test_claims_are_in_use_until_the_second_look(self):
        def look():
            self.assertEqual((None, self.node), self.holds())
            return True

        self.assertIs(True, self.withdraw(look))

        self.assertEqual((None, None), self.holds())

    def test_late_process_gives_the_claims_back(self):
        self.assertIs(False, self.withdraw(lambda: False))

        self.assertEqual((self.node, None), self.holds())

    def test_unclear_claims_stay_in_use_for_the_audit(self):
        self.assertIs(False, self.withdraw(lambda: None))

        self.assertEqual((None, self.node), self.holds())

    def test_server_keeps_its_new_claims(self):
        for is_due, other in (True, None), (False, self.node):
            with self.subTest(is_due=is_due):
                def look(is_due=is_due):
                    self.claim(self.other)
                    return is_due

                self.assertIs(is_due, self.withdraw(look))

                self.assertEqual((self.other, other), self.holds())
            self.store.release([self.uuid, self.name])
            self.claim(self.node)
