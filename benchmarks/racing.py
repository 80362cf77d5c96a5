# SPDX-License-Identifier: Apache-2.0
"""Check that concurrent claims use exactly the capacity, for each claim store.

First, processes claim from hosts whose capacity is 90 % used. Each process
makes one claim after the other, twice as many in all as fit. Then, in several
rounds, all clients claim the last place of a host at the same time. These
clients are threads of the processes. Meanwhile an observer reads the states
that other clients can see, and looks for one with more in use than the
capacity.

The check fails for each of these errors:

* the observer found such a state;
* the number of granted claims is not the number of places;
* a claim was refused although a place was certainly free;
* the store reports other claims at the end.

Each server is started for the check and removed afterwards. The memory store
is tested with threads only.

If a store gives up a claim because other claims were faster for too long, the
claim is repeated and counted in ``repeats``.
"""

import argparse
from concurrent import futures
import contextlib
import itertools
import json
import multiprocessing
import pathlib
import random
import sys
import threading
import time
import uuid

from oslo_service import backend

from cellsched import silence_eventlet  # noqa: F401

# Every process of this project selects this backend before another library
# selects one.
backend.init_backend(backend.BackendType.THREADING)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import calls  # noqa: E402
import claims as claiming  # noqa: E402
import outcomes  # noqa: E402
import stores  # noqa: E402
from stores import base  # noqa: E402

from cellsched.claims import listing  # noqa: E402
from cellsched.claims import memory  # noqa: E402
from cellsched import exception  # noqa: E402

#: The store that only one process can use.
MEMORY = 'memory'

NAMES = (MEMORY, *stores.KINDS)

#: The number of hosts, and the tenths of each that are used before.
HOSTS, TAKEN = 20, 9

#: Consumers in a page of a listing.
PAGE = 1000


def main(argv=None):
    args = parse(argv)
    wrong = False
    for name in args.stores or NAMES:
        try:
            row = race(name, args)
        except unavailable() as exc:
            print(f'{name}: skipped: {exc}', file=sys.stderr)
            wrong |= bool(args.stores)
            continue
        print(FORMATS[args.format](row), flush=True)
        wrong |= bool(row['wrong'])
    return 1 if wrong else 0


def parse(argv):
    parser = argparse.ArgumentParser(
        description='Check that concurrent claims use exactly the capacity.')
    parser.add_argument(
        'stores', nargs='*', metavar='STORE',
        help=f'default: all installed stores ({", ".join(NAMES)})')
    for name, default, meaning in (
            ('processes', 16, 'processes that claim at the same time'),
            ('claims', 10_000, 'claims of all processes together'),
            ('clients', 64, 'clients that claim the last place of a host'),
            ('rounds', 10, 'rounds with one last place each')):
        parser.add_argument(f'--{name}', type=int, default=default,
                            metavar='N', help=f'{meaning} ({default})')
    parser.add_argument('-f', '--format', choices=FORMATS, default='text')
    args = parser.parse_args(argv)
    for name in args.stores:
        if name not in NAMES:
            parser.error(f'{name}: expected one of {", ".join(NAMES)}')
    for name, unit in (('processes', 1), ('rounds', 1),
                       ('claims', 2 * HOSTS), ('clients', args.processes)):
        value = getattr(args, name)
        if value < 1 or value % max(unit, 1):
            parser.error(f'--{name}: expected a multiple of {unit}, above 0')
    return args


def unavailable():
    """Return the errors that mean that a store is not installed."""
    from tests.integration import serving

    return serving.NotInstalled, ImportError


