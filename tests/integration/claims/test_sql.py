# SPDX-License-Identifier: Apache-2.0
"""Claims in SQL, on PostgreSQL."""

from concurrent import futures
import threading

from alembic import autogenerate
from alembic.runtime import migration
from oslo_db import exception as db_exc
import sqlalchemy as sa

from cellsched.claims import base as claims
from cellsched.claims import sql
from cellsched.claims.sql import schema
from cellsched.claims.sql import writing
from cellsched.db import session
from cellsched import exception
from cellsched.testing.suite import claim_groups
from cellsched.testing.suite import claim_races
from cellsched.testing.suite import claims as suite
from tests.integration import base
from tests.integration import servers
from tests.unit.claims import model


class OnPostgreSQL:
    """Makes stores whose sessions have an isolation."""

    isolation = 'read committed'

    #: More of what the driver is told.
    parameters = ''

    def setUp(self):
        super().setUp()
        self.url = self.make_url('claims')
        self.deadlocks = []
        schema.SCHEMA.sync(self.make_database())
        self.store = self.make_store()

    def make_url(self, name):
        return self.part_of(servers.PostgreSQL).url(name)

    def make_database(self):
        isolation = self.isolation.replace(' ', '%5C%20')
        database = session.Database(self.url, 'claims', {
            'max_pool_size': 40, 'connection_parameters':
            f'options=-cdefault_transaction_isolation%3D{isolation}'
            f'{self.parameters}'})
        self.addCleanup(database.close)

        @sa.event.listens_for(database.engine, 'handle_error')
        def note(context):
            if isinstance(context.chained_exception, db_exc.DBDeadlock):
                self.deadlocks.append(context.chained_exception)
        return database

    def waits(self):
        """Return how many sessions wait for a lock."""
        with self.make_database().reader() as connection:
            return connection.scalar(sa.text(
                'SELECT count(*) FROM pg_stat_activity WHERE '
                "datname = current_database() AND wait_event_type = 'Lock'"))

    def make_store(self):
        return sql.SQLClaims(self.make_database())

    def make_peer(self, store):
        return self.make_store()


class TestSQLClaims(OnPostgreSQL, suite.ClaimStoreSuite, model.ModelTests,
                    base.TestCase):

    def test_tables_and_history_agree(self):
        with self.make_database().reader() as connection:
            context = migration.MigrationContext.configure(
                connection, opts={
                    'version_table': schema.SCHEMA.version_table,
                    'compare_type': True})
            self.assertEqual([], autogenerate.compare_metadata(
                context, schema.METADATA))

    def test_missing_schema_names_the_command(self):
        database = session.Database(self.make_url('empty'), 'claims')
        self.addCleanup(database.close)
        store = sql.SQLClaims(database)

        for call in store.check, store.usages, lambda: store.held(['c']):
            error = self.assertRaises(exception.SchemaOutOfDate, call)
            self.assertIn('cellsched-manage claims_db sync', str(error))

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

    def test_change_that_commits_late_is_told(self):
        """An earlier transaction may become visible after a later one."""
        early, late = (
            self.make_provider(self.store, VCPU=8) for _ in range(2))
        written, may_commit = threading.Event(), threading.Event()
        database = self.make_database()

        def write_and_wait():
            with database.writer() as connection:
                # Its lane is another one than that of the fast one.
                writing.take(
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
            {early}, self.told(self.store.usages(changes.token).usages))


class TestRepeatableRead(
        OnPostgreSQL, claim_groups.ClaimGroups, claim_races.ClaimRaces,
        base.TestCase):

    isolation = 'repeatable read'

    def test_sessions_have_the_isolation_of_this_test(self):
        with self.make_database().writer() as connection:
            self.assertEqual(self.isolation, connection.execute(
                sa.text('SHOW transaction_isolation')).scalar())


class TestSerializable(TestRepeatableRead):

    isolation = 'serializable'
