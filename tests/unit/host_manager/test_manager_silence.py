# SPDX-License-Identifier: Apache-2.0
"""Cells that do not answer."""

from concurrent import futures
import threading

from cellsched.db.api import cell_mappings
from cellsched.db.api import host_mappings
from cellsched import exception
from cellsched.scheduler.decision import mandatory_stages
from cellsched.scheduler.decision import pipeline
from cellsched.testing import builders
from tests.unit.hosts import loading
from tests.unit.hosts import world

DEADLINE_S = 600

#: Seconds after which the hosts of a silent cell are out.
STALE_S = 30.0


def fail():
    raise exception.CellUnreachable(cell='cell1', reason='as told')


class TestFailing(loading.LoaderTestCase):

    def setUp(self):
        super().setUp()
        self.refresh()
        self.world.targets.behaviour['cell1'] = fail
        self.cell = self.world.cells['cell1']

    def facts(self, host):
        row = self.loader.table.row(self.world.providers[host])
        return [float(self.view()[name][row])
                for name in ('cell_silent_s', 'cell_failures')]

    def test_failing_cell_keeps_its_rows_and_is_silent(self):
        self.refresh()

        self.assertEqual(['a1', 'b1'], self.names())
        self.assertEqual([self.cell.identity], self.loader.silent)
        self.assertIn('as told', self.logs.output)
        self.assertEqual([1.0, 1.0], self.facts('a1'))
        self.assertEqual([0.0, 0.0], self.facts('b1'))

    def test_claims_in_a_failing_cell_are_read(self):
        self.world.claim('a1', 3)

        self.refresh()

        self.assertEqual(5, self.available('a1'))

    def test_recovered_cell_is_read(self):
        self.refresh()
        del self.world.targets.behaviour['cell1']
        self.save('cell1', 'a1', vcpus=3)
        self.world.add_host('cell1', 'a2')

        self.refresh()

        self.assertEqual(['a1', 'a2', 'b1'], self.names())
        self.assertEqual([], self.loader.silent)
        self.assertEqual((3, 8), (
            self.value('a1', 'vcpus_total'), self.available('a2')))
        self.assertEqual(0.0, self.facts('a1')[0])

    def test_its_hosts_are_out_after_a_while(self):
        self.assertEqual([1, 1], self.decided(after_s=STALE_S - 2))
        self.assertEqual([1, 1], self.decided(after_s=2))

        self.assertEqual([0, 1], self.decided(after_s=1))

        (rejection,) = self.found.rejections(builders.request())
        self.assertEqual(
            ('SilentCell', 1, 'is in a cell that does not answer'),
            (rejection.by, rejection.hosts, rejection.reason))

        del self.world.targets.behaviour['cell1']
        self.assertEqual([1, 1], self.decided(after_s=1))

    def decided(self, after_s):
        """Return how many hosts of each cell are in, some time later."""
        self.world.clock.advance(after_s)
        self.loader.refresh(world.CONTEXT)
        self.found = pipeline.Pipeline(
            [], [], mandatory_stages.destination_stages(STALE_S)).candidates(
                self.view(), builders.request())
        found = self.view()['host'][self.found.rows].tolist()
        return [found.count(host) for host in ('a1', 'b1')]

    def test_all_may_be_silent(self):
        self.world.targets.behaviour['cell2'] = fail

        self.refresh()

        self.assertEqual(['a1', 'b1'], self.names())
        self.assertEqual(2, len(self.loader.silent))

    def test_disabled_cell_is_not_named(self):
        self.refresh()
        self.map('cell1', disabled=True)

        self.refresh()

        self.assertEqual([], self.loader.silent)
        self.assertTrue(self.view().any_cell_disabled)


class TestHanging(loading.LoaderTestCase):

    def setUp(self):
        super().setUp()
        self.go_on = threading.Event()
        self.addCleanup(self.go_on.set)
        self.refresh()

    def hang(self):
        """Have cell1 hang at the next reading, until its time is over."""
        hangs = threading.Event()
        self.seen = []

        def behave():
            hangs.set()
            self.go_on.wait(DEADLINE_S)

        def when_read():
            assert hangs.wait(DEADLINE_S)
            self.loader.follow(world.CONTEXT)
            self.seen = self.names()
            self.world.clock.advance(world.TIMEOUT_S)

        self.world.targets.behaviour['cell1'] = behave
        # The manager looks at the clock when the query of cell2 ends.
        self.world.threads.when_read['cell2'] = when_read

    def test_hanging_cell_delays_no_other_cell(self):
        self.world.add_host('cell2', 'b2')
        self.hang()

        self.refresh()

        # That was so while it hung.
        self.assertEqual(['a1', 'b1', 'b2'], self.seen)

    def test_hanging_cell_keeps_its_rows_and_is_silent(self):
        self.hang()

        self.refresh()

        self.assertEqual(['a1', 'b1'], self.names())
        self.assertEqual(
            [self.world.cells['cell1'].identity], self.loader.silent)

    def test_hanging_cell_is_not_read_again(self):
        self.hang()
        self.refresh()
        self.world.targets.behaviour['cell1'] = fail

        self.refresh()

        self.assertEqual(1, len(self.loader.silent))
        self.assertNotIn('as told', self.logs.output)

    def test_late_answer_is_applied(self):
        self.hang()
        self.world.add_host('cell1', 'a2')
        self.refresh()
        self.assertEqual(['a1', 'b1'], self.names())

        self.go_on.set()
        futures.wait([self.world.threads.queries['cell1']], DEADLINE_S)

        self.assertEqual(['a1', 'a2', 'b1'], self.names())
        del self.world.targets.behaviour['cell1']
        self.refresh()
        self.assertEqual(([], 8), (self.loader.silent, self.available('a2')))

    def test_late_answer_of_a_removed_cell_is_ignored(self):
        self.hang()
        self.world.add_host('cell1', 'a2')
        self.refresh()
        with self.world.database.writer() as connection:
            host_mappings.delete(connection, self.world.cells['cell1'].id)
            cell_mappings.delete(connection, self.world.cells['cell1'].id)
        self.refresh()

        self.go_on.set()
        futures.wait([self.world.threads.queries['cell1']], DEADLINE_S)

        self.assertEqual(['b1'], self.names())
