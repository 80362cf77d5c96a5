# SPDX-License-Identifier: Apache-2.0
"""Schedulers in separate processes that compete for the same hosts.

Each has the driver of a deployment with its own host table and its periodic
tasks. The API and cell databases are files, which are only read. The claims
are in the claim store.
"""

from concurrent import futures
import contextlib
import threading
import time
import uuid

import calls
from claims import observe
from claims import receive
import host_databases
import outcomes
import stores
from stores import base

from cellsched.claims import base as claims
from cellsched.conf import loader
from cellsched import context
from cellsched import exception
from cellsched.scheduler.drivers import filter_scheduler
from cellsched.testing import builders
from cellsched.wiring import services

#: The flavor of each server, and its resources.
FLAVOR = {'vcpus': 1, 'memory_mb': 512, 'root_gb': 1}
DEMAND = {'VCPU': 1, 'MEMORY_MB': 512, 'DISK_GB': 1}

#: Servers that fit on a host, and the number of them at the start.
PLACES, TAKEN = 256, 230

CELLS = 2

#: No agent reports; hosts must stay up for as long as the benchmark takes.
OPTIONS = '[DEFAULT]\nservice_down_time = 1000000\n'


@contextlib.contextmanager
def running(name, size):
    """Yield a function that lets schedulers fill the hosts, and a version.

    The function returns a :class:`outcomes.Round`. After it the hosts are in
    their initial state.

    :param name: the name of the store
    :param size: the numbers of schedulers, clients, hosts and rounds
    """
    kind = stores.kind(name)
    with contextlib.ExitStack() as stack:
        address = stack.enter_context(kind.served())
        parts = stack.enter_context(host_databases.parts(
            size.hosts, CELLS, options=OPTIONS + address['options']))
        for host in range(size.hosts):
            parts.claims.claim([claims.Claim(
                str(uuid.uuid4()), host_databases.node(host),
                {each: TAKEN * amount for each, amount in DEMAND.items()})])
        kind.settle(address)
        files = [str(each) for each in parts.conf.config_file]
        observer = stack.enter_context(
            calls.child(observe, (name, address)))
        schedulers = stack.enter_context(calls.children(
            serve, (name, files), size.schedulers))
        places = {host_databases.node(host): PLACES - TAKEN
                  for host in range(size.hosts)}
        yield (lambda: fill_up(
            parts.claims, schedulers, observer, size.clients, places),
            kind.version(address))


def fill_up(store, schedulers, observer, clients, places, fields=FLAVOR):
    """Let schedulers claim the last places; return the outcomes.

    :param places: the number of free places by provider
    :param fields: those of the request for each server
    """
    observer.send('look')
    for number, scheduler in enumerate(schedulers):
        scheduler.send((len(range(number, clients, len(schedulers))), fields))
    every, conflicts, gave_up = zip(*receive(schedulers))
    observer.send('stop')
    [seen] = receive([observer])
    every = sum(every, [])
    winners = [each.consumer for each in every if each.taken]
    held = store.claims_of(winners)
    wrong = [each for each in every if each.taken and [
        claim.provider for claim in held.get(each.consumer, ())
    ] != [each.provider]]
    if wrong:
        raise RuntimeError(f'{len(wrong)} servers have other claims than '
                           'their clients received')
    store.release(winners)
    return outcomes.Round(
        every, places, sum(conflicts), seen, sum(gave_up))


def serve(pipe, given):
    """Let clients request servers from a scheduler until they are refused."""
    name, files = given
    parts = services.Components(loader.load(files=files, dirs=[]))
    parts.claims = stores.kind(name).counting(parts)
    driver = filter_scheduler.FilterScheduler(parts.conf, parts)
    stopped = threading.Event()
    tasks = [threading.Thread(target=repeat, args=(stopped, *task))
             for task in driver.periodic()]
    driver.loader.refresh(context.admin())
    for task in tasks:
        task.start()
    pipe.send('ready')
    try:
        answer(pipe, driver, parts.claims)
    finally:
        # Stop the tasks after an error too.
        stopped.set()
        for task in tasks:
            task.join()
        parts.close()


def answer(pipe, driver, store):
    """Run the clients of each message; send their outcomes.

    A message has the number of clients and the fields of their requests.
    """
    with contextlib.suppress(EOFError):
        while True:
            clients, fields = pipe.recv()
            driver.loader.refresh(context.admin())
            before = store.unsuccessful()
            with futures.ThreadPoolExecutor(clients) as pool:
                found, gave_up = zip(*pool.map(
                    lambda _: ask_until_refused(driver, fields),
                    range(clients)))
            pipe.send((sum(found, []), store.unsuccessful() - before,
                       sum(gave_up)))


def repeat(stopped, task, interval_s):
    while not stopped.wait(interval_s):
        task()


def ask_until_refused(driver, fields):
    """Request one server after the other; return the outcomes.

    If the store is too busy, the client requests the same server again.

    :returns: the outcomes, and how often the store was too busy
    """
    found, gave_up = [], 0
    while not found or found[-1].taken:
        consumer = str(uuid.uuid4())
        start, provider, answered = time.perf_counter(), None, False
        while not answered:
            try:
                provider, answered = ask(driver, consumer, fields), True
            except exception.ClaimStoreFailed:
                raise
            except (exception.DatabaseUnreachable, exception.ServiceBusy):
                gave_up += 1
        found.append(outcomes.Outcome(
            start, time.perf_counter(), provider, provider is not None,
            consumer))
    return found, gave_up


def ask(driver, consumer, fields=FLAVOR):
    """Return the provider of one server, or None."""
    request = builders.request(**fields)
    request.instance_uuid = consumer
    try:
        [[chosen, *_]] = driver.select_destinations(
            context.member(base.USER, base.PROJECT), request, [consumer],
            alternates=2)
    except exception.NoValidHost:
        return None
    return chosen.compute_node_uuid
