# SPDX-License-Identifier: Apache-2.0
"""Operations beside those of other processes, and large batches."""

from cellsched.claims import base as claims
from cellsched.claims.etcd import protocol
from cellsched.claims import remote
from cellsched import exception
from tests.unit.claims.etcd import base

#: Consumers and providers of a large batch.
COUNT = 150


class Stopped(BaseException):
    """The process stopped."""


class HookedClient(base.ModelClient):
    """Calls hooks before and after the next claim, release or transfer.

    :ivar hook: called once
    :ivar after: called once
    """

    def __init__(self, model, lock):
        super().__init__(model, lock)
        self.hook = self.after = None

    def send(self, request):
        if not any(b'/cellsched/c/' in getattr(op, 'key', b'/cellsched/c/')
                   and not isinstance(op, protocol.Get)
                   for op in getattr(request, 'success', ())):
            return super().send(request)
        hook, self.hook = self.hook, None
        if hook is not None:
            hook()
        answer = super().send(request)
        after, self.after = self.after, None
        if after is not None:
            after()
        return answer


class HookedCase(base.TestCase):

    def make_client(self):
        return HookedClient(self.model, self.lock)


class TestConcurrentChanges(HookedCase):
    """Another process changes records between a read and the write."""

    def setUp(self):
        super().setUp()
        self.hooked = self.client
        self.peer = self.make_store()
        for host in 'hij':
            self.store.set_inventory(host, {'VCPU': claims.Inventory(2)})

    def take(self, store, consumer, host, group=None):
        store.claim([claims.Claim(consumer, host, {'VCPU': 1}, group)])

    def used(self):
        return {usage.provider: usage.used['VCPU']
                for usage in self.peer.usages().usages}

    def held(self, *names):
        return {name: [claim.provider for claim in each]
                for name, each in self.peer.claims_of(names).items()}

    def lose_answer(self):
        raise remote.OutcomeUnknown('no answer')

    def test_concurrently_joined_member_is_counted(self):
        joins = claims.Membership('g', 'host', claims.ANTI_AFFINITY)
        self.hooked.hook = lambda: self.take(self.peer, 'a', 'h', joins)

        self.assertRaises(exception.GroupPolicyViolated,
                          self.take, self.store, 'b', 'i', joins)

        self.assertEqual({'a': ['h']}, self.held('a', 'b'))

    def test_release_includes_concurrent_claims(self):
        self.take(self.store, 'a', 'h')

        def move():
            self.peer.release(['a'])
            self.take(self.peer, 'a', 'i')

        self.hooked.hook = move
        self.store.release(['a'])

        self.assertEqual({}, self.held('a'))
        self.assertEqual({'h': 0, 'i': 0, 'j': 0}, self.used())

    def test_release_includes_claims_of_a_concurrent_transfer(self):
        for source, target in 'ab', 'ba':
            self.take(self.store, source, 'h')
            self.hooked.hook = lambda: self.peer.transfer(source, target)

            self.store.release(['a', 'b'])

            self.assertEqual({}, self.held('a', 'b'))
        self.assertEqual({'h': 0, 'i': 0, 'j': 0}, self.used())

    def test_transfer_includes_concurrent_claims(self):
        self.take(self.store, 'a', 'h')
        self.take(self.store, 'b', 'j')

        def move():
            self.peer.release(['a', 'b'])
            self.take(self.peer, 'a', 'i')

        self.hooked.hook = move
        self.assertTrue(self.store.transfer('a', 'b'))

        self.assertEqual({'b': ['i']}, self.held('a', 'b'))
        self.assertEqual({'h': 0, 'i': 1, 'j': 0}, self.used())

    def test_transfer_without_an_answer_is_found_out(self):
        self.take(self.store, 'a', 'h')
        self.hooked.after = self.lose_answer

        self.assertTrue(self.store.transfer('a', 'b'))

        self.assertEqual({'b': ['h']}, self.held('a', 'b'))

    def test_second_transfer_of_the_same_claims_fails(self):
        self.take(self.store, 'a', 'h')
        self.hooked.hook = lambda: self.peer.transfer('a', 'b')

        self.assertFalse(self.store.transfer('a', 'b'))

        self.assertEqual({'b': ['h']}, self.held('a', 'b'))

    def test_claim_without_an_answer_is_found_out(self):
        self.hooked.after = self.lose_answer

        self.take(self.store, 'a', 'h')

        self.assertEqual({'h': 1, 'i': 0, 'j': 0}, self.used())

    def test_claim_without_an_answer_is_not_executed_after_a_conflict(self):
        """Another process claims for the consumer, and releases it."""
        late = []

        def send(request):
            if late or not any(isinstance(op, protocol.Put)
                               for op in request.success):
                return HookedClient.send(self.hooked, request)
            late.append(request)
            self.take(self.peer, 'a', 'i')
            return self.lose_answer()

        self.hooked.send = send
        self.assertRaises(
            exception.ClaimConflict, self.take, self.store, 'a', 'h')
        self.peer.release(['a'])

        self.model.answer(late[0])

        self.assertEqual({}, self.held('a'))
        self.assertEqual({'h': 0, 'i': 0, 'j': 0}, self.used())

    def test_large_batch_beside_a_write_between_its_reads_is_planned_again(
            self):
        batch = [claims.Claim(f'c{number}', 'h', {'VCPU': 1})
                 for number in range(COUNT)]
        self.store.set_inventory('h', {'VCPU': claims.Inventory(COUNT)})
        reads = []

        def send(request):
            reads.append(len(request.success))
            if len(reads) == 3:
                # Correct a counter, which needs no hold.
                self.model.answer(protocol.Transaction(success=(
                    protocol.Put(b'/cellsched/p/', b''),)))
            return HookedClient.send(self.hooked, request)

        self.hooked.send = send
        self.store.claim(batch)

        # The hold, two reads and the write, twice.
        self.assertEqual([1, 128, 27, 4] * 2, reads)
        self.assertEqual({'h': COUNT, 'i': 0, 'j': 0}, self.used())

    def test_large_batch_without_an_answer_is_found_out(self):
        batch = [claims.Claim(f'c{number}', 'h', {'VCPU': 1})
                 for number in range(COUNT)]
        self.store.set_inventory('h', {'VCPU': claims.Inventory(COUNT)})
        self.hooked.after = self.lose_answer

        self.store.claim(batch)

        self.assertEqual({'h': COUNT, 'i': 0, 'j': 0}, self.used())
        self.assertEqual([], self.model.read(b'/cellsched/hold'))


