# SPDX-License-Identifier: Apache-2.0
"""Claims in a model of Cassandra."""

import dataclasses
import functools
import pathlib
import random
import textwrap
import uuid

import hypothesis
from hypothesis import strategies

from cellsched import claims as stores
from cellsched.claims import base as claims
from cellsched.claims import cassandra
from cellsched.claims.cassandra import records
from cellsched.claims.cassandra import requests
from cellsched.claims import memory
from cellsched.claims import remote
from cellsched import clock
from cellsched.conf import loader
from cellsched import exception
from cellsched.testing import clock as fake_clock
from cellsched.testing.suite import claims as suite
from tests.unit import base as tests
from tests.unit.claims.cassandra import base
from tests.unit.claims import model
from tests.unit.claims import test_base
from tests.unit.claims import test_sql_provider_queries


class CassandraTests(suite.ClaimStoreSuite, model.ModelTests):

    adds = True

    def setUp(self):
        super().setUp()
        self.store = self.make_store()

    def make_store(self):
        self.client = base.Client(base.make_model(self.adds))
        return self.make_peer(None)

    def make_peer(self, store):
        return base.make_store(None, self.client)

    def sent(self, call):
        """Return the number of requests of each kind in a call."""
        before = len(self.client.sent)
        call()
        kinds = [type(each).__name__ for request in self.client.sent[before:]
                 for each in getattr(request, 'requests', [request])]
        return {kind: kinds.count(kind) for kind in kinds}


