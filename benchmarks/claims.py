# SPDX-License-Identifier: Apache-2.0
"""Claims of hosts by many clients, beside the same writes without a store.

Parameters: ``store``, one of ``stores``; ``clients``, a list of how many there
are; ``claims`` of all clients together in a round, each of a consumer of its
own; ``hosts``, of which each client takes any (spread), and ``hot``, how many
of them all clients want (hot). With ``batch`` so many claims go together.
``beside`` names another store; what is plain there is timed in the same run,
by the most clients and with ``beside_parameters`` in place of the others.

Clients are processes, and share nothing but the server, which waits for its
disk. A claim takes VCPU, MEMORY_MB and DISK_GB of a host, as that of a plain
instance does. The store and what is plain take turns, with the same hosts. A
sample is the time of a round divided by its claims; what was taken is given
back after it, which is no part of it. For each number of clients, spread and
hot, it is told how many plain rates the store's is, what one claim took, and
how many attempts were lost to others and made again (wasted).

In the end hosts are filled to 90 % and the last places are claimed, until all
clients are refused everywhere, while an observer looks for hosts on which more
is taken than there is. Told are refusals although it fitted, units oversold
in any state that was seen or by what clients were told, and wasted attempts.
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

#: What a claim takes.
DEMAND = {'VCPU': 2, 'MEMORY_MB': 4096, 'DISK_GB': 20}

#: Places for claims that a host has for all rounds.
ROOM = 10 ** 5

#: Places of a host in the end, and how many of them are taken before.
PLACES, TAKEN = 200, 180

#: Of so many hosts the last places are wanted, where claims are spread.
LAST_HOSTS = 16

#: Seconds between two looks at what is taken.
INTERVAL_S = 0.02

STORE, PLAIN = 'store', 'plain'


def run(parameters, repeat):
    """Return samples of the store and of what is plain, and figures."""
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
    """What is timed of one store, and what else is told of it."""

    def __init__(self, name, parameters):
        self.samples, self.figures = {}, {}
        self._name, self._parameters = name, parameters
        self._kind = stores.kind(name)

    def run(self, repeat, ways):
        """Fill in samples and figures.

        :param ways: to claim
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
        """Have clients claim in turns by the store and plainly."""
        names = {STORE: name, PLAIN: f'{name}, {PLAIN}'}
        times = {way: [] for way in ways}
        wasted = 0
        # In the first round everybody connects, and statements are planned.
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
        """Return the seconds of a claim, those of each batch, and losses."""
        size = self._parameters.get('batch', 1)
        count = max(self._parameters['claims'] // size // len(clients), 1)
        for number, client in enumerate(clients):
            chance = random.Random(seed * len(clients) + number)
            client.send((way, [chance.choices(hosts, k=size)
                               for _ in range(count)]))
        starts, ends, each, lost = zip(*receive(clients))
        for client in clients:
            client.send('give back')
        receive(clients)
        return ((max(ends) - min(starts)) / (count * size * len(clients)),
                [time for times in each for time in times], sum(lost))

    def _last(self, clients, name, count):
        """Have clients claim the last places of new hosts."""
        hosts = fill(self._store, count, PLACES)
        for host in hosts:
            self._store.claim([of(base.Take(str(uuid.uuid4()), host, {
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
    """Return what each says.

    :raises RuntimeError: one has failed
    """
    said = [client.recv() for client in clients]
    for each in said:
        if isinstance(each, str):
            raise RuntimeError(each)
    return said


def fill(store, count, places):
    """Make hosts with so many places, and return them."""
    hosts = [str(uuid.uuid4()) for _ in range(count)]
    for host in hosts:
        store.set_inventory(host, {
            name: claims.Inventory(total=places * amount)
            for name, amount in DEMAND.items()})
    return hosts


def of(take):
    """Return the claim of it that a store is asked for."""
    return claims.Claim(take.consumer, take.provider, take.resources,
                        project_id=base.PROJECT, user_id=base.USER)


def observe(pipe, given):
    """Look for what is oversold, from when it is told to until it is told."""
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
    """Claim what is asked for, and give it back when that is asked for."""
    name, address = given
    kind = stores.kind(name)
    with base.opened(address) as parts:
        client = Client(kind.counting(parts), kind.plain(address))
        pipe.send('ready')
        with contextlib.suppress(EOFError):
            while True:
                way, wanted = pipe.recv()
                if way == 'last':
                    pipe.send(client.take_last(wanted))
                    continue
                pipe.send(client.take(way, wanted))
                pipe.recv()
                pipe.send(client.give_back())
        client.plain.close()


class Client:
    """A client that claims in either way."""

    def __init__(self, store, plain):
        self.store, self.plain = store, plain
        self._taken, self._way = [], STORE

    def take(self, way, batches):
        """Return when it began and ended, what each took, and losses."""
        self._way = way
        self._taken = [
            [base.Take(str(uuid.uuid4()), host, DEMAND) for host in hosts]
            for hosts in batches]
        take = self.plain.take if way == PLAIN else self.store.claim
        given = self._taken if way == PLAIN else [
            list(map(of, takes)) for takes in self._taken]
        before = self._lost()
        times = [time.perf_counter()]
        for each in given:
            take(each)
            times.append(time.perf_counter())
        return (times[0], times[-1],
                [end - start for start, end in zip(times, times[1:])],
                self._lost() - before)

    def take_last(self, hosts):
        """Claim of hosts until all refuse; return outcomes, and losses."""
        left, found, before = list(hosts), [], self.store.lost()
        while left:
            host = random.choice(left)
            claim = of(base.Take(str(uuid.uuid4()), host, DEMAND))
            start = time.perf_counter()
            try:
                self.store.claim([claim])
            except exception.ClaimRefused:
                left.remove(host)
            found.append(outcomes.Outcome(
                start, time.perf_counter(), host, host in left))
        return found, self.store.lost() - before

    def give_back(self):
        takes = sum(self._taken, [])
        if self._way == PLAIN:
            self.plain.give_back(takes)
        else:
            self.store.release([take.consumer for take in takes])

    def _lost(self):
        return (self.plain.lost if self._way == PLAIN
                else self.store.lost())
