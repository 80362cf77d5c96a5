# SPDX-License-Identifier: Apache-2.0
"""Claims in SQL, on real servers."""

from concurrent import futures
import threading

from alembic import autogenerate
from alembic.runtime import migration
from oslo_db import exception as db_exc
import sqlalchemy as sa

from cellsched.claims import base as claims
from cellsched.claims import sql
from cellsched.claims.sql import queries
from cellsched.claims.sql import schema
from cellsched.claims.sql import transactions
from cellsched import clock
from cellsched.db import errors
from cellsched.db import guarded_statements
from cellsched.db import session
from cellsched import exception
from cellsched.testing.suite import claim_groups
from cellsched.testing.suite import claim_races
from cellsched.testing.suite import claims as suite
from tests.integration import base
from tests.integration.claims import disagreeing
from tests.integration.db import base as databases
from tests.integration import mariadb
from tests.integration import servers
from tests import profile
from tests.unit.claims import model

#: Longer than a release takes that waits for nobody.
RELEASED_S = 20


def is_deadlock(refused):
    """Return whether a transaction of one message ended in a deadlock."""
    return any(errors.state(error) == '40P01'
               or errors.number(error) == 1213
               for error in refused.args)


class OnServer:
    """Makes stores in a database of a server, shared by tests.

    The creation of tables takes a server longer than most tests.
    """

    #: The kind of the server.
    server = None

    #: Removes all rows of tables.
    empty = None

    #: SQL: how many sessions wait for a lock.
    waiting_query = None

    def setUp(self):
        super().setUp()
        self.deadlocks = []
        execute = guarded_statements.execute

        def noting(*args, **options):
            try:
                return execute(*args, **options)
            except guarded_statements.StatementRefused as exc:
                if is_deadlock(exc):
                    self.deadlocks.append(exc)
                raise

        self.patch(guarded_statements, 'execute', noting)
        self.make_tables()
        self.store = self.make_store()

    def make_tables(self):
        """Empty the tables of the database."""
        self.url = self.by_driver(base.installed(
            databases.shared_url, self.server, schema.SCHEMA))
        with self.make_database().writer() as connection:
            self.empty(connection, [
                schema.providers, schema.inventories, schema.allocations,
                schema.members])

    @staticmethod
    def by_driver(url):
        """Return the URL for the driver under test."""
        return url

    def connection_parameters(self):
        """Return additional arguments of the driver."""
        return ''

    def make_database(self, clock_=None):
        database = session.Database(self.url, 'claims', {
            'max_pool_size': 40,
            'connection_parameters': self.connection_parameters()},
            clock=clock_ or clock.Clock())
        self.addCleanup(database.close)

        @sa.event.listens_for(database.engine, 'handle_error')
        def note(context):
            if isinstance(context.chained_exception, db_exc.DBDeadlock):
                self.deadlocks.append(context.chained_exception)
        return database

    def waits(self):
        """Return the number of sessions that wait for a lock."""
        with self.make_database().reader() as connection:
            return connection.scalar(sa.text(self.waiting_query))

    def make_store(self):
        return self.make_store_with(None)

    def make_store_with(self, clock_):
        return sql.SQLClaims(self.make_database(clock_))

    def make_peer(self, store):
        return self.make_store()


class OnPostgreSQL(OnServer):
    """Makes stores with an isolation level."""

    server = servers.PostgreSQL

    empty = staticmethod(databases.empty_on_postgresql)

    waiting_query = (
        'SELECT count(*) FROM pg_stat_activity WHERE '
        "datname = current_database() AND wait_event_type = 'Lock'")

    isolation = 'read committed'

    #: More of what the driver is told.
    parameters = ''

    def connection_parameters(self):
        isolation = self.isolation.replace(' ', '%5C%20')
        return (f'options=-cdefault_transaction_isolation%3D{isolation}'
                f'{self.parameters}')


class OnMariaDB(OnServer):

    server = mariadb.MariaDB

    empty = staticmethod(databases.empty_on_mariadb)

    waiting_query = (
        'SELECT count(*) FROM information_schema.innodb_trx '
        'JOIN information_schema.processlist ON id = trx_mysql_thread_id '
        "WHERE trx_state = 'LOCK WAIT' AND db = DATABASE()")


