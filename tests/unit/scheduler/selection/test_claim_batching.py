# SPDX-License-Identifier: Apache-2.0
import threading

from cellsched.claims import base as claims_base
from cellsched.claims import memory
from cellsched import exception
from cellsched.scheduler.selection import claim_batching
from tests.unit import base
from tests.unit.db import samples
from tests.unit import racing

DEADLINE_S = 600

PROVIDER, OTHER = samples.uuids(2)


class Store(memory.MemoryClaims):
    """A store that notes what it is asked, and can be made to wait."""

    def __init__(self):
        super().__init__()
        self.asked = []
        self.begun = threading.Semaphore(0)
        self.go_on = threading.Event()
        self.go_on.set()
        self.error = None

    def claim(self, claims):
        self.asked.append(len(claims))
        self.begun.release()
        if not self.go_on.wait(DEADLINE_S):
            raise AssertionError('nobody let it go on')
        if self.error is not None:
            raise self.error
        return super().claim(claims)


class TestTogether(base.TestCase):

    def setUp(self):
        super().setUp()
        self.store = Store()
        for provider in (PROVIDER, OTHER):
            self.store.set_inventory(
                provider, {'VCPU': claims_base.Inventory(total=10)})
        self.claiming = claim_batching.ClaimBatcher(self.store, at_once=1)

    def claims(self, *consumers, provider=PROVIDER, amount=1):
        return [claims_base.Claim(consumer, provider, {'VCPU': amount})
                for consumer in consumers]

    def used(self, provider=PROVIDER):
        [usage] = self.store.usages(providers=[provider]).usages
        return usage.used.get('VCPU', 0)

    def meanwhile(self, *batches):
        """Claim one thing, and these while that is under way."""
        while self.store.begun.acquire(blocking=False):
            # What was claimed before is not what is waited for.
            pass
        self.store.go_on.clear()
        outcomes = [None] * len(batches)

        def claim(place):
            try:
                outcomes[place] = self.claiming.claim(batches[place])
            except Exception as exc:
                outcomes[place] = exc

        threads = [threading.Thread(
            target=self.claiming.claim, args=[self.claims('first')])]
        threads[0].start()
        self.store.begun.acquire(timeout=DEADLINE_S)
        for place in range(len(batches)):
            threads.append(threading.Thread(target=claim, args=[place]))
            threads[-1].start()
        while len(self.claiming._group_commit._waiting) < len(batches):
            threads[-1].join(0.001)
        self.store.go_on.set()
        for each in threads:
            each.join(DEADLINE_S)
            self.assertFalse(each.is_alive())
        return outcomes

    def test_one_claims_as_the_store_does(self):
        self.assertEqual(2, self.claiming.claim(self.claims('a', 'b')))
        self.assertEqual(0, self.claiming.claim(self.claims('a', 'b')))
        self.assertEqual(['a'], list(self.claiming.claims_of(['a', 'c'])))

    def test_those_who_wait_are_claimed_for_at_once(self):
        outcomes = self.meanwhile(
            self.claims('a'), self.claims('b', 'c'), self.claims('d'))

        self.assertEqual([1, 2, 1], outcomes)
        self.assertEqual([1, 4], self.store.asked)
        self.assertEqual(5, self.used())

    def test_nobody_is_refused_for_what_another_one_wants(self):
        self.claiming.claim(self.claims('d'))

        outcomes = self.meanwhile(
            self.claims('a', amount=9), self.claims('b', amount=2),
            self.claims('c'), self.claims('d', provider=OTHER),
            self.claims('e', amount=0))

        # They wait in the order in which they came, which is nobody's choice.
        refused = [type(each) for each in outcomes[:2]
                   if isinstance(each, Exception)]
        self.assertIn(refused, ([exception.ClaimRefused],
                                [exception.ClaimRefused] * 2))
        self.assertEqual(1, outcomes[2])
        self.assertIsInstance(outcomes[3], exception.ClaimConflict)
        self.assertIsInstance(outcomes[4], exception.InvalidField)

    def test_members_of_groups_are_claimed_for_apart(self):
        group = claims_base.Membership(OTHER, 'host', 'anti-affinity')
        member, late = (
            [claims_base.Claim(name, PROVIDER, {'VCPU': 1}, group)]
            for name in ('a', 'd'))

        outcomes = self.meanwhile(
            member, self.claims('b'), self.claims('c'), late)

        self.assertEqual([1, 1], outcomes[1:3])
        self.assertCountEqual([int, exception.GroupPolicyViolated], [
            type(outcomes[place]) for place in (0, 3)])
        self.assertEqual([1, 2, 1, 1], self.store.asked)

    def test_what_comes_twice_at_once_is_taken_once(self):
        outcomes = self.meanwhile(self.claims('a', 'b'),
                                  self.claims('a', 'b'))

        self.assertEqual([0, 2], sorted(outcomes))
        self.assertEqual(3, self.used())

    def test_consumer_of_two_providers_waits_with_the_others(self):
        both = [*self.claims('a'), *self.claims('a', provider=OTHER)]

        outcomes = self.meanwhile(both, self.claims('b'))

        self.assertEqual([2, 1], outcomes)
        self.assertEqual([1, 3], self.store.asked)
        self.assertEqual((3, 1), (self.used(), self.used(OTHER)))

    def test_what_was_held_before_is_not_called_new(self):
        self.claiming.claim(self.claims('a'))

        outcomes = self.meanwhile(self.claims('a'), self.claims('b', 'c'))

        self.assertEqual(0, outcomes[0])
        self.assertLess(outcomes[1], 2)
        self.assertEqual({'a', 'b', 'c'}, set(self.store.claims_of('abc')))

    def test_failure_of_the_store_is_that_of_all(self):
        self.store.error = exception.DatabaseUnreachable(
            schema='claims', url='sqlite://', reason='gone')
        self.patch(threading, 'excepthook', lambda args: None)

        outcomes = self.meanwhile(self.claims('a'), self.claims('b'))

        self.assertEqual([self.store.error] * 2, outcomes)
        self.store.error = None
        self.assertEqual(1, self.claiming.claim(self.claims('a')))

    def test_many_take_what_there_is_and_no_more(self):
        for at_once in (1, 2):
            self.claiming = claim_batching.ClaimBatcher(self.store, at_once)
            names = [f'{at_once}-{number}' for number in range(16)]
            provider = (PROVIDER, OTHER)[at_once - 1]

            outcomes = racing.race(*[
                lambda name=name: self.claiming.claim(
                    self.claims(name, provider=provider))
                for name in names])

            self.assertEqual(10, outcomes.count(1))
            self.assertEqual(10, self.used(provider))
