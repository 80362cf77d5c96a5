# SPDX-License-Identifier: Apache-2.0
"""Moves that nobody works on any more."""

from amqp import exceptions as amqp_exc

from cellsched.claims import moves
from cellsched.conductor import cell_recovery
from cellsched.db.cell import instances
from cellsched.db.cell import server_moves
from cellsched.db.cell import services
from tests.unit.compute import agents
from tests.unit.compute import mover
from tests.unit.db import samples

DEADLINE_S = 600


class TestStalledMigrations(mover.MoverTestCase):

    def setUp(self):
        super().setUp()
        self.stalled = cell_recovery.StalledMigrations(
            self.cell, self.compute, self.claims, 'conductor', DEADLINE_S,
            60)

    def run_late(self, late_s=DEADLINE_S + 1):
        self.clock.advance(late_s)
        self.report()
        self.stalled.run()

    def report(self, host='host1'):
        with self.cell.writer() as connection:
            services.report(connection, samples.uuids(1)[0], host,
                            services.COMPUTE, 'compute', self.clock.now(), 2)

    def sent(self):
        sent = [(each.method, each.host) for each in self.compute.sent]
        self.compute.sent.clear()
        return sent

    def test_move_is_left_alone_until_its_deadline(self):
        move = self.accept()

        self.run_late(DEADLINE_S)

        self.assertEqual(server_moves.MIGRATING, self.status(move))
        self.assertEqual({'own': 'host1', 'move': 'host2'}, self.places)

    def test_server_that_has_not_gone_stays(self):
        for status in server_moves.UNMOVED:
            move = self.accept(status=status)
            self.run_late()

            self.assertState('active', None, 'host1')
            self.assertEqual({'own': 'host1'}, self.places)
            self.assertEqual(server_moves.ERROR, self.status(move))
            self.assertIn('600 seconds', self.fault)
            self.assertEqual([('migrate_out', 'host2')], self.sent())

    def test_server_that_has_gone_is_there(self):
        move = self.accept()
        self.transit('begin_migrate')
        self.transit('finish_migrate', host='host2', node='node2')
        self.end(move, server_moves.MOVED)

        self.run_late()

        self.assertState('active', None, 'host2')
        self.assertEqual({'own': 'host2'}, self.places)
        self.assertEqual(server_moves.FINISHED, self.status(move))
        self.assertEqual([('migrate_out', 'host1')], self.sent())

    def test_host_that_was_left_is_told_again_while_it_lives(self):
        self.accept(ask=False, status=server_moves.FINISHED)

        for late_s, expected in ((DEADLINE_S + 1, [('migrate_out', 'host1')]),
                                 (DEADLINE_S - 1, []),
                                 (2, [('migrate_out', 'host1')])):
            self.run_late(late_s)
            self.assertEqual(expected, self.sent())
        self.clock.advance(DEADLINE_S + 1)
        self.stalled.run()
        self.assertEqual([], self.sent())

    def test_server_that_is_shelved_goes_on(self):
        move = self.accept(server_moves.SHELVE, dest_compute=None)

        self.run_late()

        self.assertEqual([('shelve_offload_instance', 'host1')], self.sent())
        self.assertEqual(server_moves.MIGRATING, self.status(move))

    def test_move_of_no_server_keeps_no_other(self):
        for status in (server_moves.MIGRATING, server_moves.ERROR):
            lost = server_moves.Migration(
                samples.uuids(1)[0], None, server_moves.MIGRATION, status)
            with self.cell.writer() as connection:
                server_moves.create(
                    connection, lost, agents.USER, self.clock.now())
        move = self.accept()

        self.run_late()

        self.assertEqual(server_moves.ERROR, self.status(move))
        self.assertNotIn('Traceback', self.logs.output)

    def test_server_whose_host_never_heard_of_it_is_not_shelved(self):
        move = self.accept(server_moves.SHELVE, dest_compute=None,
                           status=server_moves.ACCEPTED)

        self.run_late()

        self.assertState('active', None, 'host1')
        self.assertEqual([], self.sent())
        self.assertEqual(server_moves.ERROR, self.status(move))

    def test_deleted_server_holds_nothing(self):
        self.accept()
        self.delete()
        self.terminate()

        self.run_late()

        self.assertEqual({}, self.places)

    def test_claim_that_comes_late_is_given_back(self):
        self.accept(status=server_moves.ACCEPTED)
        self.run_late()
        self.claims.claim([mover.claims_base.Claim(
            moves.consumer(self.uuid), self.there, {'VCPU': 1})])

        self.run_late()

        self.assertEqual({'own': 'host1'}, self.places)

    def test_host_that_cannot_be_told_keeps_no_move_from_its_end(self):
        move = self.accept()
        self.compute.failure = amqp_exc.AccessRefused('wrong password')

        self.run_late()

        self.assertIn('AccessRefused', self.logs.output)
        self.assertNotIn('Traceback', self.logs.output)
        self.assertEqual(server_moves.ERROR, self.status(move))

    def test_others_do_not_wait_for_one_that_cannot_be_ended(self):
        for broken in (0, 1):
            moves = [self.accept(), self.accept_another()]
            mend = self.break_claims_of(moves[broken].instance_uuid)

            self.run_late()

            self.assertEqual(
                {server_moves.ERROR, server_moves.MIGRATING},
                {self.status(move) for move in moves})
            self.assertEqual(
                server_moves.MIGRATING, self.status(moves[broken]))
            self.assertIn(
                f'Could not end the {moves[broken].migration_type} of '
                f'instance {moves[broken].instance_uuid}',
                self.logs.output)
            mend()
            self.run_late()
            self.assertEqual(server_moves.ERROR, self.status(moves[broken]))

    def test_late_claims_of_others_do_not_wait_for_one_that_stays(self):
        ended = [self.accept(status=server_moves.ACCEPTED),
                 self.accept_another()]
        # The first time they are ended, and then looked at for a while.
        self.run_late()
        self.run_late()
        late = [moves.consumer(move.instance_uuid) for move in ended]
        for name, move in zip(late, ended):
            mend = self.break_claims_of(move.instance_uuid)
            self.claims.claim([
                mover.claims_base.Claim(each, self.there, {'VCPU': 1})
                for each in late])

            self.run_late(1)

            self.assertEqual({name}, {*self.claims.claims_of(late)})
            self.assertIn(
                f'what ended moves of instance {move.instance_uuid} claimed',
                self.logs.output)
            mend()
            self.run_late(1)
            self.assertEqual({}, self.claims.claims_of(late))

    def accept_another(self):
        """Have a move of another server accepted."""
        first = self.uuid, self.instance
        [self.uuid] = samples.uuids(1)
        self.instance = samples.instance(self.uuid, build_attempts=1)
        with self.cell.writer() as connection:
            instances.create(connection, [self.instance], self.clock.now())
        self.build()
        move = self.accept()
        self.uuid, self.instance = first
        return move

    def break_claims_of(self, uuid):
        """Have the claim store fail for a server; return what mends it."""
        release = self.claims.release

        def broken(consumers):
            consumers = list(consumers)
            if moves.consumer(uuid) in consumers:
                raise KeyError('as told')
            release(consumers)

        self.claims.release = broken
        return lambda: setattr(self.claims, 'release', release)
