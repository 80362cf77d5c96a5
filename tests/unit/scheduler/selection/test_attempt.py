# SPDX-License-Identifier: Apache-2.0
"""Tests of :mod:`cellsched.scheduler.selection.attempt`."""

from random import Random
import threading
import types

from cellsched.scheduler.decision import pipeline
from cellsched.scheduler.selection import attempt
from cellsched.scheduler.selection import selector
from cellsched.testing import builders
from cellsched.weighers import resources
from tests.unit import base


class TestAttempt(base.TestCase):

    def setUp(self):
        super().setUp()
        self.hosts = builders.table(
            host=['a', 'b', 'c'], free_ram_mb=[1024, 2048, 4096])
        self.attempt = attempt.Attempt()
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
        self.attempt = attempt.Attempt(doubtful=[])
        self.hosts.view(builders.NOW, doubtful=self.attempt.doubtful)

    def waited_s(self, *timeout_s):
        began = self.clock.monotonic()
        self.attempt.await_claims(self.hosts, self.clock, *timeout_s)
        return self.clock.monotonic() - began

    def test_pending_claim_is_awaited_for_a_limited_time(self):
        self.assertEqual(3.0, self.waited_s(3.0))
        self.assertEqual(attempt.PENDING_S, self.waited_s())

    def test_ended_claims_are_not_awaited(self):
        self.hosts.confirm(self.pending)

        self.assertEqual(0.0, self.waited_s())

    def test_claims_begun_later_are_not_awaited(self):
        self.hosts.rollback(self.pending)
        view = self.hosts.view(builders.NOW)
        view.take(0, {'MEMORY_MB': 512})
        self.hosts.reserve(view)

        self.assertEqual(0.0, self.waited_s())
