# SPDX-License-Identifier: Apache-2.0
"""The lane of requests, and their attempts."""

from concurrent import futures
from random import Random
import threading
import time
import types

from cellsched import exception
from cellsched.scheduler.decision import pipeline
from cellsched.scheduler.selection import lane
from cellsched.scheduler.selection import selector
from cellsched.testing import builders
from cellsched.weighers import resources
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


class TestAttempt(base.TestCase):

    def setUp(self):
        super().setUp()
        self.hosts = builders.table(
            host=['a', 'b', 'c'], free_ram_mb=[1024, 2048, 4096])
        self.attempt = lane.Attempt()
        self.select()

    def select(self):
        """Select the best host for one instance, and reserve it."""
        view = self.hosts.view(builders.NOW)
        made = self.attempt.selector = selector.Selector(
            pipeline.Pipeline([], [builders.plugin(resources.RAMWeigher)]),
            selector.SelectionPolicy(Random(0)), view,
            builders.request(memory_mb=512))
        made.choose('instance', None, True)
        self.attempt.places = made.selections(1)
        self.attempt.allocations = self.hosts.reserve(view)
        self.hosts.detach(view)

    def names(self):
        return [each.service_host for each in self.attempt.places[0]]

    def free_mb(self):
        return self.hosts['free_ram_mb'].tolist()

    def test_alternative_is_reserved_in_place_of_the_first_host(self):
        self.assertEqual(['c', 'b'], self.names())

        self.attempt.choose_other(
            self.hosts, self.attempt.selector, 0, alternates=2)

        # The refused host is no alternate.
        self.assertEqual(['b', 'a'], self.names())
        self.assertEqual([1024, 1536, 4096], self.free_mb())

    def test_refused_hosts_are_no_alternates_of_later_alternatives(self):
        for number in 0, 1:
            self.attempt.choose_other(
                self.hosts, self.attempt.selector, number, alternates=2)

        self.assertEqual(['a'], self.names())
        self.assertEqual([512, 2048, 4096], self.free_mb())

    def test_reservation_is_rolled_back_once(self):
        for _ in range(2):
            self.attempt.undo(self.hosts)

            self.assertEqual([1024, 2048, 4096], self.free_mb())
        self.assertIsNone(self.attempt.selector)


class Clock:
    """Time passes only in waits for events that nothing sets."""

    now = 0.0

    def monotonic(self):
        return self.now

    def event(self):
        event = threading.Event()

        def wait(timeout_s):
            if not event.is_set():
                self.now += timeout_s

        return types.SimpleNamespace(set=event.set, wait=wait)


class TestDoubtfulClaims(base.TestCase):

    def setUp(self):
        super().setUp()
        self.hosts = builders.table(host=['a'], free_ram_mb=[1024])
        self.clock = Clock()
        view = self.hosts.view(builders.NOW)
        view.take(0, {'MEMORY_MB': 512})
        self.pending = self.hosts.reserve(view)
        self.attempt = lane.Attempt(doubtful=[])
        self.hosts.view(builders.NOW, doubtful=self.attempt.doubtful)

    def waited_s(self, *timeout_s):
        began = self.clock.monotonic()
        self.attempt.await_claims(self.hosts, self.clock, *timeout_s)
        return self.clock.monotonic() - began

    def test_pending_claim_is_awaited_for_a_limited_time(self):
        self.assertEqual(3.0, self.waited_s(3.0))
        self.assertEqual(lane.PENDING_S, self.waited_s())

    def test_ended_claims_are_not_awaited(self):
        self.hosts.confirm(self.pending)

        self.assertEqual(0.0, self.waited_s())

    def test_claims_begun_later_are_not_awaited(self):
        self.hosts.rollback(self.pending)
        view = self.hosts.view(builders.NOW)
        view.take(0, {'MEMORY_MB': 512})
        self.hosts.reserve(view)

        self.assertEqual(0.0, self.waited_s())
