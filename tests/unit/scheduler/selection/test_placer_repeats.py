# SPDX-License-Identifier: Apache-2.0
"""Requests that come again: at the same time, and when there is no room."""

from concurrent import futures
import queue
import threading

import fixtures

from cellsched.claims import base as claims_base
from cellsched.claims import memory
from cellsched import exception
from cellsched.filters import instance_hints
from cellsched.testing import builders
from cellsched.testing import clock
from tests.unit.db import samples
from tests.unit.scheduler import schedulers

DEADLINE_S = 600


class Event(threading.Event):
    """Says when somebody waits for it."""

    def __init__(self, told):
        super().__init__()
        self._told = told

    def wait(self, timeout=None):
        self._told.put('waits')
        return super().wait(timeout)


class Clock(clock.FakeClock):
    """Makes such events; what they say is in ``told``."""

    def __init__(self):
        super().__init__()
        self.told = queue.Queue()

    def event(self):
        return Event(self.told)


class TestAtTheSameTime(schedulers.PlacingTestCase):

    hosts = {'a1': 4}

    def setUp(self):
        super().setUp()
        self.world.clock = Clock()
        self.restart()

    def place_twice(self, first, second):
        """Place, and again before the store has what was placed."""
        told, again = self.world.clock.told, []

        def meanwhile():
            again.append(threads.submit(self.place, uuids=second))
            again[0].add_done_callback(lambda future: told.put('answered'))
            seen.append(told.get(timeout=DEADLINE_S))

        seen = []
        self.world.claims.before = meanwhile
        with futures.ThreadPoolExecutor(1) as threads:
            place = self.place(uuids=first)
        return place, again[0], seen

    def test_repeated_request_gets_the_host_of_the_first(self):
        uuids = samples.uuids(1)

        first, second, seen = self.place_twice(uuids, uuids)

        # The host is full while the first claim is in flight.
        self.assertEqual(['waits'], seen)
        self.assertEqual([['a1']], schedulers.hosts(first))
        self.assertEqual([['a1']], schedulers.hosts(second.result()))
        self.assertTableIsRight()

    def test_other_requests_are_answered_during_a_claim(self):
        self.world.add_host('cell1', 'a2', vcpus=4)

        first, second, seen = self.place_twice(
            samples.uuids(1), samples.uuids(1))

        self.assertEqual(['answered'], seen)
        self.assertEqual([['a1']], schedulers.hosts(first))
        self.assertEqual([['a2']], schedulers.hosts(second.result()))


class TestOtherScheduler(schedulers.PlacingTestCase):
    """Another scheduler answers the same request at the same time."""

    hosts = {'a1': 4, 'b1': 4}

    def setUp(self):
        super().setUp()
        self.restart(
            filters=[builders.plugin(instance_hints.DifferentHostFilter)])
        self.uuids = samples.uuids(1)
        self.reads = 0

    def claim(self, host, consumer):
        memory.MemoryClaims.claim(self.world.claims, [claims_base.Claim(
            consumer, self.world.providers[host],
            {'VCPU': 4, 'MEMORY_MB': 1})])

    def place_while_other_claims(self, host):
        """Place; the other scheduler claims after the read of claims."""
        held = self.world.claims.claims_of

        def claims_of(consumers):
            found = held(consumers)
            self.reads += 1
            if self.reads == 1:
                self.claim(host, self.uuids[0])
                self.loader.reload([self.world.providers[host]])
            return found

        self.useFixture(fixtures.MockPatchObject(
            self.world.claims, 'claims_of', claims_of))
        return self.place(uuids=self.uuids, hints={
            'different_host': samples.uuids(1)})

    def test_request_without_room_gets_the_claimed_host(self):
        self.fill('b1')

        self.assertEqual([['a1']], schedulers.hosts(
            self.place_while_other_claims('a1')))
        self.assertTableIsRight()

    def test_request_with_room_gets_the_claimed_host(self):
        self.assertEqual([['a1']], schedulers.hosts(
            self.place_while_other_claims('a1')))
        self.assertEqual(0, self.used('b1'))
        self.assertTableIsRight()

    def test_conflict_after_a_read_of_claims_is_retried(self):
        self.world.add_host('cell1', 'a2', vcpus=4)
        one, two, three = samples.uuids(3)

        def claim_first():
            self.claim('b1', one)
            self.world.claims.before = lambda: self.claim('a2', two)

        self.world.claims.before = claim_first

        self.assertEqual([['b1'], ['a2'], ['a1']], schedulers.hosts(
            self.place(uuids=[one, two, three])))
        self.assertTableIsRight()


class TestWithRoom(schedulers.PlacingTestCase):

    hosts = {'a1': 12}

    def test_claim_of_a_repeated_request_counts_once(self):
        uuids = samples.uuids(1)
        for _ in range(2):
            self.assertEqual(
                [['a1']], schedulers.hosts(self.place(uuids=uuids)))

            self.assertTableIsRight()


class TestWithoutRoom(schedulers.PlacingTestCase):
    """The hosts are full, one of them with what was claimed before."""

    def setUp(self):
        super().setUp()
        self.uuids = samples.uuids(1)
        self.place(uuids=self.uuids)
        self.fill('a2', 'a3', 'b1', 'b2')

    def test_own_claim_is_read_before_a_refusal(self):
        for interval_s in (schedulers.FOR_EVER_S, 1.0):
            other, loader = self.world.placer(interval_s)
            for _ in range(2):
                # Whether it has read everything just now, or a while ago.
                self.assertEqual([['a1']], schedulers.hosts(
                    self.place(uuids=self.uuids, by=other)))
                self.world.clock.advance(10)
            self.assertTableIsRight(loader)

    def test_caller_without_claims_reads_no_claims(self):
        other, _ = self.world.placer()
        asked = []
        held = self.world.claims.claims_of
        self.world.claims.claims_of = lambda consumers: (
            asked.append(consumers), held(consumers))[1]

        self.assertRaises(
            exception.NoValidHost, self.place, by=other, claim=False)

        self.assertEqual([], asked)
