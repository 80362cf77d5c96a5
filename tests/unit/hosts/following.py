# SPDX-License-Identifier: Apache-2.0
"""A follower of one cell, and what its agents do."""

import threading

from cellsched.cells import discovery
from cellsched.cells import registry
from cellsched.db.cell import compute_nodes
from cellsched.db.cell import hosts
from cellsched.host_manager import aggregate_groups
from cellsched.host_manager import cell_follower
from cellsched.hosts import table
from tests.unit import base
from tests.unit.db import samples
from tests.unit.hosts import world


class FollowerTestCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.world = self.useFixture(world.World('cell1', 'cell2'))
        self.table = table.HostTable()
        self.grouping = aggregate_groups.AggregateGroups('nova')
        self.follower = self.follow('cell1')
        self.database = self.world.targets.database(self.world.cells['cell1'])

    def follow(self, cell, **options):
        cells = registry.CellRegistry(
            self.world.database, self.world.clock, 0)
        return cell_follower.CellFollower(
            self.world.cells[cell], self.table, threading.Lock(),
            self.grouping, discovery.Discovery(
                self.world.database, cells, self.world.targets,
                self.world.clock), self.world.own_clock,
            self.world.database.conditions, **options)

    def read(self, everything=False):
        """Read what changed; return the nodes that are new."""
        self.world.clock.advance(1)
        return self.follower.read(self.database, everything)

    def node(self, host, uuid=None, **values):
        """Have a node reported, without its service; return its uuid."""
        with self.database.writer() as connection:
            return compute_nodes.save(
                connection, uuid or samples.uuids(1)[0], host, host,
                self.world.node_values(8, 8192, 100) | values,
                self.world.clock.now())

    def service(self, host):
        self.world.report('cell1', host)

    def delete(self, host):
        with self.database.writer() as connection:
            hosts.delete(connection, host, self.world.clock.now())

    def execute(self, statement):
        """Write as somebody does who knows of no feed."""
        with self.database.writer() as connection:
            connection.execute(statement)

    def known(self):
        return sorted(self.table['uuid'])

    def value(self, uuid, column):
        return self.table[column][self.table.row(uuid)]
