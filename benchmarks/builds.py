# SPDX-License-Identifier: Apache-2.0
"""Complete builds in a deployment of one process, from accepted to ACTIVE.

Parameters: ``cells``, the number of ``hosts`` in each, the number of
``servers``, ``batch``, the number of servers in a request, and ``cpu``, the
CPU to which the process is pinned, like a systemd unit with ``CPUAffinity=``.
Without ``cpu`` the system selects the CPUs.

With ``monitoring``, all runs are in one deployment, in pairs: one with
metrics, which are scraped each second, and one without, in alternating order.
The samples of the former have names that end with ``with metrics``. ``select``
is the time in which a scheduler reads, decides and claims, for each request.
The figures ``times as long`` are the medians over the ratios of a pair, of
which the parts are the time of a build and the median time to select.

``build`` is the time of a run divided by its servers. ``accepted to ACTIVE``
is the time of each server. Both end at ``launched_at``, which an agent sets
just before the commit. The benchmark rarely queries the databases, because it
runs in the measured process. The floor is the time that the database takes for
the commits of a build. On both sides a commit waits for the disk.
"""

import contextlib
import datetime
import os
import pathlib
import sqlite3
import statistics
import tempfile
import threading
import time

import sqlalchemy

from cellsched.cmd import launch
from cellsched import context
from cellsched.db.cell import models
from cellsched.observability.prometheus import PrometheusMetrics
from cellsched.scheduler.selection import placer
from cellsched.standalone import deployment

#: Commits wait for the disk.
DURABLE = {group: {'sqlite_synchronous': True}
           for group in ('api_database', 'database')}

USER = context.member('benchmark', 'benchmark')

#: Servers per host that are built before the measurement.
FIRST = 4

#: Seconds after which a run fails.
TIMEOUT_S = 120

#: Seconds between two scrapes of the metrics.
SCRAPE_S = 1.0

#: Shortest and longest time between two checks for ACTIVE servers.
LEAST_S, MOST_S = 0.01, 0.5


def run(parameters, repeat):
    """Return the samples of builds and of their floor, in alternation.

    The second result is the number of commits per build.
    """
    cells = [
        deployment.DeployedCell(f'cell{number}', [
            deployment.DeployedHost(f'cell{number}-host{place}', vcpus=2 ** 20,
                                    memory_mb=2 ** 30, disk_gb=2 ** 20)
            for place in range(parameters['hosts'])])
        for number in range(parameters['cells'])]
    if parameters.get('monitoring'):
        return compare(cells, parameters, repeat)
    samples = {'build': [], 'accepted to ACTIVE': [], 'floor': []}
    made = []
    for _ in range(repeat):
        with tempfile.TemporaryDirectory() as path:
            directory = pathlib.Path(path)
            with (pinned_to(parameters.get('cpu')), deployment.Deployment(
                    directory / 'cells', cells, options=DURABLE) as world):
                prepare(world)
                made.append(build(world, parameters, samples))
            samples['floor'].append(commit(directory, made[-1]))
    return samples, {'commits per build': sum(made) / len(made)}


def compare(cells, parameters, repeat):
    """Return the samples with and without metrics, and their ratios."""
    samples = {name + suffix: [] for suffix in ('', ' with metrics')
               for name in ('build', 'accepted to ACTIVE', 'select')}
    ratios = {'build': [], 'select': []}
    with (tempfile.TemporaryDirectory() as path,
          pinned_to(parameters.get('cpu')),
          MonitoredDeployment(pathlib.Path(path), cells,
                              options=DURABLE) as world):
        prepare(world)
        for number in range(repeat):
            pair = {}
            for on in (True, False)[::-1 if number % 2 else 1]:
                world.switch(on)
                found = pair[on] = {'build': [], 'accepted to ACTIVE': []}
                with selections(found):
                    build(world, parameters, found)
                for name, each in found.items():
                    samples[name + on * ' with metrics'] += each
            for name, each in ratios.items():
                each.append(statistics.median(pair[True][name])
                            / statistics.median(pair[False][name]))
    return samples, {f'{name}, times as long': statistics.median(each)
                     for name, each in ratios.items()}


class SwitchedMetrics(PrometheusMetrics):
    """Metrics that record nothing while they are off."""

    def add_all(self, readings):
        if self.is_on:
            super().add_all(readings)


