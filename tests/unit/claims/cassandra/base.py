# SPDX-License-Identifier: Apache-2.0
"""Stores on a model of Cassandra."""

import random
import threading

from cellsched.claims import cassandra
from cellsched.claims.cassandra import requests
from cellsched.claims import remote
from cellsched import clock
from cellsched.simulator import engine
from cellsched.simulator.servers import cassandra as server
from tests.unit.claims import faults


class Client:
    """Passes requests of any thread to a model."""

    def __init__(self, model):
        self.model = model
        self.sent = []
        self._lock = threading.Lock()

    def send(self, request):
        with self._lock:
            self.sent.append(request)
            return self.model.answer(request)


def make_store(model, client=None, own_clock=None, **options):
    """Return a store on a model, through a client."""
    return cassandra.CassandraClaims(
        client or Client(model), own_clock or clock.Clock(), random.Random(),
        **options)


def make_model(adds=True):
    model = server.CassandraModel(adds)
    model.created = True
    return model


class World(faults.World):
    """A run of several clients of a Cassandra.

    Each request of several is lost, executed and answered by itself.

    :param fault_percent: percentage of requests with a fault
    """

    late_share = 0.01

    def __init__(self, seed, adds=True, fault_percent=0, deadly=False):
        super().__init__(seed, make_model(adds), {
            **dict.fromkeys(('refused', 'lost', 'unanswered', 'late'),
                            fault_percent / 400), 'dead': deadly * 0.01})
        #: Looks at the model without taking turns.
        self.observer = make_store(self.server)

    def make_store(self, **options):
        """Return the store of a new process."""
        return cassandra.CassandraClaims(
            self, engine.SimulatedClock(self),
            random.Random(self.random.random()), **options)

    def send(self, request):
        if not isinstance(request, requests.Together):
            return super().send(request)
        requested = list(enumerate(request.requests))
        self.random.shuffle(requested)
        answers = {number: self._caught(each) for number, each in requested}
        return [answers[number] for number in range(len(requested))]

    def _caught(self, request):
        try:
            return super().send(request)
        except (remote.NotSent, remote.OutcomeUnknown) as exc:
            return exc
