# SPDX-License-Identifier: Apache-2.0
"""Claims that could not be given back are released later."""

from cellsched.claims import base
from cellsched import exception
from cellsched_nova import claims
from cellsched_nova import deferred_releases
from tests import claim_fixtures

HOST = claim_fixtures.HOST
OTHER = claim_fixtures.OTHER
SERVERS = claim_fixtures.SERVERS

request = claim_fixtures.request


class TestOwedReleases(claim_fixtures.TestCase):

    def setUp(self):
        super().setUp()
        # What is owed first, and has a guard that nobody else has used.
        self.claims.claim(SERVERS[1], request(OTHER))
        self.claims.give_back()

    def test_claim_that_cannot_be_given_back_is_released_later(self):
        self.claims.claim(SERVERS[0], request(HOST, OTHER))
        self.client.fault = self.client.down
        with self.parts.patience.of_request(0.0), self.assertLogs(
                claims.LOG.logger, 'WARNING'):
            self.claims.give_back()
        self.assertRaises(exception.DatabaseUnreachable, self.pay)
        self.assertEqual({SERVERS[0]: [HOST, OTHER]}, self.held())

        self.answer_again()

        self.assertTrue(self.pay())
        self.assertEqual({}, self.held())

    def test_claim_without_an_answer_is_released_later(self):
        self.lose_the_answer()
        self.assertEqual({SERVERS[0]: [HOST]}, self.held())

        self.answer_again()

        self.assertTrue(self.pay())
        self.assertEqual({}, self.held())

    def test_claim_without_an_answer_is_released_before_the_next(self):
        self.lose_the_answer()
        with self.parts.patience.of_request(0.0):
            self.assertRaises(
                exception.DatabaseUnreachable, self.claims.claim, SERVERS[0],
                request(OTHER))
        self.claims.give_back()

        self.answer_again()
        self.assertTrue(self.claims.claim(SERVERS[0], request(OTHER)))

        self.assertEqual({SERVERS[0]: [OTHER]}, self.held())

    def test_instance_on_that_host_keeps_what_it_holds(self):
        self.lose_the_answer()
        self.place(HOST)

        self.answer_again()

        self.assertTrue(self.pay())
        self.assertEqual({SERVERS[0]: [HOST]}, self.held())

    def test_instance_on_another_host_does_not(self):
        self.lose_the_answer()
        self.place(OTHER)

        self.answer_again()

        self.assertTrue(self.pay())
        self.assertEqual({}, self.held())

    def test_instance_that_is_being_changed_is_looked_at_again(self):
        self.lose_the_answer()
        self.place(None, is_changing=True)
        self.answer_again()

        self.assertFalse(self.pay())
        self.assertEqual({SERVERS[0]: [HOST]}, self.held())

        self.place(None)
        self.assertTrue(self.pay())
        self.assertEqual({}, self.held())

    def test_instance_of_a_silent_cell_is_looked_at_again(self):
        self.lose_the_answer()
        self.is_complete = False
        self.answer_again()

        self.assertFalse(self.pay())
        self.assertEqual({SERVERS[0]: [HOST]}, self.held())

    def test_instance_that_others_claimed_for_keeps_what_it_holds(self):
        self.lose_the_answer()
        self.answer_again()
        others = self.make_parts()
        others.store.release([SERVERS[0]])
        self.assertTrue(self.make_claims(others).claim(
            SERVERS[0], request(OTHER)))

        self.assertTrue(self.pay())

        self.assertEqual({SERVERS[0]: [OTHER]}, self.held())

    def test_same_claim_by_others_at_the_same_moment_is_kept(self):
        self.lose_the_answer()
        self.answer_again()
        others = self.make_claims(self.make_parts())
        self.meanwhile = lambda: self.assertTrue(
            others.claim(SERVERS[0], request(HOST)))

        self.assertFalse(self.pay())
        self.assertEqual({SERVERS[0]: [HOST]}, self.held())

    def test_claim_that_is_released_does_not_come_late(self):
        self.late = []

        def catch(asked):
            if not self.client.is_claim(asked):
                return self.client.model.answer(asked)
            self.late.append(asked)
            return self.client.down(asked)

        self.client.fault = catch
        with self.parts.patience.of_request(0.0), self.assertRaises(
                exception.DatabaseUnreachable):
            self.claims.claim(SERVERS[0], request(HOST))
        self.claims.give_back()
        self.answer_again()

        self.assertTrue(self.pay())
        self.assertEqual(409, self.come_late().status)
        self.assertEqual({}, self.held())

    def test_what_was_released_is_owed_no_more(self):
        self.lose_the_answer()
        self.answer_again()
        self.pay()
        self.parts.store.claim([base.Claim(SERVERS[0], HOST, {'VCPU': 1})])

        self.assertTrue(self.pay())

        self.assertEqual({SERVERS[0]: [HOST]}, self.held())

    def test_what_is_still_owed_at_the_end_is_told(self):
        self.lose_the_answer()

        with self.assertLogs(deferred_releases.LOG.logger, 'ERROR') as logged:
            self.parts.owed.stop()

        self.assertIn(SERVERS[0], logged.output[0])
