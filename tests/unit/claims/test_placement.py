# SPDX-License-Identifier: Apache-2.0
"""Claims in Placement, on a model of it."""

import contextlib
import random
import threading
import uuid

from cellsched.claims import base as claims
from cellsched.claims import coordination
from cellsched.claims import listing
from cellsched.claims import placement
from cellsched.claims.placement import messages
from cellsched.claims import remote
from cellsched import clock
from cellsched import exception
from cellsched.simulator.servers import placement as servers
from cellsched.testing import clock as clocks
from cellsched.testing.suite import claims as suite
from tests.unit import base
from tests.unit.claims import model


class Client:
    """Sends requests to a model, one at a time."""

    url = 'http://placement'

    def __init__(self, server):
        self.server = server
        self.lock = threading.Lock()
        self.requests = []

    def send(self, request):
        with self.lock:
            self.requests.append(f'{request.method} {request.path}')
            return self.server.answer(request)


class OnModel:

    def setUp(self):
        super().setUp()
        self.client = Client(servers.PlacementModel())
        self.store = self.make_peer(None)

    def make_store(self):
        return self.store

    def make_peer(self, store, client=None, seed=1, **options):
        return placement.PlacementClaims(
            client or self.client, clock.Clock(), random.Random(seed),
            **options)


class TestPlacementClaims(
        OnModel, suite.ClaimStoreSuite, model.ModelTests, base.TestCase):

    def requests_of(self, call, *args):
        """Return the requests of a call without conflicts or errors."""
        before = len(self.client.requests)
        call(*args)
        return [each.split()[0] for each in self.client.requests[before:]]

    def test_batch_is_a_single_request(self):
        provider = self.make_provider(self.store, VCPU=8)
        self.store = self.make_peer(None, guards=1)
        self.store.claim([self.make_claim(provider, VCPU=1)])
        batch = [self.make_claim(provider, VCPU=1) for _ in range(3)]

        self.assertEqual(['POST'], self.requests_of(self.store.claim, batch))

    def test_claims_after_a_conflict_take_the_lock_once(self):
        acquired = []

        @contextlib.contextmanager
        def acquire(wait_s):
            acquired.append(wait_s)
            yield

        provider = self.make_provider(self.store, VCPU=8)
        store = self.make_peer(None, locks=coordination.ContentionLock(
            clock.Clock(), acquire, lambda function: threading.Thread(
                target=function, daemon=True).start()))
        store.claim([self.make_claim(provider, VCPU=1)])
        self.assertEqual(0, len(acquired))
        send, failures = self.client.send, [messages.PlacementAnswer(409, {
            'errors': [{'status': 409, 'code': 'placement.concurrent_update',
                        'detail': 'Inventory and/or allocations changed'}]})]
        self.client.send = lambda request: (
            failures.pop() if failures and request.method == 'POST'
            else send(request))
        for count in 1, 2:
            claim = self.make_claim(provider, VCPU=1)
            store.claim([claim])
            self.assertEqual(count, len(acquired))
        store.release([claim.consumer])
        self.assertEqual(3, len(acquired))

    def test_full_hosts_are_read_before_the_first_write(self):
        *full, free = [self.make_provider(self.store, VCPU=1)
                       for _ in range(4)]
        self.store.claim([self.make_claim(each, VCPU=1) for each in full])
        for provider in full:
            self.assertRaises(
                exception.ClaimRefused, self.store.claim,
                [self.make_claim(provider, VCPU=1)])
        consumer = str(uuid.uuid4())
        request = [[claims.Claim(consumer, provider, {'VCPU': 1})]
                   for provider in [*full, free]]

        requests = self.requests_of(lambda: self.assertEqual(
            3, self.store.claim_any(request).chosen))

        # The inventory and the usage of each; the claim.
        self.assertEqual(8, requests.index('POST'))
        self.assertEqual(3, self.store.claim_any(request).chosen)

    def test_refusal_of_new_consumers_does_not_read_their_claims(self):
        provider = self.make_provider(self.store, VCPU=1)
        batch = [self.make_claim(provider, VCPU=1) for _ in range(2)]

        def reads(**options):
            before = len(self.client.requests)
            self.assertRaises(exception.ClaimRefused, self.store.claim, batch,
                              **options)
            return sum('GET /allocations/' in each
                       for each in self.client.requests[before:])

        self.store.claim([self.make_claim(provider, VCPU=1)])
        reads()
        self.assertEqual((2, 0), (reads(), reads(is_new=True)))

    def test_consumers_are_read_once_before_the_last_refusal(self):
        full = [self.make_provider(self.store, VCPU=1) for _ in range(3)]
        holders = [self.make_claim(each, VCPU=1) for each in full]
        self.store.claim(holders)
        consumer = str(uuid.uuid4())
        before = len(self.client.requests)

        self.assertIsNone(self.store.claim_any([
            [claims.Claim(consumer, each, {'VCPU': 1})]
            for each in full]).chosen)

        sent = self.client.requests[before:]
        self.assertEqual(1, sent.count(f'GET /allocations/{consumer}'))
        # A consumer that holds the last alternative is not refused.
        self.assertEqual(2, self.store.claim_any([
            [claims.Claim(holders[2].consumer, each, {'VCPU': 1})]
            for each in full]).chosen)

    def test_full_host_is_claimed_after_a_release(self):
        provider, other = (self.make_provider(self.store, VCPU=1)
                           for _ in range(2))
        holder = self.make_claim(provider, VCPU=1)
        self.store.claim([holder])
        self.assertRaises(
            exception.ClaimRefused, self.store.claim,
            [self.make_claim(provider, VCPU=1)])
        self.store.release([holder.consumer])
        consumer = str(uuid.uuid4())

        outcome = self.store.claim_any([
            [claims.Claim(consumer, each, {'VCPU': 1})]
            for each in (provider, other)])

        self.assertEqual((0, {}), (outcome.chosen, outcome.refusals))

    def test_silent_placement_refuses_no_claim(self):
        provider = self.make_provider(self.store, VCPU=1)
        store = self.make_peer(None, retry_timeout_s=0.0)
        store.claim([self.make_claim(provider, VCPU=1)])
        self.assertRaises(
            exception.ClaimRefused, store.claim,
            [self.make_claim(provider, VCPU=1)])

        def fail(request):
            raise remote.OutcomeUnknown('no answer')

        self.client.send = fail

        self.assertRaises(
            exception.DatabaseUnreachable, store.claim_any,
            [[self.make_claim(provider, VCPU=1)]])

    def test_list_of_consumers_is_a_request_for_each_provider(self):
        providers = [self.make_provider(self.store, VCPU=8) for _ in range(3)]
        claims_ = [self.make_claim(provider, VCPU=1)
                   for provider in providers[:2] for _ in range(2)]
        self.store.claim(claims_)
        listed = []

        requests = self.requests_of(
            lambda: listed.extend(listing.pages(self.store, 10)))

        self.assertEqual(['GET'] * (1 + len(providers)), requests)
        self.assertEqual(
            [sorted(claim.consumer for claim in claims_)], listed)

    def test_known_traits_are_not_written(self):
        provider = self.make_provider(self.store, VCPU=8)

        def reported():
            return self.requests_of(
                self.store.set_traits, provider, ['CUSTOM_A'], provider)

        self.assertIn('PUT', reported())
        self.assertEqual(['GET', 'GET'], reported())

    def test_unknown_trait_is_invalid(self):
        provider = self.make_provider(self.store, VCPU=8)
        with self.assertRaises(exception.InvalidField) as caught:
            self.store.set_traits(provider, ['WHATEVER'], provider)

        self.assertEqual('traits', caught.exception.field)
        self.assertEqual([provider], self.store.find_providers(
            claims.ProviderQuery({'VCPU': [1]}, frozenset({'CUSTOM_A'}))))

    def test_reversed_tree_is_no_loop(self):
        one, two = (self.make_provider(self.store, VCPU=8) for _ in range(2))
        for child, root in (one, two), (two, one), (one, two):
            self.store.set_traits(child, [], root)
            self.store.set_traits(root, [], root)

            self.assertEqual({child: root, root: root},
                             self.store.roots([one, two]))

    def test_query_for_unknown_classes_and_traits_finds_no_provider(self):
        provider = self.make_provider(self.store, VCPU=8)
        self.store.set_traits(provider, [], provider)

        for query in (claims.ProviderQuery({'CUSTOM_NONE': [1]}),
                      claims.ProviderQuery(
                          {'VCPU': [1]}, frozenset({'CUSTOM_NONE'}))):
            self.assertEqual([], self.store.find_providers(query))

    def beforehand(self, call):
        """Return a store; another call is made before its first write."""
        peer = self.make_peer(None, Client(self.client.server), 2)

        class LateClient(Client):

            def send(this, request):
                if request.method == 'POST' and self.first:
                    self.first = False
                    call(peer)
                return super().send(request)

        self.first = True
        return self.make_peer(None, LateClient(self.client.server), 3)

    def test_concurrent_repetition_of_a_claim_succeeds(self):
        claim = self.make_claim(self.make_provider(self.store, VCPU=2),
                                VCPU=2)
        store = self.beforehand(lambda it: it.claim([claim]))

        self.assertEqual(0, store.claim([claim]))

        self.assertHolds(self.store, claim)

    def test_rest_of_a_partly_held_batch_is_claimed(self):
        provider = self.make_provider(self.store, VCPU=2)
        holder, one, two = (self.make_claim(provider, VCPU=1)
                            for _ in range(3))
        self.store.claim([holder])
        peer, send = self.make_peer(None), self.client.send

        def interfere(request):
            if request.path.endswith('/usages'):
                self.client.send = send
                peer.release([holder.consumer])
                peer.claim([one])
            return send(request)

        self.client.send = interfere

        self.assertEqual(1, self.store.claim([one, two]))

        self.assertHolds(self.store, one)
        self.assertHolds(self.store, two)

    def test_concurrent_repetition_of_a_transfer_is_no_transfer(self):
        claim = self.make_claim(self.make_provider(self.store, VCPU=2),
                                VCPU=2)
        target = str(uuid.uuid4())
        self.store.claim([claim])
        store = self.beforehand(
            lambda it: it.transfer(claim.consumer, target))

        self.assertFalse(store.transfer(claim.consumer, target))

        self.assertEqual({target}, {*self.store.claims_of(
            [claim.consumer, target])})

    def test_release_and_transfer_look_first(self):
        provider = self.make_provider(self.store, VCPU=8)
        self.store = self.make_peer(None, guards=1)
        batch = [self.make_claim(provider, VCPU=1) for _ in range(3)]
        self.store.claim(batch)
        names = [claim.consumer for claim in batch]

        self.assertEqual(['GET', 'GET', 'POST'], self.requests_of(
            self.store.transfer, names[0], str(uuid.uuid4())))
        self.assertEqual(['GET', 'GET', 'POST'], self.requests_of(
            self.store.release, names[1:]))

    def test_usages_read_generations_and_changed_providers(self):
        one, two = (self.make_provider(self.store, VCPU=8) for _ in range(2))
        token = self.store.usages().token
        self.assertEqual(['GET'], self.requests_of(self.store.usages, token))
        self.store.claim([self.make_claim(one, VCPU=1)])

        self.assertEqual(
            ['GET'] * 4, self.requests_of(self.store.usages, token))
        self.assertEqual(
            [one], [usage.provider for usage
                    in self.store.usages(token).usages])

    def test_usage_of_an_unused_provider_takes_fewer_requests(self):
        used, _ = (self.make_provider(self.store, VCPU=8) for _ in range(2))
        self.make_provider(self.store)
        self.store.claim([self.make_claim(used, VCPU=1)])

        # The generations; the inventories; the usages of two; consumers.
        self.assertEqual(
            ['GET'] * (1 + 3 + 2 + 1), self.requests_of(self.store.usages))
        self.assertUsed(self.store, used, 1, VCPU=1)

    def test_removed_provider_is_reported_without_capacity(self):
        one, two = (self.make_provider(self.store, VCPU=8) for _ in range(2))
        token = self.store.usages().token
        del self.client.server.providers[one]

        self.assertEqual(
            [claims.Usage(one, {}, {}, 0)],
            self.store.usages(token).usages)

    def test_missing_list_of_providers_removes_no_provider(self):
        self.make_provider(self.store, VCPU=8)
        token = self.store.usages().token
        self.client.server.answer = lambda request: messages.PlacementAnswer(
            404, {'errors': [{'status': 404, 'detail': 'not found'}]})

        self.assertRaises(
            exception.DatabaseUnreachable, self.store.usages, token)

    def test_guards_are_hidden(self):
        provider = self.make_provider(self.store, VCPU=8)
        self.store.claim([self.make_claim(provider, VCPU=1)])

        guard, = messages.GUARDS & {*self.client.server.providers}
        self.assertEqual({provider}, self.names_of(self.store.usages().usages))
        self.assertEqual({provider}, {*self.store.inventories()})
        self.assertEqual([], self.store.usages(providers=[guard]).usages)
        self.assertEqual([], self.store.consumers_of(guard))

    def test_names_other_than_uuids_hold_no_claims(self):
        for name in 'c', 'A' * 36, str(uuid.uuid4()).upper():
            self.assertEqual({}, self.store.claims_of([name]))
            self.store.release([name])
            self.assertEqual([], self.store.consumers_of(name))
            error = self.assertRaises(
                exception.InvalidField, self.store.claim,
                [claims.Claim(name, str(uuid.uuid4()), {'VCPU': 1})])
            self.assertEqual('consumer', error.field)
            error = self.assertRaises(
                exception.InvalidField, self.store.set_inventory, name, {})
            self.assertEqual('provider', error.field)

    def test_transfer_of_another_form_of_a_uuid_is_refused(self):
        name = str(uuid.uuid4())
        error = self.assertRaises(
            exception.InvalidField, self.store.transfer, name.upper(), name)
        self.assertEqual('source', error.field)
        self.assertFalse(self.store.transfer('A' * 36, name))

    def test_refusal_names_the_first_full_provider_and_class(self):
        first, second = sorted(
            self.make_provider(self.store, DISK_GB=1, VCPU=1)
            for _ in range(2))
        for providers in [first], [first, second], [second, first]:
            consumer = str(uuid.uuid4())
            error = self.assertRaises(
                exception.ClaimRefused, self.store.claim, [
                    claims.Claim(consumer, each, {'VCPU': 2, 'DISK_GB': 2})
                    for each in providers])

            self.assertEqual(
                (providers[0], 'DISK_GB'), (error.provider, error.resource))

    def test_invalid_resource_class_is_refused(self):
        error = self.assertRaises(
            exception.InvalidField, self.store.set_inventory,
            str(uuid.uuid4()), {'GOLD': claims.Inventory(1)})

        self.assertEqual('resource class', error.field)

    def test_transfer_of_claims_beyond_the_units_succeeds(self):
        provider = self.make_provider(self.store, VCPU=8)
        claim, target = self.make_claim(provider, VCPU=3), str(uuid.uuid4())
        self.store.claim([claim])
        narrow = {'VCPU': claims.Inventory(8, max_unit=2)}
        self.store.set_inventory(provider, narrow)

        self.assertTrue(self.store.transfer(claim.consumer, target))

        self.assertUsed(self.store, provider, 1, VCPU=3)
        self.assertEqual(narrow, self.store.inventories()[provider])

    def test_fractions_are_rounded_as_everywhere(self):
        provider = self.make_provider(
            self.store, VCPU=claims.Inventory(100, allocation_ratio=0.29))

        self.store.claim([self.make_claim(provider, VCPU=29)])

        self.assertCapacity(self.store, provider, VCPU=29)

    def test_stores_of_two_placements_differ(self):
        other = Client(servers.PlacementModel())
        other.url = 'http://other'
        store = self.make_peer(None, other)
        self.assertFalse(self.store.same_backend(store))
        other.server = self.client.server
        self.store.sync()
        self.assertTrue(self.store.same_backend(store))

    def test_silent_server_is_unreachable(self):
        def send(request):
            raise remote.NotSent('connection refused')
        self.client.send = send
        store = self.make_peer(None, retry_timeout_s=0)

        for call in store.check, store.sync, store.usages:
            error = self.assertRaises(exception.DatabaseUnreachable, call)
            self.assertEqual(
                ('claims', 'http://placement', 'connection refused'),
                (error.schema, error.url, error.reason))

    def test_old_placement_and_other_services_are_refused(self):
        self.store.check()
        for status, body, text in (
                (200, {'versions': [{'max_version': '1.36'}]}, '1.38'),
                (200, {'versions': []}, 'not a Placement service'),
                (200, {'hello': 1}, 'not a Placement service')):
            self.client.server.answer = (
                lambda request: messages.PlacementAnswer(status, body))

            error = self.assertRaises(
                exception.ConfigurationInvalid, self.store.check)
            self.assertIn(text, str(error))


