# SPDX-License-Identifier: Apache-2.0
"""No quotas."""

from cellsched.quota import noop
from tests.unit import base
from tests.unit.db import samples


class TestNoopQuotaDriver(base.TestCase):

    def test_requests_are_unlimited_without_a_query(self):
        driver = noop.NoopQuotaDriver(None, None)

        self.assertEqual({}, driver.limits(None, 'project', 'user'))
        self.assertEqual(99, driver.check(
            None, 'project', 'user', samples.flavor(), 1, 99))
        self.assertEqual({}, driver.admit(
            None, 'project', 'user', [('uuid', 10 ** 6, 10 ** 6)]))
