# SPDX-License-Identifier: Apache-2.0
"""Builds that failed here, and that another conductor leases by now."""

import copy

from cellsched.db.api import build_requests
from cellsched.db.cell import instances
from tests.unit.conductor import base
from tests.unit.conductor.tasks import ends
from tests.unit.conductor.tasks import leased
from tests.unit.db import samples


class TestPurge(leased.StepTestCase):

    def test_cell_that_cannot_be_written_keeps_no_other(self):
        first, second = builds = self.builds(['a1', 'b1'])
        with self.targets.database(second.cell).writer() as connection:
            instances.create(
                connection, [samples.instance(second.uuid)], samples.NOW)
        first.cell = copy.copy(first.cell)
        first.cell.database_connection = 'sqlite:////nowhere/gone.sqlite'

        self.task()._purge(builds)

        self.assertIn(f"may have rows of ['{first.uuid}']", self.logs.output)
        self.assertEqual({}, self.rows(second.uuid))


class TestBurial(base.TestCase):

    def lease(self, uuid):
        self.clock.advance(base.LEASE_S * 2)
        now = self.clock.timestamp()
        with self.database.writer() as connection:
            return build_requests.lease(
                connection, [uuid], 'next', now, now + base.LEASE_S)

    def task(self, **options):
        return super().task(reached=self.reached, **options)

    def reached(self, step):
        if step.startswith('undone') and self.then:
            self.then.pop()()

    def fail(self, uuid, then):
        """Have a build fail, and something done when that is undone."""
        self.then = [then]
        self.task_with(1, ends.fail).run(base.USER, [uuid])
        self.assertEqual([], self.then)

    def test_what_another_one_leases_since_is_left_to_it(self):
        [uuid] = self.accept()
        leased = []

        self.fail(uuid, lambda: leased.extend(self.lease(uuid)))

        self.assertEqual(1, len(leased))
        self.assertEqual(
            ({}, None, True),
            (self.rows(uuid), self.mapped(uuid), self.requested(uuid)))

    def test_what_another_one_finished_since_is_not_buried(self):
        [uuid] = self.accept()

        def next_one():
            self.clock.advance(base.LEASE_S * 2)
            self.task().run(base.USER, [uuid])

        self.fail(uuid, next_one)

        self.assertBuilding('cell1', uuid)

    def test_what_nobody_leases_since_is_buried_however_late(self):
        [uuid] = self.accept()

        self.fail(uuid, lambda: self.clock.advance(base.LEASE_S * 2))

        self.assertBuried(uuid, 'another place')
