# SPDX-License-Identifier: Apache-2.0
"""The lane of requests."""

from concurrent import futures
import threading
import time

from cellsched import exception
from cellsched.scheduler.selection import lane
from tests.unit import base
from tests.unit import racing


class TestLane(base.TestCase):
    """Requests are letters; a capital's decision waits for the test."""

    def setUp(self):
        super().setUp()
        self.locks = racing.ExpiringLocks()
        self.lane = lane.Lane(
            self.decide, self.claim, self.undone, self.locks.make)
        self.decided, self.claimed, self.removed = [], [], []
        self.begun, self.go_on = {}, {}
        self.is_failing = False
        self.pool = futures.ThreadPoolExecutor(8)
        self.addCleanup(self.pool.shutdown)
        self.addCleanup(self.decide_all)

    def decide(self, request):
        self.decided.append(request)
        if request.isupper():
            self.begun[request].set()
            assert self.go_on[request].wait(60)
        return request != 'n'

    def decide_all(self):
        for each in self.go_on.values():
            each.set()

    def claim(self, requests):
        self.claimed.append(''.join(requests))
        if self.claimed[-1] == 'bc' and self.is_failing:
            raise SystemExit

    def undone(self, request):
        self.removed.append(request)

    def ask(self, *requests):
        """Have threads take the lane, in this order."""
        answers = []
        for request in requests:
            self.begun[request] = threading.Event()
            self.go_on[request] = threading.Event()
            before = len(self.lane)
            answers.append(self.pool.submit(self.lane.take, request))
            if len(answers) == 1:
                self.assertTrue(self.begun[request].wait(60))
            else:
                while len(self.lane) == before:
                    time.sleep(0.001)
        return answers

    def test_free_lane_decides_and_claims_at_once(self):
        self.lane.take('a')

        self.assertEqual((['a'], ['a']), (self.decided, self.claimed))

    def test_request_without_claim_ends(self):
        self.lane.take('n')

        self.assertEqual((['n'], []), (self.decided, self.claimed))

    def test_waiting_requests_are_claimed_together(self):
        answers = self.ask('A', 'b', 'n', 'c')
        self.go_on['A'].set()
        for each in answers:
            each.result(60)

        self.assertEqual(['A', 'b', 'n', 'c'], self.decided)
        self.assertEqual(['A', 'bc'], self.claimed)

    def test_waiting_request_is_refused_after_the_limit(self):
        first, second = self.ask('A', 'b')
        self.locks.expire(1)

        self.assertRaises(exception.ServiceBusy, second.result, 60)

        self.go_on['A'].set()
        first.result(60)
        self.assertEqual((['A'], ['A']), (self.decided, self.claimed))

    def test_decided_request_is_claimed_behind_a_slow_decision(self):
        first, *others = self.ask('A', 'b', 'c', 'D')
        self.go_on['A'].set()
        self.assertTrue(self.begun['D'].wait(60))
        self.locks.expire(2)

        self.assertIsNone(others[1].result(60))
        self.assertEqual(['A'], self.claimed)

        self.go_on['D'].set()
        for each in (first, *others):
            each.result(60)
        self.assertEqual(['A', 'bD'], self.claimed)

    def test_late_decision_is_not_claimed_by_the_lane(self):
        first, *others = self.ask('A', 'b', 'C', 'D')
        self.go_on['A'].set()
        self.assertTrue(self.begun['C'].wait(60))
        self.locks.expire(2)
        self.go_on['C'].set()

        self.assertIsNone(others[1].result(60))
        self.assertTrue(self.begun['D'].wait(60))
        self.assertEqual(['A'], self.claimed)

        self.go_on['D'].set()
        for each in (first, *others):
            each.result(60)
        self.assertEqual(['A', 'bD'], self.claimed)

    def test_abandoned_decision_is_undone_at_its_end(self):
        first, *others = self.ask('A', 'b', 'C')
        self.go_on['A'].set()
        self.assertTrue(self.begun['C'].wait(60))
        self.locks.expire(2)
        self.locks.expire(2)

        self.assertRaises(exception.ServiceBusy, others[1].result, 60)
        self.assertEqual([], self.removed)

        self.go_on['C'].set()
        first.result(60)
        others[0].result(60)
        self.assertEqual(['C'], self.removed)
        self.assertEqual(['A', 'b'], self.claimed)

    def test_decision_ending_at_the_limit_is_kept(self):
        _, deciding, late = self.ask('A', 'b', 'C')
        self.go_on['A'].set()
        self.assertTrue(self.begun['C'].wait(60))

        def decide():
            self.go_on['C'].set()
            deciding.result(60)

        self.locks.expire(2)
        self.locks.expire(2, decide)

        self.assertIsNone(late.result(60))
        self.assertEqual([], self.removed)

    def test_failed_claim_ends_the_waits(self):
        self.is_failing = True
        answers = self.ask('A', 'b', 'c')
        self.go_on['A'].set()

        self.assertEqual(
            [None, SystemExit, None],
            [each.exception(60) and type(each.exception())
             for each in answers])
