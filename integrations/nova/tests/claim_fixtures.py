# SPDX-License-Identifier: Apache-2.0
"""Fixtures for claims of servers in a model of Placement."""

import types
import unittest

from keystoneauth1 import exceptions as ks_exceptions
from nova import context as nova_context
from nova import objects as nova_objects

from cellsched.claims import base
from cellsched.claims.placement import messages
from cellsched import exception
from cellsched.simulator.servers import placement as servers
from cellsched_nova import cells
from cellsched_nova import claims

nova_objects.register_all()

SOURCE, HOST, OTHER = (
    f'00000000-0000-4000-8000-00000000000{number}' for number in range(3))
SERVERS = [f'10000000-0000-4000-8000-00000000000{number}'
           for number in range(3)]


def request(*hosts):
    """Return the amounts of a claim on these hosts."""
    return {host: {'VCPU': 1} for host in hosts}


class Client:
    """A model of Placement with the methods of Nova's report client.

    :ivar fault: answers the requests instead of the model, if not None
    """

    def __init__(self):
        self.model = servers.PlacementModel()
        self.fault = None
        self.requests = []

    def get(self, path, version=None):
        return self._send('GET', path)

    def post(self, path, body, version=None):
        return self._send('POST', path, body)

    def put(self, path, body, version=None):
        return self._send('PUT', path, body)

    def _send(self, *arguments):
        sent = messages.PlacementRequest(*arguments)
        self.requests.append(sent)
        answer = (self.fault or self.model.answer)(sent)
        return types.SimpleNamespace(
            status_code=answer.status, json=lambda: answer.body)

    def down(self, sent):
        raise ks_exceptions.ConnectTimeout('it is down')

    def lose(self, sent):
        """Execute a claim without an answer, and fail from then on."""
        answer = self.model.answer(sent)
        if self.is_claim(sent):
            self.fault = self.down
            raise ks_exceptions.ConnectTimeout('it is down')
        return answer

    def is_claim(self, sent):
        return sent.path == '/allocations' and any(
            instance in SERVERS for instance in sent.body)


class TestCase(unittest.TestCase):

    def setUp(self):
        self.client = Client()
        self.parts = self.make_parts()
        for host in SOURCE, HOST, OTHER:
            self.parts.store.set_inventory(host, {'VCPU': base.Inventory(2)})
        self.places = {}
        self.is_complete = True
        # Called while the places of instances are read.
        self.meanwhile = lambda: None
        self.claims = self.make_claims(self.parts)

    def make_parts(self, guards=1):
        return claims.make(self.client, 5.0, self.find_places, guards)

    def make_claims(self, parts):
        return claims.ServerClaims(
            parts, nova_context.get_admin_context(), nova_objects.RequestSpec(
                project_id='project', user_id='user', scheduler_hints={}))

    def find_places(self, instances):
        self.meanwhile()
        return self.places, self.is_complete

    def place(self, host, is_changing=False):
        """Set the host of the first server in Nova."""
        self.places = {SERVERS[0]: cells.Place(host, host, is_changing)}

    def release_due(self):
        with self.parts.deadline.of_request(0.0):
            return self.parts.deferred.release_due()

    def held(self):
        found = {}
        for consumer, provider, _ in sorted(self.client.model.rows):
            if consumer in SERVERS:
                found.setdefault(consumer, []).append(provider)
        return found

    def lose_the_answer(self, *hosts):
        """Claim for the first server, and lose all answers."""
        self.client.fault = self.client.lose
        with self.parts.deadline.of_request(0.0), self.assertRaises(
                exception.DatabaseUnreachable):
            self.claims.claim_hosts({SERVERS[0]: request(*hosts or [HOST])})
        with self.assertLogs(
                claims.LOG.logger, 'WARNING') as logged:
            self.claims.release()
        self.assertIn(SERVERS[0], logged.output[0])

    def answer_again(self):
        self.client.fault = None

    def come_late(self):
        """Let Placement execute a delayed request."""
        [late] = self.late
        return self.client.model.answer(late)
