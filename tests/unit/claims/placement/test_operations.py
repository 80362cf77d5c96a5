# SPDX-License-Identifier: Apache-2.0
"""Claims of several batches with one request."""

import random
import threading
import uuid

from cellsched.claims import base as claims
from cellsched.claims import placement
from cellsched.claims.placement import guards
from cellsched.claims.placement import messages
from cellsched.claims.placement import operations
from cellsched.claims.placement import server
from cellsched import exception
from cellsched.simulator.servers import placement as servers
from cellsched.testing import clock
from tests.unit import base
from tests.unit.claims import test_placement

PROVIDER = str(uuid.UUID(int=1))


class TestClaimTogether(base.TestCase):

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
            self.server, self.owners, self.clock, random.Random(1), 1)
        with self.guards.taken() as held:
            self.guards.find(held.guard)

    def batch(self, amount):
        claim = claims.Claim(str(uuid.uuid4()), PROVIDER, {'VCPU': amount})
        return operations.BatchClaim(
            self.server, operations.EmptyConsumers(
                self.server, self.owners, self.clock, 1.0),
            self.owners, [claim], threading.Lock())

    def claim(self, *batches, inventories=None):
        """Return the consumers whose allocations were read."""
        with self.guards.taken([PROVIDER]) as held:
            del self.client.requests[:]
            while operations.claim_together(
                    self.server, self.guards, held.guard,
                    [*batches], inventories) is None:
                pass
        return [each.rpartition('/')[2] for each in self.client.requests
                if each.startswith('GET /allocations/')]

    def test_only_consumers_of_refused_batches_are_read(self):
        batches = [self.batch(amount) for amount in (1, 2, 1)]

        read = self.claim(*batches)

        self.assertEqual(batches[1].consumers, read)
        self.assertEqual([1, None, 1], [each.new for each in batches])
        self.assertIsInstance(batches[1].error, exception.ClaimRefused)

    def test_answer_to_a_single_batch_says_why_it_is_refused(self):
        batch = self.batch(3)
        [consumer] = batch.consumers

        self.claim(batch)

        self.assertEqual(['POST /allocations'], self.client.requests)
        self.assertEqual((PROVIDER, 'VCPU', 3, consumer), tuple(
            batch.error.kwargs[name]
            for name in ('provider', 'resource', 'amount', 'consumer')))

    def reads(self):
        return [each.rpartition('/')[2] for each in self.client.requests
                if each.startswith('GET /resource_providers')]

    def test_usage_of_a_shared_provider_is_read_before_a_write(self):
        known = {}
        for new, reads in ((1, ['inventories', 'usages']), (1, ['usages'])):
            batch = self.batch(1)
            self.claim(batch, inventories=known)
            self.assertEqual((new, reads), (batch.new, self.reads()))
        batch = self.batch(1)

        self.claim(batch, inventories=known)

        self.assertIsInstance(batch.error, exception.ClaimRefused)
        self.assertNotIn('POST /allocations', self.client.requests)

    def test_earlier_inventory_refuses_nothing(self):
        known = {PROVIDER: {'VCPU': claims.Inventory(1)}}
        batch = self.batch(2)

        self.claim(batch, inventories=known)

        self.assertEqual(2, known[PROVIDER]['VCPU'].total)
        self.assertEqual(1, batch.new)

    def test_remembered_inventories_are_bounded(self):
        known = {str(number): {} for number in range(1001)}

        self.claim(self.batch(1), inventories=known)

        self.assertEqual([PROVIDER], [*known])

    def test_consumers_are_not_read_after_a_conflict_at_a_host(self):
        answer = messages.PlacementAnswer(409, {'errors': [{
            'status': 409, 'code': 'placement.concurrent_update',
            'detail': 'Inventory and/or allocations changed'}]})
        send, failures = self.client.send, [answer]
        self.client.send = lambda request: (
            failures.pop() if failures and request.method == 'POST'
            and request.path == '/allocations' else send(request))
        batches = [self.batch(1), self.batch(1)]

        self.assertEqual([], self.claim(*batches))
        self.assertEqual([1, 1], [each.new for each in batches])

    def test_rejected_batch_does_not_fail_the_batches_with_it(self):
        send, batches = self.client.send, [self.batch(1), self.batch(1)]
        own, rejected = ([*each.consumers] for each in batches)

        def reject(request):
            if request.body and not rejected.isdisjoint(request.body):
                return messages.PlacementAnswer(
                    400, {'errors': [{'status': 400, 'detail': 'No.'}]})
            return send(request)

        rejected = frozenset(rejected)
        self.client.send = reject
        with self.guards.taken([PROVIDER]) as held:
            for _ in range(9):
                if operations.claim_together(
                        self.server, self.guards, held.guard, batches):
                    break

        [claimed] = batches
        self.assertEqual((1, own), (claimed.new, claimed.consumers))
