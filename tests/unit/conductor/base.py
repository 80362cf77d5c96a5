# SPDX-License-Identifier: Apache-2.0
"""A test of what conductors do: an API, cells, a store, and no messages."""

from concurrent import futures

import futurist
from oslo_config import cfg
import sqlalchemy as sa

from cellsched.api import authorization
from cellsched.api import servers
from cellsched.cells import cell0
from cellsched.cells import gather
from cellsched.cells import registry
from cellsched.cells import target
from cellsched.claims import base as claims_base
from cellsched.claims import memory
from cellsched.conductor import recovery
from cellsched.conductor.tasks import build_and_schedule
from cellsched.conductor.tasks import saga as tasks
from cellsched.conductor.tasks.saga import Build
from cellsched.conductor.tasks import steps
from cellsched import context
from cellsched.db.api import build_requests
from cellsched.db.api import host_mappings
from cellsched.db.api import instance_mappings
from cellsched.db.api import models as api_models
from cellsched.db.cell import build_casts
from cellsched.db.cell import instance_history
from cellsched.db.cell import models
from cellsched.db.cell import services
from cellsched.db import session
from cellsched import exception
from cellsched.listing import servers as listing
from cellsched import objects
from cellsched.quota import noop
from cellsched.rpc import transport
from cellsched.testing import clients
from cellsched.testing import clock
from cellsched.testing import databases
from tests.unit import base
from tests.unit.db import samples

USER = context.member('user', 'project')

#: What an instance takes.
SIZE = {'VCPU': 1, 'MEMORY_MB': 512}

#: The cells and their hosts; a host has room for four.
CELLS = {'cell1': ['a1', 'a2', 'a3'], 'cell2': ['b1', 'b2']}

LEASE_S = 60

#: Names under which conductors lease requests.
ME, OTHER = 'me', 'other'

RETRY_POLICY = recovery.RetryPolicy(timeout_s=60, casts=3, down_s=90)

#: By how much the clocks of conductors are ahead.
WRONG_S = 600


