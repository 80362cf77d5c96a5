# SPDX-License-Identifier: Apache-2.0
"""Whether hosts that seem to be down may be up all the same."""

from cellsched import exception
from cellsched.host_manager import mass_outage
from cellsched.hosts import cell_health
from cellsched.hosts import columns
from cellsched.hosts import table
from tests.unit import base
from tests.unit.hosts import loading

NOW = 1_700_000_000.0

LIMITS = mass_outage.OutageLimits(down_s=60.0, silence_s=30.0)

#: Hosts that are down since just now.
GONE_S = 70.0


class TestFind(base.TestCase):

    def setUp(self):
        super().setUp()
        self.begin()

    def begin(self):
        self.table = table.HostTable(columns.STANDARD, cell_health.Cells())
        self.count = 0

    def hosts(self, cell, count, silent_s=0.0, **values):
        """Add hosts to a cell, that were seen last that long ago."""
        uuids = [f'{self.count + number}' for number in range(count)]
        self.count += count
        self.table.put(uuids, {
            'host': uuids, 'cell': cell, 'last_seen_up': NOW - silent_s,
            'service_disabled': False, 'forced_down': False, **values})

    def heard(self, cell, last_s=0.0, since_s=3600.0):
        """Have a cell be heard, since then and up to then."""
        at = NOW - since_s
        while at < NOW - last_s:
            self.table.cells.heard(cell, at)
            at += 10.0
        self.table.cells.heard(cell, NOW - last_s)

    def found(self):
        return mass_outage.find(self.table, NOW, LIMITS)

    def test_most_hosts_of_several_cells_are_an_outage(self):
        for expected, hosts in (
                ((36, 40, 2), {'a': [(18, GONE_S)],
                               'b': [(18, GONE_S), (4, 0.0)]}),
                # Clocks that are ahead.
                ((36, 36, 2), {'a': [(18, -600.0)], 'b': [(18, -600.0)]}),
                (None, {}), (None, {'a': [(20, 0.0)], 'b': [(20, 0.0)]}),
                (None, {'a': [(18, GONE_S)],
                        'b': [(17, GONE_S), (4, 0.0)]})):
            with self.subTest(hosts=hosts):
                self.begin()
                for cell, groups in hosts.items():
                    for count, silent_s in groups:
                        self.hosts(cell, count, silent_s)

                self.assertEqual(
                    expected and mass_outage.MassOutage(*expected),
                    self.found())

    def test_deaths_in_answering_cells_are_no_outage(self):
        for dead, alive, last_s in (
                ({'a': 5, 'b': 4}, 0, 0.0), ({'a': 98}, 2, 0.0),
                # A cell dies with its database.
                ({'a': 98}, 2, GONE_S)):
            with self.subTest(dead=dead, last_s=last_s):
                self.begin()
                for cell, count in dead.items():
                    self.hosts(cell, count, GONE_S)
                self.hosts('b', alive)
                self.heard('a', last_s=last_s)
                self.heard('b')

                self.assertIsNone(self.found())

    def test_host_down_for_long_does_not_count(self):
        self.hosts('a', 500, mass_outage.RECENT * LIMITS.down_s + 1)
        self.hosts('b', 500, mass_outage.RECENT * LIMITS.down_s + 1)
        self.assertIsNone(self.found())

        self.hosts('a', 9, GONE_S)
        self.hosts('b', 9, GONE_S)
        self.assertEqual(mass_outage.MassOutage(18, 18, 2), self.found())

    def test_disabled_host_does_not_count(self):
        self.hosts('a', 50, GONE_S, forced_down=True)
        self.hosts('b', 50, GONE_S, service_disabled=True)

        self.assertIsNone(self.found())

    def test_scheduler_without_reports_is_uncertain(self):
        """However long that is so, and however few hosts there are."""
        for silent_s in (40.0, 100_000.0):
            self.begin()
            self.hosts('a', 2, silent_s + 5)
            self.heard('a', last_s=silent_s, since_s=silent_s + 3600)

            self.assertEqual(mass_outage.MassOutage(2, 2, 1), self.found())

    def test_scheduler_is_uncertain_until_hosts_report_again(self):
        self.hosts('a', 2, GONE_S)
        for since_s, expected in (
                (5.0, mass_outage.MassOutage(2, 2, 1)), (61.0, None)):
            self.table.cells = cell_health.Cells()
            self.heard('a', since_s=4000.0, last_s=100.0)
            self.heard('a', since_s=since_s)

            self.assertEqual(expected, self.found())


class TestLoader(loading.LoaderTestCase):

    def test_reason_is_logged_once_with_the_clocks(self):
        self.refresh()
        self.assertIsNone(self.loader.mass_outage_error())
        self.world.clock.advance(100)

        for _ in range(2):
            error = self.loader.mass_outage_error()
            self.assertIsInstance(error, exception.HostStateUncertain)
            self.assertEqual((2, 2), (error.hosts, error.known))

        self.assertEqual(1, self.logs.output.count('Suspected clock skew'))
        self.assertIn('2 of 2 hosts in 2 cells', self.logs.output)
        self.assertIn('by -600.0 to -600.0 seconds', self.logs.output)

    def test_old_table_is_read_before_an_outage_is_declared(self):
        """Even while somebody else does; who stood still finds that so."""
        self.refresh()
        self.world.clock.advance(100)
        for cell, host in ('cell1', 'a1'), ('cell2', 'b1'):
            self.world.report(cell, host)

        self.loader.follow(loading.world.CONTEXT)

        self.assertIsNone(self.loader.mass_outage_error())
