# SPDX-License-Identifier: Apache-2.0
"""Claims in SQL, on PostgreSQL by psycopg 3.

Each statement is prepared when it is first executed, which is otherwise for
what a process does often.
"""

import contextlib

import fixtures
import sqlalchemy as sa

from cellsched.claims import sql
from cellsched.claims.sql import schema
from cellsched.testing.suite import claim_groups
from cellsched.testing.suite import claim_races
from tests.integration import base
from tests.integration.claims import test_at_once
from tests.integration.claims import test_sql
from tests.integration import servers


class ByPsycopg:

    parameters = '&prepare_threshold=0'

    def make_url(self, name):
        return servers.by_psycopg(super().make_url(name))


class TestSQLClaims(ByPsycopg, test_sql.TestSQLClaims):
    pass


class BegunClaims(sql.SQLClaims):
    """Has claims on their way first, where it can."""

    def __init__(self, database):
        super().__init__(database)
        #: Of each claim, whether it was on its way.
        self.begun = []

    def claim(self, claims):
        end = self.begin(claims)
        self.begun.append(end is not None)
        return super().claim(claims) if end is None else end()


class TestBegun(ByPsycopg, test_sql.TestSQLClaims):
    """What holds for claims holds for those that are on their way."""

    def make_store(self):
        return BegunClaims(self.make_database())

    def test_one_claim_is_on_its_way_where_a_connection_is_idle(self):
        provider = self.make_provider(self.store, VCPU=9)
        one, two, again = (
            [self.make_claim(provider, VCPU=1)] for _ in range(3))
        several = [self.make_claim(provider, VCPU=1) for _ in range(2)]

        for batch in one, two, several, again, two:
            self.store.claim(batch)

        self.assertEqual([False, True, False, True, True], self.store.begun)
        self.assertUsed(self.store, provider, 5, VCPU=5)

    def test_several_are_on_their_way_as_far_as_connections_are_idle(self):
        provider = self.make_provider(self.store, VCPU=9)
        claims = [self.make_claim(provider, VCPU=1) for _ in range(4)]
        self.open_connections(2, claims[0])

        ends = [self.store.begin([claim]) for claim in claims[1:]]

        self.assertEqual([True, True, False], [bool(end) for end in ends])
        self.assertEqual([1, 1], [end() for end in ends[:2]])
        self.assertUsed(self.store, provider, 2, VCPU=2)

    def test_nobody_waits_for_who_never_asks_how_it_ended(self):
        provider = self.make_provider(self.store, VCPU=9)
        first, second, third = (
            self.make_claim(provider, VCPU=1) for _ in range(3))
        self.open_connections(1, first)

        end = self.store.begin([second])
        self.make_peer(self.store).claim([third])

        self.assertEqual(1, end())
        self.assertUsed(self.store, provider, 2, VCPU=2)

    def test_claim_whose_connection_is_lost_on_its_way_is_taken(self):
        log = self.useFixture(fixtures.FakeLogger())
        provider = self.make_provider(self.store, VCPU=9)
        first, second, third = (
            self.make_claim(provider, VCPU=1) for _ in range(3))
        self.open_connections(1, first)
        with self.make_database().writer() as connection:
            connection.execute(
                sa.select(schema.inventories).with_for_update())
            end = self.store.begin([second])
            while not self.waits():
                pass
            connection.execute(sa.text(
                'SELECT pg_terminate_backend(pid, 10000) FROM '
                'pg_stat_activity WHERE datname = current_database() '
                "AND wait_event_type = 'Lock'"))

        self.assertEqual(1, end())
        self.assertIn('taken in several statements', log.output)

        self.store.claim([third])
        self.assertUsed(self.store, provider, 2, VCPU=2)

    def open_connections(self, number, claim):
        """Have so many idle connections that know the statement."""
        database = self.store._database
        with contextlib.ExitStack() as stack:
            for _ in range(number):
                self.store.claim([claim])
                self.store.release([claim.consumer])
                # It is in use, for the next one to be another.
                stack.enter_context(database.driver())


class TestSerializable(ByPsycopg, test_sql.OnPostgreSQL,
                       claim_groups.ClaimGroups, claim_races.ClaimRaces,
                       base.TestCase):

    isolation = 'serializable'


class TestAtOnce(ByPsycopg, test_at_once.TestAtOnce):
    pass
