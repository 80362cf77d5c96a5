# SPDX-License-Identifier: Apache-2.0
"""Stores of claims in a model of etcd."""

import itertools
import random
import threading

from cellsched.claims import etcd
from cellsched.claims.etcd import options
from cellsched.simulator.servers import etcd as servers
from cellsched.testing import clock
from tests.unit import base


class ModelClient:
    """Sends requests to a model, and keeps them."""

    def __init__(self, model, lock=None):
        self.model = model
        self.sent = []
        self._lock = lock or threading.Lock()

    def send(self, request):
        with self._lock:
            self.sent.append(request)
            return self.model.answer(request)


class OnModel:
    """Makes stores on one model."""

    def setUp(self):
        super().setUp()
        self.model = servers.EtcdModel()
        self.lock = threading.Lock()
        self.seeds = itertools.count(1)
        self.clock = clock.FakeClock()
        self.store = self.make_store()

    def make_client(self):
        return ModelClient(self.model, self.lock)

    def make_store(self, client=None, clock=None, **options_):
        self.client = client or self.make_client()
        store = etcd.EtcdClaims(
            self.client, clock or self.clock, random.Random(next(self.seeds)),
            options.PREFIX, **options_)
        store.sync()
        return store

    def make_peer(self, store):
        return self.make_store()


class TestCase(OnModel, base.TestCase):
    """A test with a store on a model."""
