# SPDX-License-Identifier: Apache-2.0
"""Queries for leases of build requests and of tasks with one leader."""

import datetime

import sqlalchemy as sa

from cellsched.db.api import build_requests
from cellsched.db.api import leases
from cellsched.db.api import models
from tests.unit.db.api import base
from tests.unit.db.api import test_build_requests
from tests.unit.db import samples
from tests.unit import racing

#: All that was accepted and never taken up is overdue by then.
DUE = leases.LeaseDeadline(1060.0, samples.LATER)


class LeaseCase(test_build_requests.BuildRequestCase):

    def claim(self, batches, owner='claimer', due=DUE, expires_at=1120.0):
        return self.write(
            leases.claim, batches, owner, due, expires_at)

    def owners(self, uuids):
        """Return who has leased requests, and until when."""
        table = models.build_requests
        with self.database.reader() as connection:
            rows = connection.execute(sa.select(table).where(
                table.c.instance_uuid.in_(uuids)).order_by(table.c.id)).all()
        return [(row.lease_owner, row.lease_expires_at) for row in rows]


class TestOverdue(LeaseCase):

    def overdue(self, now=1000.0, created_before=samples.NOW, limit=10,
                after=0):
        return [each.uuid for each in self.read(
            leases.list_overdue,
            leases.LeaseDeadline(now, created_before), limit, after)]

    def test_requests_without_a_lease_are_overdue_by_age(self):
        uuids = self.accept(2)
        before = samples.NOW - datetime.timedelta(seconds=1)

        self.assertEqual(uuids, self.overdue())
        self.assertEqual([], self.overdue(created_before=before))
        self.assertEqual(uuids[:1], self.overdue(limit=1))

    def test_leased_request_is_overdue_when_its_lease_ran_out(self):
        uuids = self.accept(2)
        self.lease(uuids[1:], expires_at=1060.0)

        self.assertEqual(uuids[:1], self.overdue(now=1059.0))
        self.assertEqual(uuids, self.overdue(now=1060.0))

    def test_deleted_request_is_not_overdue(self):
        uuids = self.accept(1)
        self.write(build_requests.delete, uuids)

        self.assertEqual([], self.overdue())

    def test_next_page_begins_after_the_last_row(self):
        uuids = self.accept(3)
        [first, second] = self.read(
            leases.list_overdue,
            leases.LeaseDeadline(1000.0, samples.NOW), 2)

        self.assertEqual(uuids[:2], [first.uuid, second.uuid])
        self.assertEqual(uuids[2:], self.overdue(after=second.id))


class TestBatches(LeaseCase):

    def batches(self, *uuids, due=DUE):
        return self.read(leases.list_batches, uuids, due)

    def test_batch_contains_the_requests_of_a_single_call(self):
        one = self.accept(3, reservation_id='r-1')
        # What was accepted at the same time is no batch by that alone.
        other = self.accept(2, reservation_id='r-2')
        later = self.accept(1, reservation_id='r-3', now=samples.LATER)

        for uuids in one, other, later:
            for uuid in uuids:
                self.assertEqual([uuids], self.batches(uuid))
        self.assertEqual([one, other], self.batches(other[1], *one))

    def test_batch_has_its_remaining_requests(self):
        uuids = self.accept(3, reservation_id='r-1')
        self.write(build_requests.delete, uuids[:1])

        self.assertEqual([uuids[1:]], self.batches(uuids[2]))

    def test_leased_request_is_no_part_of_the_batch(self):
        uuids = self.accept(3, reservation_id='r-1')
        self.lease(uuids[:1], expires_at=1061.0)

        self.assertEqual([uuids[1:]], self.batches(uuids[2]))

    def test_deleted_requests_have_no_batch(self):
        uuids = self.accept(2, reservation_id='r-1')
        self.write(build_requests.delete, uuids[:1])

        self.assertEqual([], self.batches(uuids[0]))

    def test_batch_contains_no_request_of_another_project(self):
        mine = self.accept(1, reservation_id='r-1')
        self.accept(1, reservation_id='r-1', project_id='other')

        self.assertEqual([mine], self.batches(mine[0]))

    def test_unreadable_request_is_a_batch_of_its_own(self):
        for number, text in enumerate((*samples.UNREADABLE, None)):
            first, broken, last = batch = self.accept(
                3, reservation_id=f'r-{number}')
            self.write(samples.spoil, broken, 'build_requests', instance=text)
            self.assertEqual(
                [[first, last], [broken]], self.batches(*batch))


