# SPDX-License-Identifier: Apache-2.0
"""Concurrent claims of members of one server group."""

from concurrent import futures
import uuid

import sqlalchemy as sa

from cellsched.claims import base as claims
from cellsched.claims.sql import group_members
from cellsched.claims.sql import transactions
from cellsched import exception
from cellsched.testing.suite import claim_groups
from tests.integration import base
from tests.integration.claims import test_sql
from tests.integration import servers
from tests import profile


class GroupingTests(claim_groups.GroupCase):

    def overtaken(self, first, second):
        """Claim for a member while another claim is not committed."""
        with futures.ThreadPoolExecutor(1) as pool:
            with self.make_database().writer() as connection:
                transactions.claim(connection, [first])
                claiming = pool.submit(self.store.claim, [second])
                while not self.waits() and not claiming.done():
                    pass
            futures.wait([claiming])
        return claiming

    def test_member_joining_during_the_claim_is_counted(self):
        for policy, host in (('anti-affinity', 'h1'), ('affinity', 'h2')):
            store, group = self.make_grouping(), str(uuid.uuid4())

            late = self.overtaken(self.member(group, 'h1', policy),
                                  self.member(group, host, policy))

            error = self.assertRaises(
                exception.GroupPolicyViolated, late.result)
            self.assertEqual(['h1'], error.hosts)
            self.assertEqual(1, len(store.consumers()))
            store.release(store.consumers())

    def test_members_are_not_counted_without_the_lock(self):
        self.patch(group_members, 'lock_numbers', lambda claims: [])
        group = str(uuid.uuid4())
        store = self.make_grouping()

        both = [self.member(group, host, 'affinity') for host in ('h1', 'h2')]
        self.overtaken(*both).result()

        self.assertEqual({claim.consumer for claim in both},
                         {*store.consumers()})

    def test_claims_without_a_group_do_not_wait_for_the_group_lock(self):
        store = self.make_grouping()
        member = self.member(str(uuid.uuid4()), 'h1', 'affinity')
        with self.make_database().writer() as connection:
            group_members.lock(connection, [member])

            self.assertEqual(1, store.claim(
                [self.make_claim(self.hosts['h1'], VCPU=1)]))

        self.assertEqual(1, store.claim([member]))

    def test_member_released_outside_does_not_count(self):
        store, group = self.make_grouping(), str(uuid.uuid4())
        gone = self.member(group, 'h1', 'anti-affinity')
        store.claim([gone])
        with self.make_database().writer() as connection:
            connection.execute(sa.text('DELETE FROM allocations'))

        self.assertEqual(
            1, store.claim([self.member(group, 'h1', 'anti-affinity')]))
        self.assertEqual(1, store.claim([claims.Claim(
            gone.consumer, self.hosts['h2'], {'VCPU': 1},
            claims.Membership(group, 'h2', 'anti-affinity'))]))


class TestGrouping(test_sql.OnPostgreSQL, GroupingTests, base.TestCase):
    pass


@profile.by_default(
    'test_members_are_not_counted_without_the_lock',
    reason='MariaDB; the rules are proven on PostgreSQL')
class TestMariaDB(test_sql.OnMariaDB, GroupingTests, base.TestCase):
    pass


@profile.full_only(
    'a second driver; the rules are proven with psycopg2')
class TestByPsycopg(TestGrouping):

    parameters = '&prepare_threshold=0'

    by_driver = staticmethod(servers.by_psycopg)
