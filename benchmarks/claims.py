# SPDX-License-Identifier: Apache-2.0
"""Claims of hosts by many clients, compared with the same plain writes.

Parameters:

* ``store``, a name in ``stores``.
* ``clients``, a list of numbers of clients.
* ``claims``, the number of claims of all clients in a round. Each claim is for
  another consumer.
* ``hosts``, the number of hosts. Each client claims any of them (spread).
* ``hot``, the number of hosts that all clients claim (hot).
* ``batch``, the number of claims that are sent together (optional).
* ``beside``, another store (optional). Its plain writes are timed in the same
  run, with the largest number of clients and with ``beside_parameters`` in
  place of the parameters above.

Clients are processes that share only the server, which waits for its disk. A
claim has VCPU, MEMORY_MB and DISK_GB of a host, like the claim of a plain
instance. The store and the plain writes take turns on the same hosts. A sample
is the time of a round divided by its claims. The release after a round is not
timed.

For each number of clients, spread and hot, the figures are: the rate of the
store divided by the plain rate, the time of one claim, and the attempts that
lost to another claim and were repeated (wasted).

At the end hosts are filled to 90 %, and clients claim the last places until
all clients are refused everywhere. Meanwhile an observer looks for hosts with
more in use than their capacity. The figures are claims refused although they
fitted, units oversold in any observed state or according to the clients'
answers, and wasted attempts.
"""

import contextlib
import random
import statistics
import time
import uuid

import calls
import outcomes
from run import percentile
import stores
from stores import base

from cellsched.claims import base as claims
from cellsched import exception

#: Resources of a claim.
DEMAND = {'VCPU': 2, 'MEMORY_MB': 4096, 'DISK_GB': 20}

#: Places of a host, enough for the claims of all rounds.
ROOM = 10 ** 5

#: Places of a host in the last part, and the number of used ones.
PLACES, TAKEN = 200, 180

#: The number of hosts in the last part with spread claims.
LAST_HOSTS = 16

#: Seconds between two checks of the observer.
INTERVAL_S = 0.02

STORE, PLAIN = 'store', 'plain'


def run(parameters, repeat):
    """Return samples of the store and of the plain writes, and figures."""
    measurement = Measurement(parameters['store'], parameters)
    measurement.run(repeat, (STORE, PLAIN))
    samples, figures = measurement.samples, measurement.figures
    if parameters.get('beside'):
        other = Measurement(parameters['beside'], {
            **parameters, **parameters['beside_parameters'],
            'clients': parameters['clients'][-1:]})
        other.run(repeat, (PLAIN,))
        for what, times in other.samples.items():
            name = what.removesuffix(f', {PLAIN}')
            samples[f'{name}, {parameters["beside"]}'] = times
            figures[f'{name}, times {parameters["beside"]}'] = (
                statistics.median(times) / statistics.median(samples[name]))
    return samples, figures


