# SPDX-License-Identifier: Apache-2.0
"""Agents of moves with their cell, and one server that runs on host1."""

from cellsched.claims import base as claims_base
from cellsched.compute import guests
from cellsched.compute import moves as agent_moves
from cellsched.db.cell import instances
from cellsched.db.cell import server_moves
from cellsched import migrations
from cellsched.testing import clients
from tests.unit.compute import agents
from tests.unit.db import samples


class MoverTestCase(agents.AgentTestCase):

    def setUp(self):
        super().setUp()
        self.build()
        self.compute = clients.FakeCompute()
        self.there = samples.uuids(1)[0]
        self.claims.set_inventory(
            self.there, {'VCPU': claims_base.Inventory(8)})
        self.drivers = {'host1': self.driver, 'host2': self.make_driver()}
        self.agents = {
            host: agent_moves.MovingAgent(
                host, self.cell, self.claims, driver, self.compute,
                self.network, guests.Guests(
                    host, self.cell, driver, self.clock))
            for host, driver in self.drivers.items()}

    def transit(self, name, **values):
        with self.cell.writer() as connection:
            self.assertTrue(instances.transit(
                connection, self.uuid, name, self.clock.now(), values))

    def accept(self, kind=server_moves.MIGRATION, ask=True, **fields):
        """Have a move of the server accepted, as a rule to host2."""
        if ask:
            self.transit(server_moves.KINDS[kind].ask)
        move = server_moves.Migration(**{
            'uuid': samples.uuids(1)[0], 'instance_uuid': self.uuid,
            'migration_type': kind, 'status': server_moves.MIGRATING,
            'source_compute': 'host1', 'source_node': 'node1',
            'dest_compute': 'host2', 'dest_node': 'node2', **fields})
        with self.cell.writer() as connection:
            server_moves.create(
                connection, move, agents.USER, self.clock.now())
        if move.kind.leaves and ask:
            self.claims.claim([claims_base.Claim(
                move.uuid, self.there, {'VCPU': 1})])
        return move

    def end(self, move, status=server_moves.ERROR):
        with self.cell.writer() as connection:
            server_moves.advance(
                connection, move.uuid, server_moves.LIVE, status,
                self.clock.now())

    def status(self, move):
        with self.cell.reader() as connection:
            return server_moves.get(connection, move.uuid).status

    def tell(self, method, move, host='host2', **arguments):
        if method not in ('migrate_out', 'shelve_offload_instance'):
            arguments.setdefault('node', 'node2')
        getattr(self.agents[host], method)(
            agents.USER, instance=self.instance, migration_uuid=move.uuid,
            **arguments)

    @property
    def running(self):
        return [host for host, driver in self.drivers.items()
                if self.uuid in driver.list_instances()]

    @property
    def places(self):
        """The nodes where something is claimed, by the names."""
        with self.cell.reader() as connection:
            moves = server_moves.uuids_of(connection, [self.uuid])
        names = {self.uuid: 'own', **dict.fromkeys(
            [migrations.consumer(self.uuid), *moves.get(self.uuid, ())],
            'move')}
        nodes = {self.provider: 'host1', self.there: 'host2'}
        return {names[consumer]: nodes[claim.provider] for consumer, [claim]
                in self.claims.claims_of(names).items()}
