# SPDX-License-Identifier: Apache-2.0
"""The leases of a process: longer for as long as it lives."""

from cellsched.conductor.tasks import leases
from cellsched.db.api import build_requests
from cellsched.db import session
from tests.unit.conductor import base


class TestLeases(base.TestCase):

    def setUp(self):
        super().setUp()
        self.leases = leases.Leases(self.database, base.LEASE_S)

    def lease(self, uuids, owner):
        """Return those of these that are free for somebody, who has them."""
        now = self.clock.steady()
        with self.database.writer() as connection:
            return [each.request.instance_uuid
                    for each in build_requests.lease(
                        connection, uuids, owner, now, now + base.LEASE_S)]

    def test_what_is_held_stays_ours_for_as_long_as_that_is_said(self):
        held, other = self.accept(2)
        self.lease([held, other], 'mine')
        self.leases.hold({held: 'mine'})

        for _ in range(3):
            self.clock.advance(base.LEASE_S - 1)
            self.leases.renew()

        self.assertEqual([other], self.lease([held, other], 'next'))

    def test_what_was_let_go_is_renewed_no_more(self):
        uuids = self.accept(2)
        self.lease(uuids, 'mine')
        self.leases.hold(dict.fromkeys(uuids, 'mine'))

        self.leases.let_go(uuids[:1], 'mine')
        self.clock.advance(base.LEASE_S - 1)
        self.leases.renew()
        self.clock.advance(1)

        self.assertEqual(uuids[:1], self.lease(uuids, 'next'))

    def test_what_is_held_for_the_next_try_is_not_let_go_by_the_last(self):
        uuids = self.accept(1)
        self.lease(uuids, 'next try')
        self.leases.hold({uuids[0]: 'last try'})
        self.leases.hold({uuids[0]: 'next try'})

        self.leases.let_go(uuids, 'last try')
        self.clock.advance(base.LEASE_S - 1)
        self.leases.renew()
        self.clock.advance(1)

        self.assertEqual([], self.lease(uuids, 'other'))

    def test_conductor_that_was_stopped_takes_nothing_back(self):
        """It wakes when another one has what it had, and says it is its."""
        uuids = self.accept(1)
        self.lease(uuids, 'mine')
        self.leases.hold({uuids[0]: 'mine'})
        self.clock.advance(base.LEASE_S)
        self.assertEqual(uuids, self.lease(uuids, 'next'))

        self.clock.advance(base.LEASE_S - 1)
        self.leases.renew()
        self.clock.advance(1)

        self.assertEqual(uuids, self.lease(uuids, 'third'))

    def test_nothing_held_asks_no_database(self):
        nowhere = session.Database(
            f'sqlite:///{self.temporary_directory()}/gone/x', 'API',
            clock=self.clock)

        leases.Leases(nowhere, base.LEASE_S).renew()
