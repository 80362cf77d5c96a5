# SPDX-License-Identifier: Apache-2.0
"""Claims of several requests with one write."""

import random
import uuid

from cellsched.claims import base as claims
from cellsched.claims import placement
from cellsched.claims.placement import guards
from cellsched.claims.placement import messages
from cellsched.claims.placement import operations
from cellsched.claims.placement import server
from cellsched.claims import remote
from cellsched import exception
from cellsched.simulator.servers import placement as servers
from cellsched.testing import clock
from tests.unit import base
from tests.unit.claims import test_placement

PROVIDER = str(uuid.UUID(int=1))


class TestBatchClaim(base.TestCase):

    def setUp(self):
        super().setUp()
        self.client = test_placement.Client(servers.PlacementModel())
        self.clock = clock.FakeClock()
        store = placement.PlacementClaims(
            self.client, self.clock, random.Random(1))
        store.set_inventory(PROVIDER, {'VCPU': claims.Inventory(2)})
        self.server = server.PlacementServer(self.client)
        self.owners = messages.Owners('INSTANCE', *2 * [str(uuid.uuid4())])
        self.guards = guards.Guards(
            self.server, self.owners, self.clock, random.Random(1), 2, 1)
        with self.guards.taken() as one, self.guards.taken() as two:
            for held in one, two:
                self.guards.find(held.guard)

    def request(self, amount):
        claim = claims.Claim(str(uuid.uuid4()), PROVIDER, {'VCPU': amount})
        return operations.RequestClaim(self.server, self.owners, [[claim]])

    def claim(self, *requests, inventories=None, is_shared=False):
        """Claim for requests; return the consumers that were read."""
        batch = operations.BatchClaim(
            self.server, self.guards, operations.EmptyConsumers(
                self.server, self.owners, self.clock, 1.0), requests,
            {} if inventories is None else inventories)
        with self.guards.taken([PROVIDER]) as held:
            del self.client.requests[:]
            while batch.attempt(held.guard, is_shared) is None:
                pass
        return [each.rpartition('/')[2] for each in self.client.requests
                if each.startswith('GET /allocations/')]

    def test_only_consumers_of_refused_requests_are_read(self):
        requests = [self.request(amount) for amount in (1, 3, 1)]

        read = self.claim(*requests)

        self.assertEqual(requests[1].consumers, read)
        self.assertEqual(
            [0, None, 0], [each.outcome.chosen for each in requests])
        self.assertEqual([0], [*requests[1].outcome.refusals])

    def test_answer_to_a_single_request_names_the_refusal(self):
        request = self.request(3)
        [consumer] = request.consumers

        self.claim(request)

        self.assertEqual(['POST /allocations'], self.client.requests)
        refusal = request.outcome.refusals[0]
        self.assertEqual((PROVIDER, 'VCPU', 3, consumer), tuple(
            refusal.kwargs[name]
            for name in ('provider', 'resource', 'amount', 'consumer')))

    def reads(self):
        return [each.rpartition('/')[2] for each in self.client.requests
                if each.startswith('GET /resource_providers')]

    def test_usage_of_a_shared_provider_is_read_before_a_write(self):
        known = {}
        for reads in ['inventories', 'usages'], ['usages']:
            request = self.request(1)
            self.claim(request, inventories=known, is_shared=True)
            self.assertEqual((1, reads), (request.outcome.new, self.reads()))
        request = self.request(1)

        self.claim(request, inventories=known, is_shared=True)

        self.assertIsNone(request.outcome.chosen)
        self.assertNotIn('POST /allocations', self.client.requests)

    def test_usage_of_a_full_provider_is_read_until_capacity_is_free(self):
        known = {}
        self.claim(self.request(3), inventories=known)
        for reads in ['usages', 'inventories'], []:
            request = self.request(1)

            self.claim(request, inventories=known)

            self.assertEqual((1, reads), (request.outcome.new, self.reads()))

    def test_outdated_inventory_refuses_no_claim(self):
        known = {PROVIDER: {'VCPU': claims.Inventory(1)}}
        request = self.request(2)

        self.claim(request, inventories=known, is_shared=True)

        self.assertEqual(2, known[PROVIDER]['VCPU'].total)
        self.assertEqual(1, request.outcome.new)

    def test_remembered_inventories_are_bounded(self):
        known = {str(number): {} for number in range(1000)}

        self.claim(self.request(1), inventories=known, is_shared=True)

        self.assertEqual([PROVIDER], [*known])

    def test_consumers_are_not_read_after_a_conflict_at_a_host(self):
        answer = messages.PlacementAnswer(409, {'errors': [{
            'status': 409, 'code': 'placement.concurrent_update',
            'detail': 'Inventory and/or allocations changed'}]})
        send, failures = self.client.send, [answer]
        self.client.send = lambda request: (
            failures.pop() if failures and request.method == 'POST'
            and request.path == '/allocations' else send(request))
        requests = [self.request(1), self.request(1)]

        self.assertEqual([], self.claim(*requests))
        self.assertEqual([1, 1], [each.outcome.new for each in requests])

    def test_write_without_an_answer_is_resolved_before_a_look(self):
        send, request = self.client.send, self.request(1)

        def lose(request):
            self.client.send = send
            raise remote.OutcomeUnknown('no answer')

        self.client.send = lose
        self.assertRaises(remote.OutcomeUnknown, self.claim, request)

        # The other guard is free, and the write may be executed yet.
        self.claim(request)

        # The first guard alone, a look, and the claim.
        self.assertEqual(['POST', 'GET', 'POST'], [
            each.partition(' ')[0] for each in self.client.requests])
        self.assertEqual(1, request.outcome.new)


