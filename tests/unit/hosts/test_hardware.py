# SPDX-License-Identifier: Apache-2.0
"""The tables of NUMA cells and PCI devices that follow the columns."""

from cellsched.hardware import devices
from cellsched.hardware import fit
from cellsched.hardware import guest
from cellsched.hardware import units
from cellsched.hosts import hardware
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
