# SPDX-License-Identifier: Apache-2.0
"""Claims are recorded, and are released."""

from keystoneauth1 import exceptions as ks_exceptions

from cellsched.claims import base
from cellsched.claims.placement import messages
from cellsched import exception
from cellsched_nova import claims
from tests import claim_fixtures

SOURCE = claim_fixtures.SOURCE
HOST = claim_fixtures.HOST
OTHER = claim_fixtures.OTHER
SERVERS = claim_fixtures.SERVERS

request = claim_fixtures.request


class TestNewServers(claim_fixtures.TestCase):

    def test_claim_has_the_owner_of_the_server(self):
        self.assertIsNone(self.claims.claim_hosts(
            {SERVERS[0]: request(HOST, OTHER)}))

        held = self.parts.store.claims_of(SERVERS)[SERVERS[0]]
        self.assertEqual({HOST, OTHER}, {each.provider for each in held})
        self.assertEqual({('project', 'user')}, {
            (each.project_id, each.user_id) for each in held})

    def test_number_of_guards_is_configured(self):
        for _ in range(8):
            # Each process starts with a random guard.
            made = self.make_claims(self.make_parts(guards=2))
            made.claim_hosts({SERVERS[0]: request(HOST)})
            made.release()

        self.assertLessEqual({
            each.name for each in self.client.model.providers.values()
            if each.name.startswith('cellsched-guard-')},
            {'cellsched-guard-0', 'cellsched-guard-1'})

    def test_claim_released_by_another_process_is_repeated(self):
        self.claims.claim_hosts({SERVERS[0]: request(HOST)})
        looks = []

        def release_meanwhile(asked):
            looks.extend([asked] * (asked.path.endswith(SERVERS[0])))
            if len(looks) == 2:
                # The first read finds the claim.
                self.client.fault = None
                self.make_parts().store.release([SERVERS[0]])
            return self.client.model.answer(asked)

        self.client.fault = release_meanwhile
        self.assertIsNone(self.make_claims(self.make_parts()).claim_hosts(
            {SERVERS[0]: request(HOST)}))
        self.assertEqual({SERVERS[0]: [HOST]}, self.held())

    def test_claim_is_released(self):
        self.claims.claim_hosts({SERVERS[0]: request(HOST, OTHER)})
        self.claims.release()

        self.assertEqual({}, self.held())

    def test_claim_above_the_capacity_is_refused(self):
        for server in SERVERS[:2]:
            self.claims.claim_hosts({server: request(HOST)})

        self.assertEqual(HOST, self.claims.claim_hosts(
            {SERVERS[2]: request(HOST)}))

    def test_server_with_a_refused_claim_has_no_allocations(self):
        for server in SERVERS[:2]:
            self.claims.claim_hosts({server: request(HOST)})
        claim, known = self.parts.store.claim, []

        def note(asked, is_new):
            known.append(is_new)
            return claim(asked, is_new=is_new)

        self.parts.store.claim = note
        self.assertEqual(HOST, self.claims.claim_hosts(
            {SERVERS[2]: request(HOST)}))
        self.assertIsNone(self.claims.claim_hosts(
            {SERVERS[2]: request(OTHER)}))

        self.assertEqual([False, True], known)

    def test_all_instances_are_claimed_or_none(self):
        hosts = {server: request(HOST) for server in SERVERS}

        self.assertEqual(HOST, self.claims.claim_hosts(hosts))
        self.assertEqual({}, self.held())
        del hosts[SERVERS[2]]
        self.assertIsNone(self.claims.claim_hosts(hosts))
        self.assertEqual(dict.fromkeys(SERVERS[:2], [HOST]), self.held())

    def test_write_has_the_sum_of_the_claims_by_provider(self):
        self.claims.claim_hosts(
            {server: request(HOST) for server in SERVERS[:2]})

        self.assertEqual([{HOST: {'VCPU': 2}}], self.claims.writes)

    def test_existing_claim_is_not_written(self):
        self.claims.claim_hosts({SERVERS[0]: request(HOST)})
        self.claims.writes.clear()

        self.assertIsNone(self.claims.claim_hosts(
            {SERVERS[0]: request(HOST)}))
        self.assertEqual([], self.claims.writes)


