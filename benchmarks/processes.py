# SPDX-License-Identifier: Apache-2.0
"""Complete builds with real processes over RabbitMQ and PostgreSQL.

Parameters:

* ``cells``, and the number of ``hosts`` in each.
* ``callers``, the number of callers.
* ``servers``, the number of servers in a round.
* ``first``, the number of servers that are built before the measurement.
* ``idle``, the seconds in which the commits without builds are counted.
* ``ahead``, the number of servers of a caller that are not ACTIVE. A caller
  requests its next server when its last one is accepted. With 1 it waits for
  each server; null means no limit.
* ``options`` for all configuration files, by group (optional).
* ``scheduling``, the scheduling policy of all processes: ``other``, which is
  the default of Linux, or ``batch``.

The scheduler, the conductor, the conductors of the cells and the agents run
their own commands with one process each. They use PostgreSQL with psycopg 3.
Callers are threads of this process and share one API, as in a front end.

``build`` is the time of a round divided by its servers. ``accepted to ACTIVE``
is the time of each server. Both end at ``launched_at``, which an agent sets
just before the commit; PostgreSQL stores it in microseconds. ``CPU of`` is the
CPU time of a build in all processes of a kind.

The floor is the time that PostgreSQL takes for the durable commits of a build.
A client with almost no overhead makes them on one connection for each process
that commits. Commits that also happen without builds are not counted.
"""

import collections
from concurrent import futures
import contextlib
import os
import pathlib
import sys
import threading
import time

import builds

from cellsched.conf import loader
from cellsched import context
from cellsched.wiring import services

# The test suite has the code to start a deployment.
sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))

import costs  # noqa: E402
from tests.integration import deployment  # noqa: E402
from tests.integration import servers  # noqa: E402

#: Resources of a host; enough for all rounds.
HOST = {'vcpus': 100_000, 'memory_mb': 2 ** 26, 'local_gb': 100_000}

USER = context.member('benchmark', 'benchmark')

INTERVAL_S = 0.02

FLOOR_S = 2

POLICIES = {'other': os.SCHED_OTHER, 'batch': os.SCHED_BATCH}


def run(parameters, repeat):
    """Return the samples of builds and of their floor, and figures."""
    samples = collections.defaultdict(list)
    figures = collections.defaultdict(list)
    with contextlib.ExitStack() as stack:
        stack.enter_context(scheduled(parameters.get('scheduling', 'other')))
        world = World(stack, parameters)
        world.build(parameters['first'])
        world.analyze()
        idle = world.idle(parameters['idle'])
        for _ in range(repeat):
            spent = world.spent(parameters['servers'])
            samples['build'].append(spent.build_s)
            samples['accepted to ACTIVE'] += spent.times
            commits = {name: spent.commits[name] - idle[name] * spent.wall_s
                       for name in spent.commits}
            figure(figures, parameters['servers'], commits, spent)
            samples['floor'].append(
                sum(commits.values()) / parameters['servers']
                * world.floor.commit_s(world.committers, FLOOR_S))
            for name, cpu_s in spent.cpu_s.items():
                samples[f'CPU of {name}'].append(
                    cpu_s / parameters['servers'])
    return samples, {name: sum(some) / len(some)
                     for name, some in figures.items()}


@contextlib.contextmanager
def scheduled(policy):
    """Run the processes that this process starts with a scheduling policy."""
    before = os.sched_getscheduler(0)
    os.sched_setscheduler(0, POLICIES[policy], os.sched_param(0))
    try:
        yield
    finally:
        os.sched_setscheduler(0, before, os.sched_param(0))


def figure(figures, built, commits, spent):
    figures['commits per build'].append(sum(commits.values()) / built)
    for name, number in sorted(commits.items()):
        figures[f'commits per build to {name}'].append(number / built)
    figures['CPUs that others kept busy'].append(
        (spent.machine_s - sum(spent.cpu_s.values())) / spent.wall_s)


Spent = collections.namedtuple(
    'Spent', 'build_s times wall_s commits cpu_s machine_s')


class Part(servers.Part):
    """A part of PostgreSQL, used with psycopg 3."""

    def url(self, name):
        return servers.by_psycopg(super().url(name))


class Deployment(deployment.Deployment):

    def __init__(self, *args, options, **kwargs):
        super().__init__(*args, **kwargs)
        self._options = options

    def _write(self, name, groups):
        super()._write(name, {
            group: {**groups.get(group, {}), **self._options.get(group, {})}
            for group in {**groups, **self._options}})


