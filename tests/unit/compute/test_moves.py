# SPDX-License-Identifier: Apache-2.0
"""What an agent does when a server moves."""

from amqp import exceptions as amqp_exc

from cellsched.compute import guests
from cellsched.compute import moves as agent_moves
from cellsched.compute import places
from cellsched.db.cell import instance_children
from cellsched.db.cell import instances
from cellsched.db.cell import server_moves
from cellsched import exception
from cellsched.hardware import description
from tests.unit.compute import mover
from tests.unit.db import samples


class TestMigration(mover.MoverTestCase):

    def test_server_moves_with_claim_and_networks(self):
        move = self.accept()

        self.tell('migrate_in', move)

        self.assertState('active', None, 'host2')
        self.assertEqual('node2', self.row.node)
        self.assertEqual({'own': 'host2'}, self.places)
        self.assertEqual(server_moves.FINISHED, self.status(move))
        [sent] = self.compute.sent
        self.assertEqual(('migrate_out', 'host1'), (sent.method, sent.host))
        self.assertEqual(['host1', 'host2'], self.running)

        self.tell('migrate_out', move, 'host1')

        self.assertEqual(['host2'], self.running)
        self.assertEqual(server_moves.DONE, self.status(move))
        self.assertNetworks('host2')

    def test_repeated_messages_move_once(self):
        move = self.accept()
        for _ in range(3):
            self.tell('migrate_in', move)
        for _ in range(3):
            self.tell('migrate_out', move, 'host1')

        self.assertEqual(1, len(self.compute.sent))
        self.assertEqual(1, len(self.drivers['host2'].spawned))
        self.assertEqual(['host2'], self.running)

    def test_message_of_a_begun_migration_continues(self):
        move = self.accept()
        self.transit('begin_migrate')

        self.tell('migrate_in', move)

        self.assertState('active', None, 'host2')

    def test_message_of_another_host_or_an_ended_move_is_ignored(self):
        for move, host in ((self.accept(), 'host1'),
                           (self.accept(ask=False, status='error'), 'host2')):
            self.tell('migrate_in', move, host)

            self.assertState('active', 'resize_prep', 'host1')
        self.assertEqual(['host1'], self.running)

    def test_failed_build_on_the_new_host_reverts_the_migration(self):
        move = self.accept()
        self.drivers['host2'].error = exception.BuildFailed(
            uuid=self.uuid, reason='no')

        self.tell('migrate_in', move)

        self.assertState('active', None, 'host1')
        self.assertEqual({'own': 'host1'}, self.places)
        self.assertEqual(['host1'], self.running)
        self.assertEqual(server_moves.ERROR, self.status(move))
        self.assertEqual(
            f'The migration of {self.uuid} failed: no', self.fault)
        self.assertNetworks('host1')
        self.assertEqual([], self.compute.sent)

    def test_concurrently_aborted_migration_removes_the_guest(self):
        move = self.accept()

        def give_up():
            self.end(move)
            self.transit('revert_migrate')

        self.drivers['host2'].when_up = give_up
        self.tell('migrate_in', move)

        self.assertState('active', None, 'host1')
        self.assertEqual({'own': 'host1'}, self.places)
        self.assertEqual(['host1'], self.running)

    def test_newer_migration_elsewhere_continues(self):
        move = self.accept()

        def go_elsewhere():
            self.end(move)
            self.transit('revert_migrate')
            self.claims.release([mover.migrations.consumer(self.uuid)])
            self.accept(dest_compute='host3')
            self.transit('begin_migrate')

        self.drivers['host2'].when_up = go_elsewhere
        self.tell('migrate_in', move)

        self.assertState('active', 'resize_migrating', 'host1')
        self.assertEqual(['host1'], self.running)
        self.assertEqual({'own': 'host1', 'move': 'host2'}, self.places)

    def test_deletion_meanwhile_wins(self):
        move = self.accept()
        self.drivers['host2'].when_up = self.delete

        self.tell('migrate_in', move)
        self.terminate()

        self.assertEqual([], self.running)
        self.assertEqual({}, self.places)
        self.assertEqual(server_moves.ERROR, self.status(move))
        self.assertIsNone(self.fault)

    def test_failed_migration_of_a_deleting_server_has_no_fault(self):
        move = self.accept()
        driver = self.drivers['host2']
        driver.error = exception.BuildFailed(uuid=self.uuid, reason='no')
        driver.when_up = self.delete

        self.tell('migrate_in', move)

        self.assertEqual(server_moves.ERROR, self.status(move))
        self.assertIsNone(self.fault)

    def test_unreachable_source_does_not_block_the_move(self):
        move = self.accept()
        self.compute.failure = amqp_exc.AccessRefused('wrong password')

        self.tell('migrate_in', move)

        self.assertIn('AccessRefused', self.logs.output)
        self.assertNotIn('Traceback', self.logs.output)
        self.assertState('active', None, 'host2')
        self.assertEqual({'own': 'host2'}, self.places)
        self.agents['host1'].clean_up()
        self.assertEqual(['host2'], self.running)
        self.assertEqual(server_moves.DONE, self.status(move))

    def test_present_or_incoming_server_is_not_removed(self):
        here = self.accept(status=server_moves.FINISHED)
        self.tell('migrate_out', here, 'host1')
        self.assertEqual(['host1'], self.running)

        self.tell('migrate_in', self.accept(ask=False))
        there = self.accept(dest_compute='host1', source_compute='host2')
        self.tell('migrate_out', there, 'host1')

        self.assertEqual(['host1', 'host2'], self.running)


