# SPDX-License-Identifier: Apache-2.0
"""The leases of a process: longer for as long as it lives."""

from cellsched.conductor.tasks import lease
from cellsched.conductor.tasks.lease import Leases
from cellsched import context
from cellsched.db.api import build_requests
from cellsched.db import session
from cellsched import exception
from cellsched.testing import clock
from tests.unit.base import TestCase
from tests.unit.conductor import base


class TestLeases(base.TestCase):

    def setUp(self):
        super().setUp()
        self.leases = Leases(self.database, base.LEASE_S)

    def lease(self, uuids, owner):
        """Return those of these that are free for somebody, who has them."""
        now = self.clock.steady()
        with self.database.writer() as connection:
            return [each.request.instance_uuid
                    for each in build_requests.lease(
                        connection, uuids, owner, now, now + base.LEASE_S)]

    def test_held_lease_is_renewed_until_its_end(self):
        held, other = self.accept(2)
        self.lease([held, other], 'mine')
        self.leases.hold({held: 'mine'})

        for _ in range(3):
            self.clock.advance(base.LEASE_S - 1)
            self.leases.renew()

        self.assertEqual([other], self.lease([held, other], 'next'))

    def test_released_lease_is_not_renewed(self):
        uuids = self.accept(2)
        self.lease(uuids, 'mine')
        self.leases.hold(dict.fromkeys(uuids, 'mine'))

        self.leases.release(uuids[:1], 'mine')
        self.clock.advance(base.LEASE_S - 1)
        self.leases.renew()
        self.clock.advance(1)

        self.assertEqual(uuids[:1], self.lease(uuids, 'next'))

    def test_lease_of_the_next_attempt_outlives_the_last(self):
        uuids = self.accept(1)
        self.lease(uuids, 'next try')
        self.leases.hold({uuids[0]: 'last try'})
        self.leases.hold({uuids[0]: 'next try'})

        self.leases.release(uuids, 'last try')
        self.clock.advance(base.LEASE_S - 1)
        self.leases.renew()
        self.clock.advance(1)

        self.assertEqual([], self.lease(uuids, 'other'))

    def test_resumed_conductor_does_not_renew_a_lost_lease(self):
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

    def test_renewal_without_leases_opens_no_database(self):
        nowhere = session.Database(
            f'sqlite:///{self.temporary_directory()}/gone/x', 'API',
            clock=self.clock)

        leases = Leases(nowhere, base.LEASE_S)

        leases.renew()
        leases.hold({'server': 'owner'})
        self.assertRaises(exception.DatabaseUnreachable, leases.renew)


USER = context.member('user', 'project')


class TestRetries(TestCase):

    def setUp(self):
        super().setUp()
        self.clock = clock.FakeClock()
        self.retries = lease.Retries(self.clock, 1.0)

    def defer(self, name, number=0):
        return self.retries.defer(
            lease.Attempt(USER, [name], 'owner', number))

    def due(self):
        return [(each.uuids, each.number) for each in self.retries.pop_due()]

    def test_batch_waits_for_its_time_and_is_given_once(self):
        self.assertTrue(self.defer('a'))

        self.clock.advance(0.9)
        self.assertEqual([], self.due())
        self.clock.advance(0.1)
        self.assertEqual([(['a'], 1)], self.due())
        self.assertEqual([], self.due())

    def test_each_attempt_waits_twice_as_long(self):
        for number, seconds in enumerate((1, 2, 4)):
            self.defer('a', number)
            self.clock.advance(seconds - 0.1)
            self.assertEqual([], self.due(), number)
            self.clock.advance(0.1)
            self.assertEqual([(['a'], number + 1)], self.due())

    def test_delay_is_bounded_after_any_number_of_attempts(self):
        self.defer('a', 3)
        self.defer('b', 10_000)
        self.clock.advance(lease.DELAY_MAX_S)

        self.assertEqual([(['a'], 4), (['b'], 10_001)], self.due())

    def test_longer_first_delay_does_not_grow(self):
        self.retries = lease.Retries(self.clock, 60.0)
        self.defer('a', 5)
        self.clock.advance(59)
        self.assertEqual([], self.due())
        self.clock.advance(1)
        self.assertEqual([(['a'], 6)], self.due())

    def test_first_due_is_given_first(self):
        self.defer('later', 1)
        self.defer('sooner', 0)
        self.clock.advance(2)

        self.assertEqual(
            [['sooner'], ['later']], [uuids for uuids, _ in self.due()])

    def test_waiting_batches_are_limited(self):
        for number in range(lease.WAITING_MAX):
            self.defer(str(number))

        self.assertFalse(self.defer('too many'))
        self.clock.advance(1)
        self.assertEqual(lease.WAITING_MAX, len(self.due()))
