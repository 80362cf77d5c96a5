# SPDX-License-Identifier: Apache-2.0
"""Servers that move keep the data on their local disks, or stay."""

from cellsched import exception
from cellsched.rpc import compute as compute_rpc
from cellsched.rpc import conductor as conductor_rpc
from cellsched.wiring import compute
from tests.functional import base
from tests.functional import moving

#: A host whose driver cannot transfer disks.
FIXED = {'behaviour': {'supports_migration': False}}

#: The steps of a transfer before and after the server's row changes.
BEFORE = ('MovePrepare', 'MoveSelect', 'MoveDecide', 'MoveLeave', 'MoveStop',
          'MoveBegin', 'MoveTransfer', 'MoveSpawn')
AFTER = ('MoveFinish', 'MoveClaim')

VOLUME = {'source_type': 'image', 'destination_type': 'volume',
          'image_id': '11111111-0000-4000-8000-000000000000',
          'boot_index': 0, 'volume_size': 10}


class TestCase(moving.TestCase):

    def begin(self, *hosts, **options):
        """Start these hosts in the first cell, with one server."""
        self.start({'cell1': [*hosts]}, **options)
        for name, root_gb, ephemeral_gb, swap_mb in (
                ('diskless', 0, 0, 0), ('ephemeral', 0, 7, 0),
                ('swap', 0, 0, 512), ('all', 10, 7, 512)):
            self.world.api.flavors.create(
                base.ADMIN, name, 1, 512, root_gb, ephemeral_gb=ephemeral_gb,
                swap_mb=swap_mb)

    def at_rest(self, **request):
        """Return a server with data on its disks, and its host."""
        [found] = self.built(**request)
        host = self.row(found.uuid).host
        self.assertRests('active', host, found.uuid)
        self.driver(host).write(found.uuid, 'data')
        self.done.clear()
        return found.uuid, host

    def reached(self, step):
        self.until(lambda: step in self.done, f'{step} is done')

    def running_now(self, uuid):
        """Return the hosts on which a server runs."""
        return [host for host in self.world.agents
                if self.driver(host).is_running(uuid)]

    def assertRuns(self, uuid, host, kept=True):
        """Check that a server runs on one host, with or without its data."""
        self.assertRests('active', host, uuid)
        self.soon(lambda: self.assertEqual([host], self.running_now(uuid)))
        self.assertEqual([], self.driver(host).list_prepared())
        contents = self.driver(host).contents(uuid)
        (self.assertEqual if kept else self.assertNotEqual)('data', contents)


class TestTransfer(TestCase):
    """Both hosts can transfer disks."""

    def setUp(self):
        super().setUp()
        self.begin(*self.hosts('a1', 'a2'))

    def over(self, uuid):
        self.delete(uuid)
        self.assertIsGone(uuid)

    def test_data_moves_with_the_server_and_back(self):
        uuid, host = self.at_rest()

        for place in (self.other(host), host):
            self.moves.migrate(base.ADMIN, uuid)
            self.assertRuns(uuid, place)

    def test_server_is_rebuilt_on_request(self):
        uuid, host = self.at_rest()

        self.moves.migrate(base.ADMIN, uuid, rebuild=True)

        self.assertRuns(uuid, self.other(host), kept=False)
        self.assertNotIn('MoveStop', self.done)

    def test_server_runs_on_a_single_host_after_a_kill_at_any_step(self):
        for step in (*BEFORE, *AFTER):
            uuid, host = self.at_rest()
            self.at[step] = self.kill

            self.moves.migrate(base.ADMIN, uuid)
            self.reached(step)
            self.assertNotIn('MoveDestroy', self.done)
            self.strand()

            self.assertRuns(
                uuid, self.other(host) if step in AFTER else host)
            self.over(uuid)

    def test_restarted_agent_starts_the_server_of_a_failed_move(self):
        uuid, host = self.at_rest()
        self.at['MoveStop'] = self.kill
        self.moves.migrate(base.ADMIN, uuid)
        self.reached('MoveStop')
        agent = self.world.agents[host]

        # The move may still succeed.
        compute.moving_agent(agent.parts).revert_failed()
        self.assertEqual([], self.running_now(uuid))
        for server in agent.servers:
            server.stop()
            server.wait()
        self.strand()
        self.assertEqual([], self.running_now(uuid))
        compute.moving_agent(agent.parts).revert_failed()

        self.assertRuns(uuid, host)

    def test_server_starts_again_if_its_new_host_fails(self):
        uuid, host = self.at_rest()
        self.driver(self.other(host)).fail_builds(1)

        self.moves.migrate(base.ADMIN, uuid)

        self.assertRuns(uuid, host)
        self.assertEqual(['error'], self.statuses(uuid))

    def test_evacuation_replaces_a_transfer_from_a_dead_host(self):
        uuid, host = self.at_rest()
        self.at['MoveStop'] = self.kill
        self.moves.migrate(base.ADMIN, uuid)
        self.reached('MoveStop')
        self.down(host)

        self.moves.evacuate(base.ADMIN, uuid)

        self.until(lambda: self.row(uuid).host == self.other(host),
                   'it is evacuated')
        self.down(host, down=False)
        self.strand(2 * moving.LATE_S)
        self.assertRuns(uuid, self.other(host), kept=False)

    def test_drain_keeps_the_data(self):
        uuid, host = self.at_rest()
        self.world.api.parts.discovery.discover()

        found = self.world.api.host_drain.drain(
            base.ADMIN, host, timeout_s=600)

        self.assertEqual(['moved'], [each.outcome for each in found])
        self.assertRuns(uuid, self.other(host))


