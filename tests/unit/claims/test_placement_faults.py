# SPDX-License-Identifier: Apache-2.0
"""Claims in a Placement with lost, repeated and late requests."""

import collections
import random
import unittest.mock

from cellsched.claims import base as claims
from cellsched.claims import placement
from cellsched.claims.placement import guards
from cellsched.claims.placement import messages
from cellsched import exception
from cellsched.simulator import engine
from cellsched.simulator.servers import placement as servers
from tests import profile
from tests.unit import base
from tests.unit.claims import faults

PROVIDERS = [f'aaaaaaaa-0000-4000-8000-{number:012}' for number in range(3)]
UNKNOWN = 'aaaaaaaa-0000-4000-8000-999999999999'
ROOM = 3

#: Calls of each client in a run, and seconds for which it repeats one.
CALLS = 6
RETRY_TIMEOUT_S = 4

#: A longer timeout. A thread does not wait as long for the turn of another
#: one.
LONG_TIMEOUT_S = 20

#: Seconds that a request may take to the server's end of it.
LATE_S = 1.5


class World(faults.World):
    """A run of several clients of a Placement.

    :param slowness: how many times longer late requests take
    """

    def __init__(self, seed, chance, slowness=1):
        super().__init__(seed, servers.PlacementModel(), chance)
        self.late_s = slowness * LATE_S
        self.checks.append(self.check_capacity)
        for provider in PROVIDERS:
            self.answer('POST', '/resource_providers', {
                'uuid': provider, 'name': provider})
            self.answer('PUT', f'/resource_providers/{provider}/inventories', {
                'resource_provider_generation': 0,
                'inventories': {'VCPU': {'total': ROOM}}})

    def answer(self, *request):
        return self.server.answer(messages.PlacementRequest(*request))

    def begin(self, request):
        return self.server.begin(request)

    def execute(self, begun):
        return self.server.finish(begun)

    def check_capacity(self):
        used = collections.Counter()
        for (_, provider, _), amount in self.server.rows.items():
            used[provider] += amount
        for provider in PROVIDERS:
            assert used[provider] <= ROOM, f'{used[provider]} of {ROOM} taken'

    def send(self, request):
        """Send a request, which a proxy may answer with an error."""
        if self.has('error'):
            self.pause()
            return messages.PlacementAnswer(502)
        return super().send(request)


class Client:
    """A process that claims, releases and transfers, and records outcomes."""

    url = 'http://placement'

    def __init__(self, world, number, retry_timeout_s=RETRY_TIMEOUT_S):
        self.world = world
        self.number = number
        self.random = random.Random(world.random.random())
        self.made = 0
        #: What each consumer holds; empty where it holds nothing.
        self.expected = {}
        self.store = placement.PlacementClaims(
            self, engine.SimulatedClock(world), random.Random(number),
            guards=4, retry_timeout_s=retry_timeout_s)

    def send(self, request):
        return self.world.send(request)

    def call(self):
        for _ in range(CALLS):
            held = [each for each, holds in self.expected.items() if holds]
            kind = self.random.choice(
                ('claim', 'claim', 'claim', 'release', 'transfer'))
            if kind == 'claim' or not held:
                self.claim()
            elif kind == 'release':
                self.release(self.random.sample(held, min(2, len(held))))
            else:
                self.transfer(self.random.choice(held))

    def new(self):
        self.made += 1
        return f'{self.number:08}-0000-4000-8000-{self.made:012}'

    def claim(self):
        known = [*PROVIDERS, UNKNOWN]
        batch = {self.new(): {
            provider: {'VCPU': self.random.randint(1, 2)} for provider
            in self.random.sample(known, self.random.randint(1, 2))}
            for _ in range(self.random.randint(1, 2))}
        self.expected |= dict.fromkeys(batch, {})
        try:
            self.store.claim([
                claims.Claim(consumer, provider, resources)
                for consumer, wants in batch.items()
                for provider, resources in wants.items()])
        except exception.ClaimRefused:
            pass
        except exception.DatabaseUnreachable:
            self.release(list(batch))
        else:
            self.expected |= batch

    def release(self, consumers):
        while True:
            try:
                self.store.release(consumers)
            except exception.DatabaseUnreachable:
                continue
            self.expected |= dict.fromkeys(consumers, {})
            return

    def transfer(self, source):
        target = self.new()
        while True:
            try:
                done = self.store.transfer(source, target)
            except exception.DatabaseUnreachable:
                continue
            break
        # An earlier call without an answer may have done the transfer.
        del done
        self.expected[target] = self.expected[source]
        self.expected[source] = {}


