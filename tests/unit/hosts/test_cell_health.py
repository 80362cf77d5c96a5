# SPDX-License-Identifier: Apache-2.0
"""What is known of cells as a whole."""

import math

import numpy as np

from cellsched.hosts import cell_health
from tests.unit import base


class TestFailures(base.TestCase):

    def setUp(self):
        super().setUp()
        self.cells = cell_health.Cells(half_life_s=100.0)

    def failures(self, at, uuid='a'):
        return round(self.cells.failures(uuid, 1000.0 + at), 6)

    def test_half_is_forgotten_in_the_half_life(self):
        self.cells.failed('a', 8, 1000.0)

        self.assertEqual([8.0, 4.0, 2.0, 1.0], [
            self.failures(after) for after in (0, 100, 200, 300)])
        self.assertEqual(0.0, self.failures(0, 'b'))

    def test_new_failures_add_to_decayed_failures(self):
        self.cells.failed('a', 8, 1000.0)
        self.cells.failed('a', 1, 1100.0)

        self.assertEqual([5.0, 2.5], [
            self.failures(after) for after in (100, 200)])

    def test_backward_step_of_the_clock_adds_no_failures(self):
        self.cells.failed('a', 8, 1000.0)

        self.assertEqual(8.0, self.failures(-500))

    def test_trace_is_as_good_as_forgotten(self):
        self.assertFalse(self.cells.any_fails(1000.0))
        self.cells.failed('a', 1, 1000.0)
        self.cells.heard('b', 1000.0)

        self.assertTrue(self.cells.any_fails(1600.0))
        self.assertFalse(self.cells.any_fails(1700.0))

    def test_removed_cell_has_no_failures(self):
        self.cells.failed('a', 8, 1000.0)

        self.cells.drop('a')

        self.assertFalse(self.cells.any_fails(1000.0))
        self.assertEqual(0.0, self.failures(0))
        self.cells.drop('a')


class TestSilence(base.TestCase):

    def setUp(self):
        super().setUp()
        self.cells = cell_health.Cells()

    def test_silence_begins_at_the_last_read(self):
        self.cells.heard('a', 1000.0)

        self.assertEqual([0.0, 5.0, 0.0], [
            self.cells.silent_s('a', now) for now in (1000.0, 1005.0, 990.0)])

    def test_cell_without_reads_is_not_silent(self):
        self.cells.failed('a', 1, 1000.0)

        self.assertEqual([0.0, 0.0], [
            self.cells.silent_s(uuid, 9000.0) for uuid in 'ab'])
        self.assertEqual(math.inf, self.cells.oldest)

    def test_oldest_read_is_of_the_cell_silent_for_longest(self):
        self.assertEqual(math.inf, self.cells.oldest)
        self.cells.heard('a', 1000.0)
        self.cells.heard('b', 1005.0)
        self.assertEqual(1000.0, self.cells.oldest)

        self.cells.heard('a', 1010.0)
        self.assertEqual(1005.0, self.cells.oldest)

        self.cells.drop('b')
        self.assertEqual(1010.0, self.cells.oldest)


class TestFreeShares(base.TestCase):

    def shares(self, count=1, **columns):
        hosts = len(columns['cell'])
        given = {name: np.zeros(hosts) for name in (
            'vcpus_total', 'vcpus_used', 'total_usable_ram_mb', 'free_ram_mb',
            'total_usable_disk_gb', 'free_disk_mb')}
        given['cpu_allocation_ratio'] = np.ones(hosts)
        given |= {name: np.array(column) for name, column in columns.items()}
        return cell_health.free_shares(given, count).tolist()

    def test_scarcest_resource_counts(self):
        plenty = {'vcpus_total': [8], 'total_usable_ram_mb': [100],
                  'free_ram_mb': [100], 'total_usable_disk_gb': [10],
                  'free_disk_mb': [10240]}

        for wanted, scarce in ((1.0, {}), (0.25, {'vcpus_used': [6]}),
                               (0.5, {'free_ram_mb': [50]}),
                               (0.1, {'free_disk_mb': [1024]}),
                               (-0.5, {'free_ram_mb': [-50]})):
            self.assertEqual(
                [wanted], self.shares(cell=[0], **plenty | scarce))

    def test_free_share_of_cpus_uses_the_allocation_ratio(self):
        self.assertEqual([0.75], self.shares(
            cell=[0], vcpus_total=[4], cpu_allocation_ratio=[2.0],
            vcpus_used=[2], total_usable_ram_mb=[1], free_ram_mb=[1],
            total_usable_disk_gb=[1], free_disk_mb=[1024]))

    def test_hosts_of_a_cell_are_added_up(self):
        self.assertEqual([0.5, 0.0, 1.0], self.shares(
            3, cell=[0, 0, 2], vcpus_total=[4] * 3, vcpus_used=[4, 0, 0],
            total_usable_ram_mb=[1] * 3, free_ram_mb=[1] * 3,
            total_usable_disk_gb=[1] * 3, free_disk_mb=[1024] * 3))

    def test_cell_without_capacity_has_no_free_share(self):
        self.assertEqual([0.0], self.shares(cell=[0]))
