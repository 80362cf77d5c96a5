# SPDX-License-Identifier: Apache-2.0
"""Measure the times that a claim takes on a real server, for simulations.

One client claims again and again. Each claim names eight hosts, as those of a
scheduler do. The CPU times of the client and of the server are read from the
operating system. The time of a flush is that of the disk with the temporary
directory, where the servers keep their files. ``cellsched simulate`` reads the
result from ``cellsched/simulator/capacity/delays.json``; ``--write`` replaces
it there.

``--check`` measures nothing. It compares simulated schedulers with the figures
of ``exactness.py``, which are measured with real schedulers.
"""

import argparse
import contextlib
import datetime
import functools
import json
import os
import pathlib
import platform
import random
import statistics
import sys
import tempfile
import threading
import time
import uuid

from oslo_service import backend

from cellsched import silence_eventlet  # noqa: F401

# Every process of this project selects this backend before another library
# selects one.
backend.init_backend(backend.BackendType.THREADING)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import claims as claiming  # noqa: E402
import exactness_figures  # noqa: E402
import host_databases  # noqa: E402
import schedulers  # noqa: E402
import simulated_exactness as simulated  # noqa: E402
import stores  # noqa: E402
from stores import base  # noqa: E402

from cellsched.claims import coordination  # noqa: E402
from cellsched import clock  # noqa: E402
from cellsched import context  # noqa: E402
from cellsched.db import session  # noqa: E402
from cellsched.scheduler.drivers import filter_scheduler  # noqa: E402
from cellsched.simulator.capacity import stores as models  # noqa: E402
from cellsched.simulator import servers  # noqa: E402

NAMES = ('postgresql', 'mariadb', 'etcd', 'cassandra', 'placement')

#: How the names of the programs of the servers begin.
PROGRAMS = {'postgresql': ('postgres',), 'mariadb': ('mariadbd',),
            'etcd': ('etcd',), 'cassandra': ('java',),
            'placement': ('postgres', 'python', 'uwsgi', 'gunicorn')}

#: The client classes that send requests, by store.
CLIENTS = {'etcd': ('cellsched.claims.etcd.client', 'EtcdClient'),
           'cassandra': ('cellsched.claims.cassandra.client',
                         'CassandraClient'),
           'placement': ('cellsched.claims.placement.client',
                         'KeystoneClient')}

HOSTS, CANDIDATES, ROOM, WARM_UP, PARTS = 16, 8, 10 ** 5, 50, 6

#: The largest difference of a simulated rate, as a share of the measured one.
TOLERANCE = 0.2

FILE = pathlib.Path(models.__file__).with_name('delays.json')
MEASURED = (pathlib.Path(__file__).resolve().parents[1]
            / 'doc/source/admin/exactness.csv')


def main(argv=None):
    args = parse(argv)
    if args.check:
        return check(args)
    found = json.loads(FILE.read_text('utf-8')) if args.write else {}
    for name in args.stores or NAMES:
        found[name] = measured(name, args.claims)
        print(json.dumps({name: found[name]}), file=sys.stderr, flush=True)
    found['scheduler'] = scheduler(args.claims)
    text = json.dumps(found, indent=2, sort_keys=True) + '\n'
    if args.write:
        FILE.write_text(text, 'utf-8')
    else:
        print(text, end='')
    return 0


def parse(argv):
    parser = argparse.ArgumentParser(
        description='Measure the times of claims for simulations.')
    parser.add_argument('--store', action='append', choices=NAMES,
                        default=[], dest='stores', metavar='NAME',
                        help=f'measure only this store ({", ".join(NAMES)})')
    parser.add_argument('--claims', type=int, default=1000, metavar='N',
                        help='claims of a store (default 1000)')
    parser.add_argument('--write', action='store_true',
                        help=f'replace the values in {FILE.name}')
    parser.add_argument('--check', action='store_true',
                        help='compare simulated schedulers with exactness.csv')
    args = parser.parse_args(argv)
    if args.claims < 1:
        parser.error('--claims: expected a number above 0')
    return args


