# SPDX-License-Identifier: Apache-2.0
"""What the statements that read look at."""

import sqlalchemy as sa

from cellsched.claims import base as claims
from cellsched.claims import sql
from cellsched.claims.sql import reading
from tests.unit.claims.sql import base


class TestFollows(base.TestCase):

    def test_later_positions_follow(self):
        self.assertTrue(reading.follows((1, 2), (1, 2)))
        self.assertTrue(reading.follows((1, 2), (1, 3)))

    def test_earlier_positions_and_other_lanes_do_not(self):
        self.assertFalse(reading.follows((1, 2), (1, 1)))
        self.assertFalse(reading.follows((1, 2), (9, 1)))
        self.assertFalse(reading.follows((1, 2), (1, 2, 0)))


class TestCost(base.TestCase):
    """Statements and rows of a poll do not grow with the deployment."""

    def setUp(self):
        super().setUp()
        self.database = self.make_database()
        self.store = sql.SQLClaims(self.database)
        for number in range(20):
            self.store.set_inventory(
                f'p{number}', {'VCPU': claims.Inventory(total=8)})

    def test_poll_without_a_change_reads_the_lanes_only(self):
        token = self.store.usages().token
        statements = self.record()

        self.store.usages(token)

        self.assertEqual(1, len(statements))
        self.assertIn('feed_lanes', statements[0][0])

    def test_poll_finds_changes_by_index(self):
        token = self.store.usages().token
        self.store.claim([claims.Claim('c', 'p3', {'VCPU': 1}),
                          claims.Claim('d', 'p4', {'VCPU': 1})])
        self.store.release(['d'])
        statements = self.record()

        self.store.usages(token)

        text, parameters = statements[1]
        with self.database.reader() as connection:
            plan = [row[3] for row in connection.exec_driver_sql(
                'EXPLAIN QUERY PLAN ' + text, parameters)]
        self.assertTrue(any(
            'providers_lane_position_idx' in step for step in plan), plan)
        self.assertFalse(any(
            step.startswith('SCAN') for step in plan), plan)

    def record(self):
        """Return a list to which statements are added as they are made."""
        statements = []

        @sa.event.listens_for(self.database.engine, 'before_cursor_execute')
        def listen(connection, cursor, text, parameters, context, many):
            if text and not text.startswith('BEGIN'):
                statements.append((text, parameters))
        return statements
