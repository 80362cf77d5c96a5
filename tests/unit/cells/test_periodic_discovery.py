# SPDX-License-Identifier: Apache-2.0
"""Discovery by period: of several schedulers the leader maps new hosts."""

import fixtures

from cellsched.cells import periodic_discovery
from cellsched import exception
from tests.unit.cells import test_discovery

PERIOD_S = 10


class TestPeriodicDiscovery(test_discovery.DiscoveryCase):

    def setUp(self):
        super().setUp()
        self.logs = self.useFixture(fixtures.FakeLogger())
        self.a, self.b = (periodic_discovery.PeriodicDiscovery(
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

    def test_leader_that_is_late_by_half_a_period_leads_still(self):
        self.a.run()
        self.clock.advance(14.9)
        self.add_nodes(self.east, 'e1')

        self.assertEqual([], self.b.run())

        self.assertEqual(['e1'], self.a.run())

    def test_another_one_maps_hosts_when_the_leader_ended(self):
        self.a.run()
        self.add_nodes(self.east, 'e1')
        self.clock.advance(15)

        self.assertEqual(['e1'], self.b.run())

        self.add_nodes(self.east, 'e2')
        self.assertEqual([], self.a.run())
        self.assertIn('Another scheduler maps new hosts', self.logs.output)

    def test_name_that_two_cells_have_is_told_once(self):
        self.add_nodes(self.east, 'same')
        self.a.run()
        self.add_nodes(self.west, 'same')

        for _ in range(3):
            self.assertEqual([], self.a.run())

        self.assertEqual(1, self.logs.output.count('is mapped to cell'))
        for cell in (self.east, self.west):
            self.assertIn(cell.identity, self.logs.output)

    def test_cell_that_fails_holds_up_no_other(self):
        self.add_cell('broken', database_connection='sqlite:////nowhere/x')
        self.add_nodes(self.west, 'w1')

        self.assertRaises(exception.DatabaseError, self.a.run)

        self.assertEqual({'w1': 'west'}, self.mapped('w1'))