class TestOtherMoves(mover.MoverTestCase):

    def rebuilding(self):
        return self.accept(
            server_moves.REBUILD, dest_compute='host1', dest_node='node1')

    def test_rebuilt_server_is_built_anew_on_its_host(self):
        self.tell('rebuild_instance', self.rebuilding(), 'host1',
                  node='node1')

        self.assertState('active', None, 'host1')
        self.assertEqual(2, len(self.driver.spawned))
        self.assertEqual({'own': 'host1'}, self.places)
        self.assertNetworks('host1')
        self.assertEqual([], self.compute.sent)

    def test_failed_rebuild_is_in_error_on_its_host(self):
        self.driver.error = exception.BuildAborted(
            uuid=self.uuid, reason='no')

        self.tell('rebuild_instance', self.rebuilding(), 'host1',
                  node='node1')

        self.assertState('error', None, 'host1')
        self.assertEqual({'own': 'host1'}, self.places)

    def test_evacuation_during_a_rebuild_removes_its_guest(self):
        """The agent is suspended before it spawns the guest."""
        move, destroy = self.rebuilding(), self.driver.destroy

        def evacuate(instance):
            self.driver.destroy = destroy
            destroy(instance)
            self.end(move)
            self.transit('end_task')
            self.clock.advance(1)
            self.tell('rebuild_instance', self.accept(
                server_moves.EVACUATION))
            self.clock.advance(1)

        self.driver.destroy = evacuate
        self.tell('rebuild_instance', move, 'host1', node='node1')
        self.assertEqual(['host1', 'host2'], self.running)

        self.agents['host1'].clean_up()

        self.assertState('active', None, 'host2')
        self.assertEqual(['host2'], self.running)
        self.assertNetworks('host2')

    def test_evacuated_server_takes_its_claim_along(self):
        move = self.accept(server_moves.EVACUATION)

        self.tell('rebuild_instance', move)

        self.assertState('active', None, 'host2')
        self.assertEqual({'own': 'host2'}, self.places)

    def test_shelved_server_holds_no_claim(self):
        move = self.accept(server_moves.SHELVE, dest_compute=None,
                           dest_node=None, status=server_moves.ACCEPTED)
        for _ in range(2):
            self.tell('shelve_offload_instance', move, 'host1')

        self.assertState('shelved_offloaded', None, None)
        self.assertEqual(({}, []), (self.places, self.running))
        self.assertEqual(server_moves.DONE, self.status(move))

    def test_unshelved_server_keeps_its_own_claim(self):
        self.test_shelved_server_holds_no_claim()
        move = self.accept(server_moves.UNSHELVE, source_compute=None,
                           source_node=None)
        self.claims.claim([mover.claims_base.Claim(
            self.uuid, self.there, {'VCPU': 1})])

        self.tell('unshelve_instance', move)

        self.assertState('active', None, 'host2')
        self.assertEqual({'own': 'host2'}, self.places)
        self.assertEqual(server_moves.DONE, self.status(move))
        self.assertNetworks('host2')


