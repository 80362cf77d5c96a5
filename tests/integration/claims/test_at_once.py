# SPDX-License-Identifier: Apache-2.0
"""Claims of one message, concurrent with claims of several."""

from concurrent import futures
import contextlib
import itertools

import fixtures
import sqlalchemy as sa

from cellsched.claims import base as claims
from cellsched.claims import sql
from cellsched.claims.sql import postgresql
from cellsched.claims.sql import schema
from cellsched.claims.sql import transactions
from cellsched.db import guarded_statements
from cellsched.db import statements
from cellsched import exception
from cellsched.testing.suite import claim_cases
from cellsched.testing.suite import claim_races
from tests.integration import base
from tests.integration.claims import test_sql
from tests import profile
from tests.unit.db import recording


class AtOnceTests(test_sql.OnPostgreSQL, claim_cases.ClaimStoreCase):

    def setUp(self):
        super().setUp()
        self.database = self.make_database()
        self.store = sql.SQLClaims(self.database)
        self.providers = [
            self.make_provider(self.store, VCPU=8, GB=8) for _ in range(3)]

    def statements(self, batch):
        """Return the number of messages and commits of a claim.

        What is one message is executed by a cursor of the driver, so it is
        not recorded.
        """
        commits, alone = [], []
        sa.event.listen(self.database.engine, 'commit', commits.append)
        execute = guarded_statements.execute
        self.patch(guarded_statements, 'execute', lambda *args, **options: (
            alone.append(1) or execute(*args, **options)))
        with recording.recorded(self.database) as statements:
            self.store.claim(batch)
        self.patch(guarded_statements, 'execute', execute)
        return len(statements) + len(alone), len(commits)

    def test_new_fitting_claims_are_a_single_statement(self):
        one, two, three = self.providers
        for batch in (
            [self.make_claim(one, VCPU=1)],
            [self.make_claim(one, VCPU=1, GB=2)],
            [self.make_claim(two, VCPU=1, GB=2) for _ in range(3)],
            [self.make_claim(provider, GB=1) for provider in self.providers],
            [self.make_claim(one, VCPU=2), self.make_claim(two, VCPU=1, GB=1),
             self.make_claim(three, GB=3), self.make_claim(three, GB=2)],
        ):
            token = self.store.usages().token

            self.assertEqual((1, 0), self.statements(batch))

            for claim in batch:
                self.assertHolds(self.store, claim)
            self.assertEqual(
                {claim.provider for claim in batch},
                {usage.provider for usage in self.store.usages(token).usages})
        self.assertUsed(self.store, one, 4, VCPU=4, GB=3)
        self.assertUsed(self.store, two, 5, VCPU=4, GB=8)
        self.assertUsed(self.store, three, 3, GB=6)

    def test_consumer_of_two_providers_is_a_single_statement(self):
        one, two, three = self.providers
        batch = [claims.Claim('c', two, {'VCPU': 1}),
                 claims.Claim('c', one, {'VCPU': 1}),
                 claims.Claim('d', one, {'GB': 2})]

        self.assertEqual((1, 0), self.statements(batch))

        self.assertEqual({'c', 'd'}, set(self.store.claims_of(['c', 'd'])))
        self.assertEqual(0, self.store.claim(batch))

    def test_consumer_of_four_providers_is_a_single_statement(self):
        one, two, three = self.providers
        four = self.make_provider(self.store, CUSTOM_GPU=1)
        demands = {three: {'GB': 3}, one: {'VCPU': 2, 'GB': 1},
                   four: {'CUSTOM_GPU': 1}, two: {'VCPU': 1}}
        batch = [claims.Claim('c', provider, resources)
                 for provider, resources in demands.items()]
        token = self.store.usages().token

        self.assertEqual((1, 0), self.statements(batch))

        for provider, resources in demands.items():
            self.assertUsed(self.store, provider, 1, **resources)
        self.assertEqual(
            {*demands},
            {usage.provider for usage in self.store.usages(token).usages})
        self.assertEqual(0, self.store.claim(batch))

    def test_capacity_of_a_provider_taken_during_the_claim_is_refused(self):
        one, two, three = self.providers
        batch = [claims.Claim('c', provider, {'VCPU': number})
                 for number, provider in enumerate((two, three, one), 2)]
        with self.waiting(batch) as (connection, claiming):
            transactions.claim(
                connection, [claims.Claim('first', three, {'VCPU': 6})])
        self.assertRaises(exception.ClaimRefused, claiming.result)

        self.assertUsed(self.store, three, 1, VCPU=6)
        for provider in one, two:
            self.assertUsed(self.store, provider, 0)
        self.assertEqual(['first'], self.consumers())
        with self.waiting(batch) as (connection, claiming):
            transactions.release(connection, ['first'])
        claiming.result()
        for claim in batch:
            self.assertUsed(
                self.store, claim.provider, 1, **claim.resources)

    def test_many_demands_are_a_single_message(self):
        batch = [self.make_claim(self.make_provider(self.store, VCPU=9),
                                 VCPU=1 + number) for number in range(9)]

        self.assertEqual((1, 0), self.statements(batch))

        for claim in batch:
            self.assertHolds(self.store, claim)

    def test_long_batch_is_a_single_message(self):
        self.patch(statements, 'CHUNK', 4)
        batch = [self.make_claim(self.providers[0], VCPU=1)
                 for _ in range(5)]

        self.assertEqual((1, 0), self.statements(batch))

        for claim in batch:
            self.assertHolds(self.store, claim)

    def test_bounds_hold_for_each_claim_of_a_batch(self):
        [provider, *_] = self.providers
        self.store.set_inventory(provider, {'VCPU': claims.Inventory(
            100, min_unit=4, max_unit=8, step_size=2)})

        for amounts in (4, 5), (2, 4), (4, 10):
            self.assertRaises(exception.ClaimRefused, self.store.claim, [
                self.make_claim(provider, VCPU=amount) for amount in amounts])

        self.store.claim([
            self.make_claim(provider, VCPU=amount) for amount in (4, 6, 8)])
        self.assertUsed(self.store, provider, 3, VCPU=18)

    def test_failed_claims_change_no_rows_and_log_no_lines(self):
        log = self.useFixture(fixtures.FakeLogger())
        provider = self.providers[0]
        held = claims.Claim('held', provider, {'VCPU': 2})
        self.store.claim([held])
        before = self.store.usages()

        for batch, error in (
            ([self.make_claim(provider, VCPU=7)], exception.ClaimRefused),
            ([self.make_claim(provider, VCPU=1, CUSTOM=1)],
             exception.ClaimRefused),
            ([self.make_claim('nowhere', VCPU=1)], exception.ClaimRefused),
            ([self.make_claim(self.providers[1], GB=1),
              self.make_claim(provider, VCPU=7)], exception.ClaimRefused),
            ([claims.Claim('held', provider, {'VCPU': 3})],
             exception.ClaimConflict),
        ):
            self.assertRaises(error, self.store.claim, batch)
        self.assertEqual(0, self.store.claim([held]))

        self.assertEqual([], self.store.usages(before.token).usages)
        self.assertEqual(['held'], self.consumers())
        self.assertEqual('', log.output)
        new = self.make_claim(provider, VCPU=1)
        self.assertEqual(1, self.store.claim([held, new]))

    def test_capacity_taken_during_the_claim_is_not_taken_twice(self):
        provider = self.providers[0]
        with self.waiting([self.make_claim(provider, VCPU=3)]) as (
                connection, claiming):
            transactions.claim(
                connection, [claims.Claim('first', provider, {'VCPU': 6})])
        self.assertRaises(exception.ClaimRefused, claiming.result)

        self.assertUsed(self.store, provider, 1, VCPU=6)
        self.assertEqual(['first'], self.consumers())

    def test_capacity_released_during_the_claim_is_taken(self):
        provider = self.providers[0]
        self.store.claim([claims.Claim('first', provider, {'VCPU': 6})])
        with self.waiting([self.make_claim(provider, VCPU=3)]) as (
                connection, claiming):
            transactions.release(connection, ['first'])
        claiming.result()

        self.assertUsed(self.store, provider, 1, VCPU=3)

    def test_concurrent_changes_add_up_and_are_reported(self):
        provider = self.providers[0]
        lane = schema.FEED.lane('late')
        early = next(str(number) for number in itertools.count()
                     if schema.FEED.lane(str(number)) == lane)
        late = claims.Claim('late', provider, {'VCPU': 3})
        with self.waiting([late]) as (connection, claiming):
            transactions.claim(
                connection, [claims.Claim(early, provider, {'GB': 6})])
            token = self.store.usages().token
        claiming.result()

        self.assertUsed(self.store, provider, 2, VCPU=3, GB=6)
        usage, = self.store.usages(token).usages
        self.assertEqual({'VCPU': 3, 'GB': 6}, usage.used)
        with self.database.reader() as connection:
            # It was marked with where its lane then came to.
            self.assertEqual(
                connection.execute(sa.select(
                    schema.providers.c.lane, schema.providers.c.position
                ).where(schema.providers.c.uuid == provider)).one(),
                (lane, schema.FEED.position(connection, lane)))

    def test_claim_waiting_for_its_consumer_locks_no_lane(self):
        """All claims need the lanes of the feed, and writes lock them last."""
        one, two, _ = self.providers
        for batches in (
                [[claims.Claim('c', one, {'VCPU': 1})]],
                [[claims.Claim('c', one, {'VCPU': 1}),
                  claims.Claim('c', two, {'VCPU': 1})]],
                [[claims.Claim('c', one, {'VCPU': 1})],
                 [claims.Claim('c', two, {'VCPU': 1})]]):
            with (self.subTest(batches=batches),
                  futures.ThreadPoolExecutor(1) as pool,
                  self.make_database().reader() as observer):
                with self.make_database().writer() as connection:
                    connection.execute(sa.insert(schema.allocations).values(
                        consumer='c', ordinal=0, provider='elsewhere',
                        resource_class='VCPU', amount=1))
                    claiming = pool.submit(self.store.claim_any, batches)
                    while not self.waits() and not claiming.done():
                        pass

                    observer.execute(sa.text(
                        'SELECT FROM feed_lanes FOR UPDATE NOWAIT'))

                    self.assertFalse(claiming.done())
                    observer.rollback()
                    connection.rollback()
                self.assertEqual(0, claiming.result().chosen)
                self.store.release(['c'])

    def test_lost_connection_is_replaced(self):
        log = self.useFixture(fixtures.FakeLogger())
        first, second, third = (
            self.make_claim(self.providers[0], VCPU=1) for _ in range(3))
        self.store.claim([first])
        with self.make_database().reader() as connection:
            connection.execute(sa.text(
                'SELECT pg_terminate_backend(pid, 10000) FROM '
                'pg_stat_activity WHERE datname = current_database() '
                'AND pid != pg_backend_pid()'))

        self.assertEqual(1, self.store.claim([second]))
        self.assertIn('Repeating a call of the claim store', log.output)

        self.assertEqual((1, 0), self.statements([third]))
        self.assertUsed(self.store, self.providers[0], 3, VCPU=3)

    def consumers(self):
        with self.database.reader() as connection:
            return list(connection.execute(sa.text(
                'SELECT DISTINCT consumer FROM allocations')).scalars())

    @contextlib.contextmanager
    def waiting(self, batch):
        """Yield a transaction; at its end a batch waits for it."""
        with futures.ThreadPoolExecutor(1) as pool:
            with self.make_database().writer() as connection:
                futured = futures.Future()
                yield connection, futured
                claiming = pool.submit(self.store.claim, batch)
                while not self.waits() and not claiming.done():
                    pass
                self.assertFalse(claiming.done())
            futures.wait([claiming])
        error = claiming.exception()
        if error is None:
            futured.set_result(claiming.result())
        else:
            futured.set_exception(error)


