# SPDX-License-Identifier: Apache-2.0
"""The quota of a project under all kinds of requests."""

import sqlalchemy as sa

from cellsched.db.cell import models
from cellsched import exception
from tests.functional import base

PROJECT = base.USER.project_id


class TestQuota(base.TestCase):

    def setUp(self):
        super().setUp()
        self.deploy({'cell1': ['a1', 'a2'], 'cell2': ['b1']},
                    quota={'instances': 10})
        self.quotas = self.world.api.quotas

    def limit(self, **limits):
        self.quotas.set(base.ADMIN, PROJECT, limits)

    def used(self, resource='instances'):
        """Return the used and the accepted amount."""
        [quota] = [quota for quota in self.quotas.get(base.ADMIN, PROJECT)
                   if quota.resource == resource]
        return quota.used, quota.pending

    def refused(self, **wishes):
        exc = self.assertRaises(exception.OverQuota, self.create, **wishes)
        self.assertEqual(403, exc.code)
        return str(exc)

    def fates(self, uuids):
        """Return the number of active servers, and reasons of failures."""
        found = self.settled(uuids)
        active = [each for each in found if each.status == 'ACTIVE']
        return len(active), [each for each in found if each not in active]

    def assertBuried(self, found):
        """It is in cell0, says why, and holds nothing."""
        faults = models.instance_faults
        self.assertEqual('ERROR', found.status)
        self.assertIn('Quota exceeded for instances: requested 1, but '
                      'already used', found.reason)
        self.assertIsIn('cell0', found.uuid)
        self.assertEqual([(413,)], self.query('cell0', sa.select(
            faults.c.code).where(faults.c.instance_uuid == found.uuid)))
        self.assertHoldsNothing(found.uuid)

    def test_request_beyond_the_limit_is_refused(self):
        self.limit(instances=3, cores=5)
        self.built(min_count=2)

        self.assertEqual(
            'Quota exceeded for instances: requested 2, but already used 2 '
            'of 3 instances', self.refused(min_count=2))

        self.assertEqual(2, len(self.listed()))
        self.assertEqual((2, 0), self.used())
        self.assertEqual((2, 0), self.used('cores'))

    def test_unscheduled_requests_count(self):
        self.limit(instances=3)
        api = self.unheard()

        uuids = api.servers.create(base.USER, 'web', 'small', min_count=2)

        self.assertEqual((0, 2), self.used())
        self.refused(min_count=2)
        self.delete(uuids[0])
        self.built(min_count=2)

    def test_unreachable_cell_counts_in_full(self):
        self.limit(instances=6)
        found = self.built(min_count=6)
        in_cell2 = sum(bool(self.rows(each.uuid).get('cell2'))
                       for each in found)
        self.assertLess(0, in_cell2)

        self.take_down('cell2')

        self.refused()
        cells = {each.cell: (each.answers, each.usage.instances)
                 for each in self.quotas.by_cell(base.ADMIN, PROJECT)}
        self.assertEqual({'cell1': (True, 6 - in_cell2),
                          'cell2': (False, in_cell2)}, cells)

    def test_lowered_limit_fails_builds_over_quota(self):
        [one] = self.unheard().servers.create(base.USER, 'one', 'small')
        two = self.unheard().servers.create(
            base.USER, 'two', 'small', min_count=1, max_count=4)
        self.limit(instances=3)

        for uuids in [one], two:
            self.task().run(base.USER, uuids)

        self.assertEqual(1, self.fates([one])[0])
        active, others = self.fates(two)
        self.assertEqual((2, 2), (active, len(others)))
        for found in others:
            self.assertBuried(found)
        self.assertEqual((3, 0), self.used())
        self.assertClaimsMatch()


class TestRate(base.TestCase):

    def test_request_beyond_the_rate_is_refused(self):
        self.deploy({'cell1': ['a1']}, quota={'servers_per_minute': 2})
        self.built(min_count=2)

        self.assertRaises(exception.RateLimitExceeded, self.create)

        self.assertEqual(2, len(self.listed()))
