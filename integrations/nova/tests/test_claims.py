# SPDX-License-Identifier: Apache-2.0
"""Claims are known, and are given back."""

from keystoneauth1 import exceptions as ks_exceptions

from cellsched.claims import base
from cellsched import exception
from tests import claim_fixtures

SOURCE = claim_fixtures.SOURCE
HOST = claim_fixtures.HOST
OTHER = claim_fixtures.OTHER
SERVERS = claim_fixtures.SERVERS

request = claim_fixtures.request


class TestNewServers(claim_fixtures.TestCase):

    def test_claim_says_whose_it_is(self):
        self.assertTrue(self.claims.claim(SERVERS[0], request(HOST, OTHER)))

        held = self.parts.store.claims_of(SERVERS)[SERVERS[0]]
        self.assertEqual({HOST, OTHER}, {each.provider for each in held})
        self.assertEqual({('project', 'user')}, {
            (each.project_id, each.user_id) for each in held})

    def test_guards_are_as_many_as_is_said(self):
        for _ in range(8):
            # Each process begins with one of them by chance.
            made = self.make_claims(self.make_parts(guards=2))
            made.claim(SERVERS[0], request(HOST))
            made.give_back()

        self.assertLessEqual({
            each.name for each in self.client.model.providers.values()
            if each.name.startswith('cellsched-guard-')},
            {'cellsched-guard-0', 'cellsched-guard-1'})

    def test_claim_that_others_release_just_now_is_made_again(self):
        self.claims.claim(SERVERS[0], request(HOST))
        looks = []

        def release_meanwhile(asked):
            looks.extend([asked] * (asked.path.endswith(SERVERS[0])))
            if len(looks) == 2:
                # It was found to be there at the first look.
                self.client.fault = None
                self.make_parts().store.release([SERVERS[0]])
            return self.client.model.answer(asked)

        self.client.fault = release_meanwhile
        self.assertTrue(self.make_claims(self.make_parts()).claim(
            SERVERS[0], request(HOST)))
        self.assertEqual({SERVERS[0]: [HOST]}, self.held())

    def test_claim_is_given_back(self):
        self.claims.claim(SERVERS[0], request(HOST, OTHER))
        self.claims.give_back()

        self.assertEqual({}, self.held())

    def test_claim_without_room_is_refused(self):
        for server in SERVERS[:2]:
            self.claims.claim(server, request(HOST))

        self.assertFalse(self.claims.claim(SERVERS[2], request(HOST)))

    def test_all_are_claimed_for_or_none(self):
        wanted = [(server, request(HOST)) for server in SERVERS]

        self.assertEqual(HOST, self.claims.claim_all(wanted))
        self.assertEqual({}, self.held())
        self.assertIsNone(self.claims.claim_all(wanted[:2]))
        self.assertEqual(dict.fromkeys(SERVERS[:2], [HOST]), self.held())

    def test_write_tells_what_all_take_of_a_provider(self):
        self.claims.claim_all([
            (server, request(HOST)) for server in SERVERS[:2]])

        self.assertEqual([{HOST: {'VCPU': 2}}], self.claims.writes)

    def test_claim_that_was_there_already_is_no_write(self):
        self.claims.claim(SERVERS[0], request(HOST))
        self.claims.writes.clear()

        self.assertTrue(self.claims.claim(SERVERS[0], request(HOST)))
        self.assertEqual([], self.claims.writes)


