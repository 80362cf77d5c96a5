# SPDX-License-Identifier: Apache-2.0
import dataclasses
import threading

from cellsched.claims import base as claims_base
from cellsched.claims import memory
from cellsched import exception
from cellsched.scheduler.selection import claims
from cellsched.scheduler.selection.claims import ClaimQueue
from cellsched.scheduler.selection.claims import ClaimRequest
from cellsched.testing import builders
from cellsched.testing import clock as fake_clock
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

    # It claims one batch after the other, by the method below.
    claim_any = claims_base.ClaimStore.claim_any

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
        self.clock = fake_clock.FakeClock()
        self.claiming = ClaimQueue(self.store, self.clock, at_once=1)

    def claim(self, claims):
        """Claim without alternatives; return the number of new claims."""
        request = ClaimRequest([claims])
        self.claiming.claim_all([request])
        outcome = request.result()
        if outcome.chosen is None:
            raise outcome.refusals[0]
        return outcome.new

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
                outcomes[place] = self.claim(batches[place])
            except Exception as exc:
                outcomes[place] = exc

        threads = [threading.Thread(
            target=self.claim, args=[self.claims('first')])]
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

    def test_single_claim_is_claimed_like_in_the_store(self):
        self.assertEqual(2, self.claim(self.claims('a', 'b')))
        self.assertEqual(0, self.claim(self.claims('a', 'b')))
        self.assertEqual(['a'], list(self.claiming.claims_of(['a', 'c'])))

    def test_waiting_claims_are_claimed_in_a_single_call(self):
        outcomes = self.meanwhile(
            self.claims('a'), self.claims('b', 'c'), self.claims('d'))

        self.assertEqual([1, 2, 1], outcomes)
        self.assertEqual([1, 4], self.store.asked)
        self.assertEqual(5, self.used())

    def lock(self, *providers):
        """Have a session lock providers; what is claimed there waits."""
        claim = memory.MemoryClaims.claim

        def busy(store, claims):
            locked = {each.provider for each in claims}.intersection(providers)
            if locked:
                raise exception.ClaimBusy(
                    schema='claims', providers=sorted(locked), reason='locked')
            return claim(store, claims)

        self.patch(memory.MemoryClaims, 'claim', busy)

    def test_claims_on_other_hosts_than_a_busy_host_are_claimed(self):
        self.lock(OTHER)

        outcomes = self.meanwhile(
            self.claims('a'), self.claims('b', provider=OTHER),
            self.claims('c'), self.claims('d', provider=OTHER))

        # Together they are refused, so each one is claimed alone.
        asked = [1, 4, 1, 1, 1, 1]
        self.assertEqual(asked, self.store.asked)
        self.assertEqual([1, 1], [outcomes[0], outcomes[2]])
        for outcome in outcomes[1], outcomes[3]:
            self.assertIsInstance(outcome, exception.ClaimBusy)
            self.assertEqual([OTHER], outcome.providers)
        self.assertIsNot(outcomes[1], outcomes[3])
        self.assertEqual((3, 0), (self.used(), self.used(OTHER)))
        # The store is not asked again about the busy host.
        self.assertRaises(exception.ClaimBusy, self.claim,
                          self.claims('e', provider=OTHER))
        self.assertEqual(asked, self.store.asked)

    def test_busy_host_is_not_waited_for_again_at_once(self):
        now = fake_clock.FakeClock()
        self.claiming = ClaimQueue(
            self.store, now, at_once=1)
        self.lock(OTHER)

        for asked in 1, 1, 2:
            self.assertRaises(exception.ClaimBusy, self.claim,
                              self.claims('a', provider=OTHER))
            self.assertEqual(asked, len(self.store.asked))
            now.advance(claims.BUSY_S / 2)
        self.assertEqual(1, self.claim(self.claims('b')))

    def test_group_members_get_the_busy_host(self):
        self.lock(OTHER)
        joins = claims_base.Membership('g', 'h', claims_base.ANTI_AFFINITY, 9)
        batches = [[dataclasses.replace(claim, group=joins)
                    for claim in self.claims(name, provider=provider)]
                   for name, provider in (
                       ('a', PROVIDER), ('b', OTHER), ('c', PROVIDER))]

        outcomes = self.meanwhile(*batches)

        self.assertEqual([1, 1], [outcomes[0], outcomes[2]])
        self.assertIsInstance(outcomes[1], exception.ClaimBusy)

    def test_claim_is_not_refused_for_the_demand_of_another(self):
        self.claim(self.claims('d'))

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

    def test_unreadable_record_fails_its_own_batch_only(self):
        claim = self.store.claim

        def claim_unless_bad(claims):
            if any(each.consumer == 'bad' for each in claims):
                raise exception.ClaimStoreFailed(reason='key c/bad')
            return claim(claims)

        self.store.claim = claim_unless_bad

        outcomes = self.meanwhile(
            self.claims('bad'), self.claims('a'), self.claims('b'))

        self.assertIsInstance(outcomes[0], exception.ClaimStoreFailed)
        self.assertEqual([1, 1], outcomes[1:])
        self.assertEqual(3, self.used())

    def test_defect_of_the_store_is_its_failure(self):
        for error in (KeyError('p'), exception.DatabaseError(
                schema='claims', reason='r'), exception.SchemaOutOfDate(
                schema='claims', url='u', version=1, expected=2,
                command='c')):
            self.store.error = error

            self.assertRaises(exception.ClaimStoreFailed, self.claim,
                              self.claims('a'))

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

    def test_simultaneous_repeats_are_claimed_once(self):
        outcomes = self.meanwhile(self.claims('a', 'b'),
                                  self.claims('a', 'b'))

        self.assertEqual([0, 2], sorted(outcomes))
        self.assertEqual(3, self.used())

    def test_claim_of_two_providers_waits_with_other_claims(self):
        both = [*self.claims('a'), *self.claims('a', provider=OTHER)]

        outcomes = self.meanwhile(both, self.claims('b'))

        self.assertEqual([2, 1], outcomes)
        self.assertEqual([1, 3], self.store.asked)
        self.assertEqual((3, 1), (self.used(), self.used(OTHER)))

    def test_existing_claim_is_not_counted_as_new(self):
        self.claim(self.claims('a'))

        outcomes = self.meanwhile(self.claims('a'), self.claims('b', 'c'))

        self.assertEqual(0, outcomes[0])
        self.assertLess(outcomes[1], 2)
        self.assertEqual({'a', 'b', 'c'}, set(self.store.claims_of('abc')))

    def test_failure_of_the_store_fails_all_waiting_claims(self):
        self.store.error = exception.DatabaseUnreachable(
            schema='claims', url='sqlite://', reason='gone')
        self.patch(threading, 'excepthook', lambda args: None)

        outcomes = self.meanwhile(self.claims('a'), self.claims('b'))

        for outcome in outcomes:
            self.assertIsInstance(outcome, exception.DatabaseUnreachable)
            self.assertIs(self.store.error, outcome.__cause__)
        self.assertIsNot(*outcomes)
        self.store.error = None
        self.assertEqual(1, self.claim(self.claims('a')))

    def test_concurrent_claims_never_exceed_the_capacity(self):
        for at_once in (1, 2):
            self.claiming = ClaimQueue(
                self.store, fake_clock.FakeClock(), at_once)
            names = [f'{at_once}-{number}' for number in range(16)]
            provider = (PROVIDER, OTHER)[at_once - 1]

            outcomes = racing.race(*[
                lambda name=name: self.claim(
                    self.claims(name, provider=provider))
                for name in names])

            self.assertEqual(10, outcomes.count(1))
            self.assertEqual(10, self.used(provider))


