# SPDX-License-Identifier: Apache-2.0
"""Stores with lost, repeated and late requests, and processes that die."""

import collections
import contextlib
import itertools
import json
import random

from cellsched.claims import base as claims
from cellsched.claims import etcd
from cellsched.claims.etcd import options
from cellsched.claims.etcd import records
from cellsched.claims.etcd import transactions
from cellsched.claims import remote
from cellsched import exception
from cellsched.simulator import engine
from cellsched.simulator.servers import etcd as servers
from cellsched.testing import clock
from tests import profile
from tests.unit import base
from tests.unit.claims import faults

SEEDS = range(profile.COSTLY_FAULT_SEEDS)
STORES, CALLERS = 2, 5
OPS_MAX = 16
HOSTS = [f'h{number}' for number in range(6)]
VCPU = 12

_NAMES = records.Names(options.PREFIX)


#: Faults of requests, as :class:`faults.World` has them.
CHANCE = {'refused': 0.03, 'lost': 0.03, 'late': 0.06, 'dead': 0.01,
          'unanswered': 0.05, 'again': 0.06}


class Died(BaseException):
    """The process of a store stopped."""


class World(faults.World):
    """A run of several callers of an etcd."""

    def __init__(self, seed):
        super().__init__(seed, servers.EtcdModel(ops_max=OPS_MAX), CHANCE)
        #: Batches that somebody claims now, and names that a caller other
        #: than their own has claimed again, or released.
        self.claiming = []
        self.shared = set()
        self.released = set()
        self.checks += [lambda: check(self.server), self.check_whole]

    def store(self):
        return etcd.EtcdClaims(
            self, engine.SimulatedClock(self),
            random.Random(self.random.random()), retry_timeout_s=1000,
            ops_max=OPS_MAX)

    def check_whole(self):
        """Check that batches are held whole or not at all."""
        for batch in self.claiming:
            names = [claim.consumer for claim in batch]
            if self.released.isdisjoint(names):
                keys = [(records.CONSUMER, name) for name in names]
                view = transactions.View.of(keys, [
                    self.server.read(each.key)
                    for each in transactions.reads(_NAMES, keys)])
                held = len(view.consumers())
                assert held in (0, len(names)), f'{held} of {names} are held'


def check(model):
    """Check the invariants after every request."""
    used, counts = collections.Counter(), collections.Counter()
    members = collections.defaultdict(dict)
    for kv in model.read(b'/cellsched/c/', b'/cellsched/c0'):
        consumer = records.StoredConsumer.of(kv)
        for provider, amounts in consumer.amounts.items():
            used[provider] += amounts['VCPU']
            counts[provider] += 1
        if consumer.joins:
            group, host, member = consumer.joins
            members[group][_NAMES.name(kv.key)] = [host, member]
    for kv in model.read(b'/cellsched/p/0', b'/cellsched/p0'):
        name, provider = _NAMES.name(kv.key), records.StoredProvider.of(kv)
        reported = provider.used.get('VCPU', 0)
        assert reported <= VCPU, f'{name} has {reported} used'
        assert (reported, provider.consumers) == (used[name], counts[name]), (
            f'{name} says {provider}, not {used[name]}')
    reported = {_NAMES.name(kv.key): json.loads(kv.value)['m']
                for kv in model.read(b'/cellsched/g/', b'/cellsched/g0')}
    assert reported == members, f'{reported} are not {dict(members)}'
    for group, existing in reported.items():
        hosts = [host for host, _ in existing.values()]
        assert len(hosts) == len(set(hosts)), f'{group} has {hosts}'


