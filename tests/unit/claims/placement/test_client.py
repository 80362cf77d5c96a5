# SPDX-License-Identifier: Apache-2.0
"""The client of Placement, against ports of other programs."""

from http import server
import json
import random
import socket
import threading

from oslo_config import cfg

from cellsched import claims
from cellsched.claims import base as claims_base
from cellsched.claims import placement
from cellsched.claims.placement import client
from cellsched.claims.placement import messages
from cellsched.claims import remote
from cellsched import clock
from cellsched.conf import claims as options
from cellsched.conf import loader
from cellsched import exception
from cellsched.testing.clock import FakeClock
from tests.unit import base
from tests.unit import tidy

PASSWORD = 'p@ss:word/secret'


class Parts:

    clock = clock.Clock()
    random = random.Random(1)
    databases = None
    locks = None


class ClientTestCase(base.TestCase):

    def conf(self, **values):
        path = self.temporary_directory() / 'cellsched.conf'
        path.write_text('[placement]\n' + ''.join(
            f'{name} = {value}\n' for name, value in values.items()))
        conf = cfg.ConfigOpts()
        conf.register_opts(options.OPTS, group='claims')
        conf.register_opts(
            placement.PlacementClaims.opts(), group='placement')
        conf([], default_config_files=[str(path)], default_config_dirs=[])
        return conf

    def client(self, url, **values):
        return client.KeystoneClient.from_conf(self.conf(**{
            'auth_type': 'admin_token', 'endpoint': url, 'token': 'secret',
            'endpoint_override': url, 'timeout': 1, **values}), 'placement',
            clock.Clock())

    def serve(self, answer):
        """Return the URL of a server that sends some bytes, and closes."""
        listening = socket.create_server(('127.0.0.1', 0))
        self.addCleanup(listening.close)
        self.asked = []

        def run():
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    asked = connection.recv(65536)
                    while asked.startswith(b'POST') and b'}' not in asked:
                        asked += connection.recv(65536)
                    self.asked.append(asked)
                    if answer is None:
                        threading.Event().wait(3)
                    connection.sendall(answer or b'')

        threading.Thread(target=run, daemon=True).start()
        return f'http://127.0.0.1:{listening.getsockname()[1]}'


class TestOptions(ClientTestCase):

    def test_each_way_to_log_in_is_configured_in_a_file(self):
        """A file with options that are not registered is refused."""
        for auth_type, more in (
            ('admin_token', {'endpoint': 'http://p', 'token': 't'}),
            ('none', {'endpoint': 'http://p'}),
            ('password', {'auth_url': 'http://k', 'username': 'u',
                          'password': PASSWORD, 'project_name': 's',
                          'user_domain_name': 'Default',
                          'project_domain_name': 'Default'}),
            ('v3applicationcredential', {
                'auth_url': 'http://k', 'application_credential_id': 'i',
                'application_credential_secret': PASSWORD}),
        ):
            path = self.temporary_directory() / 'api.conf'
            path.write_text('[claims]\nstore = placement\n[placement]\n'
                            f'auth_type = {auth_type}\n' + ''.join(
                                f'{name} = {value}\n'
                                for name, value in more.items()))
            conf = loader.load(files=[str(path)], dirs=[])

            self.assertIsInstance(
                claims.load(conf, Parts()), placement.PlacementClaims)

    def test_options_with_secrets_are_secret(self):
        secret = {option.dest for option in client.options()
                  if option.secret}

        self.assertTrue(secret.issuperset({
            'password', 'token', 'application_credential_secret'}))


