# SPDX-License-Identifier: Apache-2.0
"""Mapping hosts to the cells they live in."""

import fixtures
import sqlalchemy as sa

from cellsched.cells import discovery
from cellsched.db.api import host_mappings
from cellsched.db.cell import compute_nodes
from cellsched.db.cell import services
from cellsched import exception
from tests.unit.cells import base
from tests.unit.cells import test_discovery
from tests.unit.db import samples
from tests.unit import racing


class DiscoveryCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.discovery = discovery.Discovery(
            self.database, self.cells, self.targets, self.clock)
        self.east, self.west = self.add_cell('east'), self.add_cell('west')

    def add_nodes(self, cell, *hosts, node=None):
        for host in hosts:
            self.write(
                self.targets.database(cell), compute_nodes.save,
                samples.uuids(1)[0], host, node or host,
                samples.NODE, samples.NOW)

    def mapped(self, *hosts):
        found = self.read(self.database, host_mappings.get_many, hosts)
        return {host: cell.name for host, cell in found.items()}

    def unmapped(self, cell):
        return [row.host for row in self.read(
            self.targets.database(cell), compute_nodes.list_unmapped)]


class TestMapHost(DiscoveryCase):

    def test_own_cell_is_found_by_its_database(self):
        self.discovery.map_host(self.west, 'a')

        for host in 'a', 'b':
            cell = self.discovery.own_cell(
                self.west.database_connection, host)
            self.assertEqual('west', cell.name)
        self.assertEqual({'a': 'west'}, self.mapped('a', 'b'))

    def test_own_cell_of_a_host_of_another_cell_is_an_error(self):
        self.discovery.map_host(self.east, 'a')

        error = self.assertRaises(
            exception.HostMappingExists, self.discovery.own_cell,
            self.west.database_connection, 'a')

        self.assertEqual(
            ('a', self.west.identity, self.east.identity),
            (error.host, error.cell, error.mapped_cell))

    def test_own_database_of_no_cell_is_an_error(self):
        error = self.assertRaises(
            exception.ConfigurationInvalid, self.discovery.own_cell,
            'sqlite://', 'a')

        self.assertEqual('[database] connection', error.field)
        self.assertEqual({}, self.mapped('a'))

    def test_repeated_mapping_of_a_host_succeeds(self):
        for _ in range(2):
            self.discovery.map_host(self.east, 'a')

        self.assertEqual({'a': 'east'}, self.mapped('a'))

    def test_host_of_another_cell_is_refused_with_the_cells(self):
        self.discovery.map_host(self.east, 'a')

        error = self.assertRaises(
            exception.HostMappingExists, self.discovery.map_host, self.west,
            'a')

        self.assertEqual(
            ('a', self.west.identity, self.east.identity),
            (error.host, error.cell, error.mapped_cell))
        self.assertIn(self.east.identity, str(error))
        self.assertIn(self.west.identity, str(error))
        self.assertEqual({'a': 'east'}, self.mapped('a'))

    def test_cells_of_all_hosts_are_returned(self):
        self.discovery.map_host(self.east, 'a')

        owners = self.discovery.map_hosts(self.west, ['a', 'b', 'b'])

        self.assertEqual({'a': 'east', 'b': 'west'},
                         {host: cell.name for host, cell in owners.items()})

    def test_concurrent_mappings_of_a_host_agree_on_a_cell(self):
        outcomes = racing.race(
            *[lambda: self.discovery.map_host(self.east, 'a')] * 3,
            *[lambda: self.discovery.map_host(self.west, 'a')] * 3)

        winner = self.mapped('a')['a']
        lost = outcomes[3:] if winner == 'east' else outcomes[:3]
        self.assertEqual(3, outcomes.count(None))
        for error in lost:
            self.assertIsInstance(error, exception.HostMappingExists)