class Measurement:
    """The samples and figures of one store."""

    def __init__(self, name, parameters):
        self.samples, self.figures = {}, {}
        self._name, self._parameters = name, parameters
        self._kind = stores.kind(name)

    def run(self, repeat, ways):
        """Measure; add samples and figures.

        :param ways: the ways to claim, STORE or PLAIN
        """
        parameters = self._parameters
        with contextlib.ExitStack() as stack:
            address = stack.enter_context(self._kind.served())
            self._store = stack.enter_context(base.opened(address)).claims
            self._store.sync()
            hosts = fill(self._store, parameters['hosts'], ROOM)
            self._kind.settle(address)
            given = self._name, address
            self._observer = stack.enter_context(calls.child(observe, given))
            clients = stack.enter_context(calls.children(
                serve, given, max(parameters['clients'])))
            for number in parameters['clients']:
                self._run(clients[:number], {
                    'spread': hosts, 'hot': hosts[:parameters['hot']]},
                    repeat, ways)

    def _run(self, clients, patterns, repeat, ways):
        for pattern, hosts in patterns.items():
            if not hosts:
                continue
            name = (f'{pattern}, {len(clients)} client'
                    + 's' * (len(clients) > 1))
            self._rounds(clients, name, hosts, repeat, ways)
            if STORE in ways and 'batch' not in self._parameters:
                self._last(clients, name, min(len(hosts), LAST_HOSTS))

    def _rounds(self, clients, name, hosts, repeat, ways):
        """Run rounds in which the ways to claim alternate."""
        names = {STORE: name, PLAIN: f'{name}, {PLAIN}'}
        times = {way: [] for way in ways}
        wasted = 0
        # Round 0 is not timed: clients connect and statements are planned.
        for number in range(repeat + 1):
            for way in ways if number % 2 else reversed(ways):
                spent, each, lost = self._round(clients, way, hosts, number)
                if not number:
                    continue
                self.samples.setdefault(names[way], []).append(spent)
                times[way] += each
                wasted += lost if way == STORE else 0
        if STORE in ways:
            self.figures[f'{name}, wasted'] = wasted
            self.figures |= {
                f'{name}, p{percent} ms':
                1000 * percentile(times[STORE], percent)
                for percent in (50, 99)}
        if len(ways) > 1:
            ours, plain = (statistics.median(self.samples[names[way]])
                           for way in ways)
            self.figures[f'{name}, of plain'] = plain / ours

    def _round(self, clients, way, hosts, seed):
        """Return seconds per claim, the seconds of each batch, and losses."""
        size = self._parameters.get('batch', 1)
        count = max(self._parameters['claims'] // size // len(clients), 1)
        for number, client in enumerate(clients):
            chance = random.Random(seed * len(clients) + number)
            client.send((way, [chance.choices(hosts, k=size)
                               for _ in range(count)]))
        starts, ends, each, lost = zip(*receive(clients))
        for client in clients:
            client.send('release')
        receive(clients)
        return ((max(ends) - min(starts)) / (count * size * len(clients)),
                [time for times in each for time in times], sum(lost))

    def _last(self, clients, name, count):
        """Let clients claim the last places of new hosts; add figures."""
        hosts = fill(self._store, count, PLACES)
        for host in hosts:
            self._store.claim([of(base.PlainClaim(str(uuid.uuid4()), host, {
                each: TAKEN * amount for each, amount in DEMAND.items()}))])
        self._observer.send('look')
        for client in clients:
            client.send(('last', hosts))
        every, lost = zip(*receive(clients))
        self._observer.send('stop')
        [seen] = receive([self._observer])
        every = sum(every, [])
        places = dict.fromkeys(hosts, PLACES - TAKEN)
        self.figures |= {
            f'{name}, last places, wasted': sum(lost),
            f'{name}, last places, refused although it fitted':
            outcomes.wrongly_refused(every, places),
            f'{name}, last places, oversold':
            max(seen, outcomes.oversold(every, places))}


def receive(clients):
    """Return the answer of each client.

    :raises RuntimeError: a client has failed
    """
    answers = [client.recv() for client in clients]
    for each in answers:
        if isinstance(each, str):
            raise RuntimeError(each)
    return answers


def fill(store, count, places):
    """Create hosts with this number of places; return their uuids."""
    hosts = [str(uuid.uuid4()) for _ in range(count)]
    for host in hosts:
        store.set_inventory(host, {
            name: claims.Inventory(total=places * amount)
            for name, amount in DEMAND.items()})
    return hosts


def of(plain):
    """Return the store's claim for a plain claim."""
    return claims.Claim(plain.consumer, plain.provider, plain.resources,
                        project_id=base.PROJECT, user_id=base.USER)


def observe(pipe, given):
    """Look for oversold units between two messages; send the worst state."""
    name, address = given
    with stores.kind(name).observer(address) as oversold:
        pipe.send('ready')
        with contextlib.suppress(EOFError):
            while True:
                pipe.recv()
                worst = oversold()
                while not pipe.poll(INTERVAL_S):
                    worst = max(worst, oversold())
                pipe.recv()
                pipe.send(max(worst, oversold()))


def serve(pipe, given):
    """Claim on request; release on the next message."""
    name, address = given
    kind = stores.kind(name)
    with base.opened(address) as parts:
        client = Client(kind.counting(parts), kind.plain(address))
        pipe.send('ready')
        with contextlib.suppress(EOFError):
            while True:
                way, targets = pipe.recv()
                if way == 'last':
                    pipe.send(client.claim_last(targets))
                    continue
                pipe.send(client.claim(way, targets))
                pipe.recv()
                pipe.send(client.release())
        client.plain.close()


class Client:
    """A client that claims in both ways."""

    def __init__(self, store, plain):
        self.store, self.plain = store, plain
        self._taken, self._way = [], STORE

    def claim(self, way, batches):
        """Return the start, the end, the seconds of each batch, and losses."""
        self._way = way
        self._taken = [
            [base.PlainClaim(str(uuid.uuid4()), host, DEMAND)
             for host in hosts]
            for hosts in batches]
        claim = self.plain.claim if way == PLAIN else self.store.claim
        given = self._taken if way == PLAIN else [
            list(map(of, takes)) for takes in self._taken]
        before = self._lost()
        times = [time.perf_counter()]
        for each in given:
            claim(each)
            times.append(time.perf_counter())
        return (times[0], times[-1],
                [end - start for start, end in zip(times, times[1:])],
                self._lost() - before)

    def claim_last(self, hosts):
        """Claim until all hosts refuse; return outcomes and losses."""
        open_hosts, found, before = list(hosts), [], self.store.lost()
        while open_hosts:
            host = random.choice(open_hosts)
            claim = of(base.PlainClaim(str(uuid.uuid4()), host, DEMAND))
            start = time.perf_counter()
            try:
                self.store.claim([claim])
            except exception.ClaimRefused:
                open_hosts.remove(host)
            found.append(outcomes.Outcome(
                start, time.perf_counter(), host, host in open_hosts))
        return found, self.store.lost() - before

    def release(self):
        takes = sum(self._taken, [])
        if self._way == PLAIN:
            self.plain.release(takes)
        else:
            self.store.release([take.consumer for take in takes])

    def _lost(self):
        return (self.plain.lost if self._way == PLAIN
                else self.store.lost())
