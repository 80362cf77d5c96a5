# SPDX-License-Identifier: Apache-2.0
import unittest

from cellsched.hardware import host


class PagesTest(unittest.TestCase):
    def test_memory_takes_full_pages(self):
        pages = host.Pages(2048, total=10, used=3, reserved=1)
        self.assertEqual(
            [True, False, False],
            [pages.holds(memory) for memory in (12, 13, 14)])

    def test_whole_memory_counts_used_pages(self):
        self.assertTrue(host.Pages(2048, 10, 10).holds(20, whole=True))


class TextsTest(unittest.TestCase):
    def test_numbers_of_cpus_are_ranges(self):
        for cpus, text in (([], ''), ([3], '3'), ([4, 3, 1], '1,3-4')):
            self.assertEqual(text, host.shown_cpus(cpus))

    def test_page_sizes_have_the_largest_unit(self):
        for size_kb, text in (
                (4, '4 KB'), (2048, '2 MB'), (1048576, '1 GB')):
            self.assertEqual(text, host.shown_size(size_kb))


class HostTopologyTest(unittest.TestCase):
    def cell(self, number, socket):
        return host.HostCell(
            number, frozenset(), frozenset(), 1024, socket=socket)

    def test_neighbours_are_in_the_same_socket(self):
        topology = host.HostTopology(tuple(
            self.cell(number, number // 2) for number in range(4)))
        self.assertEqual({2, 3}, topology.neighbours([3]))

    def test_unknown_socket_has_no_neighbours(self):
        topology = host.HostTopology((self.cell(0, 0), self.cell(1, None)))
        self.assertEqual(frozenset(), topology.neighbours([0]))