class TestAdopt(DiscoveryCase):

    def adopt(self, cell):
        nodes = self.read(
            self.targets.database(cell), compute_nodes.list_unmapped)
        return self.discovery.adopt(cell, nodes)

    def test_nodes_of_the_cells_own_hosts_are_marked(self):
        self.add_nodes(self.east, 'a', 'b')
        self.add_nodes(self.west, 'b', 'c')
        self.adopt(self.east)

        owners = self.adopt(self.west)

        self.assertEqual({'b': 'east', 'c': 'west'},
                         {host: cell.name for host, cell in owners.items()})
        self.assertEqual([], self.unmapped(self.east))
        self.assertEqual(['b'], self.unmapped(self.west))

    def test_node_of_another_cells_host_is_marked_for_its_agent(self):
        self.discovery.map_host(self.east, 'a')
        self.add_nodes(self.west, 'a', 'b')
        database = self.targets.database(self.west)

        for _ in range(2):
            self.discovery.adopt(self.west, self.read(
                database, compute_nodes.list_unmapped))

        self.assertEqual(
            {'a': True, 'b': False},
            {host: self.read(database, services.look, host).foreign
             for host in ('a', 'b')})
        # It is asked about until it has a name of its own.
        self.assertEqual(['a'], self.unmapped(self.west))

    def test_empty_adoption_returns_no_owner(self):
        self.assertEqual({}, self.adopt(self.east))


class TestDiscover(DiscoveryCase):

    def setUp(self):
        super().setUp()
        self.lines = []

    def discover(self, cell_uuid=None, **options):
        return self.discovery.discover(
            cell_uuid, self.lines.append, **options)

    def add_services(self, cell, *hosts):
        for host in hosts:
            self.write(
                self.targets.database(cell), services.report,
                samples.uuids(1)[0], host, services.COMPUTE, 'compute',
                samples.NOW)

    def test_hosts_of_new_nodes_are_mapped(self):
        self.add_nodes(self.east, 'a', 'b')
        self.add_nodes(self.west, 'c')

        self.assertEqual(['a', 'b', 'c'], self.discover())

        self.assertEqual({'a': 'east', 'b': 'east', 'c': 'west'},
                         self.mapped('a', 'b', 'c'))
        for line in ('Found 2 cell mappings.', 'Mapped host a.',
                     'Mapped host c.'):
            self.assertIn(line, self.lines)

    def test_known_host_is_not_discovered_again(self):
        self.add_nodes(self.east, 'a')
        self.discover()

        self.assertEqual([], self.discover())

        self.add_nodes(self.east, 'b')
        self.add_nodes(self.east, 'a', node='second')
        self.assertEqual(['b'], self.discover())
        self.assertEqual([], self.unmapped(self.east))

    def test_new_cell_is_discovered_at_once(self):
        self.discover()
        north = self.add_cell('north')
        self.add_nodes(north, 'a')

        self.assertEqual(['a'], self.discover())

    def test_cell0_is_passed_over(self):
        self.add_cell0()
        self.add_nodes(self.west, 'a')

        self.assertEqual(['a'], self.discover())

        self.assertIn('Skipping cell0, which has no hosts.', self.lines)

    def test_discovery_is_limited_to_a_cell(self):
        self.add_nodes(self.east, 'a')
        self.add_nodes(self.west, 'b')

        self.assertEqual(['b'], self.discover(self.west.uuid))

        self.assertEqual({'b': 'west'}, self.mapped('a', 'b'))

    def test_unknown_cell_is_an_error(self):
        self.assertRaises(exception.CellMappingNotFound, self.discover,
                          samples.uuids(1)[0])

    def test_host_in_two_cells_is_an_error_after_the_other_mappings(self):
        self.add_nodes(self.east, 'a', 'b')
        self.add_nodes(self.west, 'b', 'c')

        error = self.assertRaises(
            exception.HostMappingExists, self.discover)

        self.assertEqual(
            ('b', self.west.identity, self.east.identity),
            (error.host, error.cell, error.mapped_cell))
        self.assertEqual({'a': 'east', 'b': 'east', 'c': 'west'},
                         self.mapped('a', 'b', 'c'))
        # It stays an error until someone mends it.
        self.assertRaises(exception.HostMappingExists, self.discover)

    def test_hosts_without_nodes_are_found_by_their_services(self):
        self.add_services(self.east, 'a', 'b')
        self.assertEqual([], self.discover())

        self.assertEqual(['a', 'b'], self.discover(by_service=True))

        self.assertEqual([], self.discover(by_service=True))
        self.assertEqual({'a': 'east', 'b': 'east'}, self.mapped('a', 'b'))
        self.assertIn('Mapped host a.', self.lines)

    def test_service_of_another_cells_host_is_an_error(self):
        self.add_services(self.east, 'a')
        self.add_services(self.west, 'a', 'b')

        error = self.assertRaises(
            exception.HostMappingExists, self.discover, by_service=True)

        self.assertEqual(('a', self.west.identity), (error.host, error.cell))
        self.assertEqual({'a': 'east', 'b': 'west'}, self.mapped('a', 'b'))

    def test_hosts_are_mapped_in_spite_of_a_failed_cell(self):
        self.write(
            self.targets.database(self.east), lambda connection:
            connection.execute(sa.text('DROP TABLE compute_nodes')))
        self.add_nodes(self.west, 'a')

        self.assertRaises(exception.DatabaseError, self.discover)

        self.assertEqual({'a': 'west'}, self.mapped('a'))

    def test_concurrent_discoveries_map_each_host_once(self):
        hosts = [f'host{number}' for number in range(20)]
        self.add_nodes(self.east, *hosts[:10])
        self.add_nodes(self.west, *hosts[10:])

        found = racing.race(*[self.discovery.discover] * 6)

        for each in found:
            self.assertLessEqual(set(each), set(hosts))
        self.assertEqual(set(hosts), {host for each in found for host in each})
        self.assertEqual(
            {host: 'east' if number < 10 else 'west'
             for number, host in enumerate(hosts)}, self.mapped(*hosts))
        self.assertEqual([], self.unmapped(self.east))