class TestServerWithAllocations(claim_fixtures.TestCase):

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
        """Delay a request that adds a claim."""
        if self.is_addition(asked):
            self.late.append(asked)
            self.client.fault = None
            raise ks_exceptions.ConnectTimeout('it is slow')
        return self.client.model.answer(asked)

    def test_claim_is_added_to_the_allocations(self):
        self.assertIsNone(self.claims.claim_hosts(
            {self.server: request(HOST)}))

        self.assertEqual({self.server: [SOURCE, HOST]}, self.held())
        self.assertEqual([{HOST: {'VCPU': 1}}], self.claims.writes)

    def test_server_with_allocations_makes_all_claims_sequential(self):
        hosts = {self.server: request(HOST), SERVERS[1]: request(HOST)}

        self.assertIsNone(self.claims.claim_hosts(hosts))

        self.assertEqual({self.server: [SOURCE, HOST], SERVERS[1]: [HOST]},
                         self.held())

    def test_refused_sequential_claim_releases_the_earlier_claims(self):
        hosts = {server: request(HOST) for server in SERVERS}

        self.assertEqual(HOST, self.claims.claim_hosts(hosts))
        self.claims.release()
        self.release_due()

        self.assertEqual({self.server: [SOURCE]}, self.held())

    def test_release_keeps_the_earlier_allocations(self):
        # The source also serves the other host, like shared storage.
        self.claims.claim_hosts({self.server: request(SOURCE, HOST, OTHER)})
        self.assertEqual({self.server: [SOURCE, HOST, OTHER]}, self.held())

        self.claims.release()

        self.assertEqual({self.server: [SOURCE]}, self.held())

    def test_refused_claim_keeps_the_allocations(self):
        self.make_claims(self.parts).claim_hosts(
            {server: request(HOST) for server in SERVERS[1:]})

        self.assertEqual(HOST, self.claims.claim_hosts(
            {self.server: request(HOST)}))
        self.assertEqual([SOURCE], self.held()[self.server])
        asked = len(self.client.requests)
        self.claims.release()
        self.assertEqual(asked, len(self.client.requests))

    def reject(self, asked):
        """Reject each claim of the server for good."""
        if not self.client.is_claim(asked):
            return self.client.model.answer(asked)
        return messages.PlacementAnswer(400, {'errors': [{
            'status': 400, 'detail': 'no such project'}]})

    def test_rejected_claim_is_not_repeated(self):
        self.client.fault = self.reject
        with self.assertRaisesRegex(
                exception.DatabaseUnreachable, '400 no such project'):
            self.claims.claim_hosts({self.server: request(HOST)})
        with self.assertRaisesRegex(
                exception.DatabaseUnreachable, '400 no such project'):
            self.parts.allocations.renew({self.server})

    def test_deleted_host_refuses_a_claim(self):
        gone = '00000000-0000-4000-8000-00000000000a'

        self.assertEqual(gone, self.claims.claim_hosts(
            {self.server: request(gone)}))

    def test_claim_with_a_lost_answer_is_repeated(self):
        def lose_once(asked):
            answer = self.client.model.answer(asked)
            if self.client.is_claim(asked) and HOST in (
                    asked.body[self.server]['allocations']):
                self.client.fault = None
                raise ks_exceptions.ConnectTimeout('it is down')
            return answer
        self.client.fault = lose_once

        self.assertIsNone(self.claims.claim_hosts(
            {self.server: request(HOST)}))
        self.assertEqual({self.server: [SOURCE, HOST]}, self.held())

    def test_claim_is_repeated_after_a_change_of_the_allocations(self):
        other = self.make_parts()

        def change_meanwhile(asked):
            if self.is_addition(asked):
                self.client.fault = None
                other.allocations.renew({self.server})
            return self.client.model.answer(asked)
        self.client.fault = change_meanwhile

        self.assertIsNone(self.claims.claim_hosts(
            {self.server: request(HOST)}))
        self.assertEqual({self.server: [SOURCE, HOST]}, self.held())

    def lose_added_claim(self):
        """Execute a claim, and lose its answer and all later ones."""
        def lose(asked):
            answer = self.client.model.answer(asked)
            if self.client.is_claim(asked) and answer.is_done:
                self.client.fault = self.client.down
                raise ks_exceptions.ConnectTimeout('it is down')
            return answer
        self.client.fault = lose
        with self.parts.deadline.of_request(0.0), self.assertRaises(
                exception.DatabaseUnreachable):
            self.claims.claim_hosts({self.server: request(HOST)})
        self.claims.release()
        self.answer_again()

    def test_claim_without_an_answer_is_removed_later(self):
        self.lose_added_claim()
        self.assertEqual({self.server: [SOURCE, HOST]}, self.held())

        self.assertTrue(self.release_due())
        self.assertEqual({self.server: [SOURCE]}, self.held())

    def test_later_claim_of_another_process_remains(self):
        self.lose_added_claim()
        self.client.model.rows[self.server, HOST, 'VCPU'] = 2

        self.assertTrue(self.release_due())
        self.assertEqual({self.server: [SOURCE, HOST]}, self.held())

    def test_server_on_the_new_host_keeps_both_claims(self):
        self.lose_added_claim()
        self.place(HOST)

        self.assertTrue(self.release_due())
        self.assertEqual({self.server: [SOURCE, HOST]}, self.held())

    def test_released_claim_does_not_appear_later(self):
        self.late = []
        self.client.fault = self.catch
        with self.parts.deadline.of_request(0.0):
            with self.assertRaises(exception.DatabaseUnreachable):
                self.claims.claim_hosts({self.server: request(HOST)})
        self.claims.release()

        self.assertTrue(self.release_due())
        self.assertEqual(409, self.come_late().status)
        self.assertEqual({self.server: [SOURCE]}, self.held())

    def test_refused_claim_does_not_appear_later(self):
        self.late = []
        other = self.make_claims(self.parts)

        def fill(asked):
            try:
                return self.catch(asked)
            finally:
                if self.late:
                    other.claim_hosts({
                        server: request(HOST) for server in SERVERS[1:]})
        self.client.fault = fill

        self.assertEqual(HOST, self.claims.claim_hosts(
            {self.server: request(HOST)}))
        other.release()
        self.assertEqual(409, self.come_late().status)
        self.assertEqual({self.server: [SOURCE]}, self.held())


