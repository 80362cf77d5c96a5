# SPDX-License-Identifier: Apache-2.0
"""Claims with lost requests and clients that die."""

import collections
import contextlib
import json

from cellsched.claims import base as claims
from cellsched.claims.cassandra import requests
from cellsched.claims import remote
from cellsched import exception
from tests import profile
from tests.unit import base as tests
from tests.unit.claims.cassandra import base

PROVIDERS = ('p0', 'p1', 'p2')
CAPACITY = 4

#: Consumers for whom all threads claim.
SHARED = ('a', 'b', 'c')


class _Checks:
    """Compares the visible claims with the outcomes of calls.

    :param own: expected claims of the consumers that one thread uses
    """

    def __init__(self, test, world):
        self._test = test
        self._world = world
        self.own = {}
        #: What was ever held for those whom all know: consumer and claims.
        self.seen = [dict.fromkeys(SHARED, {})]
        #: How often calls that take something away began or ended, by whom
        #: they take it away from.
        self.disturbed = collections.Counter()
        self.disturbing = collections.Counter()
        world.checks += [self.check_figures, self.look]

    def check_figures(self):
        for partition in self._world.server.partitions.values():
            figures = partition.figures
            if figures is None:
                continue
            rows = [row for row in partition.rows.values() if row.resources]
            used = sum(json.loads(row.resources)['VCPU'] for row in rows)
            self._test.assertEqual(used, figures.used[0])
            self._test.assertLessEqual(used, CAPACITY)
            self._test.assertEqual(len(rows), figures.consumers)
            self._test.assertEqual(
                sum(row.several for row in rows), figures.open)

    def look(self):
        """Record the claims that must have rows."""
        names = {*SHARED, *self.own}
        held = self._world.observer.claims_of(
            names if self._world.random.random() < 0.2 else SHARED)
        taken = dict.fromkeys(PROVIDERS, 0)
        for claimed in held.values():
            for claim in claimed:
                taken[claim.provider] += claim.resources['VCPU']
        for provider, partition in self._world.server.partitions.items():
            self._test.assertLessEqual(
                taken[provider], partition.figures.used[0])
        self.seen.append({name: _plain(held.get(name, ()))
                          for name in SHARED})

    @contextlib.contextmanager
    def taking_away(self, names):
        self.disturbed.update(names)
        self.disturbing.update(names)
        yield
        # Of one that fails or dies nobody knows when it ends.
        self.disturbing.subtract(names)

    def check_seen(self, since, consumer, requested):
        """Check that a consumer held the claims of an outcome."""
        self._test.assertIn(
            requested, [each[consumer] for each in self.seen[since - 1:]])

    def check_own(self):
        held = self._world.observer.claims_of(self.own)
        for consumer, requested in self.own.items():
            if requested is not None:
                self._test.assertEqual(
                    requested, _plain(held.get(consumer, ())), consumer)


def _plain(batch):
    return {claim.provider: claim.resources['VCPU'] for claim in batch}


class _Thread:
    """Makes random calls, and checks their outcomes."""

    def __init__(self, test, world, checks, store, number):
        self._test = test
        self._world = world
        self._checks = checks
        self._store = store
        self._chance = world.random
        self._own = [f'own{number}-{each}' for each in range(3)]

    def run(self):
        chance = self._chance
        self._checks.own.update((name, {}) for name in self._own)
        for _ in range(8):
            names = self._own if chance.random() < 0.6 else SHARED
            with contextlib.suppress(exception.DatabaseUnreachable):
                kind = chance.random()
                if kind < 0.6:
                    self._claim(chance.sample(
                        names, chance.choice((1, 1, 2))))
                elif kind < 0.8:
                    self._release(chance.sample(names, 2))
                else:
                    self._transfer(*chance.sample(names, 2))
            self._checks.check_own()

    def _guess(self, requested):
        """Set the expected claims of consumers; None if they are unknown."""
        self._checks.own.update(
            (name, each) for name, each in requested.items()
            if name in self._checks.own)

    def _claim(self, names):
        chance, checks = self._chance, self._checks
        batch = [claims.Claim(name, provider, {'VCPU': chance.randint(1, 2)})
                 for name in names for provider in chance.sample(
                     PROVIDERS, chance.choice((1, 1, 2, 3)))]
        known = {name: checks.own.get(name) for name in names}
        since = len(checks.seen)
        disturbed = checks.disturbed.copy()
        quiet = {name for name in names if not checks.disturbing[name]}
        self._guess(dict.fromkeys(names))
        try:
            self._store.claim(batch)
        except (exception.ClaimRefused, exception.ClaimConflict):
            self._guess(known)
            return
        for name in names:
            requested = _plain(
                claim for claim in batch if claim.consumer == name)
            self._guess({name: requested})
            # Whoever releases it at the time may come after it, and be seen
            # before it.
            if name in SHARED and name in quiet and (
                    checks.disturbed[name] == disturbed[name]):
                checks.check_seen(since, name, requested)

    def _release(self, names):
        since = len(self._checks.seen)
        self._guess(dict.fromkeys(names))
        with self._checks.taking_away(names):
            self._store.release(names)
        for name in names:
            self._guess({name: {}})
            if name in SHARED:
                self._checks.check_seen(since, name, {})

    def _transfer(self, source, target):
        expected = self._checks.own
        before, after = expected.get(source), expected.get(target)
        self._guess({source: None, target: None})
        with self._checks.taking_away([source, target]):
            done = self._store.transfer(source, target)
        if before is not None:
            self._test.assertEqual(bool(before), done)
            self._guess({source: {}, target: before if done else after})


