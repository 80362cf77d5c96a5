# SPDX-License-Identifier: Apache-2.0
"""Recovery after a client dies before any request of a call."""

import itertools
import math
import time

from cellsched.claims import base as claims
from cellsched.claims.cassandra import requests
from cellsched import exception
from cellsched.testing import clock as clocks
from tests import profile
from tests.unit import base as tests
from tests.unit.claims.cassandra import base

PROVIDERS = ('p0', 'p1')
NAMES = ('a', 'b', 'c')

#: What becomes of the last request: it comes to nothing, it is done, or it is
#: done after all that others do.
LOST, DONE, LATE = 'lost', 'done', 'late'


class Died(BaseException):
    """Raised instead of the answer to a dead client."""


class MortalClient:
    """Dies at a request."""

    def __init__(self, model, remaining, fate):
        self._model = model
        self._left = remaining
        self._fate = fate
        self.late = []

    def send(self, request):
        if isinstance(request, requests.Together):
            return [self.send(each) for each in request.requests]
        self._left -= 1
        if self._left > 0:
            return self._model.answer(request)
        if self._fate == DONE:
            self._model.answer(request)
        elif self._fate == LATE:
            self.late.append(request)
        raise Died


class InterruptedClient:
    """Lets another client make a call before a request."""

    def __init__(self, model, number, call):
        self._model = model
        self.left = number
        self._call = call

    def send(self, request):
        if isinstance(request, requests.Together):
            return [self.send(each) for each in request.requests]
        self.left -= 1
        if self.left == 0:
            self._call()
        return self._model.answer(request)


def batch(*names, providers=PROVIDERS, amount=1):
    return [claims.Claim(name, provider, {'VCPU': amount})
            for name in names for provider in providers]


#: Calls that a client dies in, with what is held before them.
CALLS = {
    'claim of one provider': (
        [], lambda store: store.claim(batch('a', 'b', providers=['p0']))),
    'claim of several providers': (
        [], lambda store: store.claim(batch('a'))),
    'claim of several consumers': (
        [], lambda store: store.claim(batch('a', 'b', 'c'))),
    'release': (batch('a', 'b'), lambda store: store.release('ab')),
    'transfer': (batch('a'), lambda store: store.transfer('a', 'b')),
    'transfer to one that holds': (
        batch('a') + batch('b', providers=['p1'], amount=2),
        lambda store: store.transfer('a', 'b')),
}

#: What others do then.
SEQUELS = {
    'nothing': lambda store: None,
    'release of the first': lambda store: store.release('a'),
    'release of the second': lambda store: store.release('b'),
    'transfer of the first': lambda store: store.transfer('a', 'd'),
    'transfer to the first': lambda store: store.transfer('b', 'a'),
    'claim of all there is': lambda store: _tried(store, [claims.Claim(
        'd', provider, {'VCPU': 9}) for provider in PROVIDERS]),
    'the same claim again': lambda store: _tried(store, batch('a', 'b')),
}


def _tried(store, requested):
    try:
        store.claim(requested)
    except (exception.ClaimRefused, exception.ClaimConflict):
        pass