class Caller:
    """Makes random calls, and records their outcomes."""

    def __init__(self, world, number, store):
        self._world = world
        self._random = world.random
        self._store = store
        self._names = (f'{number}-{each}' for each in itertools.count())
        #: The claims by consumer; None if they are unknown.
        self.held = {}
        self.refused = 0

    def run(self):
        for _ in range(6):
            held = [name for name, provider in self.held.items() if provider]
            choice = self._random.random()
            if self._world.claiming and choice > 0.7:
                self._meddle(self._random.choice(self._world.claiming))
            elif held and choice < 0.2:
                self._release(self._random.sample(held, 1))
            elif held and choice < 0.35:
                self._transfer(self._random.choice(held))
            elif choice > 0.45:
                self._claim_any(self._random.choice((1, 3)))
            else:
                self._claim(self._random.choice((1, 2, 12, 20)))

    def _claim(self, count):
        batch = [
            claims.Claim(
                next(self._names), self._random.choice(HOSTS),
                {'VCPU': 1 if count > 2 else self._random.randint(1, 4)})
            for _ in range(count)]
        if self._random.random() < 0.3:
            first = batch[0]
            batch[0] = claims.Claim(
                first.consumer, first.provider, first.resources,
                claims.Membership('g', first.provider, 'anti-affinity'))
        self.held.update((claim.consumer, None) for claim in batch)
        self._world.claiming.append(batch)
        try:
            self._store.claim(batch)
        except (exception.ClaimRefused, exception.GroupPolicyViolated):
            self.refused += 1
            self.held.update((claim.consumer, ()) for claim in batch)
        else:
            self.held.update(
                (claim.consumer, (claim.provider, claim.resources['VCPU']))
                for claim in batch)
        self._world.claiming.remove(batch)
        if not self._world.shared.isdisjoint(self.held):
            self.held.update(
                (name, None) for name in self._world.shared & self.held.keys())

    def _claim_any(self, count):
        """Claim the first of some hosts with room, for several consumers."""
        requests = {
            next(self._names): (self._random.sample(HOSTS, 3), {
                'VCPU': self._random.randint(1, 6)}) for _ in range(count)}
        self.held.update(dict.fromkeys(requests))
        outcomes = self._store.claim_each([
            [[claims.Claim(name, host, resources)] for host in hosts]
            for name, (hosts, resources) in requests.items()])
        for (name, (hosts, resources)), outcome in zip(
                requests.items(), outcomes):
            self.refused += outcome.chosen is None
            self.held[name] = () if outcome.chosen is None else (
                hosts[outcome.chosen], resources['VCPU'])

    def _meddle(self, batch):
        """Make a call without knowledge of the other caller."""
        names = {claim.consumer for claim in batch}
        self._world.shared |= names
        if self._random.random() < 0.5:
            self._world.released |= names
            self._store.release(names)
        else:
            with contextlib.suppress(
                    exception.ClaimRefused, exception.GroupPolicyViolated):
                self._store.claim(batch)

    def _release(self, names):
        before = {name: self.held[name] for name in names}
        self.held.update(dict.fromkeys(before))
        self._store.release(names)
        self.held.update(dict.fromkeys(before, ()))

    def _transfer(self, source):
        target = next(self._names)
        holds = self.held[source]
        self.held.update({source: None, target: None})
        if not self._store.transfer(source, target):
            raise AssertionError(f'{source} held {holds}')
        self.held.update({source: (), target: holds})


class TestFaults(base.TestCase):

    def test_claims_are_exact_with_faults(self):
        totals = collections.Counter()
        for seed in SEEDS:
            with self.subTest(seed=seed):
                totals += self.check_seed(seed)
        for what in 'refused', 'died', 'held':
            self.assertLess(0, totals[what])

    def check_seed(self, seed):
        world = World(seed)
        for host in HOSTS:
            world.store().set_inventory(
                host, {'VCPU': claims.Inventory(VCPU)})
        # Callers of one store wait for their turns, and write together.
        stores = [world.store() for _ in range(STORES)]
        callers = [Caller(world, number, stores[number % STORES])
                   for number in range(CALLERS)]
        for caller in callers:
            world.start(caller.run)
        world.run()
        self.check_held(world, callers)
        self.check_cleared(world, callers)
        return collections.Counter(
            refused=sum(caller.refused for caller in callers),
            died=world.deaths,
            held=sum(bool(held) for caller in callers
                     for held in caller.held.values()))

    def check_held(self, world, callers):
        store = world.store()
        names = [name for caller in callers for name in caller.held]
        reported = {name: (each.provider, each.resources['VCPU'])
                    for name, [each] in store.claims_of(names).items()}
        for caller in callers:
            for name, held in caller.held.items():
                if held is not None:
                    self.assertEqual(held, reported.get(name, ()), name)

    def check_cleared(self, world, callers):
        """Check that other stores can clear the remains of dead ones."""
        store = world.store()
        names = [name for caller in callers for name in caller.held]
        store.release(names)
        store.claims_of(names)
        world.now += 6
        store.claims_of(names)
        for host in HOSTS:
            self.assertFalse(store.recount(host))
        self.assertEqual([], [
            kv for kv in world.server.read(b'/cellsched/', b'/cellsched0')
            if kv.key != b'/cellsched/counted'
            and not kv.key.startswith(b'/cellsched/p/')])
        self.assertEqual(
            {0}, {usage.used['VCPU'] for usage in store.usages().usages})


