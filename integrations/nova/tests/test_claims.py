# SPDX-License-Identifier: Apache-2.0
"""Claims are known, and are given back."""

import unittest

from keystoneauth1 import exceptions as ks_exceptions
from nova import context as nova_context
from nova import objects as nova_objects

from cellsched.claims import base
from cellsched.claims import memory
from cellsched import exception
from cellsched_nova import claims
from cellsched_nova import owed_releases

nova_objects.register_all()

SOURCE, HOST, OTHER = (
    f'00000000-0000-4000-8000-00000000000{number}' for number in range(3))
SERVERS = [f'10000000-0000-4000-8000-00000000000{number}'
           for number in range(3)]


def request(*hosts):
    return {'allocations': {host: {'resources': {'VCPU': 1}}
                            for host in hosts}, 'mappings': {'': [*hosts]}}


class Client:
    """Keeps allocations as Placement does, under the client's names."""

    def __init__(self):
        self.held = {}
        self.answer = None

    def claim_resources(self, context, uuid, wanted, project_id, user_id,
                        allocation_request_version, consumer_generation=None):
        taken = self.answer is None or self.answer()
        if taken:
            self.held.setdefault(uuid, {}).update(wanted['allocations'])
        return taken

    def get_allocs_for_consumer(self, context, uuid):
        return {'allocations': dict(self.held.get(uuid, {}))}

    def delete_allocation_for_instance(self, context, uuid, force=False):
        del self.held[uuid]

    def remove_provider_tree_from_instance_allocation(
            self, context, uuid, provider):
        del self.held[uuid][provider]


class Unreachable(memory.MemoryClaims):
    """A claim store that does not answer to some calls."""

    silent = frozenset()

    def claim(self, claims):
        """Take them, and lose the answer."""
        taken = super().claim(claims)
        if 'claim' in self.silent:
            raise exception.DatabaseUnreachable(
                schema='claims', url='', reason='it is down')
        return taken

    def release(self, consumers):
        if 'release' in self.silent:
            raise exception.DatabaseUnreachable(
                schema='claims', url='', reason='it is down')
        super().release(consumers)


class TestCase(unittest.TestCase):

    def setUp(self):
        self.client = Client()
        self.store = Unreachable()
        for host in SOURCE, HOST, OTHER:
            self.store.set_inventory(host, {'VCPU': base.Inventory(2)})
        self.placed = {}
        self.owed = owed_releases.OwedReleases(
            self.store, lambda instances: self.placed)
        spec = nova_objects.RequestSpec(
            project_id='project', user_id='user', scheduler_hints={})
        self.claims = claims.ServerClaims(
            nova_context.get_admin_context(), self.client, self.store,
            self.owed, spec)

    def held(self):
        return {consumer: sorted(claim.provider for claim in held)
                for consumer, held in self.store.held(SERVERS).items()}