PERIOD_S = 10


class TestPeriodicDiscovery(test_discovery.DiscoveryCase):

    def setUp(self):
        super().setUp()
        self.logs = self.useFixture(fixtures.FakeLogger())
        self.a, self.b = (discovery.PeriodicDiscovery(
            self.database, self.discovery, name, PERIOD_S)
            for name in ('a', 'b'))

    def test_hosts_are_mapped_by_the_leader_only(self):
        self.a.run()
        self.add_nodes(self.east, 'e1')
        self.add_nodes(self.west, 'w1')

        self.assertEqual([], self.b.run())
        self.assertEqual({}, self.mapped('e1', 'w1'))

        self.assertEqual(['e1', 'w1'], sorted(self.a.run()))
        self.assertEqual({'e1': 'east', 'w1': 'west'},
                         self.mapped('e1', 'w1'))

    def test_leader_stays_leader_up_to_half_a_period_late(self):
        self.a.run()
        self.clock.advance(14.9)
        self.add_nodes(self.east, 'e1')

        self.assertEqual([], self.b.run())

        self.assertEqual(['e1'], self.a.run())

    def test_another_scheduler_leads_after_the_lease(self):
        self.a.run()
        self.add_nodes(self.east, 'e1')
        self.clock.advance(15)

        self.assertEqual(['e1'], self.b.run())

        self.add_nodes(self.east, 'e2')
        self.assertEqual([], self.a.run())
        self.assertIn('Another scheduler maps new hosts', self.logs.output)

    def test_duplicate_name_is_logged_once(self):
        self.add_nodes(self.east, 'same')
        self.a.run()
        self.add_nodes(self.west, 'same')

        for _ in range(3):
            self.assertEqual([], self.a.run())

        self.assertEqual(1, self.logs.output.count('is mapped to cell'))
        for cell in (self.east, self.west):
            self.assertIn(cell.identity, self.logs.output)

    def test_period_maps_hosts_in_spite_of_a_failed_cell(self):
        self.add_cell('broken', database_connection='sqlite:////nowhere/x')
        self.add_nodes(self.west, 'w1')

        self.assertRaises(exception.DatabaseError, self.a.run)

        self.assertEqual({'w1': 'west'}, self.mapped('w1'))
