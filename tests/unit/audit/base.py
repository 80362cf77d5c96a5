# SPDX-License-Identifier: Apache-2.0
"""A deployment with servers in invalid states."""

from concurrent import futures

from oslo_serialization import jsonutils
import sqlalchemy as sa

from cellsched.audit import auditor
from cellsched.audit import repairs
from cellsched.audit import state
from cellsched.cells import cell0
from cellsched.cells import gather
from cellsched.claims import base as claims_base
from cellsched.claims import memory
from cellsched import context
from cellsched.db.api import build_requests
from cellsched.db.api import host_mappings
from cellsched.db.api import instance_groups
from cellsched.db.api import instance_mappings
from cellsched.db.api import models as api_models
from cellsched.db.cell import build_casts
from cellsched.db.cell import compute_nodes
from cellsched.db.cell import instance_history
from cellsched.db.cell import instances
from cellsched.db.cell import models
from cellsched.db.cell import server_moves
from cellsched.db.cell import services
from cellsched import exception
from cellsched.testing import clock as clocks
from tests.unit.cells import base
from tests.unit.db import samples

#: What a server takes.
SIZE = {'VCPU': 1, 'MEMORY_MB': 512, 'DISK_GB': 10}

#: The cells and their hosts; a host has room for four.
CELLS = {'cell1': ['a1', 'a2'], 'cell2': ['b1']}

SETTLE_S = 5


class SettlingClock(clocks.FakeClock):
    """Calls a function between the two passes of an audit."""

    def __init__(self):
        super().__init__()
        self.slept = []
        self.meanwhile = lambda: None

    def sleep(self, seconds):
        self.slept.append(seconds)
        super().sleep(seconds)
        self.meanwhile()


def text(spec):
    """Return the stored form of a request specification."""
    return jsonutils.dumps(spec.obj_to_primitive())


