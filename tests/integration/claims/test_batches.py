# SPDX-License-Identifier: Apache-2.0
"""Claims on several providers by processes that race or are killed."""

import contextlib
import dataclasses

import sqlalchemy as sa

from cellsched.claims import base as claims
from cellsched.claims import sql
from cellsched.claims.sql import schema
from cellsched import exception
from cellsched.testing.suite import claim_batches
from tests.integration import base
from tests.integration.claims import claimants
from tests.integration.claims import test_sql
from tests.integration import servers
from tests import profile
from tests.unit.claims.sql import base as sqlite


class OnSQLite:

    timeout_s = base.TestCase.timeout_s

    def make_store(self):
        return sql.SQLClaims(self.make_database())

    def make_peer(self, store):
        return self.make_store()

    def connection_parameters(self):
        return ''


class Forking:
    """Starts the fork server of claiming processes."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        claimants.prepare()

    def options(self):
        return {'connection_parameters': self.connection_parameters()}


class Processes(Forking, claim_batches.ClaimBatchRaces):
    """Races of processes that share only the database."""

    def check_usages(self, usages, batches):
        super().check_usages(usages, batches)
        consumers = {usage.provider: usage.consumers for usage in usages}
        # They are of one moment, in which each claim is there or is not.
        self.assertEqual(1, len({
            sum(consumers[provider] for provider in {
                claim.provider for claim in alike})
            for alike in zip(*batches)}))

    def race_batches(self, store, batches):
        with contextlib.ExitStack() as stack:
            pipes = [stack.enter_context(claimants.process(
                claimants.claim_each, self.url, self.options()))[1]
                for _ in batches]
            for pipe in pipes:
                pipe.recv()
            for pipe, batch in zip(pipes, batches):
                pipe.send(batch)
            return [found and exception.ClaimRefused(**found)
                    for found in [pipe.recv() for pipe in pipes]]


class Killed(Forking, claim_batches.BatchCase):
    """A process that is killed between any two statements of a claim."""

    #: Statements that it takes at least, with the commit.
    LEAST = 5

    def test_claim_of_a_killed_process_changes_no_rows(self):
        store = self.make_store()
        host = self.make_host(
            store, dict.fromkeys(claim_batches.DEMANDS, 1))
        for number in range(1, 100):
            # With a policy to keep, it is no single statement anywhere.
            batch = [dataclasses.replace(claim, group=claims.Membership(
                'group', 'host', 'anti-affinity'))
                for claim in self.make_batch(host)]
            with claimants.process(
                    claimants.claim_until, self.url, self.options(), number,
                    batch) as (process, pipe):
                if not pipe.recv():
                    break
                process.kill()
                process.join()
                self.assertNothingTaken(store, batch)

            self.assertEqual(4, store.claim(batch))

            for claim in batch:
                self.assertUsed(store, claim.provider, 1, **claim.resources)
                self.assertFalse(store.recount(claim.provider))
            store.release([batch[0].consumer])
        self.assertLess(self.LEAST, number)
        self.assertEqual({batch[0].consumer}, {*store.consumers()})


@profile.full_only('SQLite; the processes race on PostgreSQL')
class TestSQLiteProcesses(OnSQLite, Processes, sqlite.TestCase):
    pass


@profile.full_only('SQLite; the process is killed on PostgreSQL')
class TestSQLiteKilled(OnSQLite, Killed, sqlite.TestCase):
    pass


@profile.by_default(
    'test_last_bare_metal_node_goes_to_a_single_consumer',
    reason='one more batch; the last node is raced for by default')
class TestPostgreSQLProcesses(
        test_sql.OnPostgreSQL, Processes, base.TestCase):
    pass


class TestPostgreSQLKilled(test_sql.OnPostgreSQL, Killed, base.TestCase):

    LEAST = 1

    def test_claim_in_a_single_statement_is_complete_or_absent(self):
        store = self.make_store()
        host = self.make_host(
            store, dict.fromkeys(claim_batches.DEMANDS, 1))
        batch = self.make_batch(host)
        with claimants.process(
                claimants.claim_each, self.url,
                self.options()) as (process, pipe):
            pipe.recv()
            with self.make_database().writer() as connection:
                connection.execute(sa.select(schema.providers).where(
                    schema.providers.c.uuid == host['pool']
                ).with_for_update())
                pipe.send(batch)
                while not self.waits():
                    pass
                process.kill()
                process.join()
                self.assertNothingTaken(store, batch)
            while self.works():
                pass

        held = store.claims_of([batch[0].consumer])
        self.assertIn(sum(map(len, held.values())), (0, 4))
        for claim in batch:
            self.assertFalse(store.recount(claim.provider))
        store.release([batch[0].consumer])
        self.assertEqual(4, store.claim(batch))

    def works(self):
        """Return the number of other sessions that execute a statement."""
        with self.make_database().reader() as connection:
            return connection.scalar(sa.text(
                'SELECT count(*) FROM pg_stat_activity WHERE datname = '
                "current_database() AND state = 'active' "
                'AND pid != pg_backend_pid()'))


@profile.full_only(
    'a second driver; the rules are proven with psycopg2')
class TestPsycopgProcesses(TestPostgreSQLProcesses):

    parameters = '&prepare_threshold=0'

    by_driver = staticmethod(servers.by_psycopg)


@profile.full_only('MariaDB; the rules are proven on PostgreSQL')
class TestMariaDBProcesses(test_sql.OnMariaDB, Processes, base.TestCase):
    pass


@profile.full_only('MariaDB; the rules are proven on PostgreSQL')
class TestMariaDBKilled(test_sql.OnMariaDB, Killed, base.TestCase):

    LEAST = 1
