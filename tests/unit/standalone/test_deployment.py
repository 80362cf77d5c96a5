# SPDX-License-Identifier: Apache-2.0
"""A whole deployment in one process."""

import threading

import fixtures
import sqlalchemy as sa

from cellsched import context
from cellsched.db.api import aggregates
from cellsched.db.cell import models
from cellsched import exception
from cellsched.standalone import deployment
from cellsched.testing import clock
from cellsched.wiring import services
from tests.unit import base

ADMIN = context.admin()

USER = context.member('user', 'project')


class TestDeployment(base.TestCase):

    def make(self, cells=None, **options):
        if cells is None:
            cells = [
                deployment.DeployedCell('c1', [deployment.DeployedHost('h1')])]
        return deployment.Deployment(
            self.temporary_directory(), cells, **options)

    def start(self, *args, **options):
        world = self.make(*args, **options)
        world.start()
        self.addCleanup(world.stop)
        return world

    def rows(self, world, table):
        """Return the rows of a table of all cells, by the cell's name."""
        parts = world.api.parts
        found = {}
        for cell in parts.cells.all():
            with parts.targets.database(cell).reader() as connection:
                found[cell.name] = connection.execute(sa.select(table)).all()
        return found

    def test_deployment_starts_with_its_cells_and_hosts(self):
        world = self.start([
            deployment.DeployedCell(
                'c1', [deployment.DeployedHost('h1', 3, 1000, 7)]),
            deployment.DeployedCell('c2', [])])

        self.assertEqual(['cell0', 'c1', 'c2'], [
            cell.name for cell in world.api.parts.cells.all()])
        nodes = self.rows(world, models.compute_nodes)
        self.assertEqual(([], []), (nodes['cell0'], nodes['c2']))
        [node] = nodes['c1']
        self.assertEqual(('h1', 3, 1000, 7), (
            node.host, node.vcpus, node.memory_mb, node.local_gb))
        [usage] = world.api.parts.claims.usages().usages
        self.assertEqual({'VCPU': 3, 'MEMORY_MB': 1000, 'DISK_GB': 7},
                         usage.capacity)

    def test_cell_has_no_options_of_the_api(self):
        world = self.start()

        for names in (['c1'], ['c1', 'hosts/h1']):
            conf = world.conf(*names)
            self.assertIsNone(conf.api_database.connection)
            self.assertTrue(conf.database.connection.endswith('c1.sqlite'))
        self.assertIsNone(world.conf('api').database.connection)

    def test_service_has_the_options_of_its_plugins_only(self):
        world = self.start()

        self.assertIn('ram_weight_multiplier',
                      world.conf('api').filter_scheduler)
        self.assertNotIn('ram_weight_multiplier',
                         world.agents['h1'].parts.conf.filter_scheduler)

    def test_zones_are_aggregates(self):
        world = self.start(
            [deployment.DeployedCell('c1', [
                deployment.DeployedHost('h1', availability_zone='lab',
                                        aggregates=['zone-lab']),
                deployment.DeployedHost('h2', aggregates=['backup']),
                deployment.DeployedHost('h3', availability_zone='lab',
                                        aggregates=['backup'])])],
            aggregates_={'backup': {'when': 'weekly'},
                         'zone-lab': {'when': 'never'}})

        with world.api.parts.database.reader() as connection:
            zones, times = (
                aggregates.values_by_host(connection, key, ['h1', 'h2', 'h3'])
                for key in ('availability_zone', 'when'))
        self.assertEqual({'h1': {'lab'}, 'h3': {'lab'}}, zones)
        self.assertEqual(
            {'h1': {'never'}, 'h2': {'weekly'}, 'h3': {'weekly'}}, times)

    def test_options_are_every_services(self):
        world = self.make(options={
            'scheduler': {'max_attempts': 7},
            'filter_scheduler': {'enabled_filters': ['A', 'B']},
            'DEFAULT': {'default_availability_zone': 'cost$'}})
        self.addCleanup(world.stop)
        # What it is made of is written before a service looks at it.
        self.assertRaises(exception.PluginNotFound, world.start)

        for name in 'api', 'c1':
            conf = world.conf(name)
            self.assertEqual((7, ['A', 'B'], 'cost$'), (
                conf.scheduler.max_attempts,
                conf.filter_scheduler.enabled_filters,
                conf.default_availability_zone))

    def test_behaviour_of_a_host_is_its_own(self):
        world = self.start([deployment.DeployedCell('c1', [
            deployment.DeployedHost('h1', behaviour={'fail_builds': 3}),
            deployment.DeployedHost('h2')])])

        self.assertEqual([3, 0], [
            world.agents[host].parts.conf.fake_virt.fail_builds
            for host in ('h1', 'h2')])

    def test_cell_may_be_called_as_files_of_hosts_are(self):
        names = ['hosts', 'host-h1', 'h1', 'hosts.h1']
        world = self.start([
            deployment.DeployedCell(
                name, [deployment.DeployedHost(f'h{number}')])
            for number, name in enumerate(names, 1)])

        found = self.rows(world, models.compute_nodes)
        self.assertEqual(
            {'hosts': 'h1', 'host-h1': 'h2', 'h1': 'h3', 'hosts.h1': 'h4'},
            {name: row.host for name in names for row in found[name]})

    def test_two_deployments_are_separate(self):
        one, two = (self.start() for _ in range(2))
        for world in one, two:
            world.api.flavors.create(ADMIN, 'small', 1, 512)

        [uuid] = one.api.servers.create(USER, 'web', 'small')

        self.assertRaises(exception.InstanceNotFound, two.api.servers.get,
                          USER, uuid)
        self.assertEqual([], two.api.servers.list(USER).servers)

    def test_services_share_no_parts_and_all_have_its_clock(self):
        time = clock.FakeClock()
        world = self.start(clock=time)

        parts = [world.api.parts, world.agents['h1'].parts]
        self.assertIsNot(parts[0].databases, parts[1].databases)
        self.assertIsNot(parts[0].transports, parts[1].transports)
        self.assertEqual([time, time], [each.clock for each in parts])
        service = self.rows(world, models.services)['c1'][0]
        self.assertEqual(time.now(), service.last_seen_up)

    def test_scheduler_finds_all_hosts_at_its_first_look(self):
        there = []
        make = services.scheduler

        def watched(conf, parts):
            there.extend(world.agents)
            return make(conf, parts)

        self.useFixture(fixtures.MonkeyPatch(
            'cellsched.wiring.services.scheduler', watched))
        world = self.make([
            deployment.DeployedCell('c1', [deployment.DeployedHost('h1')]),
            deployment.DeployedCell('c2', [deployment.DeployedHost('h2')])])
        self.addCleanup(world.stop)
        world.start()

        self.assertEqual(['h1', 'h2'], there)

    def test_host_can_be_started_later(self):
        world = self.start()

        service = world.start_host('c1', deployment.DeployedHost('h2'))

        self.assertIs(service, world.agents['h2'])
        self.assertEqual(['h1', 'h2'], [
            row.host for row in self.rows(world, models.services)['c1']
            if row.topic == 'compute'])

    def test_started_services_are_stopped(self):
        before = set(threading.enumerate())
        with self.make() as world:
            world.api.flavors.create(ADMIN, 'small', 1, 512)

        self.assertRaises(AssertionError, lambda: world.api)
        world.stop()
        self.assertEqual(set(), {
            thread for thread in set(threading.enumerate()) - before
            if not thread.daemon})

    def test_failed_start_stops_the_started_services(self):
        world = self.make([
            deployment.DeployedCell('c1', [deployment.DeployedHost('h1')]),
            deployment.DeployedCell('c2', [deployment.DeployedHost(
                'h2', behaviour={'fail_builds': -1})])])

        self.assertRaisesRegex(
            exception.ConfigurationInvalid, 'h2.conf.*fail_builds',
            world.start)

        self.assertRaises(AssertionError, lambda: world.api)
        # Nobody is left who would answer.
        self.assertEqual([], world._services)
