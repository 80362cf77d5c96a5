# SPDX-License-Identifier: Apache-2.0
"""Taking up builds that were left lying."""

import sqlalchemy as sa

from cellsched.conductor import recoverer
from cellsched.db.api import build_requests
from cellsched.db.api import models
from tests.unit.conductor import base
from tests.unit.db import samples


class Task:
    """Notes which batches it is told to build; fails at some of them."""

    def __init__(self, fails_at=()):
        self.batches = []
        self.contexts = []
        self.fails_at = fails_at

    def run(self, context, uuids):
        self.contexts.append(context)
        self.batches.append(list(uuids))
        if set(uuids) & set(self.fails_at):
            raise KeyError('as told')


class TestRecoverer(base.TestCase):

    def run_with(self, task, **options):
        recoverer.Recoverer(
            self.database, task, self.clock, base.LEASE_S, **options).run()
        return task

    def taken_up(self, **options):
        return self.run_with(Task(), **options).batches

    def lease(self, uuids):
        now = self.clock.timestamp()
        with self.database.writer() as connection:
            build_requests.lease(
                connection, uuids, 'conductor', now, now + base.LEASE_S)

    def accept_batch(self, count):
        return self.accept(count, reservation_id=f'r-{samples.uuids(1)}')

    def test_request_that_nobody_took_up_waits_as_long_as_a_lease(self):
        [uuid] = self.accept()

        self.clock.advance(base.LEASE_S - 1)
        self.assertEqual([], self.taken_up())
        self.clock.advance(1)
        self.assertEqual([[uuid]], self.taken_up())

    def test_request_is_left_alone_while_its_lease_lasts(self):
        [uuid] = self.accept()
        self.clock.advance(base.LEASE_S)
        self.lease([uuid])

        self.clock.advance(base.LEASE_S - 1)
        self.assertEqual([], self.taken_up())
        self.clock.advance(1)
        self.assertEqual([[uuid]], self.taken_up())

    def test_what_was_accepted_together_is_built_together(self):
        batches = [self.accept_batch(3), self.accept_batch(2)]
        self.clock.advance(base.LEASE_S)

        self.assertEqual(batches, self.taken_up())

    def test_batch_is_taken_up_whole_although_few_are_looked_at(self):
        batch = self.accept_batch(5)
        self.clock.advance(base.LEASE_S)

        self.assertEqual([batch], self.taken_up(overdue_max=2))

    def test_batch_that_fails_does_not_keep_the_next_ones(self):
        for uuid in (batches := [self.accept()[0] for _ in range(3)]):
            self.clock.advance(1)
        self.clock.advance(base.LEASE_S)

        task = self.run_with(Task(fails_at=batches[:1]))

        self.assertEqual([[uuid] for uuid in batches], task.batches)
        self.assertIn('as told', self.logs.output)

    def test_request_that_cannot_be_read_does_not_keep_the_next_ones(self):
        [broken] = self.accept()
        self.clock.advance(1)
        [sound] = self.accept()
        with self.database.writer() as connection:
            connection.execute(
                sa.update(models.build_requests)
                .where(models.build_requests.c.instance_uuid == broken)
                .values(instance='what?'))
        self.clock.advance(base.LEASE_S)

        self.run_with(self.task())

        self.assertBuilding('cell1', sound)
        self.assertIn(broken, self.logs.output)

    def test_work_is_done_in_the_name_of_an_admin(self):
        self.accept()
        self.clock.advance(base.LEASE_S)

        [context] = self.run_with(Task()).contexts

        self.assertTrue(context.is_admin)

    def test_build_that_was_lost_ends_in_its_cell(self):
        [uuid] = self.accept()
        self.clock.advance(base.LEASE_S)

        self.run_with(self.task())

        self.assertBuilding('cell1', uuid)