class TestServerThatHoldsSomething(claim_fixtures.TestCase):

    server = SERVERS[0]

    def setUp(self):
        super().setUp()
        self.parts.store.claim([base.Claim(self.server, SOURCE, {'VCPU': 1})])
        self.place(SOURCE)

    def is_addition(self, asked):
        return self.client.is_claim(asked) and len(
            asked.body.get(self.server, {'allocations': ()})['allocations']
        ) > 1

    def catch(self, asked):
        """Have what adds something to the server come later."""
        if self.is_addition(asked):
            self.late.append(asked)
            self.client.fault = None
            raise ks_exceptions.ConnectTimeout('it is slow')
        return self.client.model.answer(asked)

    def test_it_gets_both(self):
        self.assertTrue(self.claims.claim(self.server, request(HOST)))

        self.assertEqual({self.server: [SOURCE, HOST]}, self.held())
        self.assertEqual([{HOST: {'VCPU': 1}}], self.claims.writes)

    def test_it_is_claimed_for_in_turn_alone(self):
        self.assertRaises(
            exception.ClaimConflict, self.claims.claim_all,
            [(self.server, request(HOST)), (SERVERS[1], request(HOST))])
        self.assertEqual({self.server: [SOURCE]}, self.held())

    def test_it_keeps_what_it_held_before(self):
        # The source gives to the other host, too, as shared storage does.
        self.claims.claim(self.server, request(SOURCE, HOST, OTHER))
        self.assertEqual({self.server: [SOURCE, HOST, OTHER]}, self.held())

        self.claims.give_back()

        self.assertEqual({self.server: [SOURCE]}, self.held())

    def test_refused_claim_is_told(self):
        self.make_claims(self.parts).claim_all([
            (server, request(HOST)) for server in SERVERS[1:]])

        self.assertFalse(self.claims.claim(self.server, request(HOST)))
        self.assertEqual([SOURCE], self.held()[self.server])
        asked = len(self.client.requests)
        self.claims.give_back()
        self.assertEqual(asked, len(self.client.requests))

    def test_claim_is_made_again_where_the_answer_is_lost(self):
        def lose_once(asked):
            answer = self.client.model.answer(asked)
            if self.client.is_claim(asked) and HOST in (
                    asked.body[self.server]['allocations']):
                self.client.fault = None
                raise ks_exceptions.ConnectTimeout('it is down')
            return answer
        self.client.fault = lose_once

        self.assertTrue(self.claims.claim(self.server, request(HOST)))
        self.assertEqual({self.server: [SOURCE, HOST]}, self.held())

    def test_claim_is_made_again_where_others_change_what_is_held(self):
        others = self.make_parts()

        def change_meanwhile(asked):
            if self.is_addition(asked):
                self.client.fault = None
                others.holdings.renew({self.server})
            return self.client.model.answer(asked)
        self.client.fault = change_meanwhile

        self.assertTrue(self.claims.claim(self.server, request(HOST)))
        self.assertEqual({self.server: [SOURCE, HOST]}, self.held())

    def lose_what_is_added(self):
        """Have a claim taken, and nothing be told of it nor afterwards."""
        def lose(asked):
            answer = self.client.model.answer(asked)
            if self.client.is_claim(asked) and answer.is_done:
                self.client.fault = self.client.down
                raise ks_exceptions.ConnectTimeout('it is down')
            return answer
        self.client.fault = lose
        with self.parts.patience.of_request(0.0), self.assertRaises(
                exception.DatabaseUnreachable):
            self.claims.claim(self.server, request(HOST))
        self.claims.give_back()
        self.answer_again()

    def test_claim_without_an_answer_is_taken_off_later(self):
        self.lose_what_is_added()
        self.assertEqual({self.server: [SOURCE, HOST]}, self.held())

        self.assertTrue(self.pay())
        self.assertEqual({self.server: [SOURCE]}, self.held())

    def test_what_others_claimed_there_meanwhile_stays(self):
        self.lose_what_is_added()
        self.client.model.rows[self.server, HOST, 'VCPU'] = 2

        self.assertTrue(self.pay())
        self.assertEqual({self.server: [SOURCE, HOST]}, self.held())

    def test_server_that_is_there_meanwhile_keeps_both(self):
        self.lose_what_is_added()
        self.place(HOST)

        self.assertTrue(self.pay())
        self.assertEqual({self.server: [SOURCE, HOST]}, self.held())

    def test_claim_that_is_released_does_not_come_late(self):
        self.late = []
        self.client.fault = self.catch
        with self.parts.patience.of_request(0.0):
            with self.assertRaises(exception.DatabaseUnreachable):
                self.claims.claim(self.server, request(HOST))
        self.claims.give_back()

        self.assertTrue(self.pay())
        self.assertEqual(409, self.come_late().status)
        self.assertEqual({self.server: [SOURCE]}, self.held())

    def test_claim_that_is_refused_does_not_come_late(self):
        self.late = []
        others = self.make_claims(self.parts)

        def fill(asked):
            try:
                return self.catch(asked)
            finally:
                if self.late:
                    others.claim_all([
                        (server, request(HOST)) for server in SERVERS[1:]])
        self.client.fault = fill

        self.assertFalse(self.claims.claim(self.server, request(HOST)))
        others.give_back()
        self.assertEqual(409, self.come_late().status)
        self.assertEqual({self.server: [SOURCE]}, self.held())
