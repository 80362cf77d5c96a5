# SPDX-License-Identifier: Apache-2.0
"""Runs of several processes on the model of a server, with faults."""

import copy
import random

from cellsched.claims import remote
from cellsched.simulator import engine

#: A late request that no time executes, but a later turn.
NO_LIMIT_S = 1e6


class World(engine.Interleaver):
    """Processes that run in turns, in the order of a seed.

    Outside of the run, requests have no faults.

    :param chance: the chance of each fault of a request, by its name: it is
        ``refused`` or ``lost``, executed ``late``, ``twice`` or ``again``
        after its answer, ``unanswered``, or its process is ``dead``
    :ivar late_s: seconds up to which a late request is executed
    :ivar late_share: chance that a turn executes the first late request
    :ivar checks: called after each executed request
    """

    late_s = NO_LIMIT_S
    late_share = 0.05

    def __init__(self, seed, server, chance=()):
        super().__init__(self._decide)
        self.random = random.Random(seed)
        self.server = server
        self.chance = dict(chance)
        self.checks = []
        self.late = []
        self.processes = []
        self.errors = []
        self.deaths = 0

    def start(self, function):
        """Let a process call a function once the world runs."""
        def run():
            try:
                function()
            except Exception as exc:
                self.errors.append(exc)

        self.processes.append(engine.Process(run))

    def run(self):
        """Run the processes to their ends, and execute late requests."""
        self.interleave()
        for error in self.errors:
            raise error
        while self.late:
            self.finish(self.late.pop(0)[1])

    def begin(self, request):
        """Let a request arrive; return what is executed later."""
        return request

    def execute(self, begun):
        return self.server.answer(begun)

    def finish(self, begun):
        """Execute a request, and check the server."""
        answer = self.execute(begun)
        try:
            for check in self.checks:
                check()
        except AssertionError as exc:
            # The process may treat the error as one of its store.
            self.errors.append(exc)
            raise
        return answer

    def has(self, fault):
        return self.random.random() < self.chance.get(fault, 0)

    def send(self, request):
        """Send a request of the running process."""
        if self.calling() is None:
            return self.finish(self.begin(request))
        self.pause()
        self.now += 0.001
        if self.has('refused'):
            raise remote.NotSent('refused')
        if self.has('lost'):
            raise remote.OutcomeUnknown('lost')
        begun = self.begin(request)
        if self.has('late'):
            self._delay(begun)
            raise remote.OutcomeUnknown('late')
        if self.has('dead'):
            self._die(begun)
        self.pause()
        answer = copy.deepcopy(self.finish(begun))
        if self.has('twice'):
            answer = self.finish(self.begin(request))
        if self.has('again'):
            self.finish(self.begin(request))
        self.pause()
        if self.has('unanswered'):
            raise remote.OutcomeUnknown('unanswered')
        return answer

    def _delay(self, begun):
        self.late.append((
            self.now + self.random.uniform(0, self.late_s), begun))
        self.late.sort(key=lambda each: each[0])

    def _die(self, begun):
        """End the process; its request is perhaps executed late."""
        if self.random.random() < 0.5:
            self._delay(begun)
        self.deaths += 1
        self.calling().doomed = True
        raise engine.Killed

    def _decide(self, current):
        remaining = [each for each in self.processes if not each.dead]
        while remaining:
            while self.late and (self.late[0][0] <= self.now
                                 or self.random.random() < self.late_share):
                self.finish(self.late.pop(0)[1])
            ready = [each for each in remaining if each.ready_at <= self.now]
            if ready:
                return self.random.choice(ready)
            self.now = min(each.ready_at for each in remaining)
        return None
