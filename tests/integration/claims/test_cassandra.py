# SPDX-License-Identifier: Apache-2.0
"""Claims in Cassandra, on a real server."""

import random

from oslo_config import cfg

from cellsched.claims import base as claims
from cellsched.claims import cassandra
from cellsched.claims.cassandra import client
from cellsched.claims.cassandra import options
from cellsched import clock
from cellsched import exception
from cellsched.testing.suite import claim_races
from cellsched.testing.suite import claims as suite
from tests.integration import base
from tests.integration import cassandra as server
from tests.integration.claims import cassandra_claimants
from tests.integration.claims import claimants
from tests.integration.claims import closing
from tests.integration.claims import disagreeing
from tests.integration import servers
from tests import profile


class OnCassandra:
    """Makes stores in a keyspace that the tests of a class share."""

    #: Whether the store has the server add; None to have it find out.
    adds = None

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server = base.installed(servers.shared, server.Cassandra)
        cls.url = cls.part_of_class(server.Cassandra).url('claims')
        cls.keyspace = cls.url.rpartition('/')[2]
        cls.session = cls.enterClassContext(cls.server.session())
        cls.clients = [cls.make_client(cls.url) for _ in range(2)]
        cls.open(0).sync()

    @classmethod
    def make_client(cls, url, **changed):
        made = client.CassandraClient(
            options.address(url), configured(**changed), clock.Clock())
        cls.addClassCleanup(made.close)
        return made

    @classmethod
    def open(cls, number, **changed):
        return cassandra.CassandraClaims(
            cls.clients[number], clock.Clock(), random.Random(),
            **{'adds': cls.adds, 'retry_timeout_s': base.PATIENCE_S,
               **changed})

    def setUp(self):
        super().setUp()
        server.empty(self.session, self.keyspace)

    def make_store(self):
        return self.open(0)

    def make_peer(self, store):
        return self.open(1)


def configured(**changed):
    """Return the options of ``[cassandra]`` with some changes."""
    conf = cfg.ConfigOpts()
    conf.register_opts(options.opts(), group=options.GROUP)
    conf([], default_config_files=[])
    for name, value in {'replication_factor': 1, **changed}.items():
        conf.set_override(name, value, group=options.GROUP)
    return conf[options.GROUP]


@profile.by_default(
    own=True, reason='the published suite; by default it runs on PostgreSQL')