class TestCase(base.TestCase):

    def setUp(self):
        super().setUp()
        #: That of the databases, by which everything is judged.
        self.clock = clock.FakeClock()
        #: The conductors' own.
        self.wrong_clock = clock.WrongClock(WRONG_S, self.clock)
        self.database = self.useFixture(
            databases.APIDatabase(self.clock)).database
        conf = cfg.ConfigOpts()
        conf([], default_config_files=[], default_config_dirs=[])
        self.transports = transport.Transports(conf)
        self.addCleanup(self.transports.close)
        opened = session.Databases(self.clock)
        self.addCleanup(opened.close)
        self.targets = target.Targets(opened, self.transports)
        self.claims = memory.MemoryClaims()
        self.cells = {
            'cell0': self.add_cell('cell0', uuid=objects.CELL0_UUID,
                                   transport_url='none:///'),
            **{name: self.add_cell(name) for name in CELLS}}
        self.providers = {}
        for name, hosts in CELLS.items():
            self.add_hosts(self.cells[name], hosts)
        self.compute = clients.FakeComputeAPIs()
        self.scheduler = clients.FakeScheduler(self.answer)
        #: The hosts that the scheduler chooses for each instance in turn; the
        #: first is claimed.
        self.chosen = ['a1', 'a2']

    # A deployment.

    def add_cell(self, name, **fields):
        url = self.useFixture(databases.CellDatabase()).url
        return samples.map_cell(self.database, samples.cell(
            name, **{'transport_url': f'local://{self.id()}/{name}',
                     'database_connection': url, **fields}))

    def add_hosts(self, cell, hosts):
        for host in hosts:
            self.add_provider(host)
        with self.database.writer() as connection:
            host_mappings.create_missing(
                connection, hosts, cell.id, samples.NOW)

    def add_provider(self, host):
        """Add a host to the claim store alone."""
        self.providers[host] = samples.uuids(1)[0]
        self.claims.set_inventory(self.providers[host], {
            name: claims_base.Inventory(4 * amount)
            for name, amount in SIZE.items()})

    def mapping(self, name):
        """Return a cell as it is mapped now."""
        return self.registry().get(self.cells[name].uuid)

    def registry(self):
        return registry.CellRegistry(self.database, self.clock, 0)

    def task(self, **options):
        """Return the task of a conductor above the cells."""
        kind = options.pop('kind', build_and_schedule.BuildAndSchedule)
        cells = self.registry()
        return kind(**{
            'database': self.database, 'targets': self.targets,
            'cell0': cell0.Cell0(
                self.database, cells, self.targets, self.clock, 'conductor'),
            'scheduler': self.scheduler, 'compute': self.compute,
            'claims': self.claims, 'quotas': noop.NoopQuotaDriver(None, None),
            'clock': self.wrong_clock, 'host': 'conductor',
            'limits': build_and_schedule.TaskLimits(LEASE_S), **options})

    def task_with(self, place, function):
        """Return a task that calls a function between two of its steps."""
        class Between(tasks.Step):

            def do(self, builds):
                function()

        class Task(build_and_schedule.BuildAndSchedule):

            def _make_steps(self):
                expire, remove, *steps = super()._make_steps()
                return [expire, remove, *steps[:place], Between(),
                        *steps[place:]]

        return self.task(kind=Task)

    def break_cell(self, name):
        """Have a cell's database go read-only, as after a failover."""
        path = self.cells[name].database_connection.removeprefix('sqlite:///')
        self.point(name, f'sqlite:///file:{path}?mode=ro&uri=true')

    def mend_cell(self, name):
        self.point(name, self.cells[name].database_connection)

    def point(self, name, url):
        """Say that a cell's database is elsewhere."""
        samples.set_cell_url(self.database, name, url)

    # What a scheduler does.

    def selection(self, host):
        return objects.Selection(
            compute_node_uuid=self.providers[host], service_host=host,
            nodename=f'node-{host}', availability_zone=f'zone-{host}',
            cell_uuid=samples.uuids(1)[0], limits=None,
            allocation_request=objects.Selection.allocation(
                self.providers[host], SIZE),
            allocation_request_version='1.36')

    def answer(self, spec_obj, instance_uuids, **options):
        """Claim the first host for each instance, or as many as fit."""
        chosen = [self.selection(host) for host in self.chosen]
        placed = []
        for uuid in instance_uuids:
            try:
                self.claims.claim(claims_base.of_selection(uuid, chosen[0]))
            except exception.ClaimRefused:
                self.claims.release(placed)
                raise exception.NoValidHost(
                    reason='Full.', placed=len(placed)) from None
            placed.append(uuid)
        return [chosen for _ in instance_uuids]

    # What users do.

    def accept(self, count=1, **fields):
        """Accept builds; return their uuids."""
        uuids = samples.uuids(count)
        samples.accept(self.database, uuids, self.clock.now(), **fields)
        return uuids

    def delete(self, uuid):
        servers.Servers(
            authorization.LocalOperator(), self.database, self.targets,
            listing.ServerListing(
                self.database, self.registry(), gather.Gatherer(
                    futurist.SynchronousExecutor(), self.targets, self.clock,
                    30)),
            None, self.compute, self.claims, self.clock, None, None,
        ).delete(USER, uuid)

    # What became of it.

    def rows(self, uuid):
        """Return an instance's rows by cell, the deleted ones too."""
        found = {}
        for name, cell in self.cells.items():
            with self.targets.database(cell).reader() as connection:
                row = connection.execute(
                    sa.select(models.instances)
                    .where(models.instances.c.uuid == uuid)).first()
            if row is not None:
                found[name] = row
        return found

    def row(self, uuid):
        [(_, row)] = self.rows(uuid).items()
        return row

    def reason(self, uuid):
        """Return what a user reads of why it failed."""
        [name] = self.rows(uuid)
        with self.targets.database(self.cells[name]).reader() as connection:
            return instance_history.latest(connection, [uuid])[uuid]

    def mapped(self, uuid):
        """Return the name of the cell that was decided on."""
        with self.database.reader() as connection:
            mapping = instance_mappings.get_many(connection, [uuid])[uuid]
        return mapping.cell_mapping and mapping.cell_mapping.name

    def requested(self, uuid):
        with self.database.reader() as connection:
            return build_requests.get(connection, uuid) is not None

    def holds(self, uuid):
        """Return the host that an instance holds a claim on."""
        hosts = {provider: host for host, provider in self.providers.items()}
        return next((hosts[claim.provider] for claim
                     in self.claims.claims_of([uuid]).get(uuid, ())), None)

    def sent(self):
        """Return what agents are told: host, instance, by cell."""
        return [(host, arguments['instance'].uuid)
                for client in self.compute.clients.values()
                for _, _, host, arguments in client.sent]

    def assertBuilding(self, cell, uuid):
        """It is in this cell, and an agent was told of it once."""
        row = self.rows(uuid)[cell]
        self.assertEqual(
            ([cell], cell, False, 'building', 'scheduling'),
            ([*self.rows(uuid)], self.mapped(uuid), self.requested(uuid),
             row.vm_state, row.task_state))
        self.assertEqual(
            [uuid], [each for _, each in self.sent() if each == uuid])
        self.assertIn(self.holds(uuid), CELLS[cell])

    def assertBuried(self, uuid, reason):
        """It is in cell0, which says why, and nowhere else."""
        self.assertEqual(
            (['cell0'], 'cell0', False, None),
            ([*self.rows(uuid)], self.mapped(uuid), self.requested(uuid),
             self.holds(uuid)))
        self.assertEqual('error', self.row(uuid).vm_state)
        self.assertIn(reason, self.reason(uuid))
        self.assertEqual([], self.sent())

    def assertCleared(self, uuid):
        """Nothing is left of it but a deleted row that keeps others away."""
        live = [name for name, row in self.rows(uuid).items()
                if not row.deleted]
        self.assertEqual(
            ([], None, False, None),
            (live, self.mapped(uuid), self.requested(uuid),
             self.holds(uuid)))


