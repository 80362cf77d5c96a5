# SPDX-License-Identifier: Apache-2.0
"""Queries for builds that were accepted and have no cell yet."""

import functools

from oslo_db import exception as db_exc

from cellsched.db.api import build_requests
from cellsched.db import statements
from tests.unit.db.api import base
from tests.unit.db import samples
from tests.unit import racing


class BuildRequestCase(base.TestCase):

    def accept(self, count, **options):
        uuids = samples.uuids(count)
        samples.accept(self.database, uuids, **options)
        return uuids

    def lease(self, uuids, owner='me', now=1000.0, expires_at=1060.0):
        return [each.request.instance_uuid for each in self.write(
            build_requests.lease, uuids, owner, now, expires_at)]

    def renew(self, uuids, owner='me', expires_at=1060.0):
        return self.write(
            build_requests.renew, dict.fromkeys(uuids, owner), expires_at)


class TestBuildRequests(BuildRequestCase):

    def test_request_is_as_it_was_accepted(self):
        uuid, = self.accept(1, display_name='mine')

        request = self.read(build_requests.get, uuid)

        self.assertEqual(uuid, request.instance_uuid)
        self.assertEqual('project', request.project_id)
        self.assertEqual(samples.NOW, request.created_at)
        self.assertEqual(
            samples.instance(uuid, display_name='mine').obj_to_primitive(),
            request.instance.obj_to_primitive())

    def test_request_that_is_gone_is_none(self):
        self.assertIsNone(
            self.read(build_requests.get, samples.uuids(1)[0]))

    def test_instance_has_one_request(self):
        uuids = self.accept(1)

        self.assertRaises(
            db_exc.DBDuplicateEntry, samples.accept, self.database, uuids)

    def test_requests_of_projects_are_listed(self):
        uuids = self.accept(3)
        other, = self.accept(1, project_id='other')

        def listed(*args):
            return [each.instance_uuid for each in self.read(
                build_requests.list_all, *args)]

        self.assertEqual([*uuids, other], listed())
        self.assertEqual([*uuids, other], listed(['project', 'other']))
        self.assertEqual(uuids, listed(['project']))
        self.assertEqual([], listed(['nobody']))

    def test_what_is_deleted_is_told(self):
        uuids = self.accept(3)

        self.assertEqual(
            set(uuids[:2]), self.write(build_requests.delete, uuids[:2]))
        self.assertEqual(
            {uuids[2]}, self.write(build_requests.delete, uuids))
        self.assertEqual(set(), self.write(build_requests.delete, uuids))

    def test_what_is_held_is_dropped_and_the_rest_stays(self):
        dropped, kept = self.accept(2)

        with self.database.writer() as connection:
            build_requests.held(connection, {dropped: 'me'})
            build_requests.drop(connection, [dropped])

        self.assertEqual(
            {kept}, self.read(build_requests.present, [dropped, kept]))

    def test_exactly_one_deletes_a_request(self):
        uuids = self.accept(20)

        # A conductor deletes a batch, users one each.
        told = racing.race(
            *[lambda: self.write(build_requests.delete, uuids)] * 2,
            *[lambda: set().union(*(
                self.write(build_requests.delete, [uuid])
                for uuid in uuids))] * 4)

        self.assertEqual(20, sum(map(len, told)))
        self.assertEqual(set(uuids), set().union(*told))

    def test_those_who_work_on_one_and_on_many_do_not_wait_in_a_circle(self):
        uuids = self.accept(16)
        self.lease(uuids)

        def drop(those):
            with self.database.writer() as connection:
                build_requests.drop(connection, build_requests.held(
                    connection, dict.fromkeys(those, 'me')))

        told = racing.race(
            *[lambda: self.lease(uuids)] * 2,
            *[lambda: [self.lease([uuid]) for uuid in uuids]] * 2,
            *[functools.partial(drop, uuids[start::4]) for start in range(4)],
            lambda: self.renew(uuids), lambda: self.renew(uuids[::-1]))

        self.assertEqual([], [
            each for each in told if isinstance(each, Exception)])


