# SPDX-License-Identifier: Apache-2.0
"""Batches with too many records to compare each of them."""

from cellsched.claims import base as claims
from cellsched.claims.etcd import protocol
from cellsched import exception
from tests.unit.claims.etcd import base

#: Consumers and providers of a large batch.
COUNT = 150


class Stopped(BaseException):
    """The process stopped."""


class HookedClient(base.ModelClient):
    """Calls a hook before the transaction of a large batch.

    :ivar hook: called once
    """

    def __init__(self, model, lock):
        super().__init__(model, lock)
        self.hook = None

    def send(self, request):
        hook = self.hook
        if hook is not None and any(
                isinstance(op, protocol.Transaction)
                for op in request.success):
            self.hook = None
            hook()
        return super().send(request)


class TestLargeBatches(base.TestCase):

    def make_client(self):
        return HookedClient(self.model, self.lock)

    def setUp(self):
        super().setUp()
        self.hooked = self.client
        self.peer = self.make_store()
        self.hosts = [f'h{number}' for number in range(COUNT)]
        for host in self.hosts:
            self.store.set_inventory(host, {'VCPU': claims.Inventory(2)})

    def batch(self, name, hosts=None):
        return [claims.Claim(f'{name}{host}', host, {'VCPU': 2})
                for host in hosts or self.hosts]

    def remaining_keys(self):
        """Return the keys of consumers, and of a hold."""
        return [kv.key for kv in (
            *self.model.read(b'/cellsched/c/', b'/cellsched/c0'),
            *self.model.read(b'/cellsched/hold'))]

    def used(self):
        return {usage.used['VCPU'] for usage in self.peer.usages().usages}

    def stop(self):
        raise Stopped

    def test_large_batch_is_claimed_and_released(self):
        batch = self.batch('a')

        self.assertEqual([COUNT, 0], [
            self.store.claim(batch) for _ in range(2)])

        names = [claim.consumer for claim in batch]
        self.assertEqual(set(names), set(self.peer.claims_of(names)))
        self.assertEqual(sorted(names), self.peer.consumers())
        self.assertEqual({2}, self.used())
        self.assertFalse(self.peer.recount('h0'))
        self.assertEqual(COUNT, len(self.remaining_keys()))
        self.peer.release(names)
        self.assertEqual([], self.remaining_keys())

    def test_large_batch_that_does_not_fit_claims_nothing(self):
        late = self.batch('b', self.hosts[-1:])
        self.peer.claim(late)

        with self.assertRaises(exception.ClaimRefused) as caught:
            self.store.claim(self.batch('a'))

        self.assertEqual(f'a{self.hosts[-1]}', caught.exception.consumer)
        self.assertEqual([b'/cellsched/c/' + late[0].consumer.encode()],
                         self.remaining_keys())
        self.assertEqual({0, 2}, self.used())

    def test_large_and_small_requests_have_their_own_outcomes(self):
        outcomes = self.store.claim_each(
            [[self.batch('a', ['h0'])], [self.batch('b')],
             [self.batch('c', self.hosts[1:])], [self.batch('d', ['h0'])]])

        self.assertEqual([0, None, 0, None],
                         [each.chosen for each in outcomes])
        self.assertEqual({2}, self.used())

    def test_claim_waits_for_large_batch_and_ends_hold_of_dead_process(self):
        self.hooked.hook = self.stop
        self.assertRaises(Stopped, self.store.claim, self.batch('a'))
        self.assertEqual([b'/cellsched/hold'], self.remaining_keys())
        before = self.clock.monotonic()

        self.assertEqual(1, self.peer.claim(self.batch('b', ['h0'])))

        self.assertLessEqual(5, self.clock.monotonic() - before)
        self.assertEqual([b'/cellsched/c/bh0'], self.remaining_keys())

    def test_inventory_ends_hold_of_dead_process(self):
        self.hooked.hook = self.stop
        self.assertRaises(Stopped, self.store.claim, self.batch('a'))

        self.peer.set_inventory('h0', {'VCPU': claims.Inventory(3)})

        self.assertEqual([], self.remaining_keys())

    def test_large_batch_of_dead_process_is_claimed_by_its_repetition(self):
        batch = self.batch('a')
        self.hooked.hook = self.stop
        self.assertRaises(Stopped, self.store.claim, batch)

        self.assertEqual(COUNT, self.peer.claim(batch))

        self.assertEqual(COUNT, len(self.remaining_keys()))

    def test_large_batch_without_its_hold_is_planned_again(self):
        """The hold ends while the process is frozen, and a host is claimed."""
        self.hooked.hook = lambda: self.peer.claim(self.batch('b', ['h0']))

        with self.assertRaises(exception.ClaimRefused) as caught:
            self.store.claim(self.batch('a'))

        self.assertEqual('ah0', caught.exception.consumer)
        self.assertEqual([b'/cellsched/c/bh0'], self.remaining_keys())
        self.assertEqual({0, 2}, self.used())

    def test_two_large_batches_for_the_same_hosts_are_not_both_claimed(self):
        theirs = self.batch('b')[::-1]
        self.hooked.hook = lambda: self.peer.claim(theirs)

        self.assertRaises(
            exception.ClaimRefused, self.store.claim, self.batch('a'))

        self.assertEqual({claim.consumer for claim in theirs},
                         set(self.peer.consumers()))

    def test_batch_with_more_keys_than_a_transaction_is_invalid(self):
        with self.assertRaises(exception.InvalidField) as caught:
            self.store.claim([
                claims.Claim(f'c{number}', 'h0', {'VCPU': 1})
                for number in range(4031)])

        self.assertEqual('claims', caught.exception.field)
        self.assertIn('4032', str(caught.exception))
        self.assertIn('at most 4030', str(caught.exception))

    def test_batch_with_too_many_bytes_holds_the_store_no_longer(self):
        batch = [claims.Claim(f'c{number}', 'h0', {'VCPU': 1}, None, 'p' * 255,
                              'u' * 255) for number in range(4000)]
        self.store.set_inventory('h0', {'VCPU': claims.Inventory(4000)})

        error = self.assertRaises(
            exception.ClaimStoreFailed, self.store.claim, batch)

        self.assertIn('request is too large', str(error))
        self.assertEqual([], self.remaining_keys())

    def test_consumer_of_too_many_providers_is_invalid(self):
        with self.assertRaises(exception.InvalidField) as caught:
            self.store.claim([
                claims.Claim('a', host, {'VCPU': 1})
                for host in self.hosts[:61]])
        self.assertEqual('provider', caught.exception.field)
        self.assertEqual(60, self.store.claim([
            claims.Claim('a', host, {'VCPU': 1})
            for host in self.hosts[:60]]))
        self.store.claim([claims.Claim('b', host, {'VCPU': 1})
                          for host in self.hosts[60:120]])
        self.assertTrue(self.peer.transfer('a', 'b'))