class TestAtOnce(AtOnceTests, base.TestCase):

    def test_both_ways_of_claiming_in_a_race_respect_the_capacity(self):
        providers = [self.make_provider(self.store, VCPU=20)
                     for _ in range(4)]

        def with_care(batch):
            with self.database.writer() as connection:
                transactions.claim(connection, batch)

        def churn(number):
            order = providers[number % 4:] + providers[:number % 4]
            way = with_care if number % 3 == 0 else (
                lambda batch: postgresql.claim(self.database, batch))

            def call(store):
                taken = 0
                for size in range(1, 5):
                    batch = [self.make_claim(provider, VCPU=1 + size % 2)
                             for provider in order[:size]]
                    try:
                        way(batch)
                    except (guarded_statements.StatementRefused,
                            transactions.InsufficientCapacity):
                        continue
                    taken += sum(claim.resources['VCPU'] for claim in batch)
                    if size % 2:
                        store.release([claim.consumer for claim in batch])
                        taken -= sum(
                            claim.resources['VCPU'] for claim in batch)
                calls.append(taken)
            return call

        calls = []
        outcomes = self.race(
            self.store, [churn(number) for number in range(16)])

        self.assertEqual([None] * 16, outcomes)
        self.assertEqual([], self.deadlocks)
        used = [usage.used['VCPU']
                for usage in self.store.usages(providers=providers).usages]
        self.assertLessEqual(max(used), 20)
        self.assertEqual(sum(calls), sum(used))

    race = claim_races.ClaimRaces.race


@profile.full_only(
    'a further isolation; the rules are proven in read committed')
class TestAtOnceInSerializable(AtOnceTests, base.TestCase):
    """The two ways conflict with each other here; the suite tests that."""

    isolation = 'serializable'
