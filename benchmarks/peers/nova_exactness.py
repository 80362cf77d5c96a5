# SPDX-License-Identifier: Apache-2.0
"""Let several of Nova's schedulers claim the last places of a few hosts.

Run this with the Python that ``environment.py`` prints. It starts PostgreSQL
and Placement, and a process for each scheduler. In it, clients are threads
that call Nova's SchedulerManager, or the manager in its place;
``nova_select.py`` describes what runs.

It prints a line of JSON with the versions when all processes are ready. Then
it prints a line for each line that it reads: the outcomes of all requests, the
number of places, the number of claims refused because another claim was
faster, and the units in use above the capacity in the worst observed state.
After that it releases the claims as Nova does, with a DELETE for each server,
which does not change the generation of a provider.
"""

import native  # noqa: F401

import argparse
from concurrent import futures
import contextlib
import json
import logging
import subprocess
import sys
import threading
import time
import uuid

from nova import context
from nova import version
import oslo_messaging
import sqlalchemy

import deployment
import managers
import nova_select
import servers
import usage_queries

#: Servers that fit on a host, and the number of them at the start.
PLACES, TAKEN = 256, 230

#: The flavor of each server, and a host for this number of servers.
FLAVOR = {'vcpus': 1, 'memory_mb': 512, 'root_gb': 1}
HOST = {'vcpus': PLACES // 4, 'memory_mb': 2 ** 19 + 512, 'local_gb': 10_000,
        'used': {'VCPU': TAKEN, 'MEMORY_MB': TAKEN * 512, 'DISK_GB': TAKEN},
        'children': []}

CELLS = 2

#: Seconds between two checks of the observer.
INTERVAL_S = 0.02


def main(argv=None):
    parser = argparse.ArgumentParser(
        description="Let Nova's schedulers claim the last places of hosts.")
    for name, default in (('hosts', 8), ('schedulers', 1), ('clients', 64)):
        parser.add_argument(f'--{name}', type=int, default=default)
    parser.add_argument('--options', default='', help='options of Placement')
    parser.add_argument(
        '--managers', type=lambda text: text.split(','), default=['nova'],
        metavar='NAME,…', help='managers of the schedulers, in turn '
        f'({", ".join(managers.NAMES)}; default nova)')
    parser.add_argument('--serve', metavar='FILE',
                        help='run a scheduler with this configuration')
    args = parser.parse_args(argv)
    if not set(args.managers) <= set(managers.NAMES):
        parser.error(f'--managers: expected some of '
                     f'{", ".join(managers.NAMES)}')
    logging.basicConfig(level=logging.ERROR)
    (serve if args.serve else run)(args)


def run(args):
    """Run a round for each line of the input."""
    hosts = make_hosts(args.hosts)
    with contextlib.ExitStack() as stack:
        deployed = stack.enter_context(deployment.deployed(
            hosts, options=args.options))
        # On slow machines too, only a lack of capacity must refuse a claim.
        with open(deployed.conf, 'a', encoding='utf-8') as file:
            file.write('[cellsched]\nclaim_timeout = 300\n')
        workers = [stack.enter_context(worker(
            deployed.conf, args.managers[number % len(args.managers)],
            len(range(number, args.clients, args.schedulers))))
            for number in range(args.schedulers)]
        for each in workers:
            receive(each)
        send({'version': f'Nova {version.version_string()}, '
                         f'{deployed.placement.version()}, '
                         f'{deployed.postgres.version()}'})
        for _ in sys.stdin:
            send(fill_up(workers, deployed.postgres.url('placement'), hosts))


def make_hosts(count):
    made = [[] for _ in range(CELLS)]
    for number in range(count):
        made[number % CELLS].append({
            'host': f'host-{number}', 'uuid': str(uuid.uuid4()), **HOST})
    return made


@contextlib.contextmanager
def worker(file, manager, clients):
    """Yield the process of a scheduler."""
    with subprocess.Popen(
            [sys.executable, __file__, '--serve', file, '--managers', manager,
             '--clients', str(clients)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.stdin.close()
            process.wait(60)


def receive(process):
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f'a scheduler failed with {process.wait()}')
    return json.loads(line)


def send(what):
    print(json.dumps(what), flush=True)


def ask(workers, word):
    for each in workers:
        each.stdin.write(f'{word}\n')
        each.stdin.flush()
    return [receive(each) for each in workers]


def fill_up(workers, database, hosts):
    with observed(database) as seen:
        answers = ask(workers, 'go')
    ask(workers, 'release')
    return {'outcomes': sum((each['outcomes'] for each in answers), []),
            'conflicts': sum(each['conflicts'] for each in answers),
            'places': {host['uuid']: PLACES - TAKEN
                       for members in hosts for host in members},
            # The amounts of allocations are whole numbers.
            'oversold': round(max(seen))}


@contextlib.contextmanager
def observed(database):
    """Yield a list to which the oversold units of each check are added."""
    seen, stopped = [], threading.Event()

    def look():
        with servers.engine(database).connect() as connection:
            connection.execution_options(isolation_level='AUTOCOMMIT')
            while True:
                last = stopped.is_set()
                seen.append(float(connection.execute(
                    sqlalchemy.text(usage_queries.OVERSOLD)).scalar_one()))
                if last:
                    return
                stopped.wait(INTERVAL_S)

    with futures.ThreadPoolExecutor(1) as pool:
        looking = pool.submit(look)
        try:
            yield seen
        finally:
            stopped.set()
            looking.result()


def serve(args):
    """Run a scheduler; its clients send requests for each input line."""
    deployment.read(args.serve)
    manager = managers.start(args.managers[0])
    conflicts = count_conflicts(manager.placement_client)
    ctxt = context.RequestContext('user', 'project', is_admin=True)
    send('ready')
    taken = []
    for line in sys.stdin:
        if line.strip() == 'release':
            for consumer in taken:
                manager.placement_client.delete_allocation_for_instance(
                    ctxt, consumer, force=True)
            taken = []
            send('done')
            continue
        conflicts.clear()
        with futures.ThreadPoolExecutor(args.clients) as pool:
            found = sum(pool.map(
                lambda _: ask_until_refused(manager, ctxt),
                range(args.clients)), [])
        taken = [consumer for *_, got, consumer in found if got]
        send({'outcomes': found, 'conflicts': len(conflicts)})


def count_conflicts(client):
    """Return a list to which each refused claim is added."""
    conflicts = []

    def counted(send):
        def counting(url, *args, **kwargs):
            response = send(url, *args, **kwargs)
            if url.startswith('/allocations') and response.status_code == 409:
                conflicts.append(url)
            return response

        return counting

    # Nova claims one server per request, this project several.
    client.put, client.post = counted(client.put), counted(client.post)
    return conflicts


def ask_until_refused(manager, ctxt):
    """Request one server after the other; return the outcomes.

    An outcome has the start, the end, the host's provider or None, whether
    there was a host, and the server's uuid.
    """
    found = []
    while not found or found[-1][3]:
        consumer = str(uuid.uuid4())
        spec = nova_select.make_request(ctxt, [consumer], FLAVOR)
        start = time.perf_counter()
        try:
            [[chosen, *_]] = manager.select_destinations(
                ctxt, spec_obj=spec, instance_uuids=[consumer],
                return_objects=True, return_alternates=True)
            provider = chosen.compute_node_uuid
        except oslo_messaging.ExpectedException:
            # The service wraps NoValidHost in this for its callers.
            provider = None
        found.append((start, time.perf_counter(), provider,
                      provider is not None, consumer))
    return found


if __name__ == '__main__':
    sys.exit(main())