class _DelayingClient(base.Client):
    """Delays the first try of each write of a consumer's row."""

    def __init__(self, model, consumer, writes):
        super().__init__(model)
        self._consumer = consumer
        self._writes = writes
        self.late = []

    def send(self, request):
        if isinstance(request, requests.Together):
            return [self._caught(each) for each in request.requests]
        if isinstance(request, requests.WriteConsumer) and (
                request.consumer == self._consumer and request.row) and (
                self._writes == 2 or request.seen is None):
            if len(self.late) < self._writes and request.seen not in {
                    each.seen for each in self.late}:
                self.late.append(request)
                raise remote.OutcomeUnknown
        return super().send(request)

    def _caught(self, request):
        try:
            return self.send(request)
        except remote.OutcomeUnknown as exc:
            return exc


class TestLateRequests(tests.TestCase):
    """Writes of a consumer's row arrive after the consumer was released."""

    def claim_twice(self, consumer, writes):
        model = base.make_model()
        client = _DelayingClient(model, consumer, writes)
        store = base.make_store(model, client, abandoned_s=0.0)
        for provider in PROVIDERS:
            store.set_inventory(
                provider, {'VCPU': claims.Inventory(CAPACITY)})
        batch = [claims.Claim(name, provider, {'VCPU': CAPACITY // 2})
                 for name in 'ab' for provider in PROVIDERS]
        own = [claim for claim in batch if claim.consumer == consumer]
        self.assertEqual(len(batch), store.claim(batch))
        self.assertEqual(writes, len(client.late))

        store.release([consumer])
        for request in client.late:
            model.answer(request)

        self.assertEqual({}, store.claims_of([consumer]))
        self.assertEqual(len(own), store.claim(own))
        self.assertEqual(
            {provider: CAPACITY for provider in PROVIDERS},
            {usage.provider: usage.used['VCPU']
             for usage in store.usages().usages})
        store.release('ab')
        self.assertEqual({}, model.consumers)

    def test_late_insertion_of_a_member_brings_no_claim_back(self):
        self.claim_twice('b', 1)

    def test_late_insertion_and_confirmation_bring_no_claim_back(self):
        for consumer in 'ab':
            self.claim_twice(consumer, 2)


class TestFaults(tests.TestCase):

    def make_world(self, seed, **options):
        world = base.World(seed, **options)
        for provider in PROVIDERS:
            world.observer.set_inventory(
                provider, {'VCPU': claims.Inventory(CAPACITY)})
        return world, _Checks(self, world)

    def run_world(self, seed, **options):
        world, checks = self.make_world(seed, **options)
        for number in range(2):
            store = world.make_store(
                abandoned_s=world.random.choice((0.0, 0.02, 0.2)),
                retry_timeout_s=20.0, adds=world.server.adds)
            for thread in range(2):
                world.start(_Thread(
                    self, world, checks, store, 2 * number + thread).run)
        world.run()
        checks.check_own()
        self.check_end(world, checks)

    def check_end(self, world, checks):
        """Check that all claims can be released, and then all fit again."""
        names = [*checks.own, *SHARED]
        store = base.make_store(world.server, abandoned_s=0.0)
        store.release(names)
        self.assertEqual({}, store.claims_of(names))
        for provider in PROVIDERS:
            self.assertFalse(store.recount(provider))
            self.assertEqual([], store.consumers_of(provider))
        self.assertEqual({}, world.server.consumers)
        for usage in store.usages().usages:
            self.assertEqual((0, 0), (usage.used['VCPU'], usage.consumers))
        store.claim([claims.Claim('all', provider, {'VCPU': CAPACITY})
                     for provider in PROVIDERS])

    def test_claims_are_exact_with_failed_requests(self):
        for seed in range(profile.FAULT_SEEDS):
            with self.subTest(seed=seed):
                self.run_world(seed, adds=seed % 2 == 0, fault_percent=8)

    def test_claims_are_exact_without_faults(self):
        for seed in range(profile.FAULT_SEEDS // 2):
            with self.subTest(seed=seed):
                self.run_world(seed, adds=seed % 2 == 0)

    def test_operations_of_dead_clients_are_finished_or_undone(self):
        for seed in range(profile.FAULT_SEEDS):
            with self.subTest(seed=seed):
                self.run_world(seed, deadly=True, fault_percent=3)

    def test_refused_batch_does_not_refuse_a_claim_within_capacity(self):
        """A claim of one of those providers fits, in any order."""
        for seed in range(profile.FAULT_SEEDS):
            with self.subTest(seed=seed):
                world, _ = self.make_world(seed)
                world.observer.claim([
                    claims.Claim('full', 'p1', {'VCPU': CAPACITY})])
                outcomes = []

                def both(store, name):
                    with contextlib.suppress(exception.ClaimRefused):
                        store.claim([claims.Claim(name, provider, {
                            'VCPU': CAPACITY}) for provider in ('p0', 'p1')])
                        outcomes.append('both')

                def one(store, name):
                    store.claim([claims.Claim(
                        name, 'p0', {'VCPU': CAPACITY})])
                    outcomes.append('one')

                for number in range(3):
                    store = world.make_store()
                    world.start(lambda store=store, number=number: both(
                        store, f'both{number}'))
                store = world.make_store()
                world.start(lambda: one(store, 'one'))
                world.run()
                self.assertEqual(['one'], outcomes)


class TestLostDecision(tests.TestCase):
    """Another client changes the lead of a batch after its decision."""

    def claim(self, adds, change):
        """Claim with a decision whose answer is lost; return an observer.

        :param change: called with another store before the repetition
        """
        model = base.make_model(adds)
        other = base.make_store(model)
        for provider in PROVIDERS[:2]:
            other.set_inventory(provider, {'VCPU': claims.Inventory(total=2)})

        class Lossy(base.Client):
            is_lossy = True

            def send(self, request):
                answer = super().send(request)
                for each in getattr(request, 'requests', [request]):
                    if self.is_lossy and isinstance(
                            each, requests.WriteConsumer) and (
                            each.consumer, bool(each.row) and json.loads(
                                each.row.body)['state']) == ('a', 'held'):
                        self.is_lossy = False
                        change(other)
                        raise remote.OutcomeUnknown('no answer')
                return answer

        with contextlib.suppress(exception.ClaimRefused):
            base.make_store(model, Lossy(model)).claim([
                claims.Claim(name, provider, {'VCPU': 1})
                for name in 'ab' for provider in PROVIDERS[:2]])
        return other

    def test_claims_are_counted(self):
        for adds in True, False:
            for change in (lambda store: store.release(['a']),
                           lambda store: store.transfer('a', 'c')):
                with self.subTest(adds=adds):
                    store = self.claim(adds, change)
                    with contextlib.suppress(exception.ClaimRefused):
                        store.claim([
                            claims.Claim('d', PROVIDERS[0], {'VCPU': 1})])

                    held = store.claims_of('abcd')
                    taken = collections.Counter(
                        claim.provider for each in held.values()
                        for claim in each)
                    self.assertEqual(dict.fromkeys(PROVIDERS[:2], 2), taken)
                    self.assertEqual(
                        {name: {'VCPU': 2} for name in PROVIDERS[:2]},
                        {each.provider: dict(each.used) for each
                         in store.usages(providers=PROVIDERS[:2]).usages})
