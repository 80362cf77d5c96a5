# SPDX-License-Identifier: Apache-2.0
"""Queries for hosts and their cells."""

from cellsched.db.api import host_mappings
from cellsched.db import statements
from tests.unit.db.api import base
from tests.unit.db import samples
from tests.unit import racing


class TestHostMappings(base.TestCase):

    def setUp(self):
        super().setUp()
        self.east, self.west = (
            samples.map_cell(self.database, samples.cell(name))
            for name in ('east', 'west'))

    def map(self, hosts, cell):
        self.write(host_mappings.create_missing, hosts, cell.id, samples.NOW)

    def cells(self, *hosts):
        found = self.read(host_mappings.get_many, hosts)
        return {host: cell.name for host, cell in found.items()}

    def test_cells_are_found_by_host(self):
        self.map(['a', 'b'], self.east)
        self.map(['c'], self.west)

        self.assertEqual({'a': 'east', 'c': 'west'}, self.cells('c', 'a'))

    def test_whole_cells_are_returned(self):
        self.map(['a'], self.west)

        found = self.read(host_mappings.get_many, ['a'])['a']

        self.assertEqual(self.west.obj_to_primitive(),
                         found.obj_to_primitive())

    def test_owners_of_hosts_are_returned_by_uuid(self):
        self.map(['a', 'b'], self.east)
        self.map(['c'], self.west)

        self.assertEqual(
            {'a': self.east.uuid, 'c': self.west.uuid},
            self.read(host_mappings.owners, ['c', 'a', 'd']))

    def test_unmapped_hosts_are_not_returned(self):
        self.assertEqual({}, self.cells('a'))
        self.assertEqual({}, self.cells())

    def test_mapped_host_keeps_its_cell(self):
        self.map(['a'], self.east)

        self.map(['a', 'b'], self.west)

        self.assertEqual({'a': 'east', 'b': 'west'}, self.cells('a', 'b'))

    def test_more_hosts_than_a_statement_takes_are_found(self):
        hosts = [f'host{number}' for number in range(statements.CHUNK + 1)]
        self.map(hosts, self.east)

        self.assertEqual(len(hosts), len(self.cells(*hosts)))

    def test_hosts_mapped_by_two_cells_in_a_race_are_mapped_once(self):
        hosts = [f'host{number}' for number in range(20)]

        outcomes = racing.race(
            *[lambda: self.map(hosts, self.east)] * 3,
            *[lambda: self.map(hosts[::-1], self.west)] * 3)

        self.assertEqual([None] * 6, outcomes)
        self.assertEqual(set(hosts), set(self.cells(*hosts)))