class TestUnreadableProvider(OnModel, base.TestCase):
    """A provider that Placement cannot read leaves out itself only."""

    def setUp(self):
        super().setUp()
        self.clock = clocks.FakeClock()
        self.providers = [str(uuid.uuid4()) for _ in range(2)]
        for provider in self.providers:
            self.store.set_inventory(provider, {'VCPU': claims.Inventory(4)})
        self.store = placement.PlacementClaims(
            self.client, self.clock, random.Random(1))
        self.answer = None
        served = self.client.server.answer

        def answer(request):
            if self.answer is not None and request.method == 'GET' and (
                    f'{self.providers[0]}/' in request.path):
                return self.answer
            return served(request)

        self.client.server.answer = answer

    def capacities(self, token=None):
        found = self.store.usages(token)
        return [{each.provider: each.capacity.get('VCPU', 0)
                 for each in found.usages}.get(provider)
                for provider in self.providers], found.token

    def test_unreadable_provider_has_no_capacity_until_its_repair(self):
        for status, body in ((500, None), (200, {}), (200, {
                'inventories': {'VCPU': {'total': 4}}, 'usages': [],
                'allocations': 5})):
            with self.subTest(status=status, body=body):
                self.answer = messages.PlacementAnswer(status, body)

                found, token = self.capacities()

                self.assertEqual([0, 4], found)
                self.assertIn(self.providers[0], self.logs.output)
                self.assertEqual([self.providers[0]], [
                    each.provider for each in self.store.problems()])
                self.assertEqual(
                    [self.providers[1]], [*self.store.inventories()])
                self.assertEqual(
                    [], self.store.consumers_of(self.providers[0]))
                self.answer = None
                self.assertEqual(4, self.capacities(token)[0][0])
                self.assertEqual([], self.store.problems())

    def test_silent_placement_has_no_usages(self):
        def answer(request):
            raise remote.OutcomeUnknown('no answer')

        self.client.server.answer = answer

        self.assertRaises(exception.DatabaseUnreachable, self.store.usages)


