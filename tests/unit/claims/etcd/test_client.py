# SPDX-License-Identifier: Apache-2.0
"""Requests to a member of etcd are prepared once for each login."""

import gc
import json
import weakref

import requests
from requests import adapters

from cellsched.claims.etcd import client
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

    def test_one_request_is_prepared_for_each_address(self):
        session = CountingSession()
        for _ in range(3):
            for address in ADDRESSES:
                session.post(address, json={})

        self.assertEqual(len(ADDRESSES), len(session.prepared))

    def test_what_was_prepared_for_earlier_logins_is_not_kept(self):
        session = CountingSession()
        for number in range(5):
            session.headers['Authorization'] = f'token-{number}'
            for address in ADDRESSES:
                session.post(address, json={})

        self.assertEqual(len(ADDRESSES), len(session.kept()))
