# SPDX-License-Identifier: Apache-2.0
"""Moves that nobody works on any more."""

from amqp import exceptions as amqp_exc

from cellsched.conductor import cell_recovery
from cellsched import context
from cellsched.db.cell import instances
from cellsched.db.cell import models
from cellsched.db.cell import server_moves
from cellsched.db.cell import services
from cellsched import migrations
from cellsched.network import deallocation
from cellsched.network import fake
from cellsched.testing import clock
from cellsched.testing import databases
from tests.unit import base
from tests.unit.compute import agents
from tests.unit.compute import mover
from tests.unit.db import samples
from tests.unit.network import networks

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
            migrations.consumer(self.uuid), self.there, {'VCPU': 1})])

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
        late = [migrations.consumer(move.instance_uuid) for move in ended]
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
            if migrations.consumer(uuid) in consumers:
                raise KeyError('as told')
            release(consumers)

        self.claims.release = broken
        return lambda: setattr(self.claims, 'release', release)


USER = context.member('user', 'project')


class TestNetworkCleanup(base.TestCase):

    def setUp(self):
        super().setUp()
        self.cell = self.useFixture(databases.CellDatabase()).database
        self.network = networks.make(fake.FakeNetworks)
        self.leftovers = cell_recovery.NetworkCleanup(
            self.cell, deallocation.NetworkDeallocation(
                self.network, self.cell, clock.FakeClock()), batch=2)

    def make(self, **values):
        instance = samples.instance(samples.uuids(1)[0])
        with self.cell.writer() as connection:
            instances.create(connection, [instance], samples.NOW)
            samples.put(connection, instance.uuid,
                        {'network_allocated': True, **values})
        self.network.allocate_for_instance(USER, instance, None, 'host1')
        return instance.uuid

    def test_those_that_ended_are_freed_and_others_keep_theirs(self):
        live = self.make(vm_state='active', host='host1')
        waiting = self.make()
        for _ in range(3):
            self.make(deleted=1, vm_state='deleted')
            self.make(vm_state='error', task_state=None)

        self.leftovers.run()

        self.assertEqual({live, waiting}, set(self.network.allocated()))

    def test_one_that_fails_holds_no_other_up_and_is_tried_again(self):
        uuids = sorted(self.make(vm_state='error') for _ in range(5))
        self.network.fail('deallocate', 2)

        self.leftovers.run()
        self.assertEqual(set(uuids[:2]), set(self.network.allocated()))

        self.leftovers.run()
        self.assertEqual({}, self.network.allocated())

    def test_what_was_freed_is_not_asked_for_again(self):
        self.make(vm_state='error')
        self.leftovers.run()
        self.network.fail('deallocate', 1)

        self.leftovers.run()

        self.assertNotIn('Could not deallocate networks', self.logs.output)

    def test_plugin_is_asked_in_the_name_of_the_owner(self):
        self.make(vm_state='error')
        asked = []
        self.network.deallocate_for_instance = (
            lambda context, instance: asked.append(context))

        self.leftovers.run()

        self.assertEqual([('user', 'project')], [
            (each.user_id, each.project_id) for each in asked])


DOWN_S = 60


class StalledMigrationsTestCase(mover.MoverTestCase):

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

    def run_late(self, stalled=None):
        self.clock.advance(DEADLINE_S + 1)
        self.report()
        (stalled or self.stalled).run()

    @property
    def told(self):
        return [(each.method, each.host) for each in self.compute.sent]


class TestStalledMigrationCasts(StalledMigrationsTestCase):

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


class TestStalledMigrationHosts(StalledMigrationsTestCase):

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


class TestStalledMigrationLimits(StalledMigrationsTestCase):

    def test_so_many_moves_are_looked_at_each_time(self):
        for _ in range(3):
            self.accept(ask=False, status=server_moves.FINISHED)
        stalled = self.make_stalled(moves_max=2)

        self.run_late(stalled)
        self.assertEqual(2, len(self.told))
        stalled.run()
        self.assertEqual(3, len(self.told))

    def test_late_claims_are_looked_for_as_long_as_a_move_may_take(self):
        for seconds, places in (
                (DEADLINE_S, {'own': 'host1'}),
                (2 * DEADLINE_S, {'own': 'host1'}),
                (2 * DEADLINE_S + 1, {'own': 'host1', 'move': 'host2'})):
            move = self.accept()
            self.claims.release([mover.migrations.consumer(self.uuid)])
            self.end(move)
            self.transit('revert_migrate')
            self.claims.claim([mover.claims_base.Claim(
                mover.migrations.consumer(self.uuid), self.there,
                {'VCPU': 1})])
            self.clock.advance(seconds)

            self.stalled.run()

            self.assertEqual(places, self.places)
            self.claims.release([mover.migrations.consumer(self.uuid)])
