# SPDX-License-Identifier: Apache-2.0
"""Operators change what servers depend on, and the servers still move."""

from cellsched.cells.maintenance import CellMaintenance
from cellsched import exception
from tests.functional import base
from tests.functional import moving


class TestCase(moving.TestCase):

    def setUp(self):
        super().setUp()
        self.start({'cell1': self.hosts('a1', 'a2'),
                    'cell2': self.hosts('b1', memory_mb=1024)})
        self.api = self.world.api
        self.api.parts.discovery.discover()

    def zone(self, name, *hosts):
        self.api.aggregates.create(
            base.ADMIN, name, {'availability_zone': name})
        self.api.aggregates.add_hosts(base.ADMIN, name, hosts)

    def disable(self, cell, disabled=True):
        parts = self.api.parts
        CellMaintenance(
            parts.database, parts.cells, parts.targets, parts.clock,
        ).update(self.cells()[cell].uuid, {'disabled': disabled})


class TestZones(TestCase):

    def test_host_with_servers_keeps_its_zone(self):
        self.zone('east', 'a1', 'a2')
        [server] = self.built(availability_zone='east')
        aggregates = self.api.aggregates
        for change, *args in (
                (aggregates.remove_hosts, [server.host]),
                (aggregates.set_metadata, {'availability_zone': 'west'}),
                (aggregates.set_metadata, {'availability_zone': None}),
                (aggregates.delete,)):
            error = self.assertRaises(
                exception.ZoneInUse, change, base.ADMIN, 'east', *args)
            self.assertEqual(409, error.code)
            self.assertIn(f"'{server.host}' would change from east to",
                          str(error))

        aggregates.remove_hosts(base.ADMIN, 'east', [self.other(server.host)])
        aggregates.add_hosts(base.ADMIN, 'east', [self.other(server.host)])
        self.moves.migrate(base.ADMIN, server.uuid)
        self.assertRests('active', self.other(server.host), server.uuid)

    def test_host_of_an_unreachable_cell_keeps_its_zone(self):
        self.zone('east', 'a1')
        self.take_down('cell1')

        self.assertRaises(
            exception.DatabaseUnreachable, self.api.aggregates.remove_hosts,
            base.ADMIN, 'east', ['a1'])

        self.assertEqual(
            ['a1'], self.api.aggregates.get(base.ADMIN, 'east').hosts)

    def test_shelved_server_is_restored_without_its_lost_zone(self):
        self.zone('east', 'a1')
        [server] = self.built(availability_zone='east')
        self.moves.shelve(base.USER, server.uuid)
        self.assertRests('shelved_offloaded', None, server.uuid)
        self.api.aggregates.remove_hosts(base.ADMIN, 'east', ['a1'])
        # The zone is still that of a host of another cell.
        self.api.aggregates.add_hosts(base.ADMIN, 'east', ['b1'])

        self.moves.unshelve(base.USER, server.uuid)

        row = self.rested(server.uuid)
        self.assertEqual('active', row.vm_state)
        self.assertEqual('nova', row.availability_zone)


class TestMoves(TestCase):

    def assertMovable(self, uuid):
        """The server can be moved by each kind of move."""
        host = self.row(uuid).host
        self.moves.migrate(base.ADMIN, uuid)
        self.assertRests('active', self.other(host), uuid)
        self.down(self.other(host))
        self.moves.evacuate(base.ADMIN, uuid)
        self.assertEqual(
            ('active', host),
            ((row := self.rested(uuid)).vm_state, row.host))
        self.down(self.other(host), down=False)
        self.moves.rebuild(base.ADMIN, uuid)
        self.assertEqual('active', self.rested(uuid).vm_state)
        self.moves.shelve(base.USER, uuid)
        self.assertEqual('shelved_offloaded', self.rested(uuid).vm_state)
        self.moves.unshelve(base.USER, uuid)
        self.assertEqual('active', self.rested(uuid).vm_state)
        self.assertClaimsMatch()

    def test_flavor_was_deleted(self):
        uuid = self.active()
        self.api.flavors.delete(base.ADMIN, 'small')

        self.assertMovable(uuid)

    def test_group_was_deleted(self):
        group = self.api.server_groups.create(base.USER, 'group', 'affinity')
        [first, second] = self.built(
            min_count=2, hints={'group': [group.uuid]})
        self.assertEqual(first.host, second.host)
        self.api.server_groups.delete(base.USER, group.uuid)

        self.assertMovable(first.uuid)

    def test_cell_was_disabled(self):
        uuid = self.active()
        self.disable('cell1')

        self.assertMovable(uuid)

        [new] = self.built()
        self.assertEqual('cell2', new.cell)
        self.disable('cell2')
        [refused] = self.built()
        self.assertEqual('ERROR', refused.status)
        self.assertIn('of 3 hosts 3 are in a disabled cell (cell1, cell2)',
                      refused.reason)
        self.disable('cell1', False)
        self.assertEqual('cell1', self.built()[0].cell)