class TestCassandraClaims(CassandraTests, tests.TestCase):

    def test_claim_of_a_single_provider_is_two_writes(self):
        store = self.make_store()
        provider = self.make_provider(store, VCPU=8)
        store.claim([self.make_claim(provider, VCPU=1)])

        self.assertEqual(
            {'WriteConsumer': 1, 'ChangeProvider': 1}, self.sent(
                lambda: store.claim([self.make_claim(provider, VCPU=1)])))

    def test_claim_of_several_providers_decides_once(self):
        store = self.make_store()
        providers = [self.make_provider(store, VCPU=8) for _ in range(4)]
        batch = [claims.Claim('c', provider, {'VCPU': 1})
                 for provider in providers]
        store.claim(batch)
        store.release(['c'])

        self.assertEqual(
            {'Announce': 2, 'WriteConsumer': 2, 'ChangeProvider': 4},
            self.sent(lambda: store.claim(batch)))

    def test_batch_asks_each_provider_once(self):
        store = self.make_store()
        provider = self.make_provider(store, VCPU=80)
        batch = [self.make_claim(provider, VCPU=1) for _ in range(50)]
        store.claim(batch[:1])

        self.assertEqual(1, self.sent(
            lambda: store.claim(batch[1:]))['ChangeProvider'])
        self.assertEqual({
            'Announce': 100, 'ReadConsumer': 50, 'WriteConsumer': 100,
            'ChangeProvider': 1,
        }, self.sent(lambda: store.release(
            claim.consumer for claim in batch)))

    def test_requests_are_claimed_for_at_a_time(self):
        store = self.make_store()
        full, free = (self.make_provider(store, VCPU=number)
                      for number in (1, 3))
        for provider in full, free:
            store.claim([self.make_claim(provider, VCPU=1)])
        asked = [[[claims.Claim(consumer, provider, {'VCPU': 1})]
                  for provider in (full, free)] for consumer in 'abc']
        outcomes = []

        sent = self.sent(lambda: outcomes.extend(store.claim_each(asked)))

        # One change of a provider claims for two requests.
        self.assertEqual((4, 1), (
            sent['WriteConsumer'], sent['ChangeProvider']))
        self.assertEqual(
            [(1, {0}), (1, {0}), (None, {0, 1})],
            [self.chosen(outcome) for outcome in outcomes])

    def test_invalid_request_fails_alone(self):
        store = self.make_store()
        one, two = (self.make_provider(store, VCPU=3) for _ in range(2))
        store.claim([claims.Claim('a', one, {'VCPU': 2})])
        asked = [[[claims.Claim('a', one, {'VCPU': 1})]],
                 [[claims.Claim('b', one, {'VCPU': 0})]],
                 [[claims.Claim('c', each, {'VCPU': 1})
                   for each in (one, two)]],
                 [[claims.Claim('d', two, {'VCPU': 1})]]]

        conflict, invalid, *claimed = store.claim_each(asked)

        self.assertIsInstance(conflict, exception.ClaimConflict)
        self.assertIsInstance(invalid, exception.InvalidField)
        self.assertEqual([0, 0], [each.chosen for each in claimed])

    def test_full_providers_are_refused_by_a_read_each(self):
        store = self.make_store()
        *full, free = [self.make_provider(store, VCPU=number)
                       for number in (1, 1, 1, 2)]
        for provider in [*full, free]:
            store.claim([self.make_claim(provider, VCPU=1)])
        request = [[claims.Claim('c', provider, {'VCPU': 1})]
                   for provider in [*full, free]]

        self.assertEqual(
            {'ReadConsumer': 1, 'ReadFigures': 3, 'WriteConsumer': 1,
             'ChangeProvider': 1},
            self.sent(lambda: self.assertEqual(
                (3, {0, 1, 2}), self.chosen(store.claim_any(request)))))

    def test_next_batch_replaces_the_intent_of_a_refused_batch(self):
        store = self.make_store()
        *full, free = [self.make_provider(store, VCPU=number)
                       for number in (1, 1, 2)]
        peer = self.make_peer(store)
        for provider in full:
            peer.claim([self.make_claim(provider, VCPU=1)])
        batches = [[claims.Claim('c', provider, {'VCPU': 1})]
                   for provider in [*full, free]]

        sent = self.sent(lambda: self.assertEqual(
            (2, {0, 1}), self.chosen(store.claim_any(batches))))

        self.assertEqual((2, 1), (
            sent['WriteConsumer'], sent['ChangeProvider']))
        self.assertEqual({'c': batches[2]}, store.claims_of(['c']))

    def test_intent_is_deleted_if_each_batch_is_refused(self):
        store = self.make_store()
        providers = [self.make_provider(store, VCPU=1) for _ in range(3)]
        peer = self.make_peer(store)
        for provider in providers:
            peer.claim([self.make_claim(provider, VCPU=1)])

        sent = self.sent(lambda: self.assertEqual(
            (None, {0, 1, 2}), self.chosen(store.claim_any([
                [claims.Claim('c', provider, {'VCPU': 1})]
                for provider in providers]))))

        self.assertEqual(2, sent['WriteConsumer'])
        self.assertNotIn('c', self.client.model.consumers)

    def test_intent_cancelled_by_another_client_is_not_replaced(self):
        store = self.make_store()
        full, free = (self.make_provider(store, VCPU=number)
                      for number in (1, 3))
        peer = self.make_peer(store)
        peer.claim([self.make_claim(full, VCPU=1)])
        send = self.client.send

        def cancel(request):
            if request == requests.ReadFigures(free, serial=False):
                self.client.send = send
                peer.release(['c'])
                peer.claim([claims.Claim('c', free, {'VCPU': 2})])
            return send(request)

        self.client.send = cancel
        self.assertRaises(
            exception.ClaimConflict, store.claim_any,
            [[claims.Claim('c', provider, {'VCPU': 1})]
             for provider in (full, free)])

        self.assertEqual(
            {'c': [claims.Claim('c', free, {'VCPU': 2})]},
            store.claims_of(['c']))

    def test_full_provider_is_claimed_after_a_release(self):
        store = self.make_store()
        provider, other = (
            self.make_provider(store, VCPU=1) for _ in range(2))
        claim = self.make_claim(provider, VCPU=1)
        store.claim([claim])
        peer = self.make_peer(store)
        peer.release([claim.consumer])

        self.assertEqual((0, set()), self.chosen(store.claim_any(
            [[claims.Claim('c', each, {'VCPU': 1})]
             for each in (provider, other)])))

    def test_full_provider_without_an_answer_refuses_by_an_attempt(self):
        store = self.make_store()
        provider = self.make_provider(store, VCPU=1)
        store.claim([self.make_claim(provider, VCPU=1)])
        send = self.client.send
        lost = []

        def lose(request):
            if not lost and request == requests.ReadFigures(
                    provider, serial=False):
                lost.append(request)
                raise remote.OutcomeUnknown('no answer')
            return send(request)

        self.client.send = lose
        sent = self.sent(lambda: self.assertRaises(
            exception.ClaimRefused, store.claim,
            [self.make_claim(provider, VCPU=1)]))

        # An intent, which is deleted again.
        self.assertEqual(2, sent['WriteConsumer'])

    def chosen(self, outcome):
        return outcome.chosen, {*outcome.refusals}

    def test_rows_of_new_operations_are_not_read(self):
        now = fake_clock.FakeClock()
        self.make_store()
        store = base.make_store(None, self.client, now)
        store.usages()
        self.client.model.answer(requests.Announce(
            int(now.timestamp() // requests.BUCKET_S), 'c'))

        sent = []
        for _ in range(3):
            now.advance(1)
            sent.append(self.sent(store.usages).get('ReadConsumer', 0))

        self.assertEqual([0, 1, 1], sent)

    def test_only_changed_providers_are_read(self):
        store = self.make_store()
        providers = [self.make_provider(store, VCPU=8) for _ in range(9)]
        token = store.usages().token
        store.claim([self.make_claim(providers[3], VCPU=1)])

        self.assertEqual({'Scan': 1, 'ReadFigures': 1}, self.sent(
            lambda: store.usages(token)))
        self.assertEqual({providers[3]}, self.names_of(
            store.usages(token).usages))

    def test_where_much_changed_all_is_read_at_once(self):
        store = self.make_store()
        providers = [self.make_provider(store, VCPU=8) for _ in range(120)]
        token = store.usages().token
        for provider in providers[:110]:
            store.set_inventory(provider, {'VCPU': claims.Inventory(9)})

        self.assertEqual(
            {'Scan': 2}, self.sent(lambda: store.usages(token)))
        self.assertEqual({*providers[:110]}, self.names_of(
            store.usages(token).usages))

    def test_capacity_is_found_by_a_scan_and_trees_of_each_trait(self):
        store = self.make_store()
        providers = [self.make_provider(store, VCPU=8) for _ in range(3)]
        for provider in providers:
            store.set_traits(provider, ['A'], provider)
        find = functools.partial(store.find_providers, claims.ProviderQuery(
            {'VCPU': [1]}, frozenset({'A'}), frozenset({'B'})))

        self.assertEqual(
            {'Scan': 1, 'ScanTrees': 3}, self.sent(find))
        store.set_traits(providers[0], [], providers[0])

        self.assertEqual(
            {'Scan': 1, 'ScanTrees': 4}, self.sent(find))
        self.assertEqual({*providers[1:]}, {*find()})

    def test_known_traits_are_not_written(self):
        store = self.make_store()
        provider = str(uuid.uuid4())
        tell = functools.partial(
            store.set_traits, provider, ['A', 'B'], provider)

        self.assertEqual(
            {'ReadTree': 1, 'WriteTree': 1}, self.sent(tell))
        self.assertEqual({'ReadTree': 1}, self.sent(tell))

    def test_traits_written_without_an_answer_are_set(self):
        store = self.make_store()
        provider = str(uuid.uuid4())
        send = self.client.send

        def lose(request):
            answer = send(request)
            if isinstance(request, requests.WriteTree):
                self.client.send = send
                raise remote.OutcomeUnknown
            return answer

        self.client.send = lose
        store.set_traits(provider, ['A'], provider)

        self.assertEqual({provider: provider}, store.roots([provider]))
        self.assertEqual(1, sum(isinstance(each, requests.WriteTree)
                                for each in self.client.sent))

    def test_concurrently_set_traits_are_replaced(self):
        store = self.make_store()
        provider, root = str(uuid.uuid4()), str(uuid.uuid4())
        send = self.client.send

        def come_first(request):
            if isinstance(request, requests.WriteTree):
                self.client.send = send
                self.make_peer(store).set_traits(provider, ['B'], provider)
            return send(request)

        self.client.send = come_first
        store.set_traits(provider, ['A'], root)

        self.assertEqual({provider: root}, store.roots([provider]))

    def test_old_server_is_refused(self):
        store = self.make_store()
        self.client.send = (
            lambda request: requests.KeyspaceDescription('3.11.4', ()))

        found = self.assertRaises(
            exception.ConfigurationInvalid, store.check)

        self.assertIn('3.11.4', str(found))

    def test_sync_creates_the_schema(self):
        store = self.make_store()
        self.client.model.created = False
        self.assertRaises(exception.SchemaOutOfDate, store.check)

        store.sync()

        store.check()

    def test_configuration_of_the_docs_makes_a_store(self):
        page = pathlib.Path(__file__).parents[3] / (
            'doc/source/admin/claim-stores/cassandra.rst')
        _, _, rest = page.read_text().partition('code-block:: ini\n')
        text = textwrap.dedent(rest[:rest.index('The nodes')])
        file = pathlib.Path(self.temporary_directory()) / 'api.conf'
        file.write_text(text)
        conf = loader.load(['--config-file', str(file)])

        store = stores.load(conf, test_base.Parts)

        self.assertIsInstance(store, cassandra.CassandraClaims)
        self.assertEqual(3, store._copies)
        self.assertNotIn('PASSWORD', store._place)

    def test_empty_name_is_not_found(self):
        store = self.make_store()

        self.assertEqual({}, store.claims_of(['']))
        self.assertEqual([], store.usages(providers=['']).usages)
        self.assertEqual([], store.consumers_of(''))
        store.release([''])

    def test_silent_server_is_unreachable(self):
        class Deaf:
            def send(self, request):
                raise remote.OutcomeUnknown('no answer')

        store = cassandra.CassandraClaims(
            Deaf(), clock.Clock(), random.Random(), retry_timeout_s=0.0,
            adds=True, place='cassandra://u:****@h/k')

        for call in (lambda: store.claims_of(['c']),
                     lambda: store.release(['c']),
                     lambda: store.claim([self.make_claim('p', VCPU=1)]),
                     lambda: store.usages(), lambda: store.recount('p'),
                     lambda: store.set_inventory('p', {}),
                     lambda: store.transfer('a', 'b'),
                     lambda: store.roots(['p']),
                     lambda: store.set_traits('p', [], 'p'),
                     lambda: store.find_providers(claims.ProviderQuery({}))):
            found = self.assertRaises(exception.DatabaseUnreachable, call)
            self.assertIn('no answer', str(found))


class TestServerWithoutAddition(CassandraTests, tests.TestCase):

    adds = False


class TestUnreadableRows(tests.TestCase):
    """A row that cannot be read leaves out its own record only."""

    INVENTORIES = ('', 'junk', '[]', '{"a":5}', '[0,{"VCPU":["x",4]}]',
                   '[0,{"VCPU":[99,4]}]', '[0,{"VCPU":[0,4,1,9,0]}]',
                   '[0,[],"new"]', '[' * 100000)
    BODIES = ('', 'junk', '[]', '{"a":5}', '{"state":"held"}',
              '{"state":"new","holding":{"attempt":"1","claims":{}}}',
              '{"state":"held","v":2,"holding":{"attempt":"1","claims":{}}}',
              '{"state":"held","holding":{"attempt":"1","claims":{},"x":1}}',
              '{"state":"held","holding":{"attempt":"1","claims":5}}')

    def setUp(self):
        super().setUp()
        self.model = base.make_model()
        self.store = self.make_store()
        for name in 'hi':
            self.store.set_inventory(name, {'VCPU': claims.Inventory(4)})
        self.take('a', 'h')
        self.take('b', 'i')

    def make_store(self):
        return base.make_store(self.model, retry_timeout_s=5.0)

    def take(self, consumer, provider, store=None):
        (store or self.store).claim(
            [claims.Claim(consumer, provider, {'VCPU': 1})])

    def spoil(self, provider, **changed):
        """Change columns of a provider; return the earlier figures."""
        partition = self.model.partitions[provider]
        before = partition.figures
        partition.figures = dataclasses.replace(before, **changed)
        return before

    def spoil_consumer(self, name, body):
        row = self.model.consumers[name]
        self.model.consumers[name] = dataclasses.replace(row, body=body)
        return row.body

    def capacities(self, store, token=None):
        return {each.provider: each.capacity.get('VCPU', 0)
                for each in store.usages(token).usages}

    def test_unreadable_provider_is_omitted_until_its_repair(self):
        for text in self.INVENTORIES:
            with self.subTest(inventory=text[:80]):
                before = self.spoil('h', inventory=text)
                store = self.make_store()

                token = store.usages().token
                self.assertEqual({'h': 0, 'i': 4}, self.capacities(store))
                self.assertRaises(
                    exception.ClaimRefused, self.take, 'c', 'h', store)
                self.take('c', 'i', store)
                self.assertRaises(
                    exception.ClaimStoreFailed, store.set_inventory, 'h',
                    {'VCPU': claims.Inventory(9)})
                self.assertFalse(store.recount('h'))
                self.assertEqual(['h'], [
                    each.provider for each in store.problems()])
                self.assertIn("provider 'h'", self.logs.output)
                self.assertEqual(['i'], store.find_providers(
                    claims.ProviderQuery({'VCPU': [1]})))
                self.spoil('h', inventory=before.inventory)
                self.assertEqual(4, self.capacities(store, token)['h'])
                self.take('d', 'h', store)
                self.assertEqual([], store.problems())
                store.release(['c', 'd'])

    def test_release_beside_unreadable_inventory_is_counted_later(self):
        before = self.spoil('h', inventory='junk')
        store = self.make_store()
        store.usages()

        store.release(['a'])
        self.assertEqual({}, store.claims_of(['a']))
        self.spoil('h', inventory=before.inventory)

        [usage] = [each for each in store.usages().usages
                   if each.provider == 'h']
        self.assertEqual((0, 0), (usage.used['VCPU'], usage.consumers))

    def test_counter_without_a_value_is_counted_again(self):
        self.spoil('h', used=(None,) * 32, consumers=None)
        store = self.make_store()

        self.assertRaises(
            exception.ClaimRefused, self.take, 'c', 'h', store)
        [problem] = store.problems()
        self.assertEqual('', problem.advice)
        store.mend()

        self.assertEqual([], store.problems())
        self.take('c', 'h', store)

    def test_unreadable_consumer_is_omitted(self):
        for body in self.BODIES:
            with self.subTest(body=body):
                before = self.spoil_consumer('a', body)
                store = self.make_store()

                self.assertEqual(['b'], [*store.claims_of(['a', 'b'])])
                self.assertEqual([], store.consumers_of('h'))
                for call in (lambda: self.take('a', 'i', store),
                             lambda: store.transfer('a', 'z'),
                             lambda: store.transfer('b', 'a')):
                    error = self.assertRaises(
                        exception.ClaimStoreFailed, call)
                    self.assertIn("consumer 'a'", str(error))
                self.assertFalse(store.recount('h'))
                self.assertEqual(['consumers: a'], [
                    each.record for each in store.problems()])
                self.take('c', 'h', store)
                self.assertRaises(
                    exception.ClaimStoreFailed, store.release, ['a', 'c'])
                self.assertEqual({}, store.claims_of(['c']))
                self.assertEqual(body, self.spoil_consumer('a', before))
                self.assertEqual({'a', 'b'}, {*store.claims_of('ab')})

    def test_row_of_a_claim_is_named(self):
        rows = self.model.partitions['h'].rows
        for key, row in rows.items():
            rows[key] = dataclasses.replace(row, resources='junk')

        self.assertEqual(['claims: provider h, consumer a'], [
            each.record for each in self.store.problems()])
        self.assertFalse(self.store.recount('h'))
        self.assertEqual(1, len(rows))

    def test_unreadable_lead_of_a_batch_drops_no_member(self):
        self.store.claim([claims.Claim(name, provider, {'VCPU': 1})
                          for name in 'xy' for provider in 'hi'])
        lead, member = (
            records.Record.parse(name, self.model.consumers[name])
            for name in 'xy')
        # The client stopped after the decision.
        member = member.replaced(records.TAKING, lead='x')
        self.model.consumers['y'] = requests.VersionedRow(
            member.version, member.body())
        self.spoil_consumer('x', '{"v":2}')

        store = base.make_store(self.model, abandoned_s=0.0)
        self.assertRaises(
            exception.ClaimStoreFailed, self.take, 'y', 'h', store)
        self.assertRaises(exception.ClaimStoreFailed, store.release, ['y'])
        store.consumers_of('h')

        self.assertIn('y', self.model.consumers)
        self.assertEqual(3, len(self.model.partitions['h'].rows))


class TestFindProviders(tests.TestCase):
    """Queries return the same as those of the reference."""

    @hypothesis.given(
        strategies.lists(
            test_sql_provider_queries.PROVIDERS, min_size=1, max_size=6),
        strategies.lists(
            test_sql_provider_queries.QUERIES, min_size=1, max_size=6))
    def test_cassandra_and_memory_find_the_same_providers(
            self, providers, queries):
        stores = base.make_store(base.make_model()), memory.MemoryClaims()
        for store in stores:
            test_sql_provider_queries.TestFindProviders.fill(store, providers)

        for query in queries:
            found, known = (sorted(store.find_providers(query))
                            for store in stores)
            self.assertEqual(known, found)
