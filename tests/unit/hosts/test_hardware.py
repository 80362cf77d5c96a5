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

    def test_selections_count_beside_the_report_of_a_host(self):
        reported = cells.topology(4)
        pools = devices.pools([cells.pool(3)])
        for count in 2, 20:
            table = builders.table(numa_topology=[reported] * count,
                                   device_pools=[pools] * count,
                                   free_pci_devices=3)
            hosts = table.view(builders.NOW)
            hardware.tables(hosts)
            hosts.take(1, {units.cpu(4): 1, units.memory(0): 64,
                           units.device(pools[0]): 2}, 'x')
            # A table that is made now has them, too.
            for each in hosts, self.reserved(table, hosts):
                found = hardware.on_host(each, 1)
                [cell] = found.topology.cells
                self.assertEqual(
                    ({5, 6, 7}, 64, 1),
                    (cell.free_pcpus, cell.memory_usage,
                     found.pools[0].count))
                self.assertEqual(1, each['free_pci_devices'][1])
                kept, free = hardware.tables(each)
                demand = guest.topology(
                    4, 64, {'hw:cpu_policy': 'dedicated'}, {})
                self.assertEqual([row != 1 for row in range(count)],
                                 kept.fits(demand).tolist())
                self.assertEqual(
                    [row != 1 for row in range(count)], free.enough(
                        [devices.DeviceRequest(2, ({},))],
                        slice(None)).tolist())

    def reserved(self, table, hosts):
        """Return new columns of the table with what a view has taken."""
        table.confirm(table.reserve(hosts))
        table.publish()
        return table.view(builders.NOW)

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