class TestCleanUp(mover.MoverTestCase):

    def leave(self, count):
        """Have servers leave host1; return their moves."""
        moves = []
        for uuid in samples.uuids(count):
            self.uuid = uuid
            with self.cell.writer() as connection:
                instances.create(
                    connection, [samples.instance(uuid)], self.clock.now())
            moves.append(self.accept(
                ask=False, status=server_moves.FINISHED))
        return moves

    def test_failed_removal_does_not_stop_other_removals(self):
        destroy = self.driver.destroy
        for place in range(3):
            moves = self.leave(3)
            broken = moves.pop(place)

            def fail(instance, broken=broken):
                if instance.uuid == broken.instance_uuid:
                    raise KeyError('as told')
                destroy(instance)

            self.driver.destroy = fail
            self.agents['host1'].clean_up()

            self.assertIn(
                f'[instance: {broken.instance_uuid}] Could not remove the '
                'server', self.logs.output)
            self.assertEqual(server_moves.FINISHED, self.status(broken))
            self.assertEqual(
                {server_moves.DONE}, {self.status(move) for move in moves})
            self.driver.destroy = destroy
            self.agents['host1'].clean_up()
            self.assertEqual(server_moves.DONE, self.status(broken))


class TestTransfer(mover.MoverTestCase):
    """A migration transfers the disks of the server."""

    def setUp(self):
        super().setUp()
        self.driver.write(self.uuid, 'data')
        self.move = self.accept()

    @property
    def runs(self):
        return [host for host, driver in self.drivers.items()
                if driver.is_running(self.uuid)]

    def sent(self):
        """Return the messages since the last call."""
        messages = [(each.method, each.host) for each in self.compute.sent]
        self.compute.sent.clear()
        return messages

    def prepare(self):
        """Have the source prepare the server; return its data."""
        self.tell('prepare_migration', self.move, 'host1')
        [sent] = self.compute.sent
        self.assertEqual(('migrate_in', 'host2', 'node2'), (
            sent.method, sent.host, sent.arguments['node']))
        self.sent()
        return sent.arguments['disks']

    def assertIsBack(self):
        self.assertState('active', None, 'host1')
        self.assertEqual({'own': 'host1'}, self.places)
        self.assertEqual((['host1'], ['host1']), (self.runs, self.running))
        self.assertEqual([], self.driver.list_prepared())
        self.assertEqual('data', self.driver.contents(self.uuid))
        self.assertEqual(server_moves.ERROR, self.status(self.move))

    def test_disks_go_with_the_server(self):
        disks = self.prepare()
        self.assertState('active', 'resize_migrating', 'host1')
        self.assertEqual(([], ['host1']), (self.runs, self.running))

        self.tell('migrate_in', self.move, disks=disks)

        self.assertState('active', None, 'host2')
        self.assertEqual(['host2'], self.runs)
        self.assertEqual([('migrate_out', 'host1')], self.sent())
        self.tell('migrate_out', self.move, 'host1')
        self.assertEqual(['host2'], self.running)
        self.assertEqual('data', self.drivers['host2'].contents(self.uuid))
        self.assertEqual(server_moves.DONE, self.status(self.move))
        self.assertEqual([], self.drivers['host2'].spawned)

    def test_repeated_messages_transfer_once(self):
        disks = self.prepare()
        self.tell('prepare_migration', self.move, 'host1')
        self.assertEqual([], self.sent())
        for _ in range(3):
            self.tell('migrate_in', self.move, disks=disks)
        for _ in range(3):
            self.tell('migrate_out', self.move, 'host1')
            self.tell('prepare_migration', self.move, 'host1')

        self.assertEqual([('migrate_out', 'host1')], self.sent())
        self.assertEqual((['host2'], ['host2']), (self.runs, self.running))

    def test_failed_stop_restarts_the_server(self):
        def fail(instance):
            prepare(instance)
            raise exception.BuildFailed(uuid=instance.uuid, reason='no')

        prepare, self.driver.prepare_migration = (
            self.driver.prepare_migration, fail)
        self.tell('prepare_migration', self.move, 'host1')

        self.assertIsBack()
        self.assertEqual([], self.sent())
        self.assertIn('no', self.fault)

    def test_failed_message_restarts_the_server(self):
        self.compute.failure = amqp_exc.ConnectionForced('no')
        self.tell('prepare_migration', self.move, 'host1')

        self.assertIsBack()

    def test_failed_transfer_restarts_the_server(self):
        for method in 'transfer_disks', 'finish_migration':
            def fail(*args):
                raise exception.BuildFailed(uuid=self.uuid, reason='no')

            disks = self.prepare()
            setattr(self.drivers['host2'], method, fail)
            self.tell('migrate_in', self.move, disks=disks)
            self.assertEqual([('migrate_out', 'host1')], self.sent())
            self.assertEqual(([], ['host1']), (self.runs, self.running))
            self.tell('migrate_out', self.move, 'host1')

            self.assertIsBack()
            delattr(self.drivers['host2'], method)
            self.move = self.accept()

    def test_older_copy_on_the_destination_stays(self):
        self.drivers['host2'].spawn(self.instance, 'node2')
        disks = self.prepare()

        self.tell('migrate_in', self.move, disks=disks)
        self.tell('migrate_out', self.move, 'host1')

        self.assertState('active', None, 'host1')
        self.assertIn('older copy', self.fault)
        self.assertEqual(['host1', 'host2'], self.running)
        self.assertEqual('data', self.driver.contents(self.uuid))

    def test_concurrently_aborted_transfer_starts_no_guest(self):
        disks = self.prepare()
        transfer = self.drivers['host2'].transfer_disks

        def end(*args):
            transfer(*args)
            self.end(self.move)
            self.transit('revert_migrate')
            self.claims.release([mover.migrations.consumer(self.uuid)])

        self.drivers['host2'].transfer_disks = end
        self.drivers['host2'].finish_migration = self.fail
        self.tell('migrate_in', self.move, disks=disks)

        self.assertEqual([('migrate_out', 'host1')], self.sent())
        self.tell('migrate_out', self.move, 'host1')
        self.assertIsBack()

    def test_progress_restarts_the_deadline(self):
        disks = self.prepare()
        transfer = self.drivers['host2'].transfer_disks

        def take_long(instance, node, data, progress):
            self.clock.advance(500)
            progress()
            with self.cell.reader() as connection:
                self.assertEqual([], server_moves.list_before(
                    connection, self.clock.now(), 9))
            transfer(instance, node, data, progress)

        self.drivers['host2'].transfer_disks = take_long
        self.tell('migrate_in', self.move, disks=disks)

        self.assertState('active', None, 'host2')

    def test_only_a_record_starts_a_server_again(self):
        self.prepare()
        agent = self.agents['host1']

        for _ in range(2):
            # The move is in progress.
            agent.revert_failed()
            self.tell('migrate_out', self.move, 'host1')
            self.assertEqual([], self.runs)
        self.transit('revert_migrate')
        # It was neither successful nor aborted.
        agent.revert_failed()
        self.assertEqual([], self.runs)
        self.end(self.move)
        agent.revert_failed()
        self.assertEqual(['host1'], self.runs)

    def test_moved_server_is_not_restarted(self):
        self.prepare()
        self.end(self.move)
        self.transit('finish_migrate', host='host2', node='node2')

        self.agents['host1'].revert_failed()

        self.assertEqual([], self.runs)

    def test_newly_migrating_server_is_not_restarted(self):
        self.prepare()
        self.end(self.move)
        self.transit('revert_migrate')
        first, self.move = self.move, self.accept()
        disks = self.prepare()

        self.tell('migrate_out', first, 'host1')
        self.agents['host1'].revert_failed()
        self.assertEqual([], self.runs)

        self.tell('migrate_in', self.move, disks=disks)
        self.assertEqual(['host2'], self.runs)

    def test_deletion_meanwhile_wins(self):
        disks = self.prepare()
        self.delete()
        self.tell('migrate_in', self.move, disks=disks)
        self.agents['host1'].revert_failed()
        self.assertEqual([], self.runs)

        self.terminate()

        self.assertEqual([], self.running)
        self.assertEqual({}, self.places)


