# SPDX-License-Identifier: Apache-2.0
"""What the statements that read look at."""

from cellsched.claims import base as claims
from cellsched.claims import sql
from tests.unit.claims.sql import base
from tests.unit.db import recording


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
        with recording.recorded(self.database) as statements:
            self.store.usages(token)

        self.assertEqual(1, len(statements))
        self.assertIn('feed_lanes', statements[0][0])

    def test_poll_finds_changes_by_index(self):
        token = self.store.usages().token
        self.store.claim([claims.Claim('c', 'p3', {'VCPU': 1}),
                          claims.Claim('d', 'p4', {'VCPU': 1})])
        self.store.release(['d'])
        with recording.recorded(self.database) as statements:
            self.store.usages(token)

        text, parameters = statements[1]
        with self.database.reader() as connection:
            plan = [row[3] for row in connection.exec_driver_sql(
                'EXPLAIN QUERY PLAN ' + text, parameters)]
        self.assertTrue(any(
            'providers_lane_position_idx' in step for step in plan), plan)
        self.assertFalse(any(
            step.startswith('SCAN') for step in plan), plan)
