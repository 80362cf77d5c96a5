# SPDX-License-Identifier: Apache-2.0
"""Claims are known, and are given back."""

import types
import unittest

from keystoneauth1 import exceptions as ks_exceptions
from nova import context as nova_context
from nova import objects as nova_objects

from cellsched_nova import claims

nova_objects.register_all()

SOURCE, HOST, OTHER = (
    f'00000000-0000-4000-8000-00000000000{number}' for number in range(3))
SERVER = '10000000-0000-4000-8000-000000000000'


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


class TestServerClaims(unittest.TestCase):

    def setUp(self):
        self.client = Client()
        spec = nova_objects.RequestSpec(
            project_id='project', user_id='user', scheduler_hints={})
        self.claims = claims.ServerClaims(
            nova_context.get_admin_context(), self.client, spec)

    def lose_the_answer(self, is_taken):
        def answer():
            if is_taken:
                self.client.held[SERVER] = request(HOST)['allocations']
            raise ks_exceptions.ConnectTimeout()
        self.client.answer = answer

    def test_claim_is_given_back(self):
        self.assertTrue(self.claims.claim(SERVER, request(HOST, OTHER)))
        self.claims.give_back()

        self.assertEqual({}, self.client.held)

    def test_what_was_held_before_stays(self):
        before = request(SOURCE)['allocations']
        self.client.held[SERVER] = dict(before)
        self.claims.claim(SERVER, request(HOST, OTHER))

        self.claims.give_back()

        self.assertEqual({SERVER: before}, self.client.held)

    def test_refused_claim_is_told(self):
        self.client.answer = lambda: False

        self.assertFalse(self.claims.claim(SERVER, request(HOST)))

    def test_claim_that_was_taken_is_so_though_the_answer_was_lost(self):
        self.lose_the_answer(True)

        self.assertTrue(self.claims.claim(SERVER, request(HOST)))

    def test_claim_that_was_not_taken_fails_with_the_answer(self):
        self.lose_the_answer(False)

        self.assertRaises(ks_exceptions.ConnectTimeout, self.claims.claim,
                          SERVER, request(HOST))
        self.assertEqual({}, self.client.held)

    def test_claim_that_cannot_be_given_back_keeps_no_other(self):
        self.claims.claim(SERVER, request(HOST))
        self.claims.claim(OTHER, request(HOST))
        delete = self.client.delete_allocation_for_instance

        def refuse(context, uuid, force=False):
            if uuid == SERVER:
                raise ks_exceptions.ConnectFailure()
            delete(context, uuid)
        self.client.delete_allocation_for_instance = refuse

        with self.assertLogs(claims.LOG.logger, 'ERROR'):
            self.claims.give_back()

        self.assertEqual([SERVER], [*self.client.held])


class TestRebuild(unittest.TestCase):

    def test_nothing_is_claimed_for_another_image(self):
        spec = nova_objects.RequestSpec(
            project_id='project', user_id='user',
            scheduler_hints={'_nova_check_type': ['rebuild']})
        client = types.SimpleNamespace()

        self.assertTrue(claims.ServerClaims(
            nova_context.get_admin_context(), client, spec).claim(
                SERVER, request(HOST)))
