# SPDX-License-Identifier: Apache-2.0
"""Claims in a real Placement."""

from concurrent import futures
import dataclasses
import random
import tempfile
import threading
import uuid

from oslo_config import cfg

from cellsched.claims import base as claims
from cellsched.claims import placement
from cellsched.claims.placement import client
from cellsched.claims.placement import guards
from cellsched.claims.placement import messages
from cellsched.claims.placement.server import PlacementServer
from cellsched import clock
from cellsched import exception
from cellsched.simulator.servers import placement as servers_model
from cellsched.testing.suite import claims as suite
from tests.integration import base
from tests.integration.claims import disagreeing
from tests.integration import placement as placement_server
from tests.integration import servers
from tests import profile


def make_client(url, timeout=base.PATIENCE_S):
    """Return a client of Placement with the rights of an administrator."""
    with tempfile.NamedTemporaryFile('w', suffix='.conf') as file:
        file.write(
            '[placement]\n'
            'auth_type = admin_token\n'
            f'endpoint = {url}\n'
            'token = admin\n'
            f'endpoint_override = {url}\n'
            f'timeout = {timeout}\n')
        file.flush()
        conf = cfg.ConfigOpts()
        conf.register_opts(client.options(), group='placement')
        conf([], default_config_files=[file.name], default_config_dirs=[])
        return client.KeystoneClient.from_conf(
            conf, 'placement', clock.Clock())


class OnPlacement:
    """Makes stores in a shared Placement."""

    def setUp(self):
        super().setUp()
        self.server = base.installed(
            servers.shared, placement_server.Placement)
        self.server.empty()

    def make_store(self, retry_timeout_s=base.PATIENCE_S):
        return self.make_store_with(clock.Clock(), retry_timeout_s)

    def make_store_with(self, clock_, retry_timeout_s=base.PATIENCE_S):
        # Earlier tests have made these guards; to make more takes time.
        return placement.PlacementClaims(
            make_client(self.server.url()), clock_, random.Random(1),
            guards=16, retry_timeout_s=retry_timeout_s)

    def make_peer(self, store):
        return self.make_store()


@profile.by_default(
    own=True, reason='the published suite; by default it runs on PostgreSQL')
class TestPlacementClaims(OnPlacement, suite.ClaimStoreSuite, base.TestCase):

    #: Whether who races has a store of his own.
    has_peers = True

    def make_peer(self, store):
        return super().make_peer(store) if self.has_peers else store

    def test_consumer_gets_a_single_claim_of_a_race(self):
        # Placement may let several processes claim for one consumer, and then
        # keeps the last claim.
        self.has_peers = False

        super().test_consumer_gets_a_single_claim_of_a_race()

    def test_consumer_raced_for_by_processes_is_corrected_by_a_claim(self):
        store = self.make_store()
        claims_ = [self.make_claim(self.make_provider(store, VCPU=2), VCPU=2)
                   for _ in range(8)]
        consumer = claims_[0].consumer
        claims_ = [dataclasses.replace(each, consumer=consumer)
                   for each in claims_]

        outcomes = self.race(store, [
            lambda it, claim=claim: it.claim([claim]) for claim in claims_])

        self.assertIn(None, outcomes)
        for outcome in outcomes:
            if outcome is not None:
                self.assertIsInstance(outcome, exception.ClaimConflict)
        [held] = store.claims_of([consumer]).get(consumer, claims_[:1])
        store.claim([held])
        self.assertHolds(store, held)
        for claim in claims_:
            taken = int(claim.provider == held.provider)
            self.assertUsed(store, claim.provider, taken, VCPU=2 * taken)

    def test_store_can_be_used(self):
        store = self.make_store()

        store.sync()
        store.check()

        self.assertEqual([], store.usages().usages)

    def test_refused_consumer_can_be_claimed_by_nova(self):
        store = self.make_store()
        provider = self.make_provider(store, VCPU=8)
        consumer = str(uuid.uuid4())
        nowhere = claims.Claim(consumer, str(uuid.uuid4()), {'VCPU': 1})
        self.assertRaises(exception.ClaimRefused, store.claim, [nowhere])

        # Nova claims for a new consumer in this way.
        owners = messages.Owners('INSTANCE', 'a', 'b')
        answer = make_client(self.server.url()).send(messages.PlacementRequest(
            'PUT', f'/allocations/{consumer}',
            owners.body({provider: {'VCPU': 1}}, None)))

        self.assertEqual(204, answer.status)
        self.assertHolds(store, claims.Claim(consumer, provider, {'VCPU': 1}))

    def test_consumer_without_allocations_can_be_claimed(self):
        store = self.make_store(retry_timeout_s=4)
        provider = self.make_provider(store, VCPU=8)
        claim = self.make_claim(provider, VCPU=1)
        owners = messages.Owners('INSTANCE', 'a', 'b')
        make_client(self.server.url()).send(messages.PlacementRequest(
            'PUT', f'/allocations/{claim.consumer}', owners.body({}, None)))

        self.assertEqual(1, store.claim([claim]))

        self.assertHolds(store, claim)

    def test_allocation_written_by_nova_is_a_claim(self):
        store = self.make_store()
        provider = self.make_provider(store, VCPU=8)
        claim, target = self.make_claim(provider, VCPU=3), str(uuid.uuid4())
        answer = make_client(self.server.url()).send(messages.PlacementRequest(
            'PUT', f'/allocations/{claim.consumer}', {
                **messages.Owners('INSTANCE', 'a', 'b').body(
                    {provider: {'VCPU': 3}}, None),
                'mappings': {'': [provider]}}))

        self.assertEqual(204, answer.status)
        self.assertHolds(store, claim)
        self.assertEqual(0, store.claim([claim]))
        self.assertTrue(store.transfer(claim.consumer, target))
        self.assertUsed(store, provider, 1, VCPU=3)
        store.release([target])
        self.assertUsed(store, provider, 0)


