# SPDX-License-Identifier: Apache-2.0
"""Stores on a model of Cassandra."""

import copy
import random
import threading

from cellsched.claims import cassandra
from cellsched.claims.cassandra import requests
from cellsched.claims import remote
from cellsched import clock
from cellsched.simulator import engine
from cellsched.simulator.servers import cassandra as server

#: What becomes of a request, and how often in a hundred.
NOT_SENT, LOST, UNANSWERED, LATE = 'not sent', 'lost', 'unanswered', 'late'
_FATES = (NOT_SENT, LOST, UNANSWERED, LATE)


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


class World(engine.Interleaver):
    """Threads of clients that run in turns, in the order of a seed.

    Each request is a turn. It may be lost, or executed without an answer,
    immediately or late.

    :param fault_percent: percentage of requests with a fault
    """

    def __init__(self, seed, adds=True, fault_percent=0):
        super().__init__(self._decide)
        self.random = random.Random(seed)
        self.model = make_model(adds)
        self.fault_percent = fault_percent
        self.late = []
        self.activities = []
        self.checks = []
        self.errors = []
        self._mortal = {}
        #: Looks at the model without taking turns.
        self.observer = make_store(self.model)

    def make_store(self, **options):
        """Return the store of a new process."""
        return cassandra.CassandraClaims(
            _FaultyClient(self), engine.SimulatedClock(self),
            random.Random(self.random.random()), **options)

    def start(self, function):
        """Let a thread run a function once the world runs."""
        def run():
            try:
                function()
            except Exception as exc:
                self.errors.append(exc)

        activity = engine.Process(run)
        self.activities.append(activity)
        return activity

    def run(self):
        self.interleave()
        for error in self.errors:
            raise error

    def die_after(self, requests_left):
        """Let the current thread die at one of its later requests."""
        self._mortal[self.calling()] = requests_left

    def turn(self):
        """Let other threads run; raise Killed if this thread is to die."""
        self.pause()
        own = self.calling()
        if own in self._mortal:
            self._mortal[own] -= 1
            if not self._mortal[own]:
                own.doomed = True
                raise engine.Killed

    def answer(self, request):
        answer = self.model.answer(request)
        for check in self.checks:
            check()
        return answer

    def deliver(self):
        """Execute all late requests."""
        while self.late:
            self.answer(self.late.pop(
                self.random.randrange(len(self.late))))

    def _decide(self, current):
        if self.late and self.random.random() < 0.02:
            self.answer(self.late.pop(0))
        remaining = [each for each in self.activities if not each.dead]
        if remaining:
            self.now = max(self.now, min(
                each.ready_at for each in remaining))
        ready = [each for each in remaining if each.ready_at <= self.now]
        return self.random.choice(ready) if ready else None


class _FaultyClient:

    def __init__(self, world):
        self._world = world

    def send(self, request):
        if isinstance(request, requests.Together):
            requested = list(enumerate(request.requests))
            self._world.random.shuffle(requested)
            answers = {number: self._caught(each)
                       for number, each in requested}
            return [answers[number] for number in range(len(requested))]
        return self._send(request)

    def _caught(self, request):
        try:
            return self._send(request)
        except (remote.NotSent, remote.OutcomeUnknown) as exc:
            return exc

    def _send(self, request):
        world = self._world
        world.turn()
        world.now += 0.001
        if world.random.random() * 100 >= world.fault_percent:
            return copy.deepcopy(world.answer(request))
        fate = world.random.choice(_FATES)
        if fate == NOT_SENT:
            raise remote.NotSent
        if fate == UNANSWERED:
            world.answer(request)
        elif fate == LATE:
            world.late.append(request)
        raise remote.OutcomeUnknown
