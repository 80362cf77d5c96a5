# SPDX-License-Identifier: Apache-2.0
"""Builds while a service or a server is killed, suspended, restarted or full.

Parameters:

* ``fault``, a name in ``FAULTS``, and ``for``, its duration in seconds.
* ``cells``, and the number of ``hosts`` in each.
* ``servers``, the number of servers, and ``seconds``, the time in which they
  are requested.
* ``first``, the number of servers that are built before the measurement.
* ``options`` for all configuration files, by group (optional).

The deployment has two schedulers and two conductors above the cells, and one
conductor in each cell, each with one process. It has RabbitMQ, and PostgreSQL,
which waits for its disk. The fault begins when half of the servers have been
requested. If a server cannot be accepted meanwhile, it is requested again, and
its time begins at its acceptance.

``accepted to ACTIVE`` is the time of each server. If no service could work for
a while, ``back to ACTIVE`` is the time from the return of all services.
``create`` is the waiting time of a caller.
"""

import collections
from concurrent import futures
import contextlib
import os
import pathlib
import signal
import sys
import threading
import time

from cellsched.conf import loader
from cellsched import context
from cellsched import exception
from cellsched.wiring import services

# The test suite has the code to start a deployment.
sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))

import costs  # noqa: E402
import processes  # noqa: E402
from tests.integration import servers  # noqa: E402

#: Seconds between two checks.
INTERVAL_S = 0.05

#: Seconds until all accepted servers must be ACTIVE.
TIMEOUT_S = 300

#: Threads that request servers.
CALLERS = 32


def run(parameters, repeat):
    """Return the samples of all rounds, and the longest times."""
    samples = collections.defaultdict(list)
    for _ in range(repeat):
        with contextlib.ExitStack() as stack:
            world = World(stack, parameters)
            fault = FAULTS[parameters['fault']](world, parameters)
            world.build(range(-parameters['first'], 0), 0)
            for name, times in fault.measure().items():
                samples[name] += times
    return samples, {f'longest {name}, s': max(times)
                     for name, times in samples.items()}


class World:
    """A deployment and its callers.

    :param stack: the exit stack that closes it
    """

    def __init__(self, stack, parameters):
        self.broker = stack.enter_context(servers.RabbitMQ())
        self.database = stack.enter_context(servers.PostgreSQL(durable=True))
        parts = stack.enter_context(processes.Part(self.database))
        names = [f'cell{cell + 1}' for cell in range(parameters['cells'])]
        self._deployment = stack.enter_context(processes.Deployment(
            stack.enter_context(servers.Part(self.broker)), parts,
            cells={name: {f'{name}-host{host}': processes.HOST
                          for host in range(parameters['hosts'])}
                   for name in names},
            workers=1, controls=2, options=parameters.get('options') or {}))
        directory = self._deployment.directory
        self._cells = [parts.url(name).rpartition('/')[2] for name in names]
        conf = loader.load(files=[str(directory / 'api.conf')], dirs=[])
        self.api = services.api(
            conf, services.Components(conf, reached=self._reached))
        stack.callback(self.api.close)
        self._local = threading.local()
        self.api.flavors.create(context.admin(), 'least', 1, 512, 1)
        self._callers = stack.enter_context(
            futures.ThreadPoolExecutor(CALLERS))

    def services(self, program):
        """Return the services of a kind above the cells."""
        return [each for each in self._deployment.services
                if each.name.startswith(f'cellsched-{program}-control')]

    def build(self, numbers, seconds, at_half=lambda: None):
        """Request servers, and wait until all of them are ACTIVE.

        :param at_half: is called when half of them have been requested
        :returns: the time of acceptance of each and the waiting time of its
            caller, by uuid
        """
        calls = self.ask(numbers, seconds, at_half)
        accepted = dict(call.result() for call in calls)
        self.wait_for(accepted)
        return accepted

    def ask(self, numbers, seconds, at_half=lambda: None):
        start, calls, fault = time.monotonic(), [], None
        for place, number in enumerate(numbers):
            wait = start + seconds * place / len(numbers) - time.monotonic()
            if wait > 0:
                time.sleep(wait)
            if place == len(numbers) // 2:
                fault = threading.Thread(target=at_half)
                fault.start()
            calls.append(self._callers.submit(self._create, number))
        if fault:
            fault.join()
        return calls

    def wait_for(self, uuids):
        """Wait until all these servers are ACTIVE.

        :raises RuntimeError: some are not ACTIVE after ``TIMEOUT_S``
        """
        deadline = time.monotonic() + TIMEOUT_S
        waiting = set(uuids)
        while waiting := waiting - self._active(waiting):
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f'{len(waiting)} of {len(uuids)} servers are not ACTIVE '
                    f'after {TIMEOUT_S} s: {sorted(waiting)[:3]}')
            time.sleep(INTERVAL_S)

    def launched(self):
        """Return the times at which servers became ACTIVE, by uuid."""
        return dict(self._ask(
            'SELECT uuid, extract(epoch FROM launched_at)::float8 '
            "FROM instances WHERE vm_state = 'active'"))

    def _active(self, uuids):
        return {uuid for [uuid] in self._ask(
            "SELECT uuid FROM instances WHERE vm_state = 'active' "
            'AND uuid = ANY(%s)', list(uuids))}

    def _ask(self, query, *values):
        """Return the rows of all cells, with a new connection for each."""
        rows = []
        for name in self._cells:
            with (contextlib.closing(costs.connect(
                    self.database, name)) as connection,
                    connection.cursor() as cursor):
                cursor.execute(query, values)
                rows += cursor.fetchall()
        return rows

    def _reached(self, step):
        if step == 'Accept':
            self._local.accepted = time.time()

    def _create(self, number):
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            start = time.monotonic()
            try:
                [uuid] = self.api.servers.create(
                    processes.USER, f'server{number}', 'least')
                return uuid, (self._local.accepted, time.monotonic() - start)
            except (exception.DatabaseUnreachable,
                    exception.TransactionLost):
                if time.monotonic() > deadline:
                    raise
                time.sleep(INTERVAL_S)


