# SPDX-License-Identifier: Apache-2.0
"""Builds that were begun and not yet reported."""

from cellsched.hosts import inflight_builds
from tests.unit import base


class TestPending(base.TestCase):

    def setUp(self):
        super().setUp()
        self.pending = inflight_builds.InflightBuilds()

    def begin(self, **times):
        for uuid, begun in times.items():
            for time in begun:
                self.pending.add(uuid, time)

    def expired(self, before):
        return list(self.pending.expire(before))

    def test_build_expires_once(self):
        self.begin(a=[1.0], b=[2.0])

        self.assertEqual([('a', 1)], self.expired(2.0))
        self.assertEqual([('b', 1)], self.expired(9.0))
        self.assertEqual([], self.expired(99.0))

    def test_each_build_of_a_host_has_its_time(self):
        self.begin(a=[1.0, 1.0, 5.0])

        self.assertEqual([('a', 1)] * 2, self.expired(5.0))
        self.assertEqual([('a', 1)], self.expired(5.1))

    def test_host_that_reported_has_none(self):
        self.begin(a=[1.0], b=[1.0])

        self.pending.forget(['a', 'nobody'])

        self.assertEqual([('b', 1)], self.expired(9.0))

    def test_build_after_a_report_has_its_own_time(self):
        self.begin(a=[1.0])
        self.pending.forget(['a'])
        self.begin(a=[5.0])

        self.assertEqual([], self.expired(5.0))
        self.assertEqual([('a', 1)], self.expired(9.0))
