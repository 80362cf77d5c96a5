# SPDX-License-Identifier: Apache-2.0
"""The choice of a guard."""

import contextlib
import random

from cellsched.claims import coordination
from cellsched.claims.placement import guards
from cellsched.claims.placement import messages
from cellsched.claims import remote
from cellsched.testing import clock
from tests.unit import base


class Server:
    """A server that accepts each write of allocations, or loses it."""

    is_silent = False

    def set_allocations(self, bodies):
        if self.is_silent:
            raise remote.OutcomeUnknown('no answer')
        return messages.PlacementAnswer(204)


PROVIDERS = [f'provider{number}' for number in range(20)]


class TestGuards(base.TestCase):

    def setUp(self):
        super().setUp()
        self.server = Server()
        self.guards = self.make_guards(64)

    def make_guards(self, count, locks=None, seed=1):
        return guards.Guards(
            self.server, messages.Owners('A', 'p', 'u'), clock.FakeClock(),
            random.Random(seed), count, 0, locks)

    def use(self, generation=1):
        """Return the number of the next guard, as if a write used it."""
        with self.guards.taken() as guard:
            guard.generation = generation
        return guard.number

    def test_process_uses_its_last_guard_again(self):
        self.assertEqual(1, len({self.use() for _ in range(5)}))

    def test_processes_with_conflicts_share_the_guard_of_a_provider(self):
        locks = coordination.ContentionLock(clock.FakeClock())
        locks.note_conflict(PROVIDERS[1:])
        processes = [self.make_guards(64, locks, seed) for seed in (1, 2)]

        numbers = [[self.number_of(process, each) for each in PROVIDERS[1:]]
                   for process in processes]

        self.assertEqual(*numbers)
        self.assertLess(10, len({*numbers[0]}))
        self.assertNotEqual(*(self.number_of(process, PROVIDERS[0])
                              for process in processes))

    def test_processes_with_a_lock_have_guards_of_their_own(self):
        locks = coordination.ContentionLock(
            clock.FakeClock(), lambda wait_s: None, lambda function: None)
        locks.note_conflict(PROVIDERS)

        self.assertEqual(1, len({
            self.number_of(self.make_guards(64, locks), each)
            for each in PROVIDERS}))

    def test_used_guard_of_a_provider_is_not_awaited(self):
        locks = coordination.ContentionLock(clock.FakeClock())
        locks.note_conflict(PROVIDERS)
        process = self.make_guards(64, locks)

        with process.taken(PROVIDERS) as guard:
            self.assertNotEqual(
                guard.number, self.number_of(process, PROVIDERS[0]))

    def number_of(self, process, provider):
        with process.taken([provider]) as guard:
            return guard.number

    def test_guard_of_another_process_comes_last(self):
        numbers = [self.use(generation=None) for _ in range(64)]

        self.assertEqual({*range(64)}, {*numbers})

    def test_guard_with_an_unresolved_write_comes_last(self):
        with self.guards.taken() as lost:
            lost.generation, lost.pending = 1, True

        self.assertNotIn(lost.number, {
            self.use(generation=None) for _ in range(63)})

    def test_write_is_resolved_before_its_guard_is_used(self):
        self.guards = self.make_guards(1)
        with self.guards.taken() as guard:
            guard.generation, guard.pending = 1, True

        self.server.is_silent = True
        with self.assertRaises(remote.OutcomeUnknown):
            self.use()
        self.server.is_silent = False
        with self.guards.taken() as guard:
            self.assertEqual((2, False), (guard.generation, guard.pending))

    def test_wait_for_a_free_guard_is_bounded(self):
        self.guards = self.make_guards(1)

        with self.guards.taken():
            with self.assertRaisesRegex(remote.NotSent, 'all guards'):
                self.use()

        self.assertEqual(0, self.use())

    def test_each_guard_is_given_back(self):
        for _ in range(100):
            self.use()

        with contextlib.ExitStack() as stack:
            numbers = {stack.enter_context(self.guards.taken()).number
                       for _ in range(64)}

        self.assertEqual({*range(64)}, numbers)
