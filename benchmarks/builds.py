# SPDX-License-Identifier: Apache-2.0
"""Whole builds in a deployment of one process, from accepted to ACTIVE.

Parameters: ``cells``, ``hosts`` in each, ``servers`` to build, ``batch``, how
many of them one request asks for, and ``cpu``, which the process keeps to, as
services do whose systemd unit has ``CPUAffinity=``; without it the system
chooses.

``build`` is the time of a run divided by its servers; ``accepted to ACTIVE``
is each server's own. Both end with what agents say in ``launched_at``, which
is just before that is committed: this process is what is measured, and to ask
the databases often would be measured too. The floor is what the database
takes for as many commits as a build makes. On both sides a commit waits for
the disk.
"""

import contextlib
import datetime
import os
import pathlib
import sqlite3
import tempfile
import time

import sqlalchemy

from cellsched.cmd import launch
from cellsched import context
from cellsched.db.cell import models
from cellsched.standalone import deployment

#: Commits wait for the disk.
DURABLE = {group: {'sqlite_synchronous': True}
           for group in ('api_database', 'database')}

#: Servers for each host that are built before anything is timed.
FIRST = 4

#: Seconds after which a run has failed.
TIMEOUT_S = 120

#: Seconds after which it is looked again whether servers are ACTIVE.
LEAST_S, MOST_S = 0.01, 0.5


def run(parameters, repeat):
    """Return the samples of builds and of their floor, taken in turns.

    With them goes how many commits a build made.
    """
    cells = [
        deployment.DeployedCell(f'cell{number}', [
            deployment.DeployedHost(f'cell{number}-host{place}', vcpus=512,
                                    memory_mb=2 ** 20, disk_gb=10000)
            for place in range(parameters['hosts'])])
        for number in range(parameters['cells'])]
    samples = {'build': [], 'accepted to ACTIVE': [], 'floor': []}
    made = []
    for _ in range(repeat):
        with tempfile.TemporaryDirectory() as path:
            directory = pathlib.Path(path)
            with (kept_to(parameters.get('cpu')),
                  deployment.Deployment(
                      directory / 'cells', cells, options=DURABLE) as world):
                made.append(build(world, parameters, samples))
            samples['floor'].append(commit(directory, made[-1]))
    return samples, {'commits per build': sum(made) / len(made)}


@contextlib.contextmanager
def kept_to(cpu):
    """Keep this process to a CPU, or to none if it is None."""
    usable = os.sched_getaffinity(0)
    if cpu is not None:
        # Threads that are started later take it from this one.
        os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, usable)


def build(world, parameters, samples):
    """Build the servers; return the commits that each of them took."""
    world.api.flavors.create(context.admin(), 'small', 1, 512, 1)
    user = context.member('benchmark', 'benchmark')
    servers, batch = parameters['servers'], parameters['batch']
    count = sqlalchemy.select(sqlalchemy.func.count()).where(
        models.instances.c.vm_state == 'active')

    def active():
        return sum(row[0] for row in ask(world, count))

    # What is done once, such as the first look at the hosts and SQLAlchemy's
    # compiling for each database, is not timed.
    first = FIRST * len(world.agents)
    for number in range(FIRST):
        accept(world, user, f'first{number}', len(world.agents))
    wait_for(first, active, time.time())
    # As a service does when it has started.
    launch.settle()
    accepted, commits = {}, []
    committed = commits.append
    sqlalchemy.event.listen(sqlalchemy.Engine, 'commit', committed)
    try:
        start = time.time()
        for number in range(0, servers, batch):
            accepted |= accept(world, user, f'server{number}', batch)
        wait_for(servers + first, active, start)
    finally:
        sqlalchemy.event.remove(sqlalchemy.Engine, 'commit', committed)
    ends = launched(world)
    samples['build'].append((max(ends.values()) - start) / servers)
    samples['accepted to ACTIVE'] += times(ends, accepted)
    return len(commits) / servers


def accept(world, user, name, count=1):
    """Have servers accepted; return when they were, by their uuids."""
    uuids = world.api.servers.create(user, name, 'small', min_count=count)
    return dict.fromkeys(uuids, time.time())


def wait_for(number, active, start):
    """Wait for so many servers to be ACTIVE.

    It is looked again after half the time that the rest will take at the
    rate so far.

    :param active: returns how many are
    :param start: when they began to be built
    """
    deadline = time.time() + TIMEOUT_S
    while (done := active()) < number:
        now = time.time()
        if now > deadline:
            raise RuntimeError(f'{done} of {number} servers are ACTIVE after '
                               f'{TIMEOUT_S} s')
        rest_s = (now - start) * (number - done) / max(done, 1)
        time.sleep(min(max(LEAST_S, rest_s / 2), MOST_S))


def launched(world):
    """Return when the servers that are ACTIVE came to be so, by uuid."""
    table = models.instances
    return {uuid: when.replace(tzinfo=datetime.UTC).timestamp()
            for uuid, when in ask(world, sqlalchemy.select(
                table.c.uuid, table.c.launched_at).where(
                    table.c.vm_state == 'active'))}


def times(ends, accepted):
    """Return the seconds that each server took from when it was accepted."""
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
    """Return the seconds of so many commits of a row to a database file."""
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
