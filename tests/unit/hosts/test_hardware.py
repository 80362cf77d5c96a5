# SPDX-License-Identifier: Apache-2.0
"""The tables of NUMA cells and PCI devices that follow the columns."""

import copy
import random

from cellsched.hardware import devices
from cellsched.hardware import fit
from cellsched.hardware import guest
from cellsched.hardware import units
from cellsched.hosts import hardware
from cellsched.hosts import view
from cellsched.testing import builders
from tests.unit import base
from tests.unit.filters import cells

PINNED = guest.topology(7, 64, {'hw:cpu_policy': 'dedicated'}, {})


class TestTables(base.TestCase):

    def table(self, count):
        self.unused = cells.topology(8)
        self.pools = devices.pools([cells.pool(2)])
        return builders.table(
            numa_topology=[self.unused] * count,
            device_pools=[self.pools] * count, claims_hardware=True,
            available=units.inventory(
                self.unused, self.pools, fit.Ratios()))

    def verdicts(self, hosts):
        found, _ = hardware.tables(hosts)
        return found.fits(PINNED).tolist()

    def test_cells_follow_the_decision(self):
        hosts = self.table(20).view(builders.NOW)
        self.assertEqual([True] * 20, self.verdicts(hosts))
        hosts.take(3, {units.cpu(5): 1, units.cpu(6): 1}, 'x')

        self.assertEqual([row != 3 for row in range(20)],
                         self.verdicts(hosts))

    def test_cells_follow_reservations_and_their_end(self):
        table = self.table(20)
        hosts = table.view(builders.NOW)
        self.verdicts(hosts)
        hosts.take(3, {units.cpu(5): 1, units.cpu(6): 1}, 'x')
        reserved = table.reserve(hosts)
        table.reuse(hosts)

        hosts = table.view(builders.NOW)
        self.assertEqual([row != 3 for row in range(20)],
                         self.verdicts(hosts))
        table.reuse(hosts)
        table.rollback(reserved)
        self.assertEqual([True] * 20, self.verdicts(
            table.view(builders.NOW)))

    def test_cells_follow_reports(self):
        table = self.table(20)
        self.verdicts(table.view(builders.NOW))
        table.put([table['uuid'][7]], {'numa_topology': [None]})
        table.publish()

        self.assertEqual([row != 7 for row in range(20)],
                         self.verdicts(table.view(builders.NOW)))

    def test_host_has_the_usage_of_claims(self):
        hosts = self.table(2).view(builders.NOW)
        hosts.take(1, {units.cpu(4): 1, units.device(self.pools[0]): 2}, 'x')

        for place, cpus, count in (0, 8, 2), (1, 7, 0):
            found = hardware.on_host(hosts, place)
            self.assertEqual(
                cpus, len(found.topology.cells[0].free_pcpus))
            self.assertEqual(count, sum(each.count for each in found.pools))

    def test_random_changes_agree_with_a_new_table(self):
        table, choice = self.table(6), random.Random(1)
        reserved = []
        for step in range(60):
            hosts = table.view(builders.NOW)
            for _ in range(choice.randrange(3)):
                hosts.take(choice.randrange(6), {
                    units.cpu(choice.randrange(8)): 1, units.memory(0): 64,
                    units.device(self.pools[0]): 1, 'VCPU': 1}, 'x')
                self.verdicts(hosts)
            if choice.random() < 0.6:
                reserved.append(table.reserve(hosts))
            table.reuse(hosts)
            if choice.random() < 0.3 and reserved:
                table.rollback(reserved.pop())
            if choice.random() < 0.3:
                table.put([table['uuid'][choice.randrange(6)]], {
                    f'available:{units.cpu(choice.randrange(8))}':
                    [float(choice.randrange(2))]})
                table.publish()
            with self.subTest(step=step), table.viewed(builders.NOW) as hosts:
                anew = view.Hosts(copy.copy(hosts.columns), builders.NOW, {})
                anew.columns.tables = {}
                self.assertEqual(self.verdicts(anew), self.verdicts(hosts))
                self.assertEqual([hardware.on_host(anew, row)
                                  for row in range(6)],
                                 [hardware.on_host(hosts, row)
                                  for row in range(6)])