HOST = claim_fixtures.HOST
OTHER = claim_fixtures.OTHER
SERVERS = claim_fixtures.SERVERS

request = claim_fixtures.request


class TestDeferredReleases(claim_fixtures.TestCase):

    def setUp(self):
        super().setUp()
        # The deferred claim comes first, with a guard of its own.
        self.claims.claim_hosts({SERVERS[1]: request(OTHER)})
        self.claims.release()

    def test_claim_with_a_failed_release_is_released_later(self):
        self.claims.claim_hosts({SERVERS[0]: request(HOST, OTHER)})
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
                exception.DatabaseUnreachable, self.claims.claim_hosts,
                {SERVERS[0]: request(OTHER)})
        self.claims.release()

        self.answer_again()
        self.assertIsNone(self.claims.claim_hosts(
            {SERVERS[0]: request(OTHER)}))

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
        self.assertIsNone(self.make_claims(other).claim_hosts(
            {SERVERS[0]: request(OTHER)}))

        self.assertTrue(self.release_due())

        self.assertEqual({SERVERS[0]: [OTHER]}, self.held())

    def test_concurrent_claim_of_equal_amounts_is_kept(self):
        self.lose_the_answer()
        self.answer_again()
        other = self.make_claims(self.make_parts())
        self.meanwhile = lambda: self.assertIsNone(
            other.claim_hosts({SERVERS[0]: request(HOST)}))

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
            self.claims.claim_hosts({SERVERS[0]: request(HOST)})
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