#: What a conductor has done when so many steps are behind it.
DONE = ('lease', 'schedule', 'find the cell', 'decide', 'write rows',
        'delete the request', 'cast')

#: From here on the server is in its cell.
REQUEST_GONE = DONE.index('delete the request')


class Death(BaseException):
    """What a process dies of; nothing of it is cleaned up."""


def die():
    raise Death


def fail():
    raise exception.ClaimConflict(consumer='secret')


class StepTestCase(TestCase):

    def builds(self, hosts, owner=ME, **fields):
        """Return builds that were leased and placed, one on each host."""
        uuids = self.accept(len(hosts), **fields)
        leased = self.lease(uuids, owner)
        builds = [Build(entry.request, entry.spec, USER, owner)
                  for entry in leased]
        for build, host in zip(builds, hosts):
            build.selections = [self.selection(host)]
            build.cell = next(
                self.cells[cell] for cell, there in CELLS.items()
                if host in there)
        return builds

    def lease(self, uuids, owner):
        now = self.clock.timestamp()
        with self.database.writer() as connection:
            return build_requests.lease(
                connection, uuids, owner, now, now + LEASE_S)

    def leased_until(self, build):
        """Return seconds since the epoch."""
        table = api_models.build_requests
        with self.database.reader() as connection:
            return connection.execute(
                sa.select(table.c.lease_expires_at).where(
                    table.c.instance_uuid == build.uuid)).scalar_one()

    def decide(self, uuid, cell):
        with self.database.writer() as connection:
            instance_mappings.decide(
                connection, [uuid], self.cells[cell].id, self.clock.now())

    def take_over(self, uuid, host, earlier):
        """Return a build whose conductor died, leased for another host."""
        self.clock.advance(LEASE_S)
        [entry] = self.lease([uuid], ME)
        build = Build(
            entry.request, entry.spec, USER, ME, tries=entry.tries,
            selections=[self.selection(host)], cell=self.cells['cell1'],
            earlier=self.cells[earlier])
        self.assertTrue(build.again)
        return build

    def write_rows(self, batch):
        steps.WriteRows(
            self.database, self.targets, self.wrong_clock, LEASE_S).do(batch)

    def do(self, step, builds):
        step.do(builds)

    def undo(self, step, builds):
        with self.database.writer() as connection:
            step.undo(connection, builds)


class StalledBuildsTestCase(TestCase):

    def setUp(self):
        super().setUp()
        self.conductors = clients.FakeConductorAPIs()
        self.cell = self.targets.database(self.cells['cell1'])
        executor = futures.ThreadPoolExecutor(2)
        self.addCleanup(executor.shutdown)
        self.gatherer = gather.Gatherer(
            executor, self.targets, self.clock, 60)
        self.stalled = self.make_stalled()
        self.report('a1')
        [self.uuid] = self.accept()
        self.task().run(USER, [self.uuid])
        self.compute.clients.clear()

    def make_stalled(self, **options):
        return recovery.StalledBuilds(
            self.database, self.registry(), self.gatherer, self.targets,
            self.compute, self.conductors, RETRY_POLICY, **{
                'executor': futurist.SynchronousExecutor(), **options})

    def report(self, host):
        with self.cell.writer() as connection:
            services.report(
                connection, samples.uuids(1)[0], host, services.COMPUTE,
                'compute', self.clock.now())

    def wait(self, seconds=61):
        """Let time pass; the host reports meanwhile."""
        self.clock.advance(seconds)
        self.report('a1')

    def put(self, **values):
        with self.cell.writer() as connection:
            samples.put(connection, self.uuid, values, self.clock.now())

    @property
    def kept(self):
        with self.cell.reader() as connection:
            return build_casts.get(connection, self.uuid)

    @property
    def handed_on(self):
        """What conductors of cells are told."""
        return [each.arguments for client in self.conductors.clients.values()
                for each in client.sent]

    def assertHandedOn(self, tried=1):
        row = self.row(self.uuid)
        self.assertEqual(('building', None, None), (
            row.vm_state, row.task_state, row.host))
        [told] = self.handed_on
        self.assertEqual(
            ([self.uuid], [['a2']], tried),
            ([each.uuid for each in told['instances']],
             [[each.service_host for each in hosts]
              for hosts in told['host_lists']],
             told['filter_properties']['retry']['num_attempts']))