class SQLClaimsTests(suite.ClaimStoreSuite, model.ModelTests):

    def test_tables_and_history_agree(self):
        with self.make_database().reader() as connection:
            context = migration.MigrationContext.configure(
                connection, opts={
                    'version_table': schema.SCHEMA.version_table,
                    'compare_type': True})
            self.assertEqual([], autogenerate.compare_metadata(
                context, schema.METADATA))

    def test_missing_schema_names_the_command(self):
        database = session.Database(
            self.by_driver(self.part_of(self.server).url('empty')), 'claims',
            clock=clock.Clock())
        self.addCleanup(database.close)
        store = sql.SQLClaims(database)

        for call in store.check, store.usages, lambda: store.claims_of(['c']):
            error = self.assertRaises(exception.SchemaOutOfDate, call)
            self.assertIn('cellsched-manage claims_db sync', str(error))

    def test_only_the_first_row_of_a_consumer_has_its_owner(self):
        one, two = (self.make_provider(self.store, VCPU=100, GB=100)
                    for _ in range(2))
        for batch in (
                # One, several that are alike, others, and one consumer's.
                [self.make_owned(one, ('a', 'b'), VCPU=1, GB=1)],
                [self.make_owned(one, ('a', 'b'), VCPU=1, GB=1)
                 for _ in range(2)],
                [self.make_owned(one, ('a', 'b'), VCPU=number, GB=1)
                 for number in (1, 2)],
                [self.make_owned(each, ('a', 'b'), 'c', VCPU=1, GB=1)
                 for each in (one, two)]):
            self.store.claim(batch)

        with self.make_database().reader() as connection:
            rows = connection.execute(sa.select(
                schema.allocations.c.ordinal > 0,
                schema.allocations.c.project_id,
                schema.allocations.c.user_id)).all()
        self.assertEqual({(False, 'a', 'b'), (True, None, None)}, {*rows})

    def test_batches_of_many_providers_never_deadlock(self):
        providers = [self.make_provider(self.store, VCPU=1000, GB=1000)
                     for _ in range(40)]

        def churn(number):
            order = providers[number:] + providers[:number]
            batch = [self.make_claim(provider, VCPU=1 + number % 3, GB=1)
                     for provider in order[::(-1) ** number]]

            def call(store):
                for _ in range(5):
                    store.claim(batch)
                    store.release([claim.consumer for claim in batch])
            return call

        outcomes = self.race(
            self.store, [churn(number) for number in range(16)])

        self.assertEqual([None] * 16, outcomes)
        self.assertEqual([], self.deadlocks)
        for usage in self.store.usages().usages:
            self.assertEqual({'VCPU': 0, 'GB': 0}, usage.used)

    def test_late_commit_is_reported(self):
        """An earlier transaction may become visible after a later one."""
        early, late = (
            self.make_provider(self.store, VCPU=8) for _ in range(2))
        written, may_commit = threading.Event(), threading.Event()
        database = self.make_database()

        def write_and_wait():
            with database.writer() as connection:
                # Its lane is another one than that of the fast one.
                transactions.claim(
                    connection, [claims.Claim('slow', early, {'VCPU': 1})])
                written.set()
                may_commit.wait(self.timeout_s)

        with futures.ThreadPoolExecutor(1) as pool:
            writer = pool.submit(write_and_wait)
            written.wait(self.timeout_s)
            self.store.claim([claims.Claim('fast', late, {'VCPU': 1})])
            changes = self.store.usages()
            may_commit.set()
            writer.result()

        seen = {usage.provider: usage.used for usage in changes.usages}
        self.assertEqual({early: {'VCPU': 0}, late: {'VCPU': 1}}, seen)
        self.assertEqual(
            {early}, self.names_of(self.store.usages(changes.token).usages))

    def test_release_waits_for_a_transfer_and_finds_its_claims(self):
        provider = self.make_provider(self.store, VCPU=8)
        joins = claims.Membership('g', 'host', claims.ANTI_AFFINITY)
        for source, target in 'ab', 'ba':
            self.store.claim([
                claims.Claim(source, provider, {'VCPU': 2}, joins)])
            with self.make_database().writer() as connection:
                transactions.transfer(connection, source, target)
                released = threading.Thread(
                    target=self.make_store().release, args=(['a', 'b'],),
                    daemon=True)
                released.start()
                while not self.waits() and released.is_alive():
                    pass
            released.join(RELEASED_S)

            self.assertFalse(released.is_alive())
            self.assertEqual({}, self.store.claims_of(['a', 'b']))
            with self.make_database().reader() as connection:
                self.assertEqual([], list(connection.execute(
                    sa.select(schema.members.c.consumer)).scalars()))
        self.assertUsed(self.store, provider, 0)

    def test_transfer_waits_for_a_transfer_in_the_other_direction(self):
        provider = self.make_provider(self.store, VCPU=8)
        self.store.claim([claims.Claim('a', provider, {'VCPU': 2}),
                          claims.Claim('b', provider, {'VCPU': 3})])
        with futures.ThreadPoolExecutor(1) as pool:
            with self.make_database().writer() as connection:
                transactions.transfer(connection, 'a', 'b')
                transferred = pool.submit(
                    self.make_store().transfer, 'b', 'a')
                while not self.waits() and not transferred.done():
                    pass

            self.assertTrue(transferred.result(self.timeout_s))

        self.assertHolds(self.store, claims.Claim('a', provider, {'VCPU': 2}))
        self.assertUsed(self.store, provider, 1, VCPU=2)

    def test_transfer_replaces_a_membership_without_claims(self):
        """Another program has released the target."""
        provider = self.make_provider(self.store, VCPU=8)
        joins = claims.Membership('g', 'host', claims.ANTI_AFFINITY)
        self.store.claim([claims.Claim('a', provider, {'VCPU': 2}, joins)])
        with self.make_database().writer() as connection:
            connection.execute(sa.insert(schema.members).values(
                consumer='b', group_uuid='g', member='b', host='former'))

        self.assertTrue(self.store.transfer('a', 'b'))

        self.assertEqual({'b': claims.joined('g', 'host', 'a')},
                         self.store.memberships(['a', 'b']))