class TestRequestsTogether(base.TestCase):
    """Requests of which Placement refuses one without naming it."""

    def setUp(self):
        super().setUp()
        self.client = test_placement.Client(servers.PlacementModel())
        self.store = placement.PlacementClaims(
            self.client, clock.FakeClock(), random.Random(1))
        self.store.set_inventory(PROVIDER, {'VCPU': claims.Inventory(4)})

    def request(self, amount=1):
        return [[claims.Claim(str(uuid.uuid4()), PROVIDER, {'VCPU': amount})]]

    def busy(self, **details):
        """Let each claim wait too long for the writes of other threads."""
        def do(requests):
            raise exception.ServiceBusy(waiting=1, **details)

        self.store._claiming.do = do
        self.client.requests = []

    def test_late_call_is_sent_alone(self):
        self.busy()

        [outcome] = self.store.claim_each([self.request()])

        self.assertEqual((0, 1), (outcome.chosen, outcome.new))

    def test_call_in_progress_is_not_sent_twice(self):
        self.busy(is_begun=True)

        self.assertRaises(exception.DatabaseUnreachable,
                          self.store.claim_each, [self.request()])

        self.assertEqual([], self.client.requests)

    def test_rejected_request_fails_alone(self):
        send, requests = self.client.send, [self.request() for _ in range(3)]
        rejected = requests[1][0][0].consumer
        self.client.send = lambda request: (
            messages.PlacementAnswer(
                400, {'errors': [{'status': 400, 'detail': 'No.'}]})
            if request.body and rejected in request.body else send(request))

        first, error, last = self.store.claim_each(requests)

        self.assertEqual((0, 0), (first.chosen, last.chosen))
        self.assertIsInstance(error, exception.DatabaseUnreachable)

    def test_request_with_a_consumer_conflict_fails_alone(self):
        requests = [self.request() for _ in range(3)]
        self.store.claim([claims.Claim(
            requests[1][0][0].consumer, PROVIDER, {'VCPU': 2})])

        first, error, last = self.store.claim_each(requests)

        self.assertEqual((0, 0), (first.chosen, last.chosen))
        self.assertIsInstance(error, exception.ClaimConflict)

    def test_failed_claim_refuses_no_other_request(self):
        requests = [self.request(4), self.request(1)]
        send, writes = self.client.send, []
        other = str(uuid.UUID(int=2))
        self.store.set_inventory(other, {'VCPU': claims.Inventory(4)})

        def interfere(request):
            if request.method == 'POST' and request.path == '/allocations':
                writes.append(request)
                if len(writes) == 3:
                    # The guard and both requests, then the first one alone.
                    self.client.send = send
                    placement.PlacementClaims(
                        self.client, clock.FakeClock(), random.Random(2)
                    ).claim([claims.Claim(
                        requests[0][0][0].consumer, other, {'VCPU': 1})])
            return send(request)

        self.client.send = interfere

        error, granted = self.store.claim_each(requests)

        self.assertIsInstance(error, exception.ClaimConflict)
        self.assertEqual(0, granted.chosen)

    def test_invalid_request_fails_alone(self):
        invalid = [[claims.Claim('c', PROVIDER, {'VCPU': 1})]]

        first, error = self.store.claim_each([self.request(), invalid])

        self.assertEqual(0, first.chosen)
        self.assertEqual('consumer', error.field)

    def test_outcome_has_the_refusals_before_the_claimed_host(self):
        full, free = (str(uuid.UUID(int=number)) for number in (2, 3))
        self.store.set_inventory(full, {'VCPU': claims.Inventory(1)})
        self.store.set_inventory(free, {'VCPU': claims.Inventory(1)})
        requests = []
        for _ in range(3):
            consumer = str(uuid.uuid4())
            requests.append([[claims.Claim(consumer, each, {'VCPU': 1})]
                             for each in (full, free)])

        outcomes = self.store.claim_each(requests)

        self.assertEqual([(0, []), (1, [0]), (None, [0, 1])], [
            (each.chosen, sorted(each.refusals)) for each in outcomes])
