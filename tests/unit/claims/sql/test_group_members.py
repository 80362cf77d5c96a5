# SPDX-License-Identifier: Apache-2.0
"""Stored memberships in server groups."""

import sqlalchemy as sa

from cellsched.claims import base as claims
from cellsched.claims.sql import schema
from tests.unit.claims.sql import base


class TestMembers(base.StoreTestCase):

    def setUp(self):
        super().setUp()
        self.provide('p')

    def claim(self, consumer, host='h', member='', group='g'):
        self.store.claim([claims.Claim(
            consumer, 'p', {'VCPU': 1}, claims.Membership(
                group, host, claims.ANTI_AFFINITY, member=member))])

    def rows(self, table):
        with self.database.reader() as connection:
            return [tuple(row) for row in connection.execute(
                sa.select(table))]

    def locked(self):
        return [times for _, times in self.rows(schema.group_locks) if times]

    def test_member_is_the_instance_and_not_its_consumer(self):
        self.claim('moved', member='i')
        self.claim('other', host='j')

        self.assertEqual(
            {('moved', 'g', 'i', 'h'), ('other', 'g', 'other', 'j')},
            set(self.rows(schema.members)))
        # It is not in its own way.
        self.claim('i')

    def test_claim_of_a_member_locks_the_group(self):
        self.store.claim([claims.Claim('c', 'p', {'VCPU': 1})])
        self.assertEqual([], self.locked())

        for times in 1, 2:
            self.claim(f'd{times}', host=f'h{times}')
            self.assertEqual([times], self.locked())
        self.store.release(['d1'])
        self.assertEqual([2], self.locked())

    def test_membership_without_claims_is_replaced(self):
        with self.database.writer() as connection:
            connection.execute(sa.insert(schema.members).values(
                consumer='c', group_uuid='f', member='m', host='j'))

        self.claim('c')

        self.assertEqual([('c', 'g', 'c', 'h')], self.rows(schema.members))
        self.store.release(['c'])
        self.assertEqual([], self.rows(schema.members))
