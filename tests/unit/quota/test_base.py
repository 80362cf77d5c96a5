# SPDX-License-Identifier: Apache-2.0
"""The rate at which a project requests servers."""

from cellsched import exception
from cellsched.quota import base as quota
from cellsched.testing import clock
from tests.unit import base


class TestRateLimit(base.TestCase):

    def setUp(self):
        super().setUp()
        self.clock = clock.FakeClock()
        self.limit = quota.RateLimit(6, self.clock)

    def retry_s(self, project_id='web', count=1):
        exc = self.assertRaises(exception.RateLimitExceeded,
                                self.limit.take, project_id, count)
        self.assertEqual(429, exc.code)
        return exc.kwargs['retry_s']

    def test_servers_of_a_minute_may_be_requested_at_once(self):
        for _ in range(6):
            self.limit.take('web', 1)

        self.assertEqual(10, self.retry_s())
        self.limit.take('db', 1)

    def test_budget_refills_continuously(self):
        self.limit.take('web', 6)

        self.clock.advance(25)
        self.assertEqual(5, self.retry_s(count=3))
        self.limit.take('web', 2)
        self.assertEqual(5, self.retry_s())

    def test_large_request_is_accepted_and_the_next_request_waits(self):
        self.limit.take('web', 18)

        self.assertEqual(130, self.retry_s())
        self.assertEqual(180, self.retry_s(count=18))
        self.clock.advance(130)
        self.limit.take('web', 1)

    def test_refused_request_uses_no_tokens(self):
        self.limit.take('web', 6)
        for _ in range(5):
            self.retry_s(count=100)

        self.clock.advance(10)
        self.limit.take('web', 1)
        self.assertEqual(10, self.retry_s())

    def test_unused_budget_is_not_saved(self):
        self.limit.take('web', 1)
        self.clock.advance(3600)
        self.limit.take('web', 6)

        self.assertEqual(10, self.retry_s())

    def test_no_limit_by_default(self):
        limit = quota.RateLimit(None, self.clock)
        for _ in range(100):
            self.assertIsNone(limit.take('web', 1000))