@profile.full_only(
    'clocks that disagree; the rules are proven on PostgreSQL')
class TestDisagreeingClocks(
        disagreeing.DisagreeingClocks, OnPlacement, base.TestCase):
    pass


class TestRaces(OnPlacement, base.TestCase):
    """Placement with its default options, and concurrent claims."""

    def race(self, write):
        """Return the highest used amount of 4 in some rounds.

        :param write: receives a client, a guard and the body of a claim
        """
        store, most = self.make_store(), 0
        owners = messages.Owners('INSTANCE', 'a', 'b')
        for _ in range(3):
            provider = str(uuid.uuid4())
            store.set_inventory(provider, {'VCPU': claims.Inventory(4)})
            start = threading.Barrier(8)

            def run(number):
                client_ = make_client(self.server.url())
                server = PlacementServer(client_)
                own = guards.Guards(server, owners, clock.Clock(),
                                    random.Random(), 1, 60)
                guard = guards.Guard(number)
                own.find(guard)
                start.wait()
                for _ in range(2):
                    write(own, guard, {str(uuid.uuid4()): owners.body(
                        {provider: {'VCPU': 1}}, None)})

            with futures.ThreadPoolExecutor(8) as pool:
                list(pool.map(run, range(8)))
            usage, = store.usages(providers=[provider]).usages
            most = max(most, usage.used['VCPU'])
        return most

    def test_placement_without_guards_exceeds_the_capacity(self):
        """Guards are not needed any more if this test fails."""
        self.assertGreater(self.race(
            lambda own, guard, bodies: own._server.set_allocations(bodies)),
            4)

    def test_guards_keep_the_capacity(self):
        self.assertLessEqual(self.race(
            lambda own, guard, bodies: own.write(guard, bodies)), 4)