class TestLease(BuildRequestCase):

    def test_leased_is_what_was_asked_for_in_the_order_accepted(self):
        uuids = self.accept(3, min_count=2)

        leased = self.write(
            build_requests.lease, uuids[::-1], 'me', 1000.0, 1060.0)

        self.assertEqual(
            uuids, [each.request.instance_uuid for each in leased])
        self.assertEqual(
            uuids, [each.spec.instance_uuid for each in leased])
        self.assertEqual([2, 2, 2], [each.min_count for each in leased])
        self.assertEqual(512, leased[0].spec.flavor.memory_mb)

    def test_what_differs_in_a_batch_is_read_of_each(self):
        uuids = [*self.accept(1, launch_index=0, display_name='a'),
                 *self.accept(1, launch_index=1, display_name=None),
                 *self.accept(1),
                 *self.accept(1, launch_index=2, vcpus=4)]

        leased = self.write(build_requests.lease, uuids, 'me', 1000.0, 1060.0)

        self.assertEqual([
            samples.instance(uuid, **fields).obj_to_primitive()
            for uuid, fields in zip(uuids, (
                {'launch_index': 0, 'display_name': 'a'},
                {'launch_index': 1, 'display_name': None}, {},
                {'launch_index': 2, 'vcpus': 4}))],
            [each.request.instance.obj_to_primitive() for each in leased])
        self.assertEqual(uuids, [each.spec.instance_uuid for each in leased])

    def test_request_that_is_leased_is_left_to_whom_it_is(self):
        uuids = self.accept(3)
        self.lease(uuids[:1], 'first')

        self.assertEqual(uuids[1:], self.lease(uuids, 'second'))
        self.assertEqual([], self.lease(uuids, 'third', now=1059.9))
        self.assertEqual(set(uuids[:1]), self.renew(uuids, 'first'))
        self.assertEqual(set(uuids[1:]), self.renew(uuids, 'second'))

    def test_lease_that_ran_out_is_taken_again(self):
        uuids = self.accept(2)
        self.lease(uuids, 'first', expires_at=1060.0)

        self.assertEqual(
            uuids, self.lease(uuids, 'second', now=1060.0,
                              expires_at=1120.0))
        self.assertEqual([], self.lease(uuids, 'third', now=1119.0))

    def test_request_that_is_gone_is_not_leased(self):
        uuids = self.accept(2)
        self.write(build_requests.delete, uuids[:1])

        self.assertEqual(uuids[1:], self.lease(uuids))
        self.assertEqual([], self.lease(uuids[:1]))
        self.assertEqual([], self.lease([]))
        self.assertEqual({uuids[1]}, self.renew(uuids))

    def test_request_that_was_taken_up_before_is_told(self):
        uuids = self.accept(2)
        self.lease(uuids[:1], 'first')

        leased = self.write(
            build_requests.lease, uuids, 'second', 1060.0, 1120.0)

        self.assertEqual([2, 1], [each.tries for each in leased])

    def test_renewed_lease_lasts_longer(self):
        uuids = self.accept(2)
        self.lease(uuids[:1], 'first')

        self.assertEqual(
            set(uuids[:1]), self.renew(uuids, 'first', 1120.0))

        self.assertEqual(
            uuids[1:], self.lease(uuids, 'second', now=1119.0))
        self.assertEqual(
            uuids, self.lease(uuids, 'third', now=1120.0))

    def test_lease_that_another_took_is_not_renewed(self):
        uuids = self.accept(2)
        self.lease(uuids, 'first')
        self.lease(uuids[:1], 'second', now=1060.0, expires_at=1120.0)

        self.assertEqual(
            set(uuids[1:]), self.renew(uuids, 'first', 2000.0))
        self.assertEqual(set(), self.renew(uuids[:1], 'first', 2000.0))

        self.assertEqual(
            uuids[:1], self.lease(uuids, 'third', now=1120.0))

    def test_lease_that_ran_out_is_renewed_if_nobody_took_it(self):
        uuids = self.accept(1)
        self.lease(uuids, 'first')

        self.assertEqual(set(uuids), self.renew(uuids, 'first', 5000.0))
        self.assertEqual([], self.lease(uuids, 'second', now=4999.0))

    def test_only_whose_the_lease_is_deletes_as_its_owner(self):
        uuids = self.accept(3)
        self.lease(uuids[:2], 'first')
        self.lease(uuids[2:], 'second')

        def delete(uuids, owner):
            return self.write(build_requests.delete, uuids, owner)

        self.assertEqual(set(uuids[:2]), delete(uuids, 'first'))
        self.assertEqual(set(), delete(uuids, 'first'))
        self.assertEqual(set(), delete(uuids[2:], 'first'))
        self.assertEqual(set(uuids[2:]), delete(uuids[2:], 'second'))

    def test_renewal_and_takeover_that_race_agree(self):
        uuids = self.accept(10)
        self.lease(uuids, 'first')

        renewed, *taken = racing.race(
            lambda: self.renew(uuids, 'first', 2000.0),
            *[lambda name=name: set(self.lease(
                uuids, name, now=1060.0, expires_at=2000.0))
              for name in ('second', 'third')])

        self.assertEqual(10, len(renewed) + sum(map(len, taken)))
        self.assertEqual(set(uuids), renewed.union(*taken))

    def test_more_requests_than_a_statement_takes_are_leased(self):
        uuids = self.accept(statements.CHUNK + 1)

        self.assertEqual(uuids, self.lease(uuids))

    def test_exactly_one_of_several_leases_a_request(self):
        uuids = self.accept(10)

        for now in 1000.0, 1060.0, 1120.0:
            leased = racing.race(*[
                lambda name=f'{now}-{name}': self.lease(
                    uuids, name, now=now, expires_at=now + 60)
                for name in range(6)])

            self.assertEqual(10, sum(map(len, leased)))
            self.assertEqual(
                set(uuids), {uuid for each in leased for uuid in each})
