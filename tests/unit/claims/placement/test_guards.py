# SPDX-License-Identifier: Apache-2.0
"""Guards of processes with and without conflicts."""

import contextlib
import random

from cellsched.claims.placement import guards
from cellsched.claims import remote
from cellsched.testing import clock
from tests.unit import base

PROVIDERS = [f'provider{number}' for number in range(20)]


class TestContendedProviders(base.TestCase):

    def setUp(self):
        super().setUp()
        self.clock = clock.FakeClock()
        self.processes = [
            guards.Guards(None, None, self.clock, random.Random(seed), 64, 1)
            for seed in range(2)]

    def guard_of(self, process, provider):
        with process.taken([provider]) as held:
            return held.guard.number

    def lose(self, provider):
        """Let each process have a conflict; return the guards afterwards."""
        found = []
        for process in self.processes:
            with process.taken([provider]) as held:
                process.lost(held, [provider])
                found.append(held.guard.number)
        return found

    def test_processes_with_conflicts_share_the_guard_of_a_provider(self):
        for provider in PROVIDERS:
            one, other = self.lose(provider)
            self.assertEqual(one, other)
            self.assertEqual([one, one], [
                self.guard_of(each, provider) for each in self.processes])
        self.assertLess(10, len({self.guard_of(self.processes[0], provider)
                                 for provider in PROVIDERS}))

    def test_process_without_a_conflict_keeps_its_guard(self):
        [process, _] = self.processes
        used = {self.guard_of(process, provider) for provider in PROVIDERS}

        self.assertEqual(1, len(used))

    def test_wait_for_a_free_guard_is_bounded(self):
        only = guards.Guards(None, None, self.clock, random.Random(1), 1, 0)

        with only.taken():
            with self.assertRaisesRegex(remote.NotSent, 'all guards'):
                with only.taken():
                    self.fail('two threads have the same guard')

        with only.taken() as held:
            self.assertEqual(0, held.guard.number)

    def test_provider_is_contended_for_a_time(self):
        [process, _] = self.processes
        preferred, _ = self.lose('x')
        another, _ = self.lose('y')
        self.assertEqual(preferred, self.guard_of(process, 'x'))
        self.assertEqual(another, self.guard_of(process, 'y'))

        self.clock.advance(11)
        # The guard that was used last.
        self.assertEqual(another, self.guard_of(process, 'x'))

    def test_guard_with_an_unresolved_write_is_kept(self):
        [process, _] = self.processes
        with process.taken(['x']) as held:
            before, held.guard.pending = held.guard, True
            process.lost(held, ['x'])

            self.assertIs(before, held.guard)

    def test_guard_of_another_thread_is_not_awaited(self):
        [process, _] = self.processes
        preferred, _ = self.lose('x')
        with process.taken(['x']) as one, process.taken(['x']) as other:
            self.assertEqual(preferred, one.guard.number)
            self.assertNotEqual(preferred, other.guard.number)
            process.lost(other, ['x'])
            self.assertNotEqual(preferred, other.guard.number)

    def test_each_guard_is_given_back(self):
        [process, _] = self.processes
        for provider in PROVIDERS:
            self.lose(provider)
        with contextlib.ExitStack() as stack:
            numbers = {stack.enter_context(process.taken()).guard.number
                       for _ in range(64)}

        self.assertEqual({*range(64)}, numbers)
