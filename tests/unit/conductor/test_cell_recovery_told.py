# SPDX-License-Identifier: Apache-2.0
"""Which hosts are told of moves that are ended, and of what."""

from cellsched.conductor import cell_recovery
from cellsched.db.cell import instances
from cellsched.db.cell import models
from cellsched.db.cell import server_moves
from cellsched.db.cell import services
from tests.unit.compute import mover
from tests.unit.db import samples

DEADLINE_S, DOWN_S = 600, 60


class TestCase(mover.MoverTestCase):

    def setUp(self):
        super().setUp()
        self.stalled = self.make_stalled()

    def make_stalled(self, **options):
        return cell_recovery.StalledMigrations(
            self.cell, self.compute, self.claims, 'conductor', DEADLINE_S,
            DOWN_S, **options)

    def report(self, host='host1'):
        with self.cell.writer() as connection:
            services.report(connection, samples.uuids(1)[0], host,
                            services.COMPUTE, 'compute', self.clock.now(), 2)

    def run_late(self, stranded=None):
        self.clock.advance(DEADLINE_S + 1)
        self.report()
        (stranded or self.stranded).run()

    @property
    def told(self):
        return [(each.method, each.host) for each in self.compute.sent]


class TestTold(TestCase):

    def test_host_is_told_of_the_server_and_the_move(self):
        move = self.accept()

        self.run_late()

        [sent] = self.compute.sent
        self.assertEqual(
            ('migrate_out', 'host2', self.uuid, move.uuid),
            (sent.method, sent.host, sent.arguments['instance'].uuid,
             sent.arguments['migration_uuid']))
        self.assertTrue(sent.context.is_admin)

    def test_fault_names_the_move_the_deadline_and_who_ended_it(self):
        self.accept()

        self.run_late()

        table = models.instance_faults
        with self.cell.reader() as connection:
            fault = connection.execute(table.select()).one()
        self.assertEqual('conductor', fault.host)
        self.assertIn('migration', fault.message)
        self.assertIn(f'{DEADLINE_S} seconds', fault.message)

    def test_host_that_was_told_of_nothing_is_told_of_no_end(self):
        for fields in ({'dest_compute': None, 'dest_node': None},
                       {'dest_compute': 'host1', 'dest_node': 'node1'}):
            move = self.accept(**fields)

            self.run_late()

            self.assertEqual([], self.told)
            self.assertEqual(server_moves.ERROR, self.status(move))

    def test_server_that_stays_on_its_host_is_told_to_no_other(self):
        move = self.accept(server_moves.REBUILD, dest_compute='host1',
                           dest_node='node1')
        self.transit('begin_rebuild')
        self.transit('finish_rebuild')
        self.end(move, server_moves.MOVED)

        self.run_late()

        self.assertEqual(server_moves.DONE, self.status(move))
        self.assertEqual([], self.told)

    def test_shelved_server_that_is_gone_is_told_to_nobody(self):
        move = self.accept(server_moves.SHELVE, dest_compute=None)
        with self.cell.writer() as connection:
            instances.delete(connection, self.uuid, self.clock.now())

        self.run_late()

        self.assertEqual([], self.told)
        self.assertEqual(server_moves.ERROR, self.status(move))

    def test_move_away_that_goes_on_is_not_taken_for_shelving(self):
        move = self.accept(status=server_moves.MIGRATING)

        self.run_late()

        self.assertEqual([('migrate_out', 'host2')], self.told)
        self.assertEqual(server_moves.ERROR, self.status(move))


class TestHosts(TestCase):

    def test_host_is_told_again_if_it_reported_lately(self):
        self.accept(ask=False, status=server_moves.FINISHED)
        for late_s, expected in ((DOWN_S - 1, 1), (DOWN_S, 0)):
            self.clock.advance(DEADLINE_S + 1)
            self.report()
            self.clock.advance(late_s)
            self.stalled.run()

            self.assertEqual(expected, len(self.told))
            self.compute.sent.clear()

    def test_host_that_shelves_is_told_again_when_it_is_due(self):
        self.accept(server_moves.SHELVE, dest_compute=None)
        self.run_late()
        self.stalled.run()
        self.assertEqual(1, len(self.told))

        self.run_late()

        self.assertEqual(
            [('shelve_offload_instance', 'host1')] * 2, self.told)

    def test_move_of_which_there_is_news_meanwhile_is_left(self):
        self.accept(ask=False, status=server_moves.FINISHED)
        for _ in range(2):
            move = server_moves.Migration(
                samples.uuids(1)[0], self.uuid, server_moves.MIGRATION,
                server_moves.FINISHED, 'host1', 'node1', 'host2', 'node2')
            with self.cell.writer() as connection:
                server_moves.create(connection, move, mover.agents.USER,
                                    self.clock.now())
        cast, first = self.compute.cast, []

        def news(*args, **arguments):
            # The host has cleaned up after all moves.
            if not first:
                first.append(None)
                with self.cell.writer() as connection:
                    connection.execute(models.migrations.update().values(
                        updated_at=self.clock.now()))
            cast(*args, **arguments)

        self.compute.cast = news
        self.run_late()

        self.assertEqual(1, len(self.told))


class TestLimits(TestCase):

    def test_so_many_moves_are_looked_at_each_time(self):
        for _ in range(3):
            self.accept(ask=False, status=server_moves.FINISHED)
        stalled = self.make_stalled(moves_max=2)

        self.run_late(stranded)
        self.assertEqual(2, len(self.told))
        stalled.run()
        self.assertEqual(3, len(self.told))

    def test_late_claims_are_looked_for_as_long_as_a_move_may_take(self):
        for seconds, places in (
                (DEADLINE_S, {'own': 'host1'}),
                (2 * DEADLINE_S, {'own': 'host1'}),
                (2 * DEADLINE_S + 1, {'own': 'host1', 'move': 'host2'})):
            move = self.accept()
            self.claims.release([mover.moves.consumer(self.uuid)])
            self.end(move)
            self.transit('revert_migrate')
            self.claims.claim([mover.claims_base.Claim(
                mover.moves.consumer(self.uuid), self.there, {'VCPU': 1})])
            self.clock.advance(seconds)

            self.stalled.run()

            self.assertEqual(places, self.places)
            self.claims.release([mover.moves.consumer(self.uuid)])
