# SPDX-License-Identifier: Apache-2.0
"""Batching of the work of several threads."""

from concurrent import futures
import threading

from cellsched import batching
from tests.unit import base


class TestTogether(base.TestCase):

    def setUp(self):
        super().setUp()
        self.batches = []
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.pool = futures.ThreadPoolExecutor(8)
        self.addCleanup(self.pool.shutdown)

    def work(self, items):
        self.batches.append(sorted(items))
        if len(self.batches) == 1:
            self.begun.set()
            self.assertTrue(self.go_on.wait(600))

    def wait_for(self, number):
        """Wait until a number of threads wait for their turn."""
        while len(self.jointly._waiting) < number:
            pass

    def race(self, work, items):
        """Do the first item, and the others while it is in progress."""
        self.jointly = batching.GroupCommit(work)
        first, *rest = items
        asked = [self.pool.submit(self.jointly.do, first)]
        self.assertTrue(self.begun.wait(600))
        asked += [self.pool.submit(self.jointly.do, item) for item in rest]
        self.wait_for(len(rest))
        self.go_on.set()
        return [each.exception(60) for each in asked]

    def test_items_added_meanwhile_are_one_batch(self):
        self.assertEqual([None] * 4, self.race(self.work, [1, 2, 3, 4]))

        self.assertEqual([[1], [2, 3, 4]], self.batches)

    def test_one_that_fails_fails_alone(self):
        def work(items):
            self.work(items)
            if 3 in items:
                raise ValueError('three')

        outcomes = self.race(work, [1, 2, 3, 4])

        self.assertEqual([None, None, 'three', None],
                         [each and str(each) for each in outcomes])
        self.assertEqual([[1], [2, 3, 4]], self.batches[:2])
        self.assertEqual([[2], [3], [4]], sorted(self.batches[2:]))

    def test_failed_leader_leaves_no_waiters(self):
        class Death(BaseException):
            pass

        def work(items):
            self.work(items)
            if 3 in items:
                raise Death

        outcomes = self.race(work, [1, 2, 3])

        self.assertEqual([None, Death, Death], [
            each and type(each) for each in outcomes])
        self.jointly.do(5)
        self.assertEqual([5], self.batches[-1])

    def test_several_work_at_a_time_if_they_may(self):
        both = threading.Barrier(2)
        jointly = batching.GroupCommit(
            lambda items: both.wait(600), at_once=2)

        self.assertEqual([None, None], [
            each.exception(60) for each in
            [self.pool.submit(jointly.do, item) for item in (1, 2)]])