class TestRemainsOfDeadClients(tests.TestCase):

    def setUp(self):
        super().setUp()
        self.model = None

    def make_model(self, before):
        self.model = base.make_model()
        store = self.make_store()
        for provider in PROVIDERS:
            store.set_inventory(provider, {'VCPU': claims.Inventory(9)})
        # Each of them has been claimed alone.
        for name in NAMES:
            own = [claim for claim in before if claim.consumer == name]
            store.claim(own)

    def make_store(self, client=None):
        return base.make_store(
            self.model, client, abandoned_s=0.0, retry_timeout_s=5.0,
            adds=True)

    def dies_in(self, call, number, fate):
        """Return the client if it died during the call, or None."""
        client = MortalClient(self.model, number, fate)
        store = self.make_store(client)
        try:
            call(store)
        except Died:
            return client
        return None

    def remains(self):
        """Yield the dead client of each request of a call."""
        for (name, (before, call)), sequel, fate in itertools.islice(
                itertools.product(CALLS.items(), SEQUELS, (LOST, DONE, LATE)),
                0, None, profile.DEATH_STEP):
            for number in itertools.count(1):
                self.make_model(before)
                client = self.dies_in(call, number, fate)
                if client is None:
                    break
                with self.subTest(call=name, sequel=sequel, fate=fate,
                                  request=number):
                    yield name, sequel, client

    def test_batch_is_taken_whole_or_not_at_all(self):
        for name, sequel, client in self.remains():
            if not name.startswith('claim'):
                continue
            names = {claim.consumer for claim in _claimed(name)}
            before = self.make_store().claims_of(NAMES)
            self.assertIn({*before}, [set(), names])
            if sequel.startswith('release'):
                gone = 'a' if sequel.endswith('first') else 'b'
                SEQUELS[sequel](self.make_store())
                held = self.make_store().claims_of(NAMES)
                self.assertEqual({*before} - {gone}, {*held})

    def test_batch_is_whole_during_the_release_of_a_member(self):
        """The client that releases dies during its call, too."""
        before, call = CALLS['claim of several consumers']
        for first, second in itertools.product(range(1, 30), range(1, 20)):
            self.make_model(before)
            if self.dies_in(call, first, DONE) is None:
                break
            held = {*self.make_store().claims_of(NAMES)}
            dead = self.dies_in(lambda it: it.release('a'), second, DONE)
            self.assertEqual(held - {'a'},
                             {*self.make_store().claims_of(NAMES)} - {'a'})
            if dead is None:
                self.assertEqual(held - {'a'},
                                 {*self.make_store().claims_of(NAMES)})

    def test_transfer_is_made_or_not(self):
        for name, _, client in self.remains():
            if name.startswith('transfer'):
                held = self.make_store().claims_of('ab')
                first = [{claim.provider: claim.resources['VCPU']
                          for claim in held.get(each, ())} for each in 'ab']
                two = {'p0': 1, 'p1': 1}
                old = {'p1': 2} if name.endswith('holds') else {}
                self.assertIn(first, [[two, old], [{}, two]])

    def test_claims_are_released_during_their_transfer(self):
        """Another client died in the same transfer before."""
        before, call = CALLS['transfer to one that holds']
        for first in itertools.count(1):
            for second in itertools.count(1):
                self.make_model(before)
                dead = self.dies_in(call, first, DONE)
                client = InterruptedClient(
                    self.model, second, lambda: call(self.make_store()))
                self.make_store(client).release('ab')
                self.assertEqual(
                    {}, self.make_store().claims_of('ab'), (first, second))
                if client.left > 0:
                    break
            if dead is None:
                break

    def test_claims_of_dead_clients_can_be_released(self):
        for _, sequel, client in self.remains():
            SEQUELS[sequel](self.make_store())
            for request in client.late:
                self.model.answer(request)
            store = self.make_store()
            held = store.claims_of('abcd')
            rows = {name: 0 for name in PROVIDERS}
            for claim in sum(held.values(), []):
                rows[claim.provider] += claim.resources['VCPU']
            for usage in store.usages().usages:
                self.assertGreaterEqual(
                    usage.used['VCPU'], rows[usage.provider])
            store.release('abcd')
            for usage in store.usages().usages:
                self.assertEqual(0, usage.used['VCPU'])
                self.assertFalse(store.recount(usage.provider))
            self.assertEqual({}, self.model.consumers)

    def test_list_of_consumers_ends_abandoned_operations(self):
        """No other call may ever read these consumers."""
        for name, sequel, client in self.remains():
            if sequel != 'nothing' or client.late:
                continue
            store = self.make_store()
            for _ in range(2):
                for provider in PROVIDERS:
                    store.consumers_of(provider)
            taken = {provider: 0 for provider in PROVIDERS}
            for claim in sum(store.claims_of('abcd').values(), []):
                taken[claim.provider] += claim.resources['VCPU']
            for usage in store.usages().usages:
                self.assertEqual(
                    taken[usage.provider], usage.used['VCPU'])

    def test_reads_of_changes_end_abandoned_operations(self):
        for name, sequel, client in self.remains():
            if sequel != 'nothing' or client.late:
                continue
            own_clock = clocks.FakeClock(time.time())
            reader = base.make_store(self.model, own_clock=own_clock)
            token = None
            for _ in range(10):
                token = reader.usages(token).token
                own_clock.advance(1)

            taken = dict.fromkeys(PROVIDERS, 0)
            for claim in sum(self.make_store().claims_of(
                    'abcd').values(), []):
                taken[claim.provider] += claim.resources['VCPU']
            self.assertEqual(taken, {
                usage.provider: usage.used['VCPU']
                for usage in reader.usages().usages})

    def test_end_of_abandoned_operations_keeps_newer_operations(self):
        """They begin during the call that ends the abandoned ones."""
        olds = [call for name, (before, call) in CALLS.items()
                if not before or name == 'transfer']
        transfer = olds[-1]
        for old, new in itertools.product(olds, (olds[0], transfer)):
            for first, last, place in itertools.product(
                    range(3, 7), range(3, 7), range(13, 19)):
                self.make_model(batch('a') if old is transfer else [])
                if self.dies_in(old, first, DONE) is not None:
                    self.check_newer(new, batch(
                        'a') if new is transfer else [], last, place)

    def check_newer(self, call, before, last, place):
        """Begin a newer operation before a request of a later sweep."""
        def begin():
            store = self.make_store()
            store.release(NAMES)
            if before:
                store.claim(before)
            self.dies_in(call, last, DONE)
            begun.append(dict(self.model.consumers))

        begun, own_clock = [], clocks.FakeClock(time.time())
        client = InterruptedClient(self.model, math.inf, begin)
        store = base.make_store(
            self.model, client, own_clock, abandoned_s=1.0)
        for client.left in (math.inf, math.inf, math.inf, place):
            store.usages()
            own_clock.advance(1)

        if begun:
            self.assertEqual(begun[0], self.model.consumers)

    def test_refused_claim_leaves_no_note(self):
        self.make_model([])
        self.assertRaises(
            exception.ClaimRefused, self.make_store().claim,
            batch('a', amount=10))

        self.assertEqual({()}, {*map(tuple, self.model.noted.values())})

    def test_free_capacity_can_be_claimed_after_recovery(self):
        for _, sequel, client in self.remains():
            if sequel != 'nothing':
                continue
            store = self.make_store()
            held = sum(store.claims_of('abcd').values(), [])
            free = {name: 9 - sum(
                claim.resources['VCPU'] for claim in held
                if claim.provider == name) for name in PROVIDERS}
            for usage in store.usages().usages:
                if 9 - usage.used['VCPU'] < free[usage.provider]:
                    # Somebody who comes again finds out.
                    store.release(set('abcd') - {
                        claim.consumer for claim in held})
            store.claim([claims.Claim('e', name, {'VCPU': amount})
                         for name, amount in free.items() if amount])


def _claimed(name):
    return (batch('a', 'b') if name.endswith('one provider')
            else batch('a') if name.endswith('providers')
            else batch('a', 'b', 'c'))
