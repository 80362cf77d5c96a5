# SPDX-License-Identifier: Apache-2.0
"""Requests to a member of etcd, and logins."""

import gc
from http import server
import json
import threading
import weakref

import requests
from requests import adapters

from cellsched.claims.etcd import client
from cellsched.claims.etcd import options
from cellsched.claims.etcd import protocol
from cellsched.claims import remote
from tests.unit import base

ADDRESSES = tuple(f'http://member/v3/{name}' for name in ('kv/txn', 'watch'))


class Member(adapters.BaseAdapter):
    """Answers with nothing, and keeps the requests."""

    def __init__(self):
        super().__init__()
        self.sent = []

    def send(self, request, **kwargs):
        self.sent.append((request.url, request.headers.get('Authorization'),
                          json.loads(request.body)))
        return requests.Response()

    def close(self):
        pass


class CountingSession(client.MemberSession):
    """Keeps weak references to its prepared requests."""

    def __init__(self):
        super().__init__()
        self.member = Member()
        self.mount('http://', self.member)
        self.prepared = []

    def prepare_request(self, request):
        made = super().prepare_request(request)
        self.prepared.append(weakref.ref(made))
        return made

    def kept(self):
        gc.collect()
        return [each for each in self.prepared if each() is not None]


class TestMemberSession(base.TestCase):

    def test_each_request_has_its_own_json_and_the_newest_token(self):
        session = CountingSession()
        sent = []
        for token in (None, 'first', 'second'):
            if token is not None:
                session.headers['Authorization'] = token
            for address in ADDRESSES:
                for number in range(2):
                    session.post(address, json={'number': number})
                    sent.append((address, token, {'number': number}))

        self.assertEqual(sent, session.member.sent)

    def test_request_is_prepared_once_for_each_address(self):
        session = CountingSession()
        for _ in range(3):
            for address in ADDRESSES:
                session.post(address, json={})

        self.assertEqual(len(ADDRESSES), len(session.prepared))

    def test_requests_of_earlier_logins_are_not_kept(self):
        session = CountingSession()
        for number in range(5):
            session.headers['Authorization'] = f'token-{number}'
            for address in ADDRESSES:
                session.post(address, json={})

        self.assertEqual(len(ADDRESSES), len(session.kept()))


def refusal(status, code, message):
    return status, json.dumps({'message': f'etcdserver: {message}',
                               'code': code})


#: Answers of etcd 3.4 to a request whose login does not count any more.
REFUSED_LOGINS = (
    refusal(400, 3, 'user name is empty'),
    refusal(400, 3, 'revision of auth store is old'),
    refusal(401, 16, 'invalid auth token'))

DONE = 200, json.dumps({
    'header': {'revision': '7', 'cluster_id': '1'}, 'succeeded': True,
    'responses': []})

READ = protocol.Transaction()


class TestLogin(base.TestCase):
    """A user is configured; the member's answers are given."""

    def client(self, answer):
        """Return a client of a member.

        :param answer: returns status and body, for a path and a token
        """
        self.asked = []

        class Handler(server.BaseHTTPRequestHandler):
            def do_POST(handler):
                length = int(handler.headers['Content-Length'])
                handler.rfile.read(length)
                path = handler.path.removeprefix('/v3/')
                token = handler.headers.get('Authorization')
                self.asked.append((path, token))
                status, body = answer(path, token)
                handler.send_response(status)
                handler.send_header('Content-Length', str(len(body)))
                handler.end_headers()
                handler.wfile.write(body.encode())

            def log_message(handler, *args):
                pass

        member = server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        self.addCleanup(member.server_close)
        self.addCleanup(member.shutdown)
        threading.Thread(
            target=member.serve_forever, args=(0.01,), daemon=True).start()
        port = member.server_address[1]
        made = client.EtcdClient(options.place(
            f'etcd://127.0.0.1:{port}/claims'), user=('name', 'secret'))
        self.addCleanup(made.close)
        return made

    def test_request_is_repeated_with_a_new_login(self):
        for refused in REFUSED_LOGINS:
            made = self.client(lambda path, token: (
                (200, '{"token": "new"}') if path == 'auth/authenticate'
                else DONE if token == 'new' else refused))

            self.assertTrue(made.send(READ).succeeded)
            self.assertTrue(made.send(READ).succeeded)
            self.assertEqual(
                [('kv/txn', None), ('auth/authenticate', None),
                 ('kv/txn', 'new'), ('kv/txn', 'new')], self.asked)

    def test_expired_token_is_not_sent_with_the_next_login(self):
        tokens = iter(['old', 'new'])
        made = self.client(lambda path, token: (
            (200, json.dumps({'token': next(tokens)}))
            if path == 'auth/authenticate'
            else DONE if token == current[0] else REFUSED_LOGINS[2]))
        current = ['old']
        made.send(READ)
        current[0] = 'new'

        self.assertTrue(made.send(READ).succeeded)
        self.assertEqual(
            [('auth/authenticate', None)] * 2,
            [each for each in self.asked if each[0] != 'kv/txn'])

    def test_refused_new_login_is_an_unsent_request(self):
        for refused in REFUSED_LOGINS:
            made = self.client(lambda path, token: (
                (200, '{"token": "new"}') if path == 'auth/authenticate'
                else refused))

            self.assertRaises(remote.NotSent, made.send, READ)

    def test_refused_login_is_the_answer(self):
        wrong = refusal(400, 3, 'authentication failed')
        made = self.client(lambda path, token: (
            wrong if path == 'auth/authenticate' else REFUSED_LOGINS[0]))

        self.assertEqual(protocol.Refusal(
            3, 'etcdserver: authentication failed'), made.send(READ))

    def test_error_of_a_proxy_leaves_the_outcome_unknown(self):
        for status in 400, 404, 429, 500, 502, 503, 504:
            for body in '<html>Bad Gateway</html>', '', '{}':
                made = self.client(lambda path, token: (status, body))

                self.assertRaises(remote.OutcomeUnknown, made.send, READ)