def race(name, size):
    """Return the figures of a store, with all errors."""
    with started(name, size.processes) as (store, settle, clients, observer):
        many = Race(store, clients, observer)
        many.fill(HOSTS, size.claims // HOSTS // 2)
        settle()
        found = {'store': name, 'processes': size.processes,
                 **many.run(many.hosts * (size.claims // HOSTS), 1)}
        last = Race(store, clients, observer)
        for _ in range(size.rounds):
            host, = last.fill(1, 1)
            last.run([host] * size.clients, size.clients // size.processes)
        found |= {f'last_{what}': value
                  for what, value in last.found.items()}
        found['wrong'] = sorted({
            *many.wrong, *last.wrong, *differences(store, many, last)})
        return found


class Race:
    """Clients that claim the places of some hosts, and their outcomes.

    :ivar found: sums over all runs
    :ivar wrong: the errors
    """

    def __init__(self, store, clients, observer):
        self.hosts, self.winners, self.fillers = [], set(), set()
        self.found, self.wrong = {}, set()
        self._store = store
        self._clients, self._observer = clients, observer
        self._places = {}

    def fill(self, count, places):
        """Create hosts with this number of free places; return them."""
        hosts = claiming.fill(self._store, count, places * (TAKEN + 1))
        for host in hosts:
            plain = base.PlainClaim(str(uuid.uuid4()), host, {
                each: places * TAKEN * amount
                for each, amount in claiming.DEMAND.items()})
            self._store.claim([claiming.of(plain)])
            self.fillers.add(plain.consumer)
        self.hosts += hosts
        self._places = dict.fromkeys(hosts, places)
        return hosts

    def run(self, wanted, threads):
        """Claim with threads of each process; return figures.

        :param wanted: the host of each claim
        """
        random.shuffle(wanted)
        count = len(self._clients) * threads
        parts = [wanted[number::count] for number in range(count)]
        self._observer.send('look')
        start = time.perf_counter()
        for number, client in enumerate(self._clients):
            client.send(parts[number::len(self._clients)])
        found, repeats = zip(*sum(claiming.receive(self._clients), []))
        seconds = time.perf_counter() - start
        self._observer.send('stop')
        [(worst, looks)] = claiming.receive([self._observer])
        won = {each.consumer for each in found if each.taken}
        self.winners |= won
        places = sum(self._places.values())
        judged = outcomes.Round([*found], self._places, 0, worst).judged()
        self.wrong |= {what for what, count in judged.items() if count}
        if len(won) != places:
            self.wrong.add(f'{len(won)} of {places} places were claimed')
        for what, value in {
                'claims': len(found), 'places': places, 'taken': len(won),
                **judged, 'repeats': sum(repeats), 'looks': looks,
                'seconds': seconds}.items():
            self.found[what] = round(self.found.get(what, 0) + value, 1)
        return self.found


def differences(store, *races):
    """Yield the differences between the store and the clients' answers."""
    hosts = [host for each in races for host in each.hosts]
    for usage in store.usages(providers=hosts).usages:
        if usage.used != usage.capacity:
            yield f'usage at the end: {usage.used} of {usage.capacity}'
    if any(map(store.recount, hosts)):
        yield 'the usage is not the sum of the claims'
    granted = set().union(*(each.winners | each.fillers for each in races))
    listed = {consumer for page in listing.pages(store, PAGE)
              for consumer in page}
    if listed != granted:
        yield (f'{len(granted - listed)} granted claims are missing, and '
               f'{len(listed - granted)} claims exist that were not granted')


# Processes and threads.

@contextlib.contextmanager
def started(name, count):
    """Yield a store, its settle function, and pipes to clients and observer.

    :param count: the number of clients
    """
    with contextlib.ExitStack() as stack:
        if name == MEMORY:
            store = memory.MemoryClaims()
            yield (store, lambda: None,
                   stack.enter_context(threads(serve, store, count)),
                   *stack.enter_context(threads(
                       observe_usage, lambda: excess(store), 1)))
            return
        kind = stores.kind(name)
        address = stack.enter_context(kind.served())
        store = stack.enter_context(base.opened(address)).claims
        store.sync()
        given = name, address
        yield (store, lambda: kind.settle(address),
               stack.enter_context(calls.children(client, given, count)),
               stack.enter_context(calls.child(observe, given)))


@contextlib.contextmanager
def threads(function, given, count):
    """Run a function in threads; yield pipes to them."""
    with futures.ThreadPoolExecutor(count) as pool:
        pipes = [multiprocessing.Pipe() for _ in range(count)]
        for _, theirs in pipes:
            pool.submit(calls.run_reporting, function, theirs, given)
        ours = [each for each, _ in pipes]
        try:
            for each in ours:
                each.recv()
            yield ours
        finally:
            for each in ours:
                each.close()


def client(pipe, given):
    """Claim in a separate process."""
    _, address = given
    with base.opened(address) as parts:
        serve(pipe, parts.claims)


def serve(pipe, store):
    """Claim on request, each list of hosts in its own thread."""
    pipe.send('ready')
    with contextlib.suppress(EOFError):
        while True:
            pipe.send(claim_all(store, pipe.recv()))


def claim_all(store, parts):
    start = threading.Barrier(len(parts))

    def run(hosts):
        start.wait()
        return [claim(store, host) for host in hosts]

    with futures.ThreadPoolExecutor(len(parts)) as pool:
        return sum(pool.map(run, parts), [])


def claim(store, host):
    """Return the outcome of a claim, and the number of repeats."""
    plain = base.PlainClaim(str(uuid.uuid4()), host, claiming.DEMAND)
    start = time.perf_counter()
    for repeats in itertools.count():
        try:
            store.claim([claiming.of(plain)])
            taken = True
        except exception.ClaimRefused:
            taken = False
        except exception.DatabaseUnreachable:
            # The store gave up because other claims were faster.
            continue
        return outcomes.Outcome(
            start, time.perf_counter(), host, taken, plain.consumer), repeats


def observe(pipe, given):
    """Observe in a separate process."""
    name, address = given
    with stores.kind(name).observer(address) as oversold:
        observe_usage(pipe, oversold)


def observe_usage(pipe, oversold):
    """Look for oversold units between two messages; send the worst state."""
    pipe.send('ready')
    with contextlib.suppress(EOFError):
        while True:
            pipe.recv()
            worst, looks = oversold(), 1
            while not pipe.poll(claiming.INTERVAL_S):
                worst, looks = max(worst, oversold()), looks + 1
            pipe.recv()
            pipe.send((max(worst, oversold()), looks + 1))


def excess(store):
    """Return the units in use above the capacity."""
    return sum(max(used - usage.capacity.get(name, 0), 0)
               for usage in store.usages().usages
               for name, used in usage.used.items())


def as_text(row):
    return '\n'.join(f'{what.replace("_", " ")}: {value}'
                     for what, value in row.items()) + '\n'


FORMATS = {'text': as_text, 'json': json.dumps}


if __name__ == '__main__':
    sys.exit(main())
