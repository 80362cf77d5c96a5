# SPDX-License-Identifier: Apache-2.0
"""A Placement that does not answer one request, or rejects all of them."""

from concurrent import futures
from http import server
import json
import random
import threading
import uuid

from cellsched.claims import base as claims
from cellsched.claims import placement
from cellsched.claims.placement import client
from cellsched.claims.placement import messages
from cellsched import clock
from cellsched import exception
from cellsched.simulator.servers import placement as servers
from tests.unit.claims.placement import test_client

PROVIDERS = [str(uuid.UUID(int=number)) for number in range(1, 3)]

#: Seconds that the client waits for an answer: longer than a test takes.
TIMEOUT_S = 600


class Server(server.ThreadingHTTPServer):
    """Answers like Placement, but for silent or rejected requests.

    :ivar silent: consumers whose requests get no answer
    :ivar status: the status of each answer; 0 for those of the model
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(('127.0.0.1', 0), Handler)
        self.model = servers.PlacementModel()
        self.lock = threading.Lock()
        self.silent = set()
        self.reached = threading.Event()
        self.stopped = threading.Event()
        self.status = 0
        self.requests = []


class Handler(server.BaseHTTPRequestHandler):

    protocol_version = 'HTTP/1.1'

    def do_GET(self):
        length = int(self.headers.get('content-length', 0))
        body = json.loads(self.rfile.read(length)) if length else None
        owner = self.server
        owner.requests.append((self.command, self.path))
        if self.command == 'POST' and not owner.silent.isdisjoint(body):
            owner.silent.clear()
            owner.reached.set()
            owner.stopped.wait()
            self.close_connection = True
            return
        if owner.status:
            answer = messages.PlacementAnswer(owner.status, {'errors': [
                {'status': owner.status, 'detail': 'no'}]})
        else:
            with owner.lock:
                answer = owner.model.answer(messages.PlacementRequest(
                    self.command, self.path, body))
        text = b'' if answer.body is None else json.dumps(
            answer.body).encode()
        self.send_response(answer.status)
        self.send_header('content-length', str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_POST = do_PUT = do_DELETE = do_GET

    def log_message(self, *args):
        pass


class SilenceTestCase(test_client.ClientTestCase):

    def setUp(self):
        super().setUp()
        self.server = Server()
        threading.Thread(target=self.server.serve_forever,
                         daemon=True).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.addCleanup(self.server.stopped.set)
        self.store = placement.PlacementClaims(
            self.client(f'http://127.0.0.1:{self.server.server_port}',
                        timeout=TIMEOUT_S),
            clock.Clock(), random.Random(1), retry_timeout_s=60)

    def inventories(self):
        for provider in PROVIDERS:
            self.store.set_inventory(provider, {'VCPU': claims.Inventory(4)})

    def batch(self, provider):
        return [claims.Claim(str(uuid.uuid4()), provider, {'VCPU': 1})]


class TestSilence(SilenceTestCase):

    def setUp(self):
        super().setUp()
        self.inventories()
        self.pool = futures.ThreadPoolExecutor(4)
        self.addCleanup(self.pool.shutdown)
        self.addCleanup(self.server.stopped.set)
        self.silent = self.batch(PROVIDERS[0])
        self.server.silent = {self.silent[0].consumer}
        self.claiming = self.pool.submit(self.store.claim, self.silent)
        self.assertTrue(self.server.reached.wait(60))

    def test_other_claims_do_not_wait_for_the_answer(self):
        for provider in (*PROVIDERS, PROVIDERS[0]):
            self.assertEqual(1, self.store.claim(self.batch(provider)))
        self.assertFalse(self.claiming.done())

        # Then it is found out that nothing was done, and it is done.
        self.server.stopped.set()
        self.assertEqual(1, self.claiming.result(60))
        self.assertEqual(3, self.used())

    def test_other_releases_do_not_wait_for_the_answer(self):
        other = self.batch(PROVIDERS[0])
        self.store.claim(other)
        self.store.release([other[0].consumer])
        self.assertFalse(self.claiming.done())

    def test_release_of_the_same_server_waits_for_its_claim(self):
        releasing = self.pool.submit(
            self.store.release, [self.silent[0].consumer])
        self.store.claim(self.batch(PROVIDERS[1]))
        self.assertFalse(releasing.done())

        self.server.stopped.set()
        futures.wait([self.claiming, releasing])
        self.assertEqual(0, self.used())

    def used(self):
        [usage] = self.store.usages(providers=PROVIDERS[:1]).usages
        return usage.used['VCPU']


class TestRejection(SilenceTestCase):

    def test_calls_end_at_once(self):
        self.inventories()
        held = self.batch(PROVIDERS[0])
        self.store.claim(held)

        def claim():
            self.store.claim(self.batch(PROVIDERS[0]))

        def release():
            self.store.release([held[0].consumer])

        for status, *calls in ((400, claim, release), (401, claim, release),
                               (403, claim, release), (404, claim)):
            self.server.status = status
            for call in calls:
                self.server.requests = []
                self.assertRaises(exception.DatabaseUnreachable, call)
                self.assertLess(len(self.server.requests), 8)

    def test_request_without_an_option_has_a_deadline(self):
        conf = self.conf(auth_type='admin_token', endpoint='http://x',
                         token='secret', endpoint_override='http://x')
        conf.set_override('timeout', None, 'placement')
        made = client.KeystoneClient.from_conf(
            conf, 'placement', clock.Clock())

        self.assertEqual(30, made._adapter.session.timeout)