class TestClaim(LeaseCase):

    def test_claimed_batches_are_leased_without_counting_a_try(self):
        batches = [self.accept(2), self.accept(1)]

        self.assertEqual(batches, self.claim(batches))

        uuids = sum(batches, [])
        self.assertEqual([('claimer', 1120.0)] * 3, self.owners(uuids))
        [first, *_] = self.write(
            build_requests.lease, uuids, 'builder', 1120.0, 1180.0)
        self.assertEqual(1, first.tries)

    def test_batch_with_a_leased_first_request_is_not_claimed(self):
        batch = self.accept(3)
        self.lease(batch[:1], 'other', expires_at=1061.0)

        self.assertEqual([], self.claim([batch]))

        self.assertEqual([('other', 1061.0), (None, None), (None, None)],
                         self.owners(batch))

    def test_leased_request_of_a_batch_is_omitted(self):
        batch = self.accept(3)
        self.lease(batch[1:2], 'other', expires_at=1061.0)

        self.assertEqual([[batch[0], batch[2]]], self.claim([batch]))

    def test_batch_is_claimed_whole_by_a_single_owner(self):
        batches = [self.accept(3) for _ in range(4)]

        claimed = racing.race(*[
            lambda name=name: self.claim(batches, f'owner{name}')
            for name in range(6)])

        self.assertEqual(
            sorted(batches), sorted(sum(claimed, [])))


class TestExtend(LeaseCase):

    def extend(self, owners, expires_at=2000.0):
        self.write(leases.extend, owners, expires_at)

    def test_leases_of_several_owners_last_longer(self):
        uuids = self.accept(3)
        self.lease(uuids[:1], 'one')
        self.lease(uuids[1:], 'two')

        self.extend({uuids[0]: 'one', uuids[1]: 'two'})

        self.assertEqual(
            [('one', 2000.0), ('two', 2000.0), ('two', 1060.0)],
            self.owners(uuids))

    def test_lease_of_another_owner_is_not_extended(self):
        uuids = self.accept(2)
        self.lease(uuids, 'one')
        self.lease(uuids[:1], 'two', now=1060.0, expires_at=1120.0)

        self.extend(dict.fromkeys(uuids, 'one'))

        self.assertEqual([('two', 1120.0), ('one', 2000.0)],
                         self.owners(uuids))

    def test_deleted_request_is_not_claimed(self):
        uuids = self.accept(1)
        self.lease(uuids, 'one')
        self.write(build_requests.delete, uuids)

        self.extend({uuids[0]: 'one'})

        self.assertEqual([], self.owners(uuids))

    def test_late_extension_does_not_revive_an_ended_lease(self):
        uuids = self.accept(2)
        self.lease(uuids, 'one')
        self.write(build_requests.unlease, uuids[:1], 'one', 1010.0, True)
        self.write(build_requests.unlease, uuids[1:], 'another', 1010.0, True)

        self.extend(dict.fromkeys(uuids, 'one'))

        self.assertEqual([(None, 1010.0), ('one', 2000.0)],
                         self.owners(uuids))
        self.assertEqual(uuids[:1], self.lease(
            uuids, 'two', now=1010.0, expires_at=1070.0))


LEASE_S = 60.0


class TestElect(base.TestCase):

    def elect(self, candidate, now, task='task'):
        return self.write(leases.elect, task, candidate, now, now + LEASE_S)

    def kept(self):
        return self.read(lambda connection: [*map(tuple, connection.execute(
            sa.select(models.leaders.c.owner,
                      models.leaders.c.expires_at)))])

    def test_first_candidate_leads(self):
        self.assertTrue(self.elect('a', 0.0))

        self.assertFalse(self.elect('b', 1.0))
        self.assertEqual([('a', 60.0)], self.kept())

    def test_leader_keeps_the_lead(self):
        self.elect('a', 0.0)

        self.assertTrue(self.elect('a', 50.0))

        self.assertFalse(self.elect('b', 109.0))

    def test_another_leader_is_elected_after_the_lease_ended(self):
        self.elect('a', 0.0)

        self.assertTrue(self.elect('b', 60.0))

        self.assertFalse(self.elect('a', 61.0))
        self.assertEqual([('b', 120.0)], self.kept())

    def test_tasks_have_separate_leaders(self):
        self.elect('a', 0.0)

        self.assertTrue(self.elect('b', 0.0, 'other'))

    def test_single_leader_is_elected_in_a_race(self):
        for now in (0.0, 100.0, 200.0):
            outcomes = racing.race(*[
                lambda name=name, now=now: self.elect(name, now)
                for name in (f'{number}-{now}' for number in range(8))])

            self.assertEqual([False] * 7 + [True], sorted(outcomes))
