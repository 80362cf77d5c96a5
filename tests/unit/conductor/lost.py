# SPDX-License-Identifier: Apache-2.0
"""A build of which the host a1 was told and which it did not begin."""

from concurrent import futures

import futurist

from cellsched.cells import gather
from cellsched.conductor import recovery
from cellsched.db.cell import build_casts
from cellsched.db.cell import services
from cellsched.testing import clients
from tests.unit.conductor import base
from tests.unit.db import samples

PATIENCE = recovery.RetryPolicy(timeout_s=60, casts=3, down_s=90)


class StalledBuildsTestCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.conductors = clients.FakeConductorAPIs()
        self.cell = self.targets.database(self.cells['cell1'])
        executor = futures.ThreadPoolExecutor(2)
        self.addCleanup(executor.shutdown)
        self.gatherer = gather.Gatherer(
            executor, self.targets, self.clock, 60)
        self.lost = self.make_lost()
        self.report('a1')
        [self.uuid] = self.accept()
        self.task().run(base.USER, [self.uuid])
        self.compute.clients.clear()

    def make_lost(self, **options):
        return recovery.StalledBuilds(
            self.database, self.registry(), self.gatherer, self.targets,
            self.compute, self.conductors, PATIENCE, **{
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