class TestSQLClaims(OnPostgreSQL, SQLClaimsTests, base.TestCase):
    pass


@profile.by_default(
    'test_release_waits_for_a_transfer_and_finds_its_claims',
    'test_tables_and_history_agree', own=True,
    reason='MariaDB; the rules are proven on PostgreSQL')
class TestMariaDB(OnMariaDB, SQLClaimsTests, base.TestCase):

    def test_unstorable_names_are_not_found(self):
        for name in '\xe9', '\U0001f600', 'x' * 300:
            self.assertEqual({}, self.store.claims_of([name]))
            self.assertEqual(
                [], self.store.usages(providers=[name]).usages)
            self.assertEqual([], self.store.consumers(after=name))
            self.store.release([name])

    def test_release_of_several_waits_for_no_locked_consumer(self):
        """Not even if a full scan of the table would be cheaper."""
        provider = self.make_provider(self.store, VCPU=100, GB=100)
        theirs, ours = (
            [self.make_claim(provider, VCPU=1, GB=1) for _ in range(count)]
            for count in (1, 40))
        for batch in theirs, ours:
            self.store.claim(batch)
        names = sorted(claim.consumer for claim in theirs)

        with self.make_database().writer() as connection:
            self.assertEqual(
                set(names),
                set(queries.claims_of(connection, names, lock=True)))
            released = threading.Thread(
                target=self.make_store().release,
                args=([claim.consumer for claim in ours],), daemon=True)
            released.start()
            released.join(RELEASED_S)
            self.assertFalse(released.is_alive())

        self.assertEqual(set(names), set(self.store.claims_of(
            [claim.consumer for claim in theirs + ours])))


@profile.by_default(
    'test_sessions_have_the_configured_isolation',
    'test_last_places_go_to_as_many_as_fit',
    reason='a further isolation; the rules are proven in read committed')
class TestRepeatableRead(
        OnPostgreSQL, claim_groups.ClaimGroups, claim_races.ClaimRaces,
        base.TestCase):

    isolation = 'repeatable read'

    def test_sessions_have_the_configured_isolation(self):
        with self.make_database().writer() as connection:
            self.assertEqual(self.isolation, connection.execute(
                sa.text('SHOW transaction_isolation')).scalar())


@profile.full_only(
    'a further isolation; the rules are proven in read committed')
class TestSerializable(TestRepeatableRead):

    isolation = 'serializable'


class TestDisagreeingClocks(
        disagreeing.DisagreeingClocks, OnPostgreSQL, base.TestCase):
    pass


@profile.full_only('MariaDB; the rules are proven on PostgreSQL')
class TestDisagreeingClocksOnMariaDB(
        disagreeing.DisagreeingClocks, OnMariaDB, base.TestCase):
    pass
