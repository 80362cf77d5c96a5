# SPDX-License-Identifier: Apache-2.0
"""Rows that queries read."""

import re
import textwrap

from cellsched.claims import base as claims
from tests.unit.claims.sql import base
from tests.unit.db import recording
from tests.unit import tidy

PAGE = tidy.ROOT / 'doc/source/admin/providers.rst'


class TestCost(base.StoreTestCase):
    """Statements and rows of a poll do not grow with the deployment."""

    def setUp(self):
        super().setUp()
        self.provide(*(f'p{number}' for number in range(20)))

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


class TestOwners(base.StoreTestCase):

    def claim(self, consumer, provider, owner, **resources):
        return claims.Claim(consumer, provider, resources, None, *owner)

    def test_documented_query_sums_up_claims_by_project(self):
        [query] = re.findall(r'code-block:: sql\n\n((?:   .*\n)+)',
                             PAGE.read_text())
        self.provide('p', 'q', GB=9, VCPU=9)
        self.store.claim([
            self.claim('a', 'p', ('x', 'u'), VCPU=1, GB=2),
            self.claim('a', 'q', ('x', 'u'), VCPU=1),
            self.claim('b', 'q', ('x', 'v'), VCPU=3),
            self.claim('c', 'q', ('y', 'u'), VCPU=2),
            self.claim('d', 'q', (None, None), VCPU=1)])

        with self.database.reader() as connection:
            rows = connection.exec_driver_sql(textwrap.dedent(query)).all()

        self.assertEqual(
            [('p', 'GB', 'x', 2), ('p', 'VCPU', 'x', 1),
             ('q', 'VCPU', None, 1), ('q', 'VCPU', 'x', 4),
             ('q', 'VCPU', 'y', 2)], rows)

    def test_only_the_first_row_of_a_consumer_has_its_owner(self):
        self.provide('p', 'q', GB=9, VCPU=9)
        self.store.claim([self.claim('a', each, ('x', 'u'), VCPU=1, GB=2)
                          for each in 'qp'])

        with self.database.reader() as connection:
            rows = connection.exec_driver_sql(
                'SELECT ordinal, project_id, user_id FROM allocations '
                'ORDER BY ordinal').all()

        self.assertEqual(
            [(0, 'x', 'u'), *((number, None, None) for number in (1, 2, 3))],
            rows)
