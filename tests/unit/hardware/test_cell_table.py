# SPDX-License-Identifier: Apache-2.0
import unittest

import numpy as np

from cellsched.hardware import cell_table
from cellsched.hardware import fit
from cellsched.hardware import guest
from cellsched.hardware import host
from tests.unit.hardware import cases


def _distinct(found):
    return list(dict.fromkeys(each for each in found if each is not None))


class CellTableTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        numa = [*cases.of_kind('numa'), *cases.of_kind('fill')]
        cls.hosts = _distinct(map(cases.host_topology, numa))
        cls.guests = _distinct(
            cases.topology(case) for case in numa
            if 'topology_error' not in case['expect'])

    def table(self, step=7):
        table = cell_table.CellTable()
        table.add([None])
        for first in range(0, len(self.hosts), step):
            table.add(self.hosts[first:first + step])
        return table

    def test_verdicts_equal_those_of_each_host(self):
        table = self.table()
        for topology in self.guests[::4]:
            expected = [False, *(
                fit.fit(each, fit.Demand(topology), fit.Ratios(2.0, 1.5))
                is not None for each in self.hosts)]
            with self.subTest(topology):
                self.assertEqual(expected, table.fits(
                    topology, cpu_ratio=2.0, ram_ratio=1.5).tolist())

    def test_entries_and_their_ratios(self):
        table, topology = self.table(), guest.topology(
            8, 1024, {'hw:numa_nodes': '1'}, {})
        entries = np.arange(len(table))[::-1]
        ratios = np.where(entries % 2, 1.0, 16.0)
        expected = np.where(
            entries % 2, table.fits(topology)[::-1],
            table.fits(topology, cpu_ratio=16.0)[::-1])
        self.assertEqual(expected.tolist(), table.fits(
            topology, entries, cpu_ratio=ratios).tolist())

    def test_selected_entries_keep_their_verdicts(self):
        table, entries = self.table(), np.arange(len(self.hosts))[::3]
        for topology in self.guests[::20]:
            self.assertEqual(
                table.fits(topology)[entries].tolist(),
                table.select(entries).fits(topology).tolist())

    def test_each_rejected_host_has_one_reason(self):
        table = self.table()
        for topology in self.guests[::10]:
            rejected = np.flatnonzero(~table.fits(topology))
            lacks = table.lacks(topology, rejected)
            with self.subTest(topology):
                self.assertEqual(len(rejected), sum(lacks.values()))
                self.assertEqual(1, lacks['has no NUMA cells'])

    def test_reason_names_the_amount_and_the_page_size(self):
        cell = host.HostCell(
            0, frozenset(range(4)), frozenset(), 8192,
            pages=(host.Pages(4, 10 ** 6), host.Pages(1048576, 1)))
        table = cell_table.CellTable()
        table.add([host.HostTopology((cell,))])
        topology = guest.topology(
            1, 2048, {'hw:mem_page_size': '1GB'}, {})
        self.assertEqual(
            {'lacks 2 free pages of 1 GB in a NUMA cell': 1},
            table.lacks(topology))

    def test_cells_near_to_networks(self):
        table = cell_table.CellTable()
        table.add([host.HostTopology(tuple(
            host.HostCell(number, frozenset(range(size)), frozenset(), 4096,
                          physnets=frozenset([net]))
            for number, (size, net) in enumerate(cells)))
            for cells in ([(4, 'red'), (1, 'blue')],
                          [(1, 'red'), (4, 'blue')],
                          [(4, 'red'), (4, 'green')])])
        topology = guest.topology(2, 64, {'hw:numa_nodes': '1'}, {})
        near = table.near_networks(fit.Networks(frozenset(['blue'])))
        self.assertEqual([False, True, True],
                         table.fits(topology, near=near).tolist())

    def test_network_without_cells_does_not_matter(self):
        self.assertIsNone(self.table().near_networks(
            fit.Networks(frozenset(['unknown']))))