class TestModel(OnPlacement, base.TestCase):
    """The model answers like Placement."""

    def setUp(self):
        super().setUp()
        self.client = make_client(self.server.url())
        self.model = servers_model.PlacementModel()
        self.prefix = f'{random.getrandbits(32):08x}-0000-4000-8000-'

    def ask(self, *request):
        """Send a request to both, and compare the parts that a store reads."""
        reported = [each(messages.PlacementRequest(*request)) for each in (
            self.client.send, self.model.answer)]
        real, modelled = reported
        self.assertEqual(
            (real.status, real.code), (modelled.status, modelled.code),
            (request, real, modelled))
        self.assertEqual(
            real.detail.strip()[-40:] if 'expected' in real.detail else '',
            modelled.detail[-40:] if 'expected' in real.detail else '')
        if request[0] == 'GET':
            self.assertEqual(_read(real.body), _read(modelled.body), request)
        return real

    def uuid(self, kind, number):
        return f'{self.prefix}{kind}{number:011}'

    def test_random_requests_have_the_same_answers(self):
        chance = random.Random(7)
        owners = messages.Owners('INSTANCE', 'a', 'b')
        providers = [self.uuid('a', number) for number in range(4)]
        consumers = [self.uuid('c', number) for number in range(4)]
        for provider in providers[:3]:
            self.ask('POST', '/resource_providers',
                     {'uuid': provider, 'name': provider})
        for _ in range(profile.COMPARED_REQUESTS // 3):
            provider = chance.choice(providers)
            if chance.random() < 0.25:
                has = self.ask(
                    'GET', f'/resource_providers/{provider}/inventories')
                self.ask('PUT', f'/resource_providers/{provider}/inventories',
                         {'resource_provider_generation': has.body.get(
                             'resource_provider_generation', 0)
                             + chance.choice((0, 0, 0, 1)),
                          'inventories': {name: {
                              'total': chance.randint(1, 6),
                              'max_unit': chance.randint(2, 4)}
                              for name in chance.sample(
                                  ('VCPU', 'DISK_GB', 'CUSTOM_NONE'),
                                  chance.choice((1, 2, 2, 2, 3)))}})
            else:
                self.ask('POST', '/allocations', {
                    consumer: owners.body({
                        each: {chance.choice(('VCPU', 'DISK_GB')):
                               chance.randint(1, 3)}
                        for each in chance.sample(
                            chance.choice((providers[:3], providers)),
                            chance.randint(0, 2))},
                        chance.choice((None, 0, 1, 2, 3)))
                    for consumer in chance.sample(
                        consumers, chance.randint(1, 2))})
            for each in consumers:
                self.ask('GET', f'/allocations/{each}')
            self.ask('GET', f'/resource_providers/{provider}/usages')
            self.ask('GET', f'/resource_providers/{provider}/allocations')

    def test_the_rest_has_the_same_answers(self):
        provider = self.uuid('a', 0)
        name = f'CUSTOM_{self.prefix[:8].upper()}'
        for body in ({'uuid': provider, 'name': 'a'},
                     {'uuid': provider, 'name': 'b'},
                     {'uuid': self.uuid('a', 1), 'name': 'a'}):
            self.ask('POST', '/resource_providers', body)
        for each in name, name, 'NONE':
            self.ask('PUT', f'/resource_classes/{each}')
        for path in (f'/resource_providers/{provider}',
                     f'/resource_providers/{self.uuid("a", 1)}'):
            self.ask('GET', path)

    def test_trees_and_traits_have_the_same_answers(self):
        root, child = self.uuid('a', 0), self.uuid('a', 1)
        trait = f'CUSTOM_{self.prefix[:8].upper()}'
        for each in root, child:
            self.ask('POST', '/resource_providers',
                     {'uuid': each, 'name': each})
        for parent in root, None, self.uuid('a', 2), root:
            self.ask('PUT', f'/resource_providers/{child}',
                     {'name': child, 'parent_provider_uuid': parent})
        path = f'/resource_providers/{child}/traits'
        for generation, traits in (0, [trait]), (1, []), (0, ['NONE']):
            self.ask('PUT', path, {
                'resource_provider_generation': generation,
                'traits': traits})
        for _ in range(2):
            self.ask('PUT', f'/traits/{trait}')
        self.ask('PUT', path, {
            'resource_provider_generation': 0, 'traits': [trait]})
        self.ask('GET', path)
        self.ask('PUT', f'/resource_providers/{child}/inventories', {
            'resource_provider_generation': 1, 'inventories': {'VCPU': {
                'total': 8, 'reserved': 2, 'min_unit': 2, 'max_unit': 6,
                'step_size': 2}}})
        for query in (*(f'resources=VCPU:{amount}' for amount in range(1, 9)),
                      'resources=CUSTOM_NONE:1', f'required={trait}',
                      'required=CUSTOM_NONE'):
            self.ask('GET', f'/resource_providers?{query}')
        for each in root, child:
            answer = self.ask('GET', f'/resource_providers/{each}')
            self.assertEqual(root, answer.body['root_provider_uuid'])


def _read(body):
    """Return the parts of an answer that a store reads."""
    if isinstance(body, dict):
        return {name: _read(each) for name, each in body.items()
                if name not in ('links', 'errors')}
    if isinstance(body, list):
        return [_read(each) for each in body]
    return body
