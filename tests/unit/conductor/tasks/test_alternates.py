# SPDX-License-Identifier: Apache-2.0

from cellsched.claims import base as claims_base
from cellsched.conductor.tasks import alternates
from cellsched import exception
from cellsched import objects
from tests.unit.conductor import base
from tests.unit.db import samples


class TestAlternates(base.TestCase):

    owner = {'project_id': 'p', 'user_id': 'u'}

    def setUp(self):
        super().setUp()
        [self.uuid] = samples.uuids(1)
        self.claim('a1')
        self.hosts = [self.selection(host) for host in ('a2', 'a3')]
        self.alternates = alternates.Alternates(self.claims)

    def claim(self, host):
        self.claims.claim(claims_base.of_selection(
            self.uuid, self.selection(host)))

    def claim_first(self):
        chosen = self.alternates.claim_first(
            objects.Instance(uuid=self.uuid, **self.owner), self.hosts, None)
        return chosen and chosen.service_host

    def test_first_one_with_room_is_claimed_in_place_of_the_last(self):
        for expected in 'a2', 'a3':
            self.assertEqual((expected, expected),
                             (self.claim_first(), self.holds(self.uuid)))
        self.assertEqual((None, None, []), (
            self.claim_first(), self.holds(self.uuid), self.hosts))

    def test_it_is_claimed_for_the_project_and_user_of_the_server(self):
        for owner, expected in (
                (self.owner, ('p', 'u')), ({}, (None, None)),
                ({'project_id': '', 'user_id': None}, (None, None))):
            self.owner = owner
            self.hosts = [self.selection('a2')]
            self.claim_first()

            [held] = self.claims.claims_of([self.uuid])[self.uuid]
            self.assertEqual(expected, (held.project_id, held.user_id))

    def test_host_with_room_is_claimed_once(self):
        claim, made = self.claims.claim, []

        def claimed(claims):
            made.append([each.consumer for each in claims])
            return claim(claims)

        self.claims.claim = claimed
        self.claim_first()

        self.assertEqual([[self.uuid]], made)

    def test_claim_of_a_scheduler_that_is_late_goes(self):
        # It comes after what was held was given back.
        release, late = self.claims.release, ['a1'] * 3

        def released(uuids):
            release(uuids)
            if late:
                self.claim(late.pop())

        self.claims.release = released

        self.assertEqual(('a2', 'a2'),
                         (self.claim_first(), self.holds(self.uuid)))

    def test_schedulers_that_claim_all_the_time_end_it(self):
        release = self.claims.release

        def released(uuids):
            release(uuids)
            self.claim('a1')

        self.claims.release = released

        self.assertRaises(exception.ClaimConflict, self.claim_first)
