# SPDX-License-Identifier: Apache-2.0
"""Builds that somebody else goes on with at the same time."""

import dataclasses

import futurist

from cellsched.db.cell import build_casts
from cellsched.db.cell import instances
from tests.unit.conductor import lost
from tests.unit.db import samples


class LateExecutor(futurist.SynchronousExecutor):
    """Lets something happen before what is found is worked on."""

    def __init__(self, meanwhile):
        super().__init__()
        self._meanwhile = meanwhile

    def submit(self, *args, **kwargs):
        self._meanwhile()
        return super().submit(*args, **kwargs)


class HoldingExecutor(futurist.SynchronousExecutor):
    """Begins what it is given when it is told to."""

    def __init__(self):
        super().__init__()
        self.held = []

    def submit(self, function, *args):
        future = futurist.Future()
        self.held.append(lambda: future.set_result(function(*args)))
        return future


class TestRaces(lost.StalledBuildsTestCase):

    def run_late(self, meanwhile):
        self.make_lost(executor=LateExecutor(meanwhile)).run()

    def tell(self, cell=None):
        """Do what another conductor does that tells a host again."""
        database = cell or self.cell
        with database.writer() as connection:
            cast = build_casts.get(connection, self.uuid)
            self.assertTrue(build_casts.tell_again(
                connection, cast, self.clock.steady()))

    def test_host_that_another_conductor_has_told_is_not_told_twice(self):
        self.wait()

        self.run_late(self.tell)

        self.assertEqual([], self.sent())
        self.assertEqual(2, self.kept.casts)

    def test_build_that_another_conductor_has_handed_on_is_left_to_it(self):
        self.clock.advance(lost.PATIENCE.down_s + 1)

        self.run_late(self.tell)

        self.assertEqual([], self.handed_on)
        self.assertEqual('scheduling', self.row(self.uuid).task_state)

    def test_build_that_its_host_begins_after_all_is_left_to_it(self):
        self.clock.advance(lost.PATIENCE.down_s + 1)

        self.run_late(lambda: self.put(
            host='a1', node='node-a1', task_state='spawning'))

        self.assertEqual([], self.handed_on)
        row = self.row(self.uuid)
        self.assertEqual(('a1', 'spawning'), (row.host, row.task_state))

    def test_build_that_goes_to_another_host_meanwhile_is_left_to_it(self):
        self.put(host='a1', node='node-a1', task_state='spawning')
        self.clock.advance(lost.PATIENCE.down_s + 1)

        self.run_late(lambda: self.put(host='a2', node='node-a2'))

        self.assertEqual([], self.handed_on)
        row = self.row(self.uuid)
        self.assertEqual(('a2', 'spawning'), (row.host, row.task_state))

    def test_build_of_which_another_try_is_counted_is_left_to_that(self):
        self.clock.advance(lost.PATIENCE.down_s + 1)

        self.run_late(lambda: self.put(build_attempts=2))

        self.assertEqual([], self.handed_on)

    def test_server_whose_row_is_gone_is_forgotten(self):
        self.wait()
        with self.cell.writer() as connection:
            instances.purge(connection, [self.uuid])

        self.lost.run()

        self.assertIsNone(self.kept)
        self.assertEqual(([], []), (self.sent(), self.handed_on))

    def test_build_that_another_conductor_removes_is_left_to_it(self):
        elsewhere = self.targets.database(self.cells['cell2'])
        with elsewhere.writer() as connection:
            instances.create(connection, [samples.instance(self.uuid)],
                             self.clock.now())
            build_casts.create(connection, [dataclasses.replace(
                self.kept, cast_at=self.clock.steady() - 100)])

        self.run_late(lambda: self.tell(elsewhere))

        self.assertEqual({'cell1', 'cell2'}, {*self.rows(self.uuid)})

    def test_cell_that_is_worked_on_is_not_looked_at_again(self):
        executor = HoldingExecutor()
        stalled_builds = self.make_lost(executor=executor)
        for _ in range(3):
            self.wait()
            stalled_builds.run()
        [work] = executor.held

        work()

        self.assertEqual([('a1', self.uuid)], self.sent())
        self.wait(1000)
        stalled_builds.run()
        self.assertEqual(2, len(executor.held))
