# SPDX-License-Identifier: Apache-2.0
"""Measure how long claims wait while the server of a claim store fails.

Clients claim continuously, each from its own host. Meanwhile the server is
killed and restarted. If it has three nodes, one of them can be killed, or
suspended for a while. The result is in seconds:

``server is ready``
   From the restart of the server until it reports that it is ready.
``first claim``
   From then until the first client has claimed.
``every client``
   From then until each client has claimed.
``nobody claims``
   The longest time between two completed claims, the second after the start
   of the fault.
``a client waits``
   The longest time without a completed claim of one client.

Claims that a store gave up are counted and repeated.
"""

import argparse
import bisect
from concurrent import futures
import contextlib
import itertools
import os
import pathlib
import signal
import sys
import threading
import time
import uuid

from oslo_service import backend

from cellsched import silence_eventlet  # noqa: F401

# Every process of this project selects this backend before another library
# selects one.
backend.init_backend(backend.BackendType.THREADING)

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from stores import base  # noqa: E402

from cellsched.claims import base as claims  # noqa: E402
from cellsched import exception  # noqa: E402
from tests.integration import cassandra  # noqa: E402
from tests.integration import etcd  # noqa: E402
from tests.integration import mariadb  # noqa: E402
from tests.integration import servers  # noqa: E402

#: Servers and their stores. All servers wait for their disk.
KINDS = {
    'postgresql': (lambda: servers.PostgreSQL(durable=True), 'sql'),
    'mariadb': (lambda: mariadb.MariaDB(durable=True), 'sql'),
    'etcd': (etcd.Etcd, 'etcd'),
    'etcd-3': (etcd.EtcdCluster, 'etcd'),
    'cassandra': (lambda: cassandra.Cassandra(durable=True), 'cassandra'),
    'cassandra-3': (lambda: cassandra.CassandraCluster(durable=True),
                    'cassandra'),
}

OPTIONS = """\
[claims]
store = {store}
connection = {url}
"""

#: The option for the timeout of a request, for the stores that have one.
TIMEOUTS = {'etcd': '[etcd]\nrequest_timeout = {}\n',
            'cassandra': '[cassandra]\ntimeout = {}\n'}

#: Seconds of claims before the fault, and after all clients have claimed.
AROUND_S = 5.0


def main(argv=None):
    parser = argparse.ArgumentParser(
        description='Measure how long claims wait while a server fails.')
    parser.add_argument('kind', choices=KINDS)
    parser.add_argument(
        '--fault', choices=FAULTS, default='restart',
        help='restart: kill and restart the server; kill: kill one node; '
             'hang: suspend one node for a while (default restart)')
    parser.add_argument('--clients', type=int, default=8, metavar='N')
    parser.add_argument(
        '--timeout', type=float, default=10.0, metavar='S',
        help='timeout of a request to etcd or Cassandra (default 10)')
    parser.add_argument(
        '--lasts', type=float, default=30.0, metavar='S',
        help='how long a node is suspended (default 30)')
    args = parser.parse_args(argv)
    make, store = KINDS[args.kind]
    with make() as server, contextlib.ExitStack() as stack:
        options = OPTIONS.format(store=store, url=server.url('claims'))
        options += TIMEOUTS.get(store, '').format(args.timeout)
        stores = [stack.enter_context(base.opened({'options': options})).claims
                  for _ in range(args.clients)]
        stores[0].sync()
        for what, value in measure(
                stores, lambda: FAULTS[args.fault](server, args)).items():
            print(f'{what}: {value}')


def measure(stores, fault):
    """Return the figures of a fault."""
    clients = [Client(store) for store in stores]
    with futures.ThreadPoolExecutor(len(clients)) as pool:
        running = [pool.submit(client.run) for client in clients]
        try:
            time.sleep(AROUND_S)
            began = time.monotonic()
            found = fault()
            since = time.monotonic()
            while not all(each.done_since(since) for each in clients):
                time.sleep(0.1)
            time.sleep(AROUND_S)
        finally:
            for client in clients:
                client.ended.set()
        for each in running:
            each.result()
    firsts = [each.done_since(since) - since for each in clients]
    ends = [each.ends for each in clients]
    return {
        **{what: round(value, 2) for what, value in {
            **found, 'first claim': min(firsts), 'every client': max(firsts),
            'nobody claims': longest(sorted(sum(ends, [])), began),
            'a client waits': max(longest(each, began) for each in ends),
        }.items()},
        'claims': sum(map(len, ends)),
        'claims given up': sum(each.given_up for each in clients)}


def longest(ends, began):
    """Return the longest time between two ends, the later one after began."""
    return max(later - earlier for earlier, later in itertools.pairwise(ends)
               if later > began)


class Client:
    """Claims from its own host and records the time of each claim."""

    def __init__(self, store):
        self.ends, self.given_up = [], 0
        self.ended = threading.Event()
        self._store = store
        self._host = str(uuid.uuid4())

    def run(self):
        self._store.set_inventory(
            self._host, {'VCPU': claims.Inventory(10 ** 6)})
        while not self.ended.is_set():
            claim = claims.Claim(str(uuid.uuid4()), self._host, {'VCPU': 1})
            while not self._claims(claim):
                self.given_up += 1
            self.ends.append(time.monotonic())

    def done_since(self, when):
        """Return the time of its first claim after a time, or None."""
        number = bisect.bisect_right(self.ends, when)
        return self.ends[number] if number < len(self.ends) else None

    def _claims(self, claim):
        try:
            self._store.claim([claim])
        except exception.DatabaseUnreachable:
            return False
        return True


# Faults. Each returns its own figures.

def restart(server, args):
    server.kill()
    began = time.monotonic()
    server.start()
    return {'server is ready': time.monotonic() - began}


def kill(server, args):
    server.processes[-1].kill()
    return {}


def hang(server, args):
    group = server.processes[-1].pid
    os.killpg(group, signal.SIGSTOP)
    try:
        time.sleep(args.lasts)
    finally:
        os.killpg(group, signal.SIGCONT)
    return {}


FAULTS = {'restart': restart, 'kill': kill, 'hang': hang}


if __name__ == '__main__':
    sys.exit(main())