class TestRejections(OnModel, base.TestCase):
    """A write that Placement rejects for good is not repeated."""

    PROVIDER, FIRST, SECOND = (
        f'aaaaaaaa-0000-4000-8000-{number:012}' for number in range(3))

    def setUp(self):
        self.clock = clocks.FakeClock()
        super().setUp()
        self.store.set_inventory(
            self.PROVIDER, {'VCPU': claims.Inventory(8)})
        self.claim(self.FIRST)
        self.server_answer = self.client.server.answer
        self.client.server.answer = self.reject

    def make_peer(self, store):
        return placement.PlacementClaims(
            self.client, self.clock, random.Random(1))

    def claim(self, consumer):
        return self.store.claim([
            claims.Claim(consumer, self.PROVIDER, {'VCPU': 1})])

    def reject(self, request):
        if (request.method, request.path) != ('POST', '/allocations'):
            return self.server_answer(request)
        return messages.PlacementAnswer(400, {'errors': [{
            'status': 400, 'code': 'placement.undefined_code',
            'detail': 'no such project'}]})

    def assertRejected(self, call, *args):
        began = self.clock.monotonic()
        with self.assertRaisesRegex(
                exception.DatabaseUnreachable, '400 no such project'):
            call(*args)
        self.assertLess(self.clock.monotonic() - began, 1.0)

    def test_rejected_call_is_not_repeated(self):
        self.assertRejected(self.claim, self.SECOND)
        self.assertRejected(self.store.release, [self.FIRST])
        self.assertRejected(self.store.transfer, self.FIRST, self.SECOND)

    def test_resolution_of_an_earlier_write_is_not_repeated(self):
        self.client.server.answer = self.lose
        self.assertRaises(
            exception.DatabaseUnreachable, self.claim, self.SECOND)
        self.client.server.answer = self.reject

        self.assertRejected(self.claim, self.SECOND)

    def lose(self, request):
        raise remote.OutcomeUnknown('no answer')

    def test_rejected_claim_is_repeated_after_the_host_is_made_again(self):
        """A host was deleted and made again before it was read."""
        def reject_once(request):
            answer = self.reject(request)
            if answer.status == 400:
                self.client.server.answer = self.server_answer
            return answer

        self.client.server.answer = reject_once

        self.assertEqual(1, self.claim(self.SECOND))
