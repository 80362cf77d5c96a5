# SPDX-License-Identifier: Apache-2.0
"""Claims of one host, and of four providers together.

Parameters: ``database``, which is ``sqlite``, ``postgresql`` or ``mariadb``,
the number of ``clients``, ``claims``, the number of batches that each claims
in sequence in a round, ``hosts``, and ``pools``, the number of storage pools
that the hosts share evenly.

A batch is for one new consumer. ``4 providers`` claims VCPU and MEMORY_MB of a
host, a device and bandwidth of two of its children, and DISK_GB of its pool.
The floor claims VCPU, MEMORY_MB and DISK_GB of a host alone. The hosts are
random. Both kinds use the same hosts and take turns.

Clients are processes that share only the database. Each commit waits for the
disk. PostgreSQL is used with psycopg 3. A sample is the time of a round
divided by its batches, without the creation and the release of the batches. At
the end the store must have no consumers.
"""

import contextlib
import pathlib
import random
import sys
import tempfile
import time
import uuid

import sqlalchemy as sa

from cellsched.claims import base as claims
from cellsched.claims import sql
from cellsched.claims.sql import schema
from cellsched import clock
from cellsched.db import session

# The test suite has the code to start the servers.
sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))

import calls  # noqa: E402
from tests.integration import mariadb  # noqa: E402
from tests.integration import servers  # noqa: E402

#: The claimed resources of one provider, and of each of four.
ALONE = {'root': {'VCPU': 2, 'MEMORY_MB': 4096, 'DISK_GB': 20}}
TOGETHER = {'root': {'VCPU': 2, 'MEMORY_MB': 4096},
            'device': {'VGPU': 1},
            'network': {'NET_BW_EGR_KILOBIT_PER_SEC': 1000},
            'pool': {'DISK_GB': 20}}

#: Resource classes of each kind of provider, and the total of each class,
#: enough for all rounds.
ROOMS = {**TOGETHER, **ALONE}
ROOM = 2 ** 31 - 1

#: Ids with the length of Keystone's.
PROJECT, USER = 'a' * 32, 'b' * 32

KINDS = {'floor': ALONE, '4 providers': TOGETHER}


def run(parameters, repeat):
    """Return the samples of four providers and of one, in alternation."""
    samples = {kind: [] for kind in KINDS}
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(DATABASES[parameters['database']]())
        database = session.Database(url, 'claims', clock=clock.Clock())
        stack.callback(database.close)
        store = sql.SQLClaims(database)
        store.sync()
        hosts = fill(database, parameters['hosts'], parameters['pools'])
        analyze(database)
        clients = [stack.enter_context(calls.child(serve, url))
                   for _ in range(parameters['clients'])]
        # Round 0 is not timed: clients connect and statements are planned.
        for number in range(repeat + 1):
            for kind in KINDS if number % 2 else reversed(KINDS):
                spent = claim(clients, hosts, kind, parameters['claims'],
                              number)
                if number:
                    samples[kind].append(spent)
        if store.consumers():
            raise RuntimeError('some claims were not released')
    return samples


def fill(database, hosts, pools):
    """Create providers; return those of each host by their kind."""
    made = [{name: str(uuid.uuid4()) for name in TOGETHER if name != 'pool'}
            for _ in range(hosts)]
    shared = [str(uuid.uuid4()) for _ in range(pools)]
    has = {uuid: ROOMS[name] for host in made for name, uuid in host.items()}
    has |= {pool: ROOMS['pool'] for pool in shared}
    with database.writer() as connection:
        connection.execute(sa.insert(schema.providers), [
            {'uuid': each, 'consumers': 0, 'lane': 0, 'position': 0}
            for each in has])
        connection.execute(sa.insert(schema.inventories), [
            {'provider': each, 'resource_class': resource, 'used': 0,
             'capacity': ROOM, **vars(claims.Inventory(total=ROOM))}
            for each, resources in has.items() for resource in resources])
    return [{**host, 'pool': shared[number % pools]}
            for number, host in enumerate(made)]


def analyze(database):
    """Update the planner's statistics, as autovacuum does later."""
    if database.engine.dialect.name == 'postgresql':
        with database.reader() as connection:
            connection.execute(sa.text('VACUUM ANALYZE'))


def claim(clients, hosts, kind, count, seed):
    """Return the seconds per batch of a round."""
    for number, client in enumerate(clients):
        chance = random.Random(seed * len(clients) + number)
        client.send((KINDS[kind], chance.choices(hosts, k=count)))
    starts, ends, new = zip(*(client.recv() for client in clients))
    if set(new) != {count * len(KINDS[kind])}:
        raise RuntimeError(f'{new} claims of {kind} are new')
    return (max(ends) - min(starts)) / (count * len(clients))


def serve(pipe, url):
    """Claim on request, and release outside the measured time."""
    database = session.Database(url, 'claims', clock=clock.Clock())
    store = sql.SQLClaims(database)
    store.check()
    pipe.send('ready')
    with contextlib.suppress(EOFError):
        while True:
            demand, hosts = pipe.recv()
            batches = [batch(demand, host) for host in hosts]
            start = time.time()
            new = sum(store.claim(each) for each in batches)
            end = time.time()
            store.release([each[0].consumer for each in batches])
            pipe.send((start, end, new))
    database.close()


def batch(demand, host):
    consumer = str(uuid.uuid4())
    return [claims.Claim(consumer, host[name], resources,
                         project_id=PROJECT, user_id=USER)
            for name, resources in demand.items()]


@contextlib.contextmanager
def on_sqlite():
    with tempfile.TemporaryDirectory() as directory:
        yield f'sqlite:///{directory}/claims'


@contextlib.contextmanager
def on_postgresql():
    with servers.part_of(servers.PostgreSQL, durable=True) as part:
        yield servers.by_psycopg(part.url('claims'))


@contextlib.contextmanager
def on_mariadb():
    with servers.part_of(mariadb.MariaDB, durable=True) as part:
        yield part.url('claims')


DATABASES = {'sqlite': on_sqlite, 'postgresql': on_postgresql,
             'mariadb': on_mariadb}