class TestClient(ClientTestCase):

    request = messages.PlacementRequest(
        'POST', '/allocations', {'b': 1, 'a': 2})

    def test_answer_has_status_and_json(self):
        url = self.serve(b'HTTP/1.1 409 Conflict\r\nContent-Length: 8\r\n\r\n'
                         b'{"a": 1}')

        self.assertEqual(messages.PlacementAnswer(409, {'a': 1}),
                         self.client(url).send(self.request))

        asked = self.asked[0].decode()
        self.assertIn('POST /allocations ', asked)
        self.assertIn(f'placement {messages.VERSION}', asked)
        # Placement goes through it in this order.
        self.assertIn('{"b": 1, "a": 2}', asked)

    def test_answer_without_json_has_the_status_only(self):
        url = self.serve(b'HTTP/1.1 502 Bad\r\nContent-Length: 2\r\n\r\n<>')

        self.assertEqual(
            messages.PlacementAnswer(502), self.client(url).send(self.request))
        self.assertEqual(1, len(self.asked))

    def test_refused_connection_is_an_unsent_request(self):
        with socket.create_server(('127.0.0.1', 0)) as free:
            url = f'http://127.0.0.1:{free.getsockname()[1]}'

        self.assertRaises(
            remote.NotSent, self.client(url).send, self.request)

    def test_lost_answer_has_an_unknown_outcome(self):
        for answer in (None, b'', b'HTTP/1.1 200 OK\r\nContent-Length: 9\r\n'
                                  b'\r\n{"a":'):
            url = self.serve(answer)

            self.assertRaises(
                remote.OutcomeUnknown, self.client(url).send, self.request)
            self.assertEqual(1, len(self.asked))


class Keystone(server.BaseHTTPRequestHandler):
    """A Keystone with one service, and Placement at another path."""

    def do_GET(self):
        self.answer(200, {'version': {
            'id': 'v3.14', 'status': 'stable',
            'links': [{'rel': 'self', 'href': self.server.url + '/v3'}]}}
            if self.path.startswith('/v3') else {'resource_providers': []})

    def do_POST(self):
        self.rfile.read(int(self.headers['Content-Length']))
        self.server.logins += 1
        endpoints = [{
            'id': 'endpoint', 'interface': 'public', 'region': 'one',
            'region_id': 'one', 'url': self.server.endpoint,
        }] if self.server.endpoint else []
        domain = {'id': 'default', 'name': 'Default'}
        self.answer(201, {'token': {
            'methods': ['password'], 'issued_at': '2026-01-01T00:00:00.0Z',
            'expires_at': '2099-01-01T00:00:00.0Z',
            'user': {'id': 'u', 'name': 'u', 'domain': domain},
            'project': {'id': 'p', 'name': 'p', 'domain': domain},
            'roles': [{'id': 'r', 'name': 'admin'}],
            'catalog': [{'id': 's', 'name': 'placement', 'type': 'placement',
                         'endpoints': endpoints}] if endpoints else [],
        }}, 'token')

    def answer(self, status, body, token=None):
        text = json.dumps(body).encode()
        self.send_response(status)
        if token:
            self.send_header('X-Subject-Token', token)
        self.send_header('Content-Length', str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *args):
        pass


