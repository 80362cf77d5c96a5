# SPDX-License-Identifier: Apache-2.0
"""Batches of several transactions, and concurrent calls."""

from cellsched.claims import base as claims
from cellsched.claims.etcd import protocol
from cellsched import exception
from tests.unit.claims.etcd import base

#: Consumers and providers of a batch of several transactions.
COUNT = 150


class Stopped(BaseException):
    """The process stopped."""


class HookedClient(base.ModelClient):
    """Calls something before a transaction that changes a key.

    :param hooks: by the beginning of the key, without what all begin with
    """

    def __init__(self, model, lock):
        super().__init__(model, lock)
        self.hooks = {}

    def send(self, request):
        for start in [*self.hooks]:
            if any(op.key.startswith(b'/cellsched/' + start)
                   and not isinstance(op, protocol.Get)
                   for op in getattr(request, 'success', ())):
                self.hooks.pop(start)()
        return super().send(request)


class TestBatches(base.TestCase):

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
        """Return keys of consumers and batches, without their kinds."""
        return [kv.key for kv in self.model.read(b'/cellsched/c', b'/d')
                if kv.key[11:13] in (b'c/', b's/', b'w/')]

    def stop(self):
        raise Stopped

    def test_large_batch_is_taken_and_released(self):
        batch = self.batch('a')

        self.assertEqual([COUNT, 0], [
            self.store.claim(batch) for _ in range(2)])

        names = [claim.consumer for claim in batch]
        self.assertEqual(set(names), set(self.peer.claims_of(names)))
        self.assertEqual(sorted(names), self.peer.consumers())
        self.assertEqual(
            {2}, {usage.used['VCPU'] for usage in self.peer.usages().usages})
        self.assertFalse(self.peer.recount('h0'))
        self.peer.release(names)
        self.assertEqual([], self.remaining_keys())

    def test_large_batch_that_does_not_fit_takes_nothing(self):
        late = self.batch('b', self.hosts[-1:])
        self.peer.claim(late)

        with self.assertRaises(exception.ClaimRefused) as caught:
            self.store.claim(self.batch('a'))

        self.assertEqual(f'a{self.hosts[-1]}', caught.exception.consumer)
        self.assertEqual(late[0].consumer, *self.peer.consumers())
        self.assertEqual(2, sum(
            usage.used['VCPU'] for usage in self.peer.usages().usages))

    def test_nothing_is_held_before_all_is(self):
        batch, reported = self.batch('a'), []
        names = [claim.consumer for claim in batch]

        def look():
            reported.append(len(self.peer.claims_of(names)))
            reported.append(len(self.peer.consumers()))

        def again():
            look()
            self.hooked.hooks[b'c/'] = look

        # At the first part, and at the first after it is committed.
        self.hooked.hooks[b'c/'] = again
        self.store.claim(batch)

        self.assertEqual([0, 0], reported[:2])
        self.assertIn(reported[2], (0, COUNT))

    def test_batch_of_a_dead_process_is_given_back_by_a_release(self):
        batch = self.batch('a')
        self.hooked.hooks[b'c/'] = lambda: self.hooked.hooks.update({
            b'c/': self.stop})
        self.assertRaises(Stopped, self.store.claim, batch)
        self.assertEqual([], self.peer.consumers())

        self.peer.release([batch[0].consumer])

        self.assertEqual([], self.remaining_keys())
        self.assertEqual(
            {0}, {usage.used['VCPU'] for usage in self.peer.usages().usages})

    def test_who_needs_its_room_waits_and_gives_it_back(self):
        self.hooked.hooks[b'c/'] = lambda: self.hooked.hooks.update({
            b'c/': self.stop})
        self.assertRaises(Stopped, self.store.claim, self.batch('a'))
        before = self.clock.monotonic()

        self.assertEqual(1, self.peer.claim(self.batch('b', ['h0'])))

        self.assertLessEqual(5, self.clock.monotonic() - before)
        self.assertEqual(['bh0'], self.peer.consumers())
        self.assertEqual([b'/cellsched/c/bh0'], self.remaining_keys())

    def test_repeat_of_a_dead_process_takes_all(self):
        for hooks in (2, 3, 4):
            batch = self.batch(f'a{hooks}')
            self.stop_at(hooks)
            self.assertRaises(Stopped, self.store.claim, batch)

            self.assertIn(self.peer.claim(batch), (0, COUNT))

            names = [claim.consumer for claim in batch]
            self.assertEqual(sorted(names), self.peer.consumers())
            self.peer.release(names)
            self.assertEqual([], self.remaining_keys())

    def stop_at(self, number):
        """Stop at the nth transaction that changes consumers."""
        def count(remaining):
            if remaining == 1:
                raise Stopped
            self.hooked.hooks[b'c/'] = lambda: count(remaining - 1)

        self.hooked.hooks[b'c/'] = lambda: count(number)

    def test_batch_that_was_aborted_begins_again(self):
        batch = self.batch('a')
        names = [claim.consumer for claim in batch]
        released = []

        def release():
            self.peer.release(names)
            released.append(self.remaining_keys())

        self.hooked.hooks[b'c/'] = lambda: self.hooked.hooks.update({
            b'c/': release})

        self.store.claim(batch)

        self.assertEqual([[]], released)
        self.assertEqual(sorted(names), self.peer.consumers())
        self.peer.release(names)
        self.assertEqual([], self.remaining_keys())

    def test_batch_that_was_aborted_before_its_commit_begins_again(self):
        batch = self.batch('a')
        names = [claim.consumer for claim in batch]

        def last_part():
            # The state is changed when all parts are taken.
            self.hooked.hooks[b's/'] = lambda: self.peer.release(names)

        self.hooked.hooks[b'c/'] = last_part

        self.store.claim(batch)

        self.assertEqual(sorted(names), self.peer.consumers())
        self.assertEqual(
            {2}, {usage.used['VCPU'] for usage in self.peer.usages().usages})
        self.assertEqual(
            [], [key for key in self.remaining_keys() if b'/c/' not in key])

    def test_batch_that_takes_nothing_is_forgotten(self):
        self.hooked.hooks[b'c/'] = self.stop
        self.assertRaises(Stopped, self.store.claim, self.batch('a'))
        self.assertEqual(2, len(self.remaining_keys()))

        self.peer.claims_of(['x'])
        self.clock.advance(5)
        self.peer.claims_of(['x'])

        self.assertEqual([], self.remaining_keys())

    def test_batch_that_does_not_go_on_gives_way(self):
        """The batch is refused if the capacity is used meanwhile."""
        theirs = self.batch('b')[::-1]
        self.hooked.hooks[b'c/'] = lambda: self.hooked.hooks.update({
            b'c/': lambda: self.peer.claim(theirs)})

        self.assertRaises(
            exception.ClaimRefused, self.store.claim, self.batch('a'))

        self.assertEqual({claim.consumer for claim in theirs},
                         set(self.peer.consumers()))

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