class TestFaults(base.TestCase):

    seeds = range(profile.FAULT_SEEDS)

    #: Some of everything.
    chance = {'refused': 0.03, 'lost': 0.03, 'late': 0.05, 'error': 0.03,
              'unanswered': 0.05, 'twice': 0.02}

    #: Most of what is written is done late, if at all.
    late = {'late': 0.3, 'lost': 0.2}

    def run_seed(self, seed, chance, threads=False):
        """Run a seed; with threads of one process, or else processes."""
        world = World(seed, chance, 5 if threads else 1)
        clients = [Client(
            world, number, LONG_TIMEOUT_S if threads else RETRY_TIMEOUT_S)
            for number in range(3)]
        for client in clients if threads else ():
            client.store = clients[0].store
        for client in clients:
            world.start(client.call)
        world.run()
        held = collections.defaultdict(dict)
        for (consumer, provider, _), amount in world.server.rows.items():
            if provider not in messages.GUARDS:
                held[consumer][provider] = {'VCPU': amount}
        expected = {
            consumer: holds for client in clients
            for consumer, holds in client.expected.items() if holds}
        self.assertEqual(expected, held, f'seed {seed}')
        return world

    def test_claims_are_exact_with_faults(self):
        for seed in self.seeds:
            self.run_seed(seed, self.chance)

    def test_claims_are_exact_with_late_requests(self):
        for seed in self.seeds:
            self.run_seed(seed, self.late)

    def test_threads_share_late_writes(self):
        for seed in range(30, 40):
            self.run_seed(seed, self.late, threads=True)

    def test_claims_are_exact_without_faults(self):
        for seed in self.seeds:
            world = self.run_seed(seed, {})
            # Each consumer that remains has claims.
            self.assertEqual(
                {consumer for consumer, *_ in world.server.rows},
                {*world.server.consumers})

    def test_writes_without_guards_overcommit(self):
        write = guards.Guards._write

        def unguarded(self, guard, bodies):
            send = self._server.set_allocations
            with unittest.mock.patch.object(
                    self._server, 'set_allocations', lambda sent: send({
                        consumer: body for consumer, body in sent.items()
                        if consumer != guard.consumer})):
                return write(self, guard, bodies)

        self.patch(guards.Guards, '_write', unguarded)
        with self.assertRaisesRegex(AssertionError, 'taken'):
            # It ends with the first one in which that happens.
            for seed in range(profile.SEEDS_TO_FAIL):
                self.run_seed(seed, {})

    def test_writes_with_the_guard_last_overcommit(self):
        def last(self, guard, bodies):
            sent = {**bodies, guard.consumer: self._body(
                guard, guard.generation)}
            answer = self._server.set_allocations(sent)
            if answer.is_done:
                guard.generation += 1
            return answer

        self.patch(guards.Guards, '_write', last)
        with self.assertRaisesRegex(AssertionError, 'taken'):
            # It ends with the first one in which that happens.
            for seed in range(profile.SEEDS_TO_FAIL):
                self.run_seed(seed, {})

    def test_unresolved_writes_are_executed_after_their_failure(
            self):
        self.patch(guards.Guards, 'settle', lambda self, guard: False)
        self.patch(guards.Guards, 'settle_all', lambda *args: None)
        with self.assertRaises(AssertionError):
            for seed in range(profile.SEEDS_TO_FAIL):
                self.run_seed(seed, self.late)