class TestCassandraClaims(
        OnCassandra, suite.ClaimStoreSuite, base.TestCase):

    @classmethod
    def setUpClass(cls):
        claimants.prepare()
        super().setUpClass()

    def test_server_is_found_to_add(self):
        store = self.make_store()
        store.check()

        self.assertTrue(store._ledger.adds)

    def test_missing_tables_are_named(self):
        url = self.part_of(server.Cassandra).url('empty')
        store = cassandra.CassandraClaims(
            self.make_client(url), clock.Clock(), random.Random(),
            place=url)

        found = self.assertRaises(exception.SchemaOutOfDate, store.check)

        self.assertIn('.consumers', str(found))
        self.assertIn('claims_db sync', str(found))
        store.sync()
        store.check()

    def test_store_without_trees_is_brought_up_to_date(self):
        url = self.part_of(server.Cassandra).url('older')
        keyspace = url.rpartition('/')[2]
        store = cassandra.CassandraClaims(
            self.make_client(url), clock.Clock(), random.Random())
        store.sync()
        provider = self.make_provider(store, VCPU=4)
        for what in (f'INDEX {keyspace}.trees_nested',
                     f'TABLE {keyspace}.trees'):
            self.session.execute(f'DROP {what}')
            found = self.assertRaises(
                exception.SchemaOutOfDate, store.check)
            self.assertIn(what.partition(' ')[2], str(found))
        store.sync()
        store.check()

        self.assertEqual([provider], store.find_providers(
            claims.ProviderQuery({'VCPU': [4]})))

    def test_keyspace_is_created_unless_present(self):
        url = self.server.place(f'{self.keyspace}_made')
        self.addCleanup(self.server.drop, f'{self.keyspace}_made')
        store = cassandra.CassandraClaims(
            self.make_client(url), clock.Clock(), random.Random())

        for copies in 1, 2:
            store._copies = copies
            store.sync()
            [row] = self.session.execute(
                'SELECT replication FROM system_schema.keyspaces '
                'WHERE keyspace_name = %s', [f'{self.keyspace}_made'])
            self.assertEqual('1', row['replication']['datacenter1'])

    def test_other_keyspace_is_another_store(self):
        url = self.part_of(server.Cassandra).url('other')
        other = cassandra.CassandraClaims(
            self.make_client(url), clock.Clock(), random.Random())
        other.sync()

        self.assertFalse(self.make_store().same_backend(other))

    def test_unreachable_server_is_an_error_without_the_password(self):
        url = 'cassandra://a:secret@127.0.0.1:1/claims'
        address = options.address(url)
        store = cassandra.CassandraClaims(
            self.make_client(url), clock.Clock(), random.Random(),
            retry_timeout_s=0.1, place=address.shown)

        found = self.assertRaises(exception.DatabaseUnreachable, store.check)

        self.assertEqual('claims', found.schema)
        self.assertNotIn('secret', str(found))

    def test_corrupted_amounts_are_corrected(self):
        store = self.make_store()
        provider = self.make_provider(store, VCPU=8, MEMORY_MB=8)
        store.claim([self.make_claim(provider, VCPU=2)])
        for column in 'u0', 'u1', 'consumers', 'open':
            self.session.execute(
                f'UPDATE {self.keyspace}.claims SET {column} = 7 '
                'WHERE provider = %s IF generation > 0', [provider])
            token = store.usages().token

            self.assertTrue(store.recount(provider))

            self.assertUsed(store, provider, 1, VCPU=2)
            self.assertIn(provider, self.names_of(store.usages(token).usages))
            self.assertFalse(store.recount(provider))

    def test_row_without_a_consumer_is_deleted(self):
        store = self.make_store()
        provider = self.make_provider(store, VCPU=8)
        stray, stays = (self.make_claim(provider, VCPU=2) for _ in range(2))
        store.claim([stray])
        store.claim([stays])
        self.session.execute(
            f'DELETE FROM {self.keyspace}.consumers WHERE consumer = %s '
            'IF EXISTS', [stray.consumer])

        self.assertTrue(store.recount(provider))

        self.assertUsed(store, provider, 1, VCPU=2)
        self.assertHolds(store, stays)

    def test_batch_of_hundreds_for_a_provider_is_atomic(self):
        store = self.make_store()
        provider = self.make_provider(store, VCPU=450)
        batch = [self.make_claim(provider, VCPU=1) for _ in range(450)]
        late = self.make_claim(provider, VCPU=1)

        self.assertRefused(store, [*batch, late], late, 'VCPU')
        self.assertUsed(store, provider, 0)
        store.claim(batch)

        self.assertUsed(store, provider, 450, VCPU=450)
        store.release(claim.consumer for claim in batch)
        self.assertUsed(store, provider, 0)

    def test_no_time_of_a_client_is_sent(self):
        self.make_store().claims_of(['anybody'])

        self.assertFalse(
            self.clients[0]._connected().use_client_timestamp)

    def test_processes_in_a_race_never_exceed_the_capacity(self):
        """Concurrent reads never see more used than fits."""
        store = self.make_store()
        providers = [self.make_provider(store, VCPU=20) for _ in range(2)]
        with cassandra_claimants.started(
                3, self.url, providers, 30) as running:
            while any(process.is_alive() for process, _ in running):
                usages = store.usages(providers=providers).usages
                for usage in usages:
                    self.assertLessEqual(usage.used['VCPU'], 20)
                for process, _ in running:
                    process.join(0.05)
            taken = [name for _, pipe in running for name in pipe.recv()]

        self.assertEqual(40, len(taken))
        self.assertEqual({*taken}, {*store.claims_of(taken)})
        for provider in providers:
            self.assertUsed(store, provider, 20, VCPU=20)
            self.assertFalse(store.recount(provider))


@profile.by_default(
    own=True, reason='the published suite; by default it runs on PostgreSQL')
class TestWithoutAddition(
        OnCassandra, claim_races.ClaimRaces, base.TestCase):
    """A server without conditional addition."""

    adds = False

    def test_inventory_is_set_beside_claims(self):
        store = self.make_store()
        provider = self.make_provider(store, VCPU=8)
        store.claim([self.make_claim(provider, VCPU=2)])

        store.set_inventory(provider, {'VCPU': claims.Inventory(total=9)})

        self.assertCapacity(store, provider, VCPU=9)
        self.assertUsed(store, provider, 1, VCPU=2)


@profile.full_only(
    'clocks that disagree; the rules are proven on PostgreSQL')
class TestDisagreeingClocks(
        disagreeing.DisagreeingClocks, OnCassandra, base.TestCase):

    def make_store_with(self, clock_):
        return cassandra.CassandraClaims(
            self.make_client_with(clock_), clock_, random.Random(),
            adds=self.adds)

    def make_client_with(self, clock_):
        made = client.CassandraClient(
            options.address(self.url), configured(), clock_)
        self.addCleanup(made.close)
        return made


@profile.full_only(
    'clocks that disagree; the rules are proven on PostgreSQL')
class TestTimesOfClients(TestDisagreeingClocks):
    """Clients with timestamps of their own."""

    def make_client_with(self, clock_):
        made = super().make_client_with(clock_)
        session = made._connected()
        session.use_client_timestamp = True
        session.cluster.timestamp_generator = lambda: int(
            1_000_000 * clock_.timestamp())
        return made


@profile.full_only(
    'clocks that disagree; the rules are proven on PostgreSQL')
class TestClientTimesWithoutAddition(TestTimesOfClients):

    adds = False


class TestClosing(
        OnCassandra, closing.ClosedWithItsParts, base.TestCase):
    pass
