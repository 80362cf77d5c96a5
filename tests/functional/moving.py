# SPDX-License-Identifier: Apache-2.0
"""The base of stories of servers that move."""

import sqlalchemy as sa

from cellsched.conductor import recovery
from cellsched.db.cell import models
from cellsched.db.cell import server_moves
from cellsched.db.cell import services
from cellsched import migrations
from cellsched.standalone import deployment
from tests.functional import base

#: Longer than a move may take.
LATE_S = 700


class Killed(BaseException):
    """A process ends in the middle of a task."""


class TestCase(base.TestCase):

    def setUp(self):
        super().setUp()
        #: What happens at a step, once; by its name.
        self.at = {}
        #: The steps that were done, in order.
        self.done = []

    def start(self, cells=None, **options):
        """Start a deployment; what is in ``at`` happens at its steps."""
        self.world = deployment.Deployment(
            self.temporary_directory(), [
                deployment.DeployedCell(name, hosts) for name, hosts in (
                    cells or {
                        'cell1': self.hosts('a1', 'a2'),
                        'cell2': self.hosts('b1', memory_mb=1024)}).items()],
            options=base.paced(options), reached=self.reach)
        self.world.start()
        self.addCleanup(self.world.stop)
        self.world.api.flavors.create(base.ADMIN, 'small', 1, 512, 10)

    def hosts(self, *names, **what):
        return [deployment.DeployedHost(name, **what) for name in names]

    def reach(self, step):
        happens = self.at.pop(step, lambda: None)
        try:
            happens()
        finally:
            self.done.append(step)

    def kill(self):
        raise Killed

    @property
    def moves(self):
        return self.world.api.moves

    def active(self):
        """Return the uuid of a server in the first cell."""
        [found] = self.built()
        self.assertEqual(('ACTIVE', 'cell1'), (found.status, found.cell))
        return found.uuid

    def other(self, host):
        """Return the other host of the first cell."""
        [found] = {each.name for each in self.world.cells[0].hosts} - {host}
        return found

    def down(self, host, down=True):
        """Have a host count as dead, though its agent answers."""
        self.world.api.services.set(
            base.ADMIN, host, services.COMPUTE, forced_down=down)

    def lose_agent(self, host):
        """Stop the agent of a host for good; return the agent."""
        agent = self.world.agents[host]
        self.world._services.remove(agent)
        agent.stop()
        return agent

    def strand(self, late_s=LATE_S):
        """End what is overdue at that time, in the first cell."""
        cell = self.world.cells[0]
        parts = self.world.agents[cell.hosts[0].name].parts
        recovery.StalledMigrations(
            self.later(late_s, cell.name).cell_database,
            parts.compute.get(parts.transports.get()), parts.claims,
            'conductor', 600, 10 * LATE_S).run()

    # What became of it.

    def row(self, uuid):
        [(cell, row)] = self.rows(uuid).items()
        self.assertEqual('cell1', cell)
        return row

    def statuses(self, uuid):
        table = models.migrations
        return [row.status for row in self.query('cell1', sa.select(
            table.c.status).where(table.c.instance_uuid == uuid)
            .order_by(table.c.id))]

    def faults(self, uuid):
        table = models.instance_faults
        return [row.message for row in self.query('cell1', sa.select(
            table.c.message).where(table.c.instance_uuid == uuid))]

    def actions(self, uuid):
        table = models.instance_actions
        return [tuple(row) for row in self.query('cell1', sa.select(
            table.c.action, table.c.message).where(
                table.c.instance_uuid == uuid, table.c.action != 'create',
                table.c.finish_time.is_not(None)))]

    def rested(self, uuid):
        """Return a server's row once it has no task, and no move."""
        def rested():
            row = self.row(uuid)
            over = not set(self.statuses(uuid)).intersection(server_moves.LIVE)
            return row if row.task_state is None and over else None

        return self.until(rested, f'{uuid} is at rest')

    def assertRests(self, vm_state, host, uuid):
        """A server is at rest there, once, and so are its claims."""
        row = self.rested(uuid)
        self.assertEqual((vm_state, host), (row.vm_state, row.host))
        self.assertClaimsMatch()
        self.soon(lambda: self.assertEqual(
            set(), self.holding(uuid).keys() - {uuid}))
        self.assertIsIn('cell1', uuid)
        self.soon(lambda: self.assertEqual(
            [host] if host else [], self.running(uuid)))

    def assertIsGone(self, uuid):
        self.gone(uuid)
        self.assertLeftNothing(uuid)
        self.soon(lambda: self.assertEqual({}, self.holding(uuid)))
        self.soon(lambda: self.assertEqual([], self.running(uuid)))

    def holding(self, uuid):
        """Return the claims of a server and its moves, by consumer."""
        return self.world.api.parts.claims.claims_of(
            [*migrations.consumers([uuid]), *self.move_uuids(uuid)])

    def move_uuids(self, uuid):
        """Return the uuids of a server's moves, the last one first."""
        table = models.migrations
        return [each for each, in self.query('cell1', sa.select(
            table.c.uuid).where(table.c.instance_uuid == uuid)
            .order_by(table.c.id.desc()))]

    def running(self, uuid):
        """Return the hosts that have a server."""
        return [host for host in self.world.agents
                if uuid in self.driver(host).list_instances()]