class Fault:
    """A fault during the builds; this one does nothing."""

    def __init__(self, world, parameters):
        self.world = world
        self.servers = range(parameters['servers'])
        self.seconds = parameters['seconds']
        self.for_s = parameters.get('for')

    def measure(self):
        accepted = self.world.build(self.servers, self.seconds, self.happen)
        return {'accepted to ACTIVE': self.times(accepted)}

    def times(self, accepted, back=0):
        """Return the seconds of each server until ACTIVE.

        :param back: the time at which all services were back. Earlier times
            of acceptance count from here. Servers that were ACTIVE before are
            left out.
        """
        ends = self.world.launched()
        return [ends[uuid] - max(when, back)
                for uuid, (when, _) in accepted.items() if ends[uuid] > back]

    def happen(self):
        """Cause the fault; return when it is over, if it must end."""


class SchedulerKilled(Fault):

    def happen(self):
        self.world.services('scheduler')[0].kill()


class ConductorKilled(Fault):

    def happen(self):
        self.world.services('conductor')[0].kill()


class SchedulerFrozen(Fault):

    program = 'scheduler'

    def happen(self):
        process = self.world.services(self.program)[0]
        os.killpg(process.pid, signal.SIGSTOP)
        try:
            time.sleep(self.for_s)
        finally:
            os.killpg(process.pid, signal.SIGCONT)


class ConductorFrozen(SchedulerFrozen):

    program = 'conductor'


class DatabaseRestarted(Fault):

    def happen(self):
        self.world.database.stop()
        time.sleep(self.for_s)
        self.world.database.start()


class AllKilled(Fault):
    """Both services of a kind are killed, and restarted after a while."""

    program = ''

    def happen(self):
        services = self.world.services(self.program)
        for each in services:
            each.kill()
        time.sleep(self.for_s)
        start_all(services)
        self.back = time.time()

    def measure(self):
        accepted = self.world.build(self.servers, self.seconds, self.happen)
        return {'back to ACTIVE': self.times(accepted, self.back)}


class SchedulersKilled(AllKilled):

    program = 'scheduler'


class ConductorsKilled(AllKilled):

    program = 'conductor'


class MessagesLost(Fault):
    """No conductor runs, and the broker loses all its messages."""

    conductors = 2

    def measure(self):
        services = self.world.services('conductor')
        for each in services:
            each.kill()
        accepted = dict(call.result() for call in self.world.ask(
            self.servers, self.seconds))
        self.world.broker.kill()
        self.world.broker.start()
        start_all(services[:self.conductors])
        back = time.time()
        self.world.wait_for(accepted)
        return {'back to ACTIVE': self.times(accepted, back)}


class MessagesLostToOne(MessagesLost):
    """The same, but only one conductor is restarted."""

    conductors = 1


class BrokerFull(Fault):
    """The broker is out of memory and accepts no messages."""

    def measure(self):
        self.world.broker.set_full(True)
        try:
            calls = self.world.ask(self.servers, self.seconds)
            accepted = dict(call.result() for call in calls)
        finally:
            self.world.broker.set_full(False)
        self.world.wait_for(accepted)
        return {'create': [waited for _, waited in accepted.values()]}


def start_all(services):
    with futures.ThreadPoolExecutor(len(services)) as pool:
        for started in [pool.submit(each.start) for each in services]:
            started.result()
    for each in services:
        each.wait_for(r'has started as .*\n')


FAULTS = {
    'scheduler-killed': SchedulerKilled, 'scheduler-frozen': SchedulerFrozen,
    'schedulers-killed': SchedulersKilled,
    'conductor-killed': ConductorKilled, 'conductor-frozen': ConductorFrozen,
    'conductors-killed': ConductorsKilled,
    'database-restarted': DatabaseRestarted, 'messages-lost': MessagesLost,
    'messages-lost-to-one': MessagesLostToOne, 'broker-full': BrokerFull,
    'none': Fault,
}