class TestFixedHosts(TestCase):
    """No host can transfer disks."""

    def setUp(self):
        super().setUp()
        self.begin(*self.hosts('a1', 'a2', **FIXED))

    def assertClaimsMatch(self):
        """Claims differ from the root disks that rows have."""

    def test_server_with_a_local_disk_is_refused(self):
        for flavor, devices, disks in (
                ('small', (), 'root disk of 10 GB'),
                ('ephemeral', (), 'ephemeral disk of 7 GB'),
                ('swap', (), 'swap disk of 512 MB'),
                ('all', (VOLUME,),
                 'ephemeral disk of 7 GB and swap disk of 512 MB')):
            uuid, host = self.at_rest(
                flavor=flavor, block_device_mappings=devices)

            error = self.assertRaises(
                exception.DisksNotTransferable, self.moves.migrate,
                base.ADMIN, uuid)

            self.assertIn(f'would lose its {disks}: ', str(error))
            self.assertIn('rebuild', str(error))
            self.assertRuns(uuid, host)
            self.assertEqual([], self.statuses(uuid))
            self.delete(uuid)

    def test_server_without_a_local_disk_migrates(self):
        for request in ({'flavor': 'diskless'},
                        {'block_device_mappings': [VOLUME]}):
            uuid, host = self.at_rest(**request)

            self.moves.migrate(base.ADMIN, uuid)

            self.assertRuns(uuid, self.other(host), kept=False)
            self.delete(uuid)

    def test_server_is_rebuilt_on_request(self):
        uuid, host = self.at_rest()

        self.moves.migrate(base.ADMIN, uuid, rebuild=True)

        self.assertRuns(uuid, self.other(host), kept=False)

    def test_drain_moves_only_servers_without_data_loss(self):
        api = self.world.api
        api.parts.discovery.discover()
        api.services.set(base.ADMIN, 'a2', 'nova-compute', True, 'later')
        (fixed, _), (moves, _) = self.at_rest(), self.at_rest(
            flavor='diskless')
        api.services.set(base.ADMIN, 'a2', 'nova-compute', False)

        found = api.host_drain.drain(base.ADMIN, 'a1', timeout_s=600)

        self.assertEqual(
            {fixed: 'stays', moves: 'moved'},
            {each.uuid: each.outcome for each in found})
        [reason] = [each.reason for each in found if each.reason]
        self.assertIn('lose its root disk of 10 GB: its host a1', reason)
        self.assertRuns(fixed, 'a1')

        found = api.host_drain.drain(
            base.ADMIN, 'a1', timeout_s=600, rebuild=True)

        self.assertEqual(['moved'], [each.outcome for each in found])
        self.assertRuns(fixed, 'a2', kept=False)


class TestMixedHosts(TestCase):
    """Only some hosts can transfer disks."""

    def place(self, host, *others):
        """Return a server with data that is on this host."""
        api = self.world.api
        api.parts.discovery.discover()
        for other in others:
            api.services.set(base.ADMIN, other, 'nova-compute', True, 'later')
        uuid, found = self.at_rest()
        self.assertEqual(host, found)
        for other in others:
            api.services.set(base.ADMIN, other, 'nova-compute', False)
        return uuid

    def test_scheduler_selects_a_host_with_disk_transfer(self):
        self.begin(*self.hosts('a1'), *self.hosts(
            'a2', 'a3', memory_mb=65536, **FIXED), *self.hosts('a4'))
        uuid = self.place('a1', 'a2', 'a3', 'a4')

        self.moves.migrate(base.ADMIN, uuid)

        self.assertRuns(uuid, 'a4')

    def test_server_stays_if_no_other_host_can(self):
        self.begin(*self.hosts('a1'), *self.hosts('a2', **FIXED))
        uuid = self.place('a1', 'a2')

        error = self.assertRaises(
            exception.DisksNotTransferable, self.moves.migrate, base.ADMIN,
            uuid, 'a2')
        self.assertIn('the host a2 cannot transfer disks', str(error))
        self.moves.migrate(base.ADMIN, uuid)

        self.assertRuns(uuid, 'a1')
        self.assertIn('No valid host', self.faults(uuid)[0])
        self.assertNotIn('MoveStop', self.done)


class TestOldServices(TestCase):
    """Agents or conductors are too old to transfer disks."""

    def test_only_servers_without_data_loss_migrate(self):
        for levels in ({'compute': compute_rpc.MOVES},
                       {'conductor': conductor_rpc.MOVES}):
            self.begin(*self.hosts('a1', 'a2'), upgrade_levels=levels)
            uuid, host = self.at_rest()

            error = self.assertRaises(
                exception.VersionNotSendable, self.moves.migrate, base.ADMIN,
                uuid)

            self.assertIn(f'[upgrade_levels] {[*levels][0]}', str(error))
            self.assertRuns(uuid, host)
            self.moves.migrate(base.ADMIN, uuid, rebuild=True)
            self.assertRests('active', self.other(host), uuid)
