# SPDX-License-Identifier: Apache-2.0
"""Builds that wait for the same cell."""

from concurrent import futures
import threading

from cellsched.conductor.tasks.steps import write_rows
from tests.unit.conductor import base
from tests.unit.conductor.tasks import leased

DEADLINE_S = 60


class TestWriteRows(leased.StepTestCase):

    def test_builds_that_wait_for_the_same_cell_are_written_together(self):
        step = write_rows.WriteRows(
            self.database, self.targets, self.clock, base.LEASE_S)
        batches = [self.builds(['a1']) for _ in range(4)]
        begun, go_on, times = threading.Event(), threading.Event(), []
        database = self.targets.database

        def slow(cell):
            times.append(cell.name)
            begun.set()
            go_on.wait(DEADLINE_S)
            return database(cell)

        self.targets.database = slow
        with futures.ThreadPoolExecutor(4) as threads:
            self.addCleanup(go_on.set)
            first = threads.submit(step.do, batches[0])
            begun.wait(DEADLINE_S)
            others = [threads.submit(step.do, batch) for batch in batches[1:]]
            [waiting] = step._waiting.values()
            while len(waiting._waiting) + len(times) < 4:
                futures.wait(others, 0.001)
            go_on.set()
            futures.wait([first, *others], DEADLINE_S)

        self.assertEqual(2, len(times))
        for [build] in batches:
            self.assertIsNone(build.reason)
            self.assertEqual(['cell1'], [*self.rows(build.uuid)])
