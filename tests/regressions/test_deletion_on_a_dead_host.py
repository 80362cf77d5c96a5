# SPDX-License-Identifier: Apache-2.0
"""Servers of a host that is gone for good can be deleted, and so can it."""

import io

import sqlalchemy as sa

from cellsched.cli import app
from cellsched.conductor import recovery
from cellsched.db.cell import models
from cellsched.db.cell import on_host
from cellsched import exception
from cellsched.wiring import services
from tests.functional import base
from tests.functional import moving


class TestDeletion(moving.TestCase):

    def setUp(self):
        super().setUp()
        self.start({'cell1': self.hosts('a1', 'a2')},
                   conductor={'network_sweep_interval': 1})

    def die(self, host):
        """Stop the agent of a host for good; its guests stay."""
        self.lose_agent(host)
        self.down(host)

    def server_of_a_dead_host(self):
        uuid = self.active()
        host = self.row(uuid).host
        self.die(host)
        return uuid, host

    def deleted_on_a_stopped_host(self):
        """Delete a server whose agent is stopped; return server and host."""
        uuid = self.active()
        host = self.row(uuid).host
        self.lose_agent(host)
        self.delete(uuid)
        self.assertEqual('deleting', self.row(uuid).task_state)
        return uuid, host

    def assertIsGone(self, uuid):
        """As without the guest, which only the host can remove."""
        self.gone(uuid)
        self.assertLeftNothing(uuid)
        self.assertEqual({}, self.holding(uuid))
        self.soon(lambda: self.assertEqual(
            set(), set(self.statuses(uuid)) & {'accepted', 'migrating'}))

    def assertHostIsDeletable(self, host):
        [service] = self.world.api.services.list(
            base.ADMIN, host=host).services
        self.world.api.services.delete(base.ADMIN, service.uuid)
        self.assertEqual([], self.world.api.services.list(
            base.ADMIN, host=host).services)

    def test_servers_and_the_host_can_be_deleted(self):
        uuid, host = self.server_of_a_dead_host()

        self.delete(uuid)

        self.assertIsGone(uuid)
        # The record for the agent, should the host return.
        parts = self.world.agents[self.other(host)].parts
        with parts.cell_database.reader() as connection:
            self.assertEqual(
                (host, 'deleted'), (
                    (row := on_host.get(connection, uuid)).host,
                    row.vm_state))
        self.assertHostIsDeletable(host)

    def test_restored_host_removes_the_guest(self):
        uuid, host = self.server_of_a_dead_host()
        driver = self.driver(host)
        self.delete(uuid)
        self.assertIsGone(uuid)
        self.assertIn(uuid, driver.list_instances())

        conf = self.world.conf('cell1', f'hosts/{host}')
        parts = services.Components(conf)
        parts.driver = driver
        agent = services.compute(conf, parts)
        agent.start()
        self.addCleanup(agent.stop)

        self.soon(lambda: self.assertNotIn(uuid, driver.list_instances()))
        self.assertLeftNothing(uuid)

    def test_networks_are_free(self):
        uuid, _ = self.server_of_a_dead_host()
        self.delete(uuid)
        table = models.instances

        def check():
            [(allocated,)] = self.query('cell1', sa.select(
                table.c.network_allocated).where(table.c.uuid == uuid))
            self.assertFalse(allocated)

        self.soon(check)

    def test_host_can_be_unmapped_first(self):
        uuid, host = self.server_of_a_dead_host()
        conf = str(self.world.directory / 'etc' / 'api.conf')
        command = ['--config-file', conf, 'cell_v2', 'delete_host', '--host',
                   host, '--cell_uuid', self.cells()['cell1'].uuid]

        def run():
            return app.Manage(io.StringIO(), io.StringIO()).run(command)

        self.assertEqual(4, run())
        self.delete(uuid)
        self.assertEqual(0, run())

    def test_building_server_is_deleted(self):
        uuid, host = self.server_of_a_dead_host()
        self.change(uuid, vm_state='building', task_state='spawning')

        self.delete(uuid)

        self.assertIsGone(uuid)

    def test_server_of_a_host_without_a_service_is_deleted(self):
        uuid, host = self.server_of_a_dead_host()
        database = self.world.agents[host].parts.cell_database
        with database.writer() as connection:
            connection.execute(sa.delete(models.services).where(
                models.services.c.host == host))

        self.delete(uuid)

        self.assertIsGone(uuid)

    def test_server_deleted_before_its_host_died_is_deleted(self):
        uuid, host = self.deleted_on_a_stopped_host()
        deletions = recovery.StrandedDeletions(
            self.world.agents[host].parts.cell_database,
            self.world.api.parts.claims, 60)
        deletions.run()
        self.assertEqual('deleting', self.row(uuid).task_state)

        self.down(host)
        deletions.run()

        self.assertIsGone(uuid)
        self.assertHostIsDeletable(host)

    def test_deletion_of_a_service_completes_deletions(self):
        uuid, host = self.deleted_on_a_stopped_host()

        self.down(host)

        self.assertHostIsDeletable(host)
        self.assertIsGone(uuid)

    def test_server_in_evacuation_is_deleted(self):
        uuid, host = self.server_of_a_dead_host()
        self.at['MoveSpawn'] = lambda: self.delete(uuid)

        self.moves.evacuate(base.ADMIN, uuid)

        self.assertIsGone(uuid)
        self.soon(lambda: self.assertEqual([host], self.running(uuid)))
        self.assertEqual(set(), self.holding(uuid).keys() - {uuid})
        self.assertHostIsDeletable(host)

    def migrate_to_dead_host(self, dies):
        """Have the destination die at a step; return server and host."""
        uuid = self.active()
        destination = self.other(self.row(uuid).host)

        def die():
            if dies:
                self.down(destination)
            self.kill()

        self.at['MoveDecide'] = die
        self.moves.migrate(base.ADMIN, uuid, rebuild=True)
        self.soon(lambda: self.assertIn('MoveDecide', self.done))
        self.assertIn(self.move_uuids(uuid)[0], self.holding(uuid))
        return uuid, destination

    def test_server_moving_to_a_dead_host_has_no_claim_on_the_host(self):
        uuid, _ = self.migrate_to_dead_host(dies=True)

        self.delete(uuid)

        self.soon(lambda: self.assertIsGone(uuid))

    def test_destination_dying_after_the_deletion_keeps_no_claim(self):
        uuid, destination = self.migrate_to_dead_host(dies=False)
        self.delete(uuid)
        self.gone(uuid)
        parts = self.world.agents[destination].parts
        deletions = recovery.StrandedDeletions(
            parts.cell_database, self.world.api.parts.claims, 60)
        deletions.run()
        self.assertIn(self.move_uuids(uuid)[0], self.holding(uuid))

        self.down(destination)
        deletions.run()

        self.assertIsGone(uuid)

    def test_evacuation_of_a_host_completes_deletions(self):
        uuid, host = self.deleted_on_a_stopped_host()
        self.down(host)

        self.assertEqual([], self.world.api.host_drain.evacuate(
            base.ADMIN, host, timeout_s=60))

        self.assertIsGone(uuid)

    def test_server_on_a_running_host_is_deleted_by_its_agent(self):
        _, host = self.deleted_on_a_stopped_host()

        [service] = self.world.api.services.list(
            base.ADMIN, host=host).services
        self.assertRaises(
            exception.InvalidField, self.world.api.services.delete,
            base.ADMIN, service.uuid)

    def change(self, uuid, **values):
        database = self.world.agents['a1'].parts.cell_database
        with database.writer() as connection:
            connection.execute(
                sa.update(models.instances).values(**values)
                .where(models.instances.c.uuid == uuid))
