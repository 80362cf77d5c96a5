# SPDX-License-Identifier: Apache-2.0
"""Hosts with many builds or failures are avoided."""

from cellsched import context
from cellsched.host_manager import manager
from cellsched.standalone import deployment
from tests.functional import base

#: Memory of a host that comes first as long as nothing speaks against it.
LARGE = 65536


class TestBusyAndFailingHosts(base.TestCase):

    def deploy(self, *hosts, **filters):
        super().deploy({'cell1': hosts}, DEFAULT={'report_interval': 1},
                       scheduler=base.READ_EACH_TIME,
                       filter_scheduler=filters)
        parts = self.world.api.parts
        # What another scheduler knows.
        self.known = manager.HostManager(
            parts.database, parts.cells, parts.gatherer, parts.discovery,
            parts.claims, parts.clock, manager.RefreshPolicy(), 'nova')
        for host in hosts:
            self.assertEqual((0, 0), self.figures(host.name))

    def figures(self, host):
        """Return builds in progress, and those that failed in a row."""
        self.known.refresh(context.admin())
        table = self.known.table
        row = table.row(self.provider('cell1', host))
        return (table['num_io_ops'][row], table['failed_builds'][row])

    def reports(self, host, *figures):
        self.until(lambda: self.figures(host) == figures,
                   f'{host} reports {figures}')

    def failures(self):
        """Return what failed in the cell and is not forgotten."""
        return self.known.table.cells.failures(
            self.cells()['cell1'].uuid, base.CLOCK.timestamp())

    def fates(self, **wishes):
        return [(server.status, server.host)
                for server in self.built(**wishes)]

    def test_host_counts_as_busy_until_its_build_is_done(self):
        self.deploy(
            deployment.DeployedHost('a1'), max_io_ops_per_host=1,
            enabled_filters=['ComputeFilter', 'IoOpsFilter'])
        go_on = self.driver('a1').hold_builds()
        first = self.create()
        self.until(lambda: self.get(*first).task_state == 'spawning',
                   'the build has begun')

        # At once by what the scheduler remembers, then by the report.
        self.assertEqual([('ERROR', None)], self.fates())
        self.reports('a1', 1, 0)
        self.assertEqual([('ERROR', None)], self.fates())

        go_on.set()
        self.settled(first)
        self.reports('a1', 0, 0)
        self.assertEqual([('ACTIVE', 'a1')], self.fates())

    def test_host_with_a_failed_build_is_avoided_until_a_success(self):
        self.deploy(
            deployment.DeployedHost('a1', memory_mb=LARGE,
                                    behaviour={'fail_builds': 1}),
            deployment.DeployedHost('a2'))
        self.world.api.flavors.create(
            base.ADMIN, 'for a1 only', 1, LARGE // 2, 10)
        self.assertEqual(0, self.failures())

        self.assertEqual([('ACTIVE', 'a2')], self.fates())
        self.reports('a1', 0, 1)
        self.reports('a2', 0, 0)
        self.assertGreater(self.failures(), 0)
        self.assertEqual([('ACTIVE', 'a2')], self.fates())

        self.assertEqual(
            [('ACTIVE', 'a1')], self.fates(flavor='for a1 only'))
        self.reports('a1', 0, 0)
        self.assertEqual([('ACTIVE', 'a1')], self.fates())
        # A cell is forgiven by and by, and not by a success.
        self.assertGreater(self.failures(), 0)