def measured(name, count):
    """Return the times of one store."""
    before = set(running(PROGRAMS[name]))
    kind = stores.kind(name)
    with kind.served() as address, base.opened(address) as parts:
        store = parts.claims
        store.sync()
        hosts = claiming.fill(store, HOSTS, ROOM)
        kind.settle(address)

        def servers():
            return set(running(PROGRAMS[name])) - before

        with watched(name) as sent:
            return {**delays({what: timed(
                function, servers, sent, times, size, what.startswith('write'))
                for what, (function, times, size) in {
                    'read': (lambda: store.claims_of([str(uuid.uuid4())]),
                             count, 1),
                    'reads': (lambda: store.usages(providers=hosts),
                              count // 4, HOSTS),
                    'write': (lambda: claim_any(store, hosts), count, 1),
                    'writes': (lambda: claim_all(store, hosts),
                               count // 8, HOSTS)}.items()}),
                'server': kind.version(address), **machine()}


def claim_any(store, hosts):
    """Claim one of several hosts."""
    store.claim_any(batches(random.sample(hosts, CANDIDATES)))


def claim_all(store, hosts):
    """Claim for several consumers, each one of several hosts."""
    store.claim_each([
        batches([*hosts[place:], *hosts[:place]][:CANDIDATES])
        for place in range(len(hosts))])


def batches(hosts):
    """Return the alternatives of a new consumer."""
    consumer = str(uuid.uuid4())
    return [[claiming.of(base.PlainClaim(consumer, host, claiming.DEMAND))]
            for host in hosts]


@contextlib.contextmanager
def watched(name):
    """Yield a list of requests: whether each writes, and further items."""
    sent = []
    if name not in CLIENTS:
        yield sent
        return
    module, class_name = CLIENTS[name]
    model = servers.KINDS[name].model()
    end = base.watch(
        getattr(__import__(module, fromlist=[class_name]), class_name),
        lambda request, answer: sent.append(model.cost(request)))
    try:
        yield sent
    finally:
        end()


def timed(function, servers, sent, times, size, writes):
    """Return milliseconds of each part, and numbers of requests and items.

    Other processes delay some calls, and use the caches of the CPUs. So the
    calls are measured in parts, of which the fastest counts.

    :param size: the items of a call, unless the requests are counted
    """
    for _ in range(WARM_UP):
        function()
    sent.clear()
    found, times = {}, max(times // PARTS, 1)
    for _ in range(PARTS):
        for part, value in part_of(function, servers, times).items():
            found[part] = min(found.get(part, value), value)
    requests = sent or [(writes, size - 1)] * times * PARTS
    counts = {(kind, what): sum(
        further if what else 1 for is_write, further in requests
        if is_write == kind) / PARTS for kind in (False, True)
        for what in (0, 1)}
    return {**found, 'counts': counts}


def part_of(function, servers, times):
    """Return the milliseconds of some calls."""
    served = cpu_ms(servers())
    own = time.process_time()
    for _ in range(times):
        function()
    return {'client': 1000 * (time.process_time() - own),
            'server': cpu_ms(servers()) - served}


def delays(timed_calls):
    """Return the times of reads and writes, and of their further items."""
    found = {}
    for part in 'client', 'server':
        known = {(kind, what): 0.0 for kind in (False, True)
                 for what in (0, 1)}
        for call, key in (('read', (False, 0)), ('reads', (False, 1)),
                          ('write', (True, 0)), ('writes', (True, 1))):
            each = timed_calls[call]
            rest = each[part] - sum(
                known[other] * number
                for other, number in each['counts'].items() if other != key)
            if each['counts'][key]:
                known[key] = max(rest / each['counts'][key], 0.0)
        found[part] = known
    return {name: round(max(value, 0.0), 3) for name, value in (
        ('client_read_ms', found['client'][False, 0]),
        ('client_row_ms', found['client'][False, 1]),
        ('client_write_ms', found['client'][True, 0]),
        ('client_item_ms', found['client'][True, 1]),
        ('read_ms', found['server'][False, 0]),
        ('row_ms', found['server'][False, 1]),
        ('write_ms', found['server'][True, 0]),
        ('item_ms', found['server'][True, 1]),
        ('flush_ms', flush_ms()))}


def flush_ms(count=200):
    """Return the median time to flush some bytes to the disk."""
    times = []
    with tempfile.TemporaryFile() as file:
        for _ in range(count):
            file.write(bytes(4096))
            file.flush()
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - began)
    return 1000 * statistics.median(times)


def running(programs):
    """Yield the ids of processes of these programs."""
    for path in pathlib.Path('/proc').glob('[0-9]*'):
        with contextlib.suppress(OSError):
            if (path / 'comm').read_text().startswith(programs) and (
                    int(path.name) != os.getpid()):
                yield int(path.name)


def cpu_ms(processes):
    """Return the CPU time of all threads of processes."""
    total = 0
    for process in processes:
        for path in pathlib.Path(f'/proc/{process}/task').glob('*'):
            with contextlib.suppress(OSError):
                total += int((path / 'schedstat').read_text().split()[0])
    return total / 1e6


def scheduler(count):
    """Return the CPU times of a scheduler, without its store."""
    with host_databases.parts(
            8, schedulers.CELLS, options=schedulers.OPTIONS
            + '[claims]\nstore = memory\n') as parts:
        for host in range(8):
            parts.claims.set_inventory(host_databases.node(host), {
                name: models.base.Inventory(total=amount) for name, amount
                in host_databases.RESOURCES.items()})
        driver = filter_scheduler.FilterScheduler(parts.conf, parts)
        driver.loader.refresh(context.admin())
        for _ in range(WARM_UP):
            schedulers.ask(driver, str(uuid.uuid4()))

        def per_call(function):
            times = max(count // PARTS, 1)
            return min(part_of(function, list, times)['client']
                       for _ in range(PARTS)) / times

        decision_ms = per_call(
            lambda: schedulers.ask(driver, str(uuid.uuid4())))
        refresh_ms = per_call(lambda: driver.loader.refresh(context.admin()))
    return {'decision_ms': round(decision_ms, 3),
            'cell_ms': round(refresh_ms / schedulers.CELLS, 3),
            'lock_ms': round(lock_ms(count), 3), **machine()}


def lock_ms(count):
    """Return the CPU time of a lock of a contended provider."""
    with stores.kind('postgresql').served() as address:
        database = session.Database(
            address['url'], 'coordination', clock=clock.Clock())
        locks = coordination.ContentionLock(
            clock.Clock(), functools.partial(database.lock, 'claims'),
            lambda function: threading.Thread(target=function).start())
        locks.note_conflict(['p'])

        def use():
            with locks.held(['p']):
                pass

        use()
        times = max(count // PARTS, 1)
        return min(part_of(use, list, times)['client']
                   for _ in range(PARTS)) / times


def machine():
    return {'machine': f'{os.cpu_count()} CPUs, {platform.system()} '
                       f'{platform.machine()}',
            'python': platform.python_version(),
            'date': datetime.date.today().isoformat()}


def check(args):
    """Print simulated and measured rates; return 1 if they disagree."""
    far = 0
    for row in exactness_figures.read(MEASURED):
        name, count = row['store'], row['schedulers']
        if name not in (args.stores or NAMES):
            continue
        rounds = [simulated.fill_up(name, simulated.Size(
            count, row['clients'], row['hosts'], row['cpus'],
            seed=seed)) for seed in range(1, 4)]
        rate = sum(each.claims for each in rounds) / sum(
            each.claims / each.claims_per_second for each in rounds)
        share = rate / row['claims_per_second'] - 1
        far += abs(share) > TOLERANCE
        print(f'{name:12} {count:3} schedulers: simulated {rate:7.1f}, '
              f'measured {row["claims_per_second"]:7.1f}, {share:+.0%}',
              flush=True)
    return 1 if far else 0


if __name__ == '__main__':
    sys.exit(main())
