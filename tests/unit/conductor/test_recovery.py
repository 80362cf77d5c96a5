# SPDX-License-Identifier: Apache-2.0
"""Taking up builds that were left lying."""

from concurrent import futures
import threading

import futurist
import sqlalchemy as sa

from cellsched.conductor import recovery
from cellsched.conductor.tasks import leases
from cellsched.conductor.tasks import retries
from cellsched.db.api import build_requests
from cellsched.db.api import models
from tests.unit.conductor import base
from tests.unit.db import samples


class Task:
    """Notes which batches it is told to build; fails at some of them."""

    def __init__(self, case, fails_at=(), first=lambda uuids: None):
        self.leases = leases.Leases(case.database, base.LEASE_S)
        self.retries = retries.Retries(case.clock, 1.0, 3)
        self.batches = []
        self.attempts = []
        self.fails_at = fails_at
        self.first = first

    def attempt(self, attempt):
        self.first(attempt.uuids)
        self.attempts.append(attempt)
        self.batches.append(list(attempt.uuids))
        if set(attempt.uuids) & set(self.fails_at):
            raise KeyError('as told')


class TestRecoverer(base.TestCase):

    def run_with(self, task, **options):
        recovery.Recoverer(
            self.database, task, base.LEASE_S, **{
                'executor': futurist.SynchronousExecutor(), **options}).run()
        return task

    def taken_up(self, **options):
        return self.run_with(Task(self), **options).batches

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

        self.assertEqual([batch], self.taken_up(page=2))

    def test_batch_that_fails_does_not_keep_the_next_ones(self):
        for uuid in (batches := [self.accept()[0] for _ in range(3)]):
            self.clock.advance(1)
        self.clock.advance(base.LEASE_S)

        task = self.run_with(Task(self, fails_at=batches[:1]))

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

    def test_full_page_is_followed_by_the_next_at_once(self):
        uuids = [self.accept()[0] for _ in range(5)]
        self.clock.advance(base.LEASE_S)

        self.assertEqual(
            [[uuid] for uuid in uuids], self.taken_up(page=2))

    def test_conductors_take_up_different_builds(self):
        """The second one looks while the first one builds."""
        uuids = [self.accept()[0] for _ in range(6)]
        self.clock.advance(base.LEASE_S)
        first, second = Task(self), Task(self)

        def look_once(batch):
            if not first.batches:
                self.run_with(second, page=2)

        first.first = look_once
        self.run_with(first, page=2)

        self.assertEqual(uuids[:2], sum(first.batches, []))
        self.assertEqual(uuids[2:], sum(second.batches, []))

    def test_batches_are_built_at_the_same_time(self):
        for _ in range(3):
            self.accept()
        self.clock.advance(base.LEASE_S)
        all_there = threading.Barrier(3)

        with futures.ThreadPoolExecutor(3) as executor:
            task = self.run_with(
                Task(self, first=lambda batch: all_there.wait(60)),
                executor=executor)

        self.assertEqual(3, len(task.batches))
        self.assertEqual('', self.logs.output.partition('Traceback')[1])

    def test_no_more_batches_are_built_at_a_time_than_may_be(self):
        for _ in range(4):
            self.accept()
        self.clock.advance(base.LEASE_S)
        begun, go_on = threading.Semaphore(0), threading.Semaphore(0)

        def build(batch):
            begun.release()
            go_on.acquire(timeout=60)

        task = Task(self, first=build)
        with (futures.ThreadPoolExecutor(4) as executor,
              futures.ThreadPoolExecutor(1) as looking):
            looks = looking.submit(
                self.run_with, task, executor=executor, at_once=2)
            for _ in range(2):
                self.assertTrue(begun.acquire(timeout=60))
            futures.wait([looks], 0.05)
            self.assertFalse(begun.acquire(blocking=False))
            go_on.release(4)
            looks.result(60)

        self.assertEqual(4, len(task.batches))

    def test_what_waits_for_its_turn_is_nobody_elses(self):
        uuids = [self.accept()[0] for _ in range(2)]
        self.clock.advance(base.LEASE_S)

        def wait_long(batch):
            for _ in range(3):
                self.clock.advance(base.LEASE_S - 1)
                task.leases.renew()
            self.assertEqual([], self.taken_up())

        task = Task(self, first=wait_long)
        self.run_with(task)

        self.assertEqual([[uuid] for uuid in uuids], task.batches)

    def test_what_is_to_be_tried_again_is_tried_when_it_is_due(self):
        task = Task(self)
        task.retries.put_off(retries.Attempt(base.USER, ['uuid']))

        self.run_with(task)
        self.assertEqual([], task.batches)
        self.clock.advance(1)
        self.run_with(task)

        self.assertEqual([['uuid']], task.batches)
        self.assertEqual(base.USER, task.attempts[0].context)

    def test_work_is_done_in_the_name_of_an_admin(self):
        self.accept()
        self.clock.advance(base.LEASE_S)

        [attempt] = self.run_with(Task(self)).attempts

        self.assertTrue(attempt.context.is_admin)

    def test_work_is_done_by_who_leases_the_requests(self):
        self.accept_batch(2)
        self.accept()
        self.clock.advance(base.LEASE_S)

        attempts = self.run_with(
            Task(self), new_uuid=lambda: 'owner').attempts

        self.assertEqual(['owner'] * 2, [each.owner for each in attempts])
        table = models.build_requests
        with self.database.reader() as connection:
            leases_ = connection.execute(sa.select(
                table.c.lease_owner, table.c.lease_expires_at)).all()
        self.assertEqual(
            [('owner', self.clock.timestamp() + base.LEASE_S)] * 3,
            [tuple(each) for each in leases_])

    def test_build_that_was_lost_ends_in_its_cell(self):
        [uuid] = self.accept()
        self.clock.advance(base.LEASE_S)

        self.run_with(self.task())

        self.assertBuilding('cell1', uuid)