class World:
    """A deployment and its callers.

    :param stack: the exit stack that closes it
    """

    def __init__(self, stack, parameters):
        broker = stack.enter_context(servers.RabbitMQ())
        database = stack.enter_context(servers.PostgreSQL(durable=True))
        parts = stack.enter_context(Part(database))
        self._deployment = stack.enter_context(Deployment(
            stack.enter_context(servers.Part(broker)), parts,
            cells={f'cell{cell + 1}': {
                f'cell{cell + 1}-host{host}': HOST
                for host in range(parameters['hosts'])}
                for cell in range(parameters['cells'])},
            workers=1, options=parameters.get('options') or {}))
        directory = self._deployment.directory
        conf = loader.load(files=[str(directory / 'api.conf')], dirs=[])
        self.api = services.api(
            conf, services.Components(conf, reached=self._reached))
        stack.callback(self.api.close)
        #: For each caller: the time of its last acceptance, pending servers.
        self._accepted = threading.local()
        self.api.flavors.create(context.admin(), 'least', 1, 512, 1)
        self._database = database
        floor = parts.url('floor').rpartition('/')[2]
        self.floor = costs.Floor(database, floor, directory)
        self._prefix = floor.removesuffix('floor')
        self._commits = costs.Commits(database)
        cells = [f'cell{cell + 1}' for cell in range(parameters['cells'])]
        self._names = ('api', 'claims', *cells)
        self._cells = [
            stack.enter_context(contextlib.closing(costs.connect(
                database, f'{self._prefix}{cell}'))) for cell in cells]
        self._ahead = parameters['ahead']
        self._callers = stack.enter_context(
            futures.ThreadPoolExecutor(parameters['callers']))
        self._awaited = {}
        self._built = 0
        self._pids = {
            'RabbitMQ': [each.pid for each in broker.processes],
            'PostgreSQL': [each.pid for each in database.processes]}
        for service in self._deployment.services:
            self._pids.setdefault(kind(service.name), []).append(service.pid)

    @property
    def committers(self):
        """The number of processes that commit during a build."""
        return 3 + len(self._pids['agents'])

    def build(self, number):
        """Build servers; return the time of acceptance of each."""
        start = time.time()
        accepted = dict(self._wait_for([
            self._callers.submit(self._create, each)
            for each in range(number)]))
        before, self._built = self._built, self._built + number
        builds.wait_for(number, lambda: sum(count for [count] in self._ask(
            "SELECT count(*) FROM instances WHERE vm_state = 'active'")
        ) - before, start)
        return accepted

    def analyze(self):
        """Update the planner's statistics, as autovacuum does later.

        Otherwise PostgreSQL keeps plans for empty tables, which read whole
        tables.
        """
        for name in self._names:
            with contextlib.closing(costs.connect(
                    self._database, f'{self._prefix}{name}')) as connection:
                connection.cursor().execute('VACUUM ANALYZE')

    def spent(self, number):
        """Build servers; return the time, commits and CPU that they took."""
        place, cpu_s, machine_s = self._now()
        start = time.time()
        accepted = self.build(number)
        wall_s = time.time() - start
        cpu_after_s, machine_after_s = self._now()[1:]
        ends = builds.launched(self)
        return Spent(
            (max(ends.values()) - start) / number,
            builds.times(ends, accepted), wall_s, self._committed(place),
            {name: cpu_after_s[name] - cpu_s[name] for name in cpu_s},
            machine_after_s - machine_s)

    def idle(self, seconds):
        """Return the commits per second without builds."""
        place = self._commits.now()
        time.sleep(seconds)
        return collections.Counter({
            name: number / seconds
            for name, number in self._committed(place).items()})

    def _now(self):
        # The callers are threads of this process.
        return (self._commits.now(),
                {'callers': time.process_time(), **costs.cpu_s(self._pids)},
                costs.machine_s())

    def _committed(self, place):
        found = self._commits.between(place, self._commits.now())
        return collections.Counter({
            name.removeprefix(self._prefix): number
            for name, number in found.items()})

    def _reached(self, step):
        # The time of the commit, not the time when the caller receives it.
        if step == 'Accept':
            self._accepted.at = time.time()

    def _create(self, number):
        [uuid] = self.api.servers.create(USER, f'server{number}', 'least')
        accepted = self._accepted.at
        if self._ahead:
            active = self._awaited[uuid] = threading.Event()
            pending = vars(self._accepted).setdefault(
                'pending', collections.deque())
            pending.append(active)
            if (len(pending) >= self._ahead
                    and not pending.popleft().wait(builds.TIMEOUT_S)):
                raise RuntimeError(
                    f'a server before server {uuid} is not ACTIVE')
        return uuid, accepted

    def _wait_for(self, calls):
        """Return the results of calls; wake callers whose server is ACTIVE."""
        pending = collections.deque(calls)
        while pending or self._awaited:
            # Check only the first pending call: checking all takes too long.
            while pending and pending[0].done():
                pending.popleft()
            time.sleep(INTERVAL_S)
            if awaited := list(self._awaited):
                for [uuid] in self._ask(
                        'SELECT uuid FROM instances WHERE uuid = ANY(%s) AND '
                        "vm_state = 'active'", awaited):
                    self._awaited.pop(uuid).set()
        return [call.result() for call in calls]

    def _ask(self, query, *values):
        """Return the rows of all cells; the cost is negligible."""
        rows = []
        for connection in self._cells:
            with connection.cursor() as cursor:
                cursor.execute(query, values)
                rows += cursor.fetchall()
        return rows


def kind(name):
    """Return the kind of a service by the name of its process."""
    if name.startswith('cellsched-compute'):
        return 'agents'
    if name.endswith('-api'):
        return name.removeprefix('cellsched-').removesuffix('-api')
    return 'conductors of cells'