class TestCase(base.TestCase):

    def setUp(self):
        super().setUp()
        #: That of the API database; the auditor has one of its own.
        self.database_clock = self.clock
        self.clock = SettlingClock()
        self.claims = memory.MemoryClaims()
        self.by_name = {'cell0': self.add_cell0(), **{
            name: self.add_cell(name) for name in CELLS}}
        self.providers = {}
        for cell, hosts in CELLS.items():
            for host in hosts:
                self.add_host(cell, host)
        executor = futures.ThreadPoolExecutor(4)
        self.addCleanup(executor.shutdown)
        gatherer = gather.Gatherer(
            executor, self.targets, self.clock, timeout_s=30)
        # A page is small, so that there are several.
        self.reader = state.StateReader(
            self.database, self.cells, gatherer, self.claims, page=2)
        self.repairs = self.make_repairs(self.clock)
        self.auditor = auditor.Auditor(self.reader, self.repairs, self.clock)

    def make_repairs(self, clock):
        return repairs.Repairs(
            self.reader, self.targets, cell0.Cell0(
                self.database, self.cells, self.targets, clock, 'audit'),
            clock, 'audit')

    # What there is.

    def add_host(self, cell, host):
        self.offer(cell, host, 4)
        self.write(self.cell(cell), services.report, samples.uuids(1)[0],
                   host, services.COMPUTE, 'compute', samples.NOW)
        self.write(self.database, host_mappings.create_missing, [host],
                   self.by_name[cell].id, samples.NOW)

    def offer(self, cell, host, servers):
        """Set the capacity of a host to a number of servers."""
        has = {name: servers * amount for name, amount in SIZE.items()}
        self.providers[host] = self.write(
            self.cell(cell), compute_nodes.save, samples.uuids(1)[0], host,
            f'node-{host}', {
                **samples.NODE, 'vcpus': has['VCPU'],
                'memory_mb': has['MEMORY_MB'], 'local_gb': has['DISK_GB'],
                'memory_mb_used': 0, 'local_gb_used': 0,
                'cpu_allocation_ratio': 1.0}, samples.NOW)
        self.claims.set_inventory(self.providers[host], {
            name: claims_base.Inventory(amount)
            for name, amount in has.items()})

    def cell(self, name):
        return self.targets.database(self.by_name[name])

    def accept(self, **fields):
        [uuid] = samples.uuids(1)
        samples.accept(self.database, [uuid], **fields)
        return uuid

    def request(self, uuid):
        """Add a build request in a way that the product never does."""
        [made] = samples.accept(self.database, samples.uuids(1))
        table = api_models.build_requests
        with self.database.writer() as connection:
            connection.execute(
                sa.update(table).where(table.c.instance_uuid == made.uuid)
                .values(instance_uuid=uuid))
        self.unmap(made.uuid)

    def forget(self, uuid):
        self.write(self.database, build_requests.delete, [uuid])

    def lease(self, *uuids):
        """Let another process have the build requests for a minute."""
        now = self.clock.timestamp()
        self.write(self.database, build_requests.lease, uuids, 'somebody',
                   now, now + 60)

    def mark_deleted(self, uuid):
        self.write(self.database, instance_mappings.mark_deleted, [uuid],
                   samples.NOW)

    def decide(self, uuid, cell):
        self.write(self.database, instance_mappings.decide, [uuid],
                   self.by_name[cell].id, samples.NOW)

    def join(self, group, *uuids):
        """Add a server group with members."""
        self.write(self.database, instance_groups.create, group, samples.NOW)
        found = self.read(self.database, instance_groups.find, group.uuid)
        self.write(self.database, instance_groups.add_members, found.id,
                   uuids, samples.NOW)

    def map_to(self, uuid, cell):
        """Map a server in a way that the product never does."""
        table = api_models.instance_mappings
        with self.database.writer() as connection:
            connection.execute(
                sa.update(table).where(table.c.instance_uuid == uuid)
                .values(cell_id=cell and self.by_name[cell].id))

    def unmap(self, uuid):
        table = api_models.instance_mappings
        with self.database.writer() as connection:
            connection.execute(
                sa.delete(table).where(table.c.instance_uuid == uuid))

    def put_row(self, uuid, cell, **values):
        """Write a row, by default of a server without a host."""
        with self.cell(cell).writer() as connection:
            instances.create(
                connection, [samples.instance(uuid)], samples.NOW)
            if values:
                samples.put(connection, uuid, values)

    def change_row(self, uuid, cell, **values):
        self.write(self.cell(cell), samples.put, uuid, values)

    def take(self, uuid, host, **resources):
        self.claims.claim([claims_base.Claim(
            uuid, self.providers[host], resources or SIZE,
            project_id='project', user_id='user')])

    def cast(self, uuid, cell, host='a1'):
        """Let a cell keep the message to a host."""
        self.write(self.cell(cell), build_casts.create, [
            build_casts.BuildCast(uuid, host, f'node-{host}', '{}', 1.0)])

    def building(self, cell='cell1', **values):
        """Return a server whose cell builds it."""
        uuid = self.accept()
        self.decide(uuid, cell)
        self.put_row(uuid, cell, **values)
        self.forget(uuid)
        return uuid

    def spoil(self, uuid, table, **values):
        self.write(self.database, samples.spoil, uuid, table, **values)

    def mapped(self, uuid):
        """Return the name of the cell that a server is mapped to."""
        mapping = self.read(
            self.database, instance_mappings.get_many, [uuid])[uuid]
        return mapping.cell_mapping and mapping.cell_mapping.name

    def held(self, uuid):
        return {claim.provider: dict(claim.resources)
                for claim in self.claims.claims_of([uuid]).get(uuid, ())}

    def row(self, uuid, cell):
        with self.cell(cell).reader() as connection:
            return instances.get(connection, uuid)

    def reason(self, uuid, cell):
        return self.read(
            self.cell(cell), instance_history.latest, [uuid]).get(uuid)

    def running(self, cell='cell1', host='a1'):
        """Return a server in a valid state."""
        uuid = self.accept()
        self.decide(uuid, cell)
        self.put_row(uuid, cell, vm_state='active', task_state=None,
                     host=host, node=f'node-{host}',
                     launched_at=samples.NOW)
        self.forget(uuid)
        self.take(uuid, host)
        return uuid

    def failed(self, cell='cell0', fault=True, action=True):
        """Return a server in ERROR."""
        uuid = self.accept()
        self.decide(uuid, cell)
        self.put_row(uuid, cell, vm_state='error', task_state=None)
        with self.cell(cell).writer() as connection:
            if fault:
                instance_history.record(
                    connection, uuid, exception.NoValidHost(reason='Full.'),
                    'host', samples.NOW)
            if action:
                instance_history.create_all(
                    connection, {uuid: context.admin()}, 'create',
                    samples.NOW, 'Error')
        self.forget(uuid)
        return uuid

    def deleted(self, cell='cell1', host='a1'):
        uuid = self.running(cell, host)
        self.mark_deleted(uuid)
        self.write(self.cell(cell), instances.delete, uuid, samples.NOW)
        return uuid

    def move(self, uuid, cell='cell1', status=server_moves.PREPARING,
             kind=server_moves.MIGRATION):
        """Write a move of a server; return the consumer of its claims."""
        migration = server_moves.Migration(
            samples.uuids(1)[0], uuid, kind, status, 'a1', 'node-a1')
        self.write(self.cell(cell), server_moves.create, migration,
                   context.admin(), samples.NOW)
        return migration.uuid

    def take_down(self, name):
        samples.set_cell_url(self.database, name)
        self.cells.refresh()

    def bring_back(self, name):
        """Make a cell available again."""
        samples.set_cell_url(
            self.database, name, self.by_name[name].database_connection)
        self.cells.refresh()

    def rows(self, uuid):
        """Return the cells with a row of a server, deleted or not."""
        table = models.instances
        found = set()
        for name in self.by_name:
            with self.cell(name).reader() as connection:
                if connection.execute(sa.select(table.c.id).where(
                        table.c.uuid == uuid)).first():
                    found.add(name)
        return found

    # What is found.

    def audit(self, fix=False, foreign=True):
        return self.auditor.run(SETTLE_S, fix, foreign=foreign)

    def facts(self, uuid):
        """Return the state of a server, as it is judged before a repair."""
        return self.reader.servers([uuid], everywhere=True, asked=True)[uuid]

    def repairable(self, uuid, action=None):
        """Return the only finding with a repair, and the state of a server.

        :param action: the repair, if there are several
        """
        facts = self.facts(uuid)
        [found] = [each for each in auditor.judge(facts)
                   if each.action and action in (None, each.action)]
        return found, facts

    def repair(self, uuid, action):
        """Make one of the repairs of a server."""
        self.repairs.repair(*self.repairable(uuid, action))

    def cell_of(self, finding):
        """Return the name of the cell of a finding."""
        return self.reader.names().get(finding.cell_uuid, '')

    def assertClean(self):
        report = self.audit()
        self.assertEqual([], report.remaining)

    def assertFound(self, *expected, fix=False):
        """Check findings: invariant, kind, of, name of the cell."""
        report = self.audit(fix)
        self.assertEqual(
            sorted(expected),
            sorted((each.invariant, each.kind, each.of, report.cell_of(each))
                   for each in report.remaining))
        return report

    def assertMends(self, *expected):
        """Check that findings are repaired, and none remains."""
        self.assertFound(*expected)
        report = self.audit(fix=True)
        self.assertEqual([], report.remaining)
        self.assertEqual(
            sorted(expected),
            sorted((each.invariant, each.kind, each.of, report.cell_of(each))
                   for each in report.repaired))
        self.assertClean()

    def assertKept(self, *expected):
        """Check that findings remain after a repair."""
        self.assertFound(*expected)
        report = self.assertFound(*expected, fix=True)
        self.assertEqual([], report.repaired)
        for each in report.remaining:
            self.assertIsNone(each.action)
            self.assertTrue(each.advice)