class TestCatalog(ClientTestCase):
    """The endpoint of Placement is that of a token's catalog."""

    request = messages.PlacementRequest('GET', '/resource_providers')

    def setUp(self):
        super().setUp()
        self.keystone = server.ThreadingHTTPServer(
            ('127.0.0.1', 0), Keystone)
        self.addCleanup(self.keystone.server_close)
        self.addCleanup(self.keystone.shutdown)
        self.keystone.url = (
            f'http://127.0.0.1:{self.keystone.server_address[1]}')
        self.keystone.logins = 0
        threading.Thread(target=self.keystone.serve_forever, args=(0.01,),
                         daemon=True).start()
        self.clock = FakeClock()
        self.sender = client.KeystoneClient.from_conf(self.conf(
            auth_type='password', auth_url=self.keystone.url + '/v3',
            username='u', password=PASSWORD, project_name='p',
            user_domain_id='default', project_domain_id='default',
            valid_interfaces='public', timeout=5), 'placement', self.clock)

    def check_found(self, endpoint):
        """Check that Placement is found after it was not at an endpoint."""
        self.keystone.endpoint = endpoint
        self.assertRaises(remote.NotSent, self.sender.send, self.request)
        self.keystone.endpoint = self.keystone.url + '/placement'

        self.assertEqual(200, self.sender.send(self.request).status)
        self.assertEqual(200, self.sender.send(self.request).status)
        self.assertEqual(2, self.keystone.logins)

    def test_moved_endpoint_is_found_with_a_new_token(self):
        with socket.create_server(('127.0.0.1', 0)) as free:
            port = free.getsockname()[1]
        self.check_found(f'http://127.0.0.1:{port}/placement')

    def test_added_endpoint_is_found_with_a_new_token(self):
        self.check_found(None)

    def test_tokens_are_renewed_at_intervals(self):
        self.keystone.endpoint = None
        for logins, passed_s in (1, 1), (2, 1), (2, 5), (2, 1), (3, 1):
            self.assertRaises(remote.NotSent, self.sender.send, self.request)
            self.assertEqual(logins, self.keystone.logins)
            self.clock.advance(passed_s)


class TestAnswers(base.TestCase):

    def test_absence_is_known_from_placement_alone(self):
        """A proxy may answer that it has no such page."""
        found = {'errors': [{'status': 404, 'detail': 'No such provider'}]}
        for body, raised in (found, None), (None, True), ({}, True), (
                {'error': 'no route'}, True):
            answer = messages.PlacementAnswer(404, body)
            if raised is None:
                self.assertIs(answer, messages.checked(answer, 404))
            else:
                self.assertRaises(
                    remote.NotSent, messages.checked, answer, 404)


class TestConfiguration(ClientTestCase):

    def store(self, **values):
        return placement.PlacementClaims.from_conf(
            self.conf(**values), Parts())

    def test_keystone_is_configured_by_the_options_of_nova(self):
        conf = self.conf(
            auth_type='password', auth_url='http://127.0.0.1:1/v3',
            username='u', password=PASSWORD, project_name='service',
            region_name='here')
        store = placement.PlacementClaims.from_conf(conf, Parts())

        self.assertEqual(10, conf.placement.timeout)
        self.assertEqual(
            ['internal', 'public'], conf.placement.valid_interfaces)
        self.assertEqual('placement', conf.placement.service_type)
        for call in store.check, store.usages:
            store._retry_timeout_s = 0
            error = self.assertRaises(exception.DatabaseUnreachable, call)
            self.assertNotIn(PASSWORD, str(error))
            self.assertIn('Keystone', error.url)

    def test_example_of_the_manual_is_complete(self):
        text = (tidy.ROOT / 'doc/source/admin/claim-stores/placement.rst'
                ).read_text()
        block = text.split('.. code-block:: ini')[1].split('\n``[claims]')[0]
        lines = [line.strip() for line in block.split('[placement]')[1]
                 .splitlines() if '=' in line]

        store = self.store(**dict(line.split(' = ') for line in lines))

        self.assertEqual({claims_base.Capability.ATOMIC,
                          claims_base.Capability.DURABLE,
                          claims_base.Capability.SHARED,
                          claims_base.Capability.QUERY},
                         store.capabilities)

    def test_store_needs_a_way_to_log_in(self):
        error = self.assertRaises(
            exception.ConfigurationInvalid, self.store)

        self.assertEqual('[placement] auth_type', error.field)

    def test_unknown_way_to_log_in_is_named(self):
        error = self.assertRaises(
            exception.ConfigurationInvalid, self.store, auth_type='magic')

        self.assertIn('magic', str(error))

    def test_connection_is_for_other_stores(self):
        conf = self.conf(auth_type='none')
        conf.set_override('connection', 'sqlite://', 'claims')

        error = self.assertRaises(
            exception.ConfigurationInvalid,
            placement.PlacementClaims.from_conf, conf, Parts())
        self.assertEqual('[claims] connection', error.field)