class TestRefusals(base.TestCase):

    def setUp(self):
        super().setUp()
        self.hosts = builders.hosts(host=['a', 'b', 'b', 'c'])
        self.uuids = self.hosts['uuid'].tolist()
        self.refusals = claims.ClaimRefusals()

    def no_room(self, row, resource='VCPU'):
        self.refusals.add(exception.ClaimRefused(
            provider=self.uuids[row], resource=resource, amount=1,
            consumer='i'))

    def no_place(self, row, policy, *hosts):
        self.refusals.add(exception.GroupPolicyViolated(
            provider=self.uuids[row], consumer='i', group='g',
            policy=policy, hosts=list(hosts), members=['m'] * len(hosts)))

    def test_twice_refused_host_without_capacity_is_hopeless(self):
        self.assertFalse(self.refusals)
        self.no_room(0)
        self.no_room(1)
        self.assertEqual([], self.refusals.hopeless(self.hosts))
        self.no_room(1)

        self.assertTrue(self.refusals)
        self.assertEqual([1], self.refusals.hopeless(self.hosts))
        self.assertEqual(self.uuids[:2], list(self.refusals.lost))
        self.assertEqual([0, 1], self.refusals.refused(self.hosts))
        self.assertEqual([], self.refusals.closed(self.hosts))

    def test_host_is_hopeless_after_refusals_of_the_same_part(self):
        for first, second in (
                ('CUSTOM_PCPU_1', 'CUSTOM_PCPU_2'),
                ('CUSTOM_NUMA0_PAGES_4KB', 'CUSTOM_NUMA1_PAGES_4KB')):
            self.refusals = claims.ClaimRefusals()
            self.no_room(0, first)
            self.no_room(0, second)
            self.assertEqual([], self.refusals.hopeless(self.hosts))
            self.assertEqual(self.uuids[:1], list(self.refusals.lost))

            self.no_room(0, second)

            self.assertEqual([0], self.refusals.hopeless(self.hosts))

    def test_hosts_named_by_the_store_are_closed(self):
        self.no_place(0, 'anti-affinity', 'a', 'b', 'gone')

        self.assertTrue(self.refusals)
        self.assertEqual([0, 1, 2], self.refusals.closed(self.hosts))
        self.assertEqual(self.uuids[:1], list(self.refusals.denied))
        self.assertEqual([], self.refusals.hopeless(self.hosts))

    def test_host_refused_for_the_request_is_closed(self):
        self.no_place(0, 'anti-affinity')

        self.assertEqual([0], self.refusals.closed(self.hosts))
        request = builders.request(group={})
        self.assertIs(request, self.refusals.inform(request))

    def test_host_below_the_group_limit_is_not_closed(self):
        self.no_place(3, 'anti-affinity', 'a')

        self.assertEqual([0], self.refusals.closed(self.hosts))
        self.assertEqual(['l', 'm'], self.refusals.inform(builders.request(
            group={'members': ['l']})).instance_group.members)

    def test_host_of_the_group_is_added_and_not_closed(self):
        self.no_place(0, 'affinity', 'b')
        request = builders.request(group={'hosts': ['a', 'b']})

        self.assertEqual([0], self.refusals.closed(self.hosts))
        told = self.refusals.inform(
            builders.request(group={'hosts': ['a']}))
        self.assertEqual(['a', 'b'], told.instance_group.hosts)
        self.assertEqual(['a', 'b'], self.refusals.inform(
            request).instance_group.hosts)