class MonitoredDeployment(deployment.Deployment):
    """A deployment whose services have metrics, which a thread scrapes."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._recorded, self._end = [], threading.Event()

    def switch(self, on):
        """Turn the metrics on or off."""
        for each in self._recorded:
            each.is_on = on

    def _parts(self, conf):
        parts = super()._parts(conf)
        parts.metrics = SwitchedMetrics('scheduler')
        self._recorded.append(parts.metrics)
        return parts

    def __enter__(self):
        made = super().__enter__()
        threading.Thread(target=self._scrape, daemon=True).start()
        return made

    def __exit__(self, *exc):
        self._end.set()
        return super().__exit__(*exc)

    def _scrape(self):
        while not self._end.wait(SCRAPE_S):
            for each in self._recorded:
                if each.is_on:
                    each.exposition('')


@contextlib.contextmanager
def selections(samples):
    """Add the time of each selection to samples."""
    place = placer.Placer.place

    def timed(*args, **kwargs):
        start = time.perf_counter()
        try:
            return place(*args, **kwargs)
        finally:
            samples.setdefault('select', []).append(
                time.perf_counter() - start)

    placer.Placer.place = timed
    try:
        yield
    finally:
        placer.Placer.place = place


@contextlib.contextmanager
def pinned_to(cpu):
    """Pin this process to a CPU; None changes nothing."""
    usable = os.sched_getaffinity(0)
    if cpu is not None:
        # Threads that start later inherit it.
        os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, usable)


def prepare(world):
    """Build some servers on each host.

    Work that happens once is not timed: the first read of the hosts, and
    SQLAlchemy's compilation of statements for each database.
    """
    world.api.flavors.create(context.admin(), 'small', 1, 512, 1)
    hosts = len(world.agents)
    for number in range(FIRST):
        accept(world, f'first{number}', hosts)
    wait_for(FIRST * hosts, lambda: count_active(world), time.time())
    # A service does this after its start.
    launch.freeze_objects()


def build(world, parameters, samples):
    """Build the servers; return the commits per server."""
    servers, batch = parameters['servers'], parameters['batch']
    before = count_active(world)
    accepted, commits = {}, []
    committed = commits.append
    sqlalchemy.event.listen(sqlalchemy.Engine, 'commit', committed)
    try:
        start = time.time()
        for number in range(0, servers, batch):
            accepted |= accept(world, f'server{number}', batch)
        wait_for(servers, lambda: count_active(world) - before, start)
    finally:
        sqlalchemy.event.remove(sqlalchemy.Engine, 'commit', committed)
    ends = launched(world)
    samples['build'].append(
        (max(ends[uuid] for uuid in accepted) - start) / servers)
    samples['accepted to ACTIVE'] += times(ends, accepted)
    return len(commits) / servers


def accept(world, name, count=1):
    """Request servers; return the times of acceptance by uuid."""
    uuids = world.api.servers.create(USER, name, 'small', min_count=count)
    return dict.fromkeys(uuids, time.time())


def wait_for(number, active, start):
    """Wait until this number of servers is ACTIVE.

    The next check is after half of the remaining time at the current rate.

    :param active: returns the number of ACTIVE servers
    :param start: the time at which the builds began
    """
    deadline = time.time() + TIMEOUT_S
    while (done := active()) < number:
        now = time.time()
        if now > deadline:
            raise RuntimeError(f'{done} of {number} servers are ACTIVE after '
                               f'{TIMEOUT_S} s')
        rest_s = (now - start) * (number - done) / max(done, 1)
        time.sleep(min(max(LEAST_S, rest_s / 2), MOST_S))


def count_active(world):
    """Return the number of ACTIVE servers."""
    return sum(row[0] for row in ask(world, sqlalchemy.select(
        sqlalchemy.func.count()).where(models.instances.c.vm_state == 'active'
                                       )))


def launched(world):
    """Return the times at which servers became ACTIVE, by uuid."""
    table = models.instances
    return {uuid: when.replace(tzinfo=datetime.UTC).timestamp()
            for uuid, when in ask(world, sqlalchemy.select(
                table.c.uuid, table.c.launched_at).where(
                    table.c.vm_state == 'active'))}


def times(ends, accepted):
    """Return the seconds from acceptance to ACTIVE of each server."""
    return [ends[uuid] - when for uuid, when in accepted.items()
            if uuid in ends]


def ask(world, query):
    """Return the rows of all cells."""
    parts = world.api.parts
    rows = []
    for cell in parts.cells.real():
        with parts.targets.database(cell).reader() as connection:
            rows += connection.execute(query).all()
    return rows


def commit(directory, commits):
    """Return the seconds for this number of commits of one row."""
    rounds = 50
    database = sqlite3.connect(directory / 'floor', isolation_level=None)
    try:
        database.execute('PRAGMA journal_mode=WAL')
        database.execute('PRAGMA synchronous=FULL')
        database.execute('CREATE TABLE rows (row TEXT)')
        start = time.perf_counter()
        for _ in range(round(commits * rounds)):
            database.execute('BEGIN IMMEDIATE')
            database.execute('INSERT INTO rows VALUES (?)', ('x' * 500,))
            database.execute('COMMIT')
        return (time.perf_counter() - start) / rounds
    finally:
        database.close()
