# SPDX-License-Identifier: Apache-2.0
"""Claims with a failed release are released later."""

from cellsched.claims import base
from cellsched import exception
from cellsched_nova import claims
from tests import claim_fixtures

HOST = claim_fixtures.HOST
OTHER = claim_fixtures.OTHER
SERVERS = claim_fixtures.SERVERS

request = claim_fixtures.request


class TestDeferredReleases(claim_fixtures.TestCase):

    def setUp(self):
        super().setUp()
        # The deferred claim comes first, with a guard of its own.
        self.claims.claim(SERVERS[1], request(OTHER))
        self.claims.release()

    def test_claim_with_a_failed_release_is_released_later(self):
        self.claims.claim(SERVERS[0], request(HOST, OTHER))
        self.client.fault = self.client.down
        with self.parts.deadline.of_request(0.0), self.assertLogs(
                claims.LOG.logger, 'WARNING'):
            self.claims.release()
        self.assertRaises(exception.DatabaseUnreachable, self.release_due)
        self.assertEqual({SERVERS[0]: [HOST, OTHER]}, self.held())

        self.answer_again()

        self.assertTrue(self.release_due())
        self.assertEqual({}, self.held())

    def test_claim_without_an_answer_is_released_later(self):
        self.lose_the_answer()
        self.assertEqual({SERVERS[0]: [HOST]}, self.held())

        self.answer_again()

        self.assertTrue(self.release_due())
        self.assertEqual({}, self.held())

    def test_claim_without_an_answer_is_released_before_the_next(self):
        self.lose_the_answer()
        with self.parts.deadline.of_request(0.0):
            self.assertRaises(
                exception.DatabaseUnreachable, self.claims.claim, SERVERS[0],
                request(OTHER))
        self.claims.release()

        self.answer_again()
        self.assertTrue(self.claims.claim(SERVERS[0], request(OTHER)))

        self.assertEqual({SERVERS[0]: [OTHER]}, self.held())

    def test_instance_on_the_claimed_host_keeps_its_claim(self):
        self.lose_the_answer()
        self.place(HOST)

        self.answer_again()

        self.assertTrue(self.release_due())
        self.assertEqual({SERVERS[0]: [HOST]}, self.held())

    def test_instance_on_another_host_loses_its_claim(self):
        self.lose_the_answer()
        self.place(OTHER)

        self.answer_again()

        self.assertTrue(self.release_due())
        self.assertEqual({}, self.held())

    def test_instance_with_a_task_state_is_retried(self):
        self.lose_the_answer()
        self.place(None, is_changing=True)
        self.answer_again()

        self.assertFalse(self.release_due())
        self.assertEqual({SERVERS[0]: [HOST]}, self.held())

        self.place(None)
        self.assertTrue(self.release_due())
        self.assertEqual({}, self.held())

    def test_instance_of_a_silent_cell_is_retried(self):
        self.lose_the_answer()
        self.is_complete = False
        self.answer_again()

        self.assertFalse(self.release_due())
        self.assertEqual({SERVERS[0]: [HOST]}, self.held())

    def test_newer_claim_of_an_instance_is_kept(self):
        self.lose_the_answer()
        self.answer_again()
        other = self.make_parts()
        other.store.release([SERVERS[0]])
        self.assertTrue(self.make_claims(other).claim(
            SERVERS[0], request(OTHER)))

        self.assertTrue(self.release_due())

        self.assertEqual({SERVERS[0]: [OTHER]}, self.held())

    def test_concurrent_claim_of_equal_amounts_is_kept(self):
        self.lose_the_answer()
        self.answer_again()
        other = self.make_claims(self.make_parts())
        self.meanwhile = lambda: self.assertTrue(
            other.claim(SERVERS[0], request(HOST)))

        self.assertFalse(self.release_due())
        self.assertEqual({SERVERS[0]: [HOST]}, self.held())

    def test_released_claim_does_not_appear_later(self):
        self.late = []

        def catch(asked):
            if not self.client.is_claim(asked):
                return self.client.model.answer(asked)
            self.late.append(asked)
            return self.client.down(asked)

        self.client.fault = catch
        with self.parts.deadline.of_request(0.0), self.assertRaises(
                exception.DatabaseUnreachable):
            self.claims.claim(SERVERS[0], request(HOST))
        self.claims.release()
        self.answer_again()

        self.assertTrue(self.release_due())
        self.assertEqual(409, self.come_late().status)
        self.assertEqual({}, self.held())

    def test_released_claim_is_not_deferred_any_more(self):
        self.lose_the_answer()
        self.answer_again()
        self.release_due()
        self.parts.store.claim([base.Claim(SERVERS[0], HOST, {'VCPU': 1})])

        self.assertTrue(self.release_due())

        self.assertEqual({SERVERS[0]: [HOST]}, self.held())

    def test_remaining_deferred_claims_are_logged_at_the_end(self):
        self.lose_the_answer()

        with self.assertLogs(claims.LOG.logger, 'ERROR') as logged:
            self.parts.deferred.stop()

        self.assertIn(SERVERS[0], logged.output[0])