class TestLargeBatches(HookedCase):

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
        del self.client.sent[:]
        self.peer.release(names)
        self.assertEqual([], self.remaining_keys())
        # A release needs no hold.
        self.assertNotIn(protocol.Transaction, {
            type(op) for request in self.client.sent
            for op in getattr(request, 'success', ())})

    def test_refused_large_batch_claims_no_host(self):
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
        self.assertLess(len(self.client.sent), 1000)
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
        before = self.clock.monotonic()

        self.assertEqual(COUNT, self.peer.claim(batch))

        self.assertLessEqual(5, self.clock.monotonic() - before)

        self.assertEqual(COUNT, len(self.remaining_keys()))

    def test_large_batch_without_its_hold_is_planned_again(self):
        """The hold ends while the process is frozen, and a host is claimed."""
        self.hooked.hook = lambda: self.peer.claim(self.batch('b', ['h0']))

        with self.assertRaises(exception.ClaimRefused) as caught:
            self.store.claim(self.batch('a'))

        self.assertEqual('ah0', caught.exception.consumer)
        self.assertEqual([b'/cellsched/c/bh0'], self.remaining_keys())
        self.assertEqual({0, 2}, self.used())

    def test_second_large_batch_for_the_same_hosts_is_refused(self):
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

    def test_batch_beyond_the_size_limit_ends_its_hold(self):
        batch = [claims.Claim(f'c{number}', 'h0', {'VCPU': 1}, None, 'p' * 255,
                              'u' * 255) for number in range(4000)]
        self.store.set_inventory('h0', {'VCPU': claims.Inventory(4000)})

        error = self.assertRaises(
            exception.ClaimStoreFailed, self.store.claim, batch)

        self.assertIn('request is too large', str(error))
        self.assertEqual([], self.remaining_keys())

    def test_consumer_of_more_than_60_providers_is_invalid(self):
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