class TestPlaces(mover.MoverTestCase):
    """A server that moves gets NUMA cells of its new host."""

    def setUp(self):
        super().setUp()
        self.hosts = {}
        self.other = samples.uuids(1)[0]
        for host, node in (('host1', 'node1'), ('host2', 'node2')):
            self.hosts[host] = places.Places()
            self.hosts[host].report(node, places.NodeHardware(
                host, *description.read('test', {'cells': [
                    {'id': 0, 'memory_mb': 64, 'dedicated': '0-1'}]})))
            self.agents[host] = agent_moves.MovingAgent(
                host, self.cell, self.claims, self.drivers[host],
                self.compute, self.network, guests=guests.Guests(
                    host, self.cell, self.drivers[host], self.clock,
                    places_=self.hosts[host]))
        self.request = {'cells': [{
            'id': 0, 'cpuset': [], 'pcpuset': [0, 1], 'memory': 32,
            'cpu_policy': 'dedicated'}]}
        with self.cell.writer() as connection:
            instance_children.set_hardware(
                connection, self.uuid, self.request, None)
        self.occupy('host1', self.uuid)

    def occupy(self, host, uuid):
        self.hosts[host].place(uuid, host.replace('host', 'node'),
                               places.request_of(self.request, None))

    @property
    def placed(self):
        """The hosts with cells for the server."""
        return [host for host, kept in self.hosts.items()
                if self.uuid in kept.list_all()]

    def test_migrated_server_frees_the_cells_of_its_source(self):
        move = self.accept()
        self.tell('migrate_in', move)
        self.assertEqual(['host1', 'host2'], self.placed)

        self.tell('migrate_out', move, 'host1')

        self.assertEqual(['host2'], self.placed)

    def test_driver_of_the_destination_gets_the_cells(self):
        self.tell('migrate_in', self.accept(), disks={'contents': 'data'})

        self.assertState('active', None, 'host2')
        topology, _ = self.drivers['host2'].hardware_of(self.uuid)
        self.assertEqual([{0: 0, 1: 1}], [
            each.cpu_pinning for each in topology.cells])

    def test_migration_to_a_full_host_is_aborted(self):
        self.occupy('host2', self.other)

        self.tell('migrate_in', self.accept())

        self.assertState('active', None, 'host1')
        self.assertEqual(['host1'], self.placed)
        self.assertEqual(['host1'], self.running)
        self.assertIn('NUMA cells with enough free CPUs', self.fault)

    def test_failed_migration_frees_the_cells_of_the_destination(self):
        self.drivers['host2'].error = exception.BuildFailed(
            uuid=self.uuid, reason='no')

        self.tell('migrate_in', self.accept())

        self.assertEqual(['host1'], self.placed)

    def test_rebuilt_server_keeps_its_cells(self):
        attempts = []

        def spawned():
            self.assertEqual(['host1'], self.placed)
            attempts.append(self.uuid)

        self.driver.when_up = spawned
        self.tell('rebuild_instance', self.accept(
            server_moves.REBUILD, dest_compute='host1', dest_node='node1'),
            'host1', node='node1')

        self.assertEqual([self.uuid], attempts)
        self.assertState('active', None, 'host1')
        self.assertEqual(['host1'], self.placed)

    def test_shelved_server_has_no_cells_until_its_return(self):
        self.tell('shelve_offload_instance', self.accept(
            server_moves.SHELVE, dest_compute=None, dest_node=None,
            status=server_moves.ACCEPTED), 'host1')
        self.assertEqual([], self.placed)

        self.tell('unshelve_instance', self.accept(
            server_moves.UNSHELVE, source_compute=None, source_node=None))

        self.assertState('active', None, 'host2')
        self.assertEqual(['host2'], self.placed)