class TestNewServers(TestCase):

    def test_claim_says_whose_it_is(self):
        self.assertTrue(self.claims.claim(SERVERS[0], request(HOST, OTHER)))

        held = self.store.held(SERVERS)[SERVERS[0]]
        self.assertEqual({HOST, OTHER}, {each.provider for each in held})
        self.assertEqual({('project', 'user')}, {
            (each.project_id, each.user_id) for each in held})

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

    def lose_the_answer(self):
        self.store.silent = {'claim', 'release'}
        with self.assertRaises(exception.DatabaseUnreachable):
            self.claims.claim(SERVERS[0], request(HOST))
        with self.assertLogs(owed_releases.LOG.logger, 'WARNING') as logged:
            self.claims.give_back()
        self.assertIn(SERVERS[0], logged.output[0])
        self.assertEqual({SERVERS[0]: [HOST]}, self.held())

    def test_claim_that_cannot_be_given_back_is_released_later(self):
        self.claims.claim(SERVERS[0], request(HOST, OTHER))
        self.store.silent = {'release'}
        with self.assertLogs(claims.LOG.logger, 'WARNING'):
            self.claims.give_back()
        self.assertRaises(exception.DatabaseUnreachable, self.owed.pay)
        self.assertEqual({SERVERS[0]: [HOST, OTHER]}, self.held())

        self.store.silent = frozenset()
        self.owed.pay()

        self.assertEqual({}, self.held())

    def test_claim_without_an_answer_is_released_later(self):
        self.lose_the_answer()

        self.store.silent = frozenset()
        self.owed.pay()

        self.assertEqual({}, self.held())

    def test_claim_without_an_answer_is_released_before_the_next(self):
        self.lose_the_answer()
        self.assertRaises(exception.DatabaseUnreachable, self.claims.claim,
                          SERVERS[0], request(OTHER))

        self.store.silent = frozenset()
        self.assertTrue(self.claims.claim(SERVERS[0], request(OTHER)))

        self.assertEqual({SERVERS[0]: [OTHER]}, self.held())

    def test_instance_on_a_host_keeps_what_it_holds(self):
        self.lose_the_answer()
        self.placed = {SERVERS[0]: HOST}

        self.store.silent = frozenset()
        self.owed.pay()

        self.assertEqual({SERVERS[0]: [HOST]}, self.held())

    def test_instance_that_others_claimed_for_keeps_what_it_holds(self):
        self.lose_the_answer()
        self.store.silent = frozenset()
        self.store.release([SERVERS[0]])
        self.store.claim([base.Claim(SERVERS[0], OTHER, {'VCPU': 1})])

        self.owed.pay()

        self.assertEqual({SERVERS[0]: [OTHER]}, self.held())

    def test_what_was_released_is_owed_no_more(self):
        self.lose_the_answer()
        self.store.silent = frozenset()
        self.owed.pay()
        self.store.claim([base.Claim(SERVERS[0], HOST, {'VCPU': 1})])

        self.owed.pay()

        self.assertEqual({SERVERS[0]: [HOST]}, self.held())

    def test_what_is_still_owed_at_the_end_is_told(self):
        self.lose_the_answer()

        with self.assertLogs(owed_releases.LOG.logger, 'ERROR') as logged:
            self.owed.stop()

        self.assertIn(SERVERS[0], logged.output[0])


class TestServerThatHoldsSomething(TestCase):

    server = SERVERS[0]

    def setUp(self):
        super().setUp()
        self.before = request(SOURCE)['allocations']
        self.client.held[self.server] = dict(self.before)
        self.store.claim([base.Claim(self.server, SOURCE, {'VCPU': 1})])

    def lose_the_answer(self, is_taken):
        def answer():
            if is_taken:
                self.client.held[self.server] = request(HOST)['allocations']
            raise ks_exceptions.ConnectTimeout()
        self.client.answer = answer

    def test_it_gets_both(self):
        self.assertTrue(self.claims.claim(self.server, request(HOST)))

        self.assertEqual({SOURCE, HOST},
                         {*self.client.held[self.server]})

    def test_it_is_claimed_for_in_turn_alone(self):
        self.assertRaises(
            exception.ClaimConflict, self.claims.claim_all,
            [(self.server, request(HOST)), (SERVERS[1], request(HOST))])
        self.assertEqual({self.server: [SOURCE]}, self.held())

    def test_it_keeps_what_it_held_before(self):
        self.claims.claim(self.server, request(HOST, OTHER))

        self.claims.give_back()

        self.assertEqual({self.server: self.before}, self.client.held)

    def test_refused_claim_is_told(self):
        self.client.answer = lambda: False

        self.assertFalse(self.claims.claim(self.server, request(HOST)))

    def test_claim_that_was_taken_is_so_though_the_answer_was_lost(self):
        self.lose_the_answer(True)

        self.assertTrue(self.claims.claim(self.server, request(HOST)))

    def test_claim_that_was_not_taken_fails_with_the_answer(self):
        self.lose_the_answer(False)

        self.assertRaises(ks_exceptions.ConnectTimeout, self.claims.claim,
                          self.server, request(HOST))
        self.assertEqual({self.server: self.before}, self.client.held)

    def test_claim_that_cannot_be_given_back_keeps_no_other(self):
        self.claims.claim(self.server, request(HOST))
        self.claims.claim(SERVERS[1], request(HOST))

        def refuse(context, uuid, provider):
            raise ks_exceptions.ConnectFailure()
        self.client.remove_provider_tree_from_instance_allocation = refuse

        with self.assertLogs(claims.LOG.logger, 'ERROR'):
            self.claims.give_back()

        self.assertEqual({self.server: [SOURCE]}, self.held())
