# SPDX-License-Identifier: Apache-2.0
import dataclasses
import unittest

import numpy as np

from cellsched.hardware import cell_table
from cellsched.hardware import fit
from cellsched.hardware import guest
from cellsched.hardware import host
from cellsched.hardware import units
from tests.unit.hardware import cases


def lacks(table, topology, *args, **options):
    """Return the lacks of a table, with lists in place of arrays."""
    return [(text, rows.tolist(), missing and (
        missing[0].tolist(), missing[1])) for text, rows, missing
        in table.lacks(topology, *args, **options)]


def _distinct(found):
    return list(dict.fromkeys(each for each in found if each is not None))


def _amounts(available):
    return lambda names: [available.get(name, 0) for name in names]


class CellTableTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        numa = [*cases.of_kind('numa'), *cases.of_kind('fill')]
        cls.hosts = _distinct(map(cases.host_topology, numa))
        cls.guests = _distinct(
            cases.topology(case) for case in numa
            if 'topology_error' not in case['expect'])

    def table(self):
        """Return a table of a host without cells and of all others."""
        table = cell_table.CellTable(1 + len(self.hosts))
        for row, topology in enumerate([None, *self.hosts]):
            table.put(np.array([row]), topology)
        return table

    def test_verdicts_agree_with_fits_on_each_host(self):
        table = self.table()
        for topology in self.guests[::4]:
            expected = [False, *(
                fit.fit(each, fit.Demand(topology), fit.Ratios(2.0, 1.5))
                is not None for each in self.hosts)]
            with self.subTest(topology):
                self.assertEqual(expected, table.fits(
                    topology, cpu_ratio=2.0, ram_ratio=1.5).tolist())

    def test_pages_of_no_size_are_any_pages(self):
        table = self.table()
        sizeless, plain = (guest.topology(2, 512, {
            'hw:numa_nodes': '1', **specs}, {})
            for specs in ({'hw:mem_page_size': '0'}, {}))
        self.assertEqual(table.fits(plain).tolist(),
                         table.fits(sizeless).tolist())

    def test_cells_of_the_largest_host_are_counted(self):
        table = cell_table.CellTable(1)
        table.put(np.array([0]), host.HostTopology(tuple(
            host.HostCell(number, frozenset([number]), frozenset(), 512)
            for number in range(128))))
        for nodes in 1, 128:
            self.assertTrue(table.fits(guest.topology(
                128 if nodes > 1 else 1, 512 * nodes,
                {'hw:numa_nodes': str(nodes)}, {})).all())

    def test_few_sets_of_cells_are_tried(self):
        cells = host.HostTopology(tuple(
            host.HostCell(number, frozenset([number]), frozenset(), 512)
            for number in range(24)))
        table = cell_table.CellTable(1)
        table.put(np.array([0]), cells)
        topology = guest.topology(8, 4096, {'hw:numa_nodes': '8'}, {})
        for answer, most in (True, 1), (False, cell_table.SETS_MAX):
            asked = []

            def near(places):
                asked.append(places)
                return np.array([answer])

            with self.subTest(answer):
                self.assertEqual(
                    [answer], table.fits(topology, near=near).tolist())
                self.assertEqual(most, len(asked))

    def test_rows_and_their_ratios(self):
        table, topology = self.table(), guest.topology(
            8, 1024, {'hw:numa_nodes': '1'}, {})
        rows = np.arange(len(table))[::-1]
        ratios = np.where(rows % 2, 1.0, 16.0)
        expected = np.where(
            rows % 2, table.fits(topology)[::-1],
            table.fits(topology, cpu_ratio=16.0)[::-1])
        self.assertEqual(expected.tolist(), table.fits(
            topology, rows, cpu_ratio=ratios).tolist())

    def test_later_cells_replace_earlier_cells(self):
        table, topologies = self.table(), [None, *self.hosts]
        for row in range(len(table)):
            table.put(np.array([row]), topologies[-row])
        for topology in self.guests[::20]:
            with self.subTest(topology):
                self.assertEqual([
                    each is not None and fit.fit(
                        each, fit.Demand(topology)) is not None
                    for each in (topologies[-row]
                                 for row in range(len(table)))],
                    table.fits(topology).tolist())

    def test_verdicts_on_claims_agree_with_usage(self):
        # Each host takes servers one after the other; the table follows the
        # claims, and the exact fit the usage.
        ratios = fit.Ratios(2.0, 1.5)
        for number, unused in enumerate(self.hosts[::5]):
            unused = host.HostTopology(tuple(
                dataclasses.replace(
                    cell, pinned=frozenset(), cpu_usage=0, memory_usage=0,
                    pages=tuple(dataclasses.replace(each, used=0)
                                for each in cell.pages))
                for cell in unused.cells))
            left = units.inventory(unused, (), ratios)
            table = cell_table.CellTable(1)
            for guest_ in self.guests[number % 7::9]:
                used = units.claimed(unused, _amounts(left), ratios)
                table.put(
                    np.array([0]), unused,
                    lambda name: np.array([float(left.get(name, 0))]),
                    np.array([2.0]), np.array([1.5]))
                placement = fit.fit(used, fit.Demand(guest_), ratios)
                with self.subTest(number=number, guest=guest_):
                    self.assertEqual(
                        [placement is not None],
                        table.fits(guest_, cpu_ratio=2.0,
                                   ram_ratio=1.5).tolist())
                if placement is None:
                    continue
                for name, amount in units.amounts(used, placement).items():
                    left[name] -= amount
                    self.assertGreaterEqual(left[name], 0)
                after = fit.used(used, placement)
                self.assertEqual(
                    [(each.pinned, each.cpu_usage, each.memory_usage,
                      dict(each.sizes)) for each in after.cells],
                    [(each.pinned, each.cpu_usage, each.memory_usage,
                      dict(each.sizes)) for each in units.claimed(
                          unused, _amounts(left), ratios).cells])

    def test_each_rejected_host_has_a_reason(self):
        table = self.table()
        for topology in self.guests[::10]:
            rejected = np.flatnonzero(~table.fits(topology))
            lacks = table.lacks(topology, rejected)
            with self.subTest(topology):
                self.assertEqual([1] * len(rejected), sum(
                    each.rows.astype(int) for each in lacks).tolist())
                self.assertIn(('has no NUMA cells', 1), [
                    (each.text, each.rows.sum()) for each in lacks])

    def test_reason_names_the_amount_and_the_page_size(self):
        cell = host.HostCell(
            0, frozenset(range(4)), frozenset(), 8192,
            pages=(host.Pages(4, 10 ** 6), host.Pages(1048576, 1)))
        table = cell_table.CellTable(1)
        table.put(np.array([0]), host.HostTopology((cell,)))
        topology = guest.topology(
            1, 2048, {'hw:mem_page_size': '1GB'}, {})
        self.assertEqual(
            [('lacks 2 free pages of 1 GB in a NUMA cell', [True],
              ([1], 'page of 1 GB'))], lacks(table, topology))

    def test_shortfall_counts_the_cells_with_the_least_shortage(self):
        """Rows have these free CPUs and pages of 1 GB by cell."""
        rows = [[(2, 9), (1, 9)], [(3, 9), (2, 9)], [(4, 1), (2, 2)],
                [(5, 1), (6, 0)], [(8, 4), (2, 9)]]
        pinned = {'hw:cpu_policy': 'dedicated', 'hw:mem_page_size': '1GB'}
        for cells, expected in (
                (1, [('lacks 4 free dedicated CPUs in a NUMA cell', [0],
                      ([2], 'dedicated CPUs')),
                     ('has 4 free dedicated CPUs, but on 2 NUMA cells', [1],
                      ([1], 'dedicated CPU')),
                     ('lacks a NUMA cell with 2 free pages of 1 GB and 4 free '
                      'dedicated CPUs', [2], None),
                     ('lacks 2 free pages of 1 GB in a NUMA cell', [3],
                      ([1], 'page of 1 GB'))]),
                (2, [('lacks 4 free dedicated CPUs in each of 2 NUMA cells',
                      [0, 1], ([3, 2], 'dedicated CPUs')),
                     ('lacks 2 free pages of 1 GB in each of 2 NUMA cells',
                      [2, 3], ([1, 2], 'page of 1 GB')),
                     ('has 8 free dedicated CPUs, but not 4 in each of 2 NUMA '
                      'cells', [4], ([2], 'dedicated CPUs'))])):
            topology = guest.topology(4 * cells, 2048 * cells, {
                **pinned, 'hw:numa_nodes': str(cells)}, {})
            table = cell_table.CellTable(len(rows))
            for row, of_row in enumerate(rows):
                table.put(np.array([row]), host.HostTopology(tuple(
                    host.HostCell(
                        number, frozenset(), frozenset(range(free)), 16384,
                        siblings=tuple(frozenset([cpu])
                                       for cpu in range(free)),
                        pages=(host.Pages(1048576, pages),))
                    for number, (free, pages) in enumerate(of_row))))
            some = np.flatnonzero(~table.fits(topology))

            self.assertCountEqual(
                expected, [(text, some[mask].tolist(), missing)
                           for text, mask, missing
                           in lacks(table, topology, some)])

    def test_memory_in_parts_of_pages_is_a_reason(self):
        table = self.table()
        texts = [text for text, _, _ in lacks(table, guest.topology(
            1, 1536, {'hw:mem_page_size': '1GB'}, {}))]

        self.assertIn('lacks 1536 MB of memory in full pages of 1 GB in a '
                      'NUMA cell', texts)

    def test_smallest_pages_are_no_part_of_large_pages(self):
        table = cell_table.CellTable(1)
        table.put(np.array([0]), host.HostTopology(tuple(host.HostCell(
            number, frozenset([number]), frozenset(), 64,
            pages=(host.Pages(4, 16384),)) for number in (0, 1))))

        self.assertEqual(
            [('lacks 96 MB of memory in large pages in a NUMA cell', [True],
              None)], lacks(table, guest.topology(
                  1, 96, {'hw:mem_page_size': 'large'}, {})))

    def test_condition_is_the_last_reason(self):
        table = self.table()
        topology = guest.topology(1, 1, {'hw:numa_nodes': '1'}, {})
        fitting = np.flatnonzero(table.fits(topology))[:2]

        self.assertEqual(
            [('lacks a network', [False, True], None),
             ('lacks room for everything together', [True, False], None)],
            sorted(lacks(table, topology, fitting, conditions=[
                ('lacks a network', np.array([False, True]))])))

    def test_cells_near_to_networks(self):
        table = cell_table.CellTable(3)
        for row, cells in enumerate((
                [(4, 'red'), (1, 'blue')], [(1, 'red'), (4, 'blue')],
                [(4, 'red'), (4, 'green')])):
            table.put(np.array([row]), host.HostTopology(tuple(
                host.HostCell(
                    number, frozenset(range(size)), frozenset(), 4096,
                    physnets=frozenset([net]))
                for number, (size, net) in enumerate(cells))))
        topology = guest.topology(2, 64, {'hw:numa_nodes': '1'}, {})
        near = table.near_networks(fit.Networks(frozenset(['blue'])))
        self.assertEqual([False, True, True],
                         table.fits(topology, near=near).tolist())

    def test_more_kinds_of_guest_cells_than_host_cells(self):
        # The kinds have a billion subsets.
        specs = {'hw:numa_nodes': '30'}
        for number in range(30):
            specs[f'hw:numa_cpus.{number}'] = str(number)
            specs[f'hw:numa_mem.{number}'] = str(64 + number)
        topology = guest.topology(30, 30 * 64 + 435, specs, {})
        self.assertFalse(self.table().fits(topology).any())

    def test_network_without_cells_does_not_matter(self):
        self.assertIsNone(self.table().near_networks(
            fit.Networks(frozenset(['unknown']))))