#: Faults of one request: whether the server executes it then, later, or
#: twice, and the error of its client.
STEP_FAULTS = {
    'not sent': ((), remote.NotSent), 'lost': ((), remote.OutcomeUnknown),
    'not answered': (('now',), remote.OutcomeUnknown),
    'late': (('late',), remote.OutcomeUnknown),
    'twice': (('now', 'now'), None),
    'repeated late': (('now', 'late'), None),
    'dead before': ((), Died), 'dead after': (('now',), Died),
    'dead, and late': (('late',), Died),
}


class StepClient:
    """Sends requests, of which one has a fault."""

    def __init__(self, model, step=0, fault='twice'):
        self.model = model
        self.sent = 0
        self.late = []
        self._step = step
        self._times, self._error = STEP_FAULTS[fault]

    def send(self, request):
        self.sent += 1
        if self.sent != self._step:
            return self.answer(request)
        answers = [self.answer(request) for when in self._times
                   if when == 'now']
        self.late += [request] * self._times.count('late')
        if self._error is not None:
            raise self._error
        return answers[0]

    def answer(self, request):
        answer = self.model.answer(request)
        check(self.model)
        return answer

    def deliver(self):
        while self.late:
            self.answer(self.late.pop())


class TestAlternativesAtEachStep(base.TestCase):
    """Each request of a claim of alternatives has each fault once."""

    def test_outcomes_are_exact_with_each_fault_at_each_step(self):
        for fault in STEP_FAULTS:
            for releases in False, True:
                for step in itertools.count(1):
                    with self.subTest(fault=fault, step=step):
                        if not self.check(step, fault, releases):
                            break
                self.assertLess(2, step)

    def store(self, client):
        return etcd.EtcdClaims(client, clock.FakeClock(), random.Random(0))

    def check(self, step, fault, releases):
        """Return whether the claim had the fault.

        :param releases: whether late requests arrive after the release
        """
        model = servers.EtcdModel()
        peer, failing = self.store(StepClient(model)), StepClient(
            model, 10 ** 6, fault)
        for host in HOSTS:
            peer.set_inventory(host, {'VCPU': claims.Inventory(VCPU)})
        store = self.store(failing)
        store.usages()
        # The first host is full, which the cache does not have.
        peer.claim([claims.Claim('full', HOSTS[0], {'VCPU': VCPU})])
        requests = [
            [[claims.Claim(name, host, {'VCPU': 2})] for host in hosts]
            for name, hosts in (('a', HOSTS[:2]), ('b', HOSTS[2:4]))]
        failing.sent, failing._step = 0, step
        try:
            outcomes = store.claim_each(requests)
        except Died:
            outcomes = peer.claim_each(requests)
        self.assertEqual([1, 0], [each.chosen for each in outcomes])
        if releases:
            peer.release(['a', 'b'])
        failing.deliver()
        self.assertEqual({} if releases else {'a': HOSTS[1], 'b': HOSTS[2]}, {
            name: each.provider for name, [each]
            in peer.claims_of(['a', 'b']).items()})
        return failing.sent >= step
